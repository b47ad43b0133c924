// The extension: an output renderer and a file viewer in one. Applications that are built from JupyterLab's packages can load it.

import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Widget } from "@lumino/widgets";
import appStyle from "!!css-loader?{\"exportType\":\"string\"}!../../../workbench/ui/frontend/style.css";
import ownStyle from "!!css-loader?{\"exportType\":\"string\"}!../style/saved.css";
import { MIME_TYPE, planOf } from "./plan";
import { draw } from "./view";

// The app brings its own style. Limit this one to saved plans, because the app may be of another version.
const style = document.createElement("style"), rules = `${appStyle}\n${ownStyle}`;
style.textContent = "CSSScopeRule" in window ? `@scope (.wb-saved) {\n${rules}\n}` : rules;
document.head.append(style);

class SavedPlan extends Widget implements IRenderMime.IRenderer {
  private end = () => {};
  private shown = "";

  constructor() {
    super();
    this.addClass("wb-app");
    this.addClass("wb-saved");
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    // JupyterLab also calls this if nothing has changed, for example after a change of theme. Keep selection, zoom and scroll position.
    const data = model.data[MIME_TYPE], text = JSON.stringify(data) ?? "";
    if (text === this.shown) return;
    this.shown = text;
    this.end();
    this.end = () => {};
    try {
      this.end = draw(planOf(data), this.node);
    } catch (error) {
      this.node.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  dispose(): void {
    this.end();
    super.dispose();
  }
}

const extension: IRenderMime.IExtension = {
  id: "thunder-workbench-trace-view:plan",
  description: "Draws saved plans of Thunder Workbench.",
  rendererFactory: { safe: true, mimeTypes: [MIME_TYPE], createRenderer: () => new SavedPlan() },
  rank: 0,
  dataType: "json",
  fileTypes: [
    { name: "thunder-plan", displayName: "Thunder plan", mimeTypes: [MIME_TYPE], extensions: [".plan.json"] },
  ],
  documentWidgetFactoryOptions: {
    name: "Thunder plan",
    primaryFileType: "thunder-plan",
    fileTypes: ["thunder-plan"],
    defaultFor: ["thunder-plan"],
  },
};

export default extension;
