// A widget's model without a kernel. Traits keep their saved values, except for traits that the page itself sets, such as the selection.

type Callback = (...given: unknown[]) => void;

/** The part of anywidget's model interface that the workbench's views use. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  on(event: string, callback: Callback): void;
  off(event: string, callback: Callback): void;
  send(message: object): void;
  save_changes(): void;
}

/** A widget's ES module, as anywidget loads it. `render` returns a function that removes the view. */
export interface Module {
  render(context: { model: Model; el: HTMLElement }): (() => void) | void;
}

export class SavedModel implements Model {
  private readonly callbacks = new Map<string, Set<Callback>>();

  constructor(private readonly traits: Record<string, unknown>) {}

  get(name: string): unknown {
    return this.traits[name];
  }

  set(name: string, value: unknown): void {
    if (this.traits[name] === value) return;
    this.traits[name] = value;
    this.emit(`change:${name}`);
  }

  on(event: string, callback: Callback): void {
    const there = this.callbacks.get(event) ?? new Set();
    this.callbacks.set(event, there.add(callback));
  }

  off(event: string, callback: Callback): void {
    this.callbacks.get(event)?.delete(callback);
  }

  /** Ignores messages to Python: they request changes, and a saved plan cannot change. */
  send(): void {}

  save_changes(): void {}

  /** Calls the listeners of an event, as a message from Python would do. */
  emit(event: string, ...given: unknown[]): void {
    for (const callback of this.callbacks.get(event) ?? []) callback(...given);
  }
}
