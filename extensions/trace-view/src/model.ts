// A widget's model where there is no kernel: traits that stay as they were saved, but for what is selected.

type Callback = (...given: unknown[]) => void;

/** What a view asks of its model; the part of anywidget's interface that ours use. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  on(event: string, callback: Callback): void;
  off(event: string, callback: Callback): void;
  send(message: object): void;
  save_changes(): void;
}

/** An ES module as anywidget mounts it; what `render` returns takes the view down. */
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

  /** Messages to Python ask for a change; a saved plan has nobody to make it. */
  send(): void {}

  save_changes(): void {}

  /** What a message from Python would do. */
  emit(event: string, ...given: unknown[]): void {
    for (const callback of this.callbacks.get(event) ?? []) callback(...given);
  }
}
