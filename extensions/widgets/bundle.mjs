// Bundles each widget's modules into one ES module without imports: `node bundle.mjs SOURCE_FOLDER BUNDLE_FOLDER`.
// Names and statements stay readable. Comments are removed, because a notebook stores the module of each widget that it shows.

import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, resolve } from "node:path";

const { rspack } = createRequire(new URL("../trace-view/package.json", import.meta.url))("@rspack/core");
const [page, built] = process.argv.slice(2).map((path) => resolve(path));

const PARTS = ["compare_panel.js", "export_box.js"]; // parts of other widgets, not widgets
const widgets = { graph: "graph/graph_view.js", plot: "plot.js", split: "split.js" };
for (const folder of ["controls", "tabs"]) {
  const names = readdirSync(join(page, folder)).filter((name) => name.endsWith(".js") && !PARTS.includes(name));
  for (const name of names) widgets[basename(name, ".js")] = `${folder}/${name}`;
}

/** Returns the bundler's configuration for one widget. `library` is set if other code imports the bundle. */
const config = (name, source, library) => ({
  name, mode: "production", target: ["web", "es2022"], devtool: false, context: page,
  entry: { [name]: join(page, source) },
  output: { path: built, filename: "[name].js", module: true, chunkFormat: "module", ...library },
  optimization: {
    minimizer: [new rspack.SwcJsMinimizerRspackPlugin({
      extractComments: false,
      minimizerOptions: {
        minify: false, module: true, mangle: false, ecma: 2022,
        compress: { defaults: false, unused: true, dead_code: true },
        format: { beautify: true, comments: false, indent_level: 1 },
      },
    })],
  },
  performance: false,
});
const configs = Object.entries(widgets).map(([name, source]) => config(name, source, { library: { type: "modern-module" } }));
configs.push(config("report_page", "report_page.js", {}));

rmSync(built, { recursive: true, force: true });
mkdirSync(built);
rspack(configs, (error, stats) => {
  if (!error && !stats.hasErrors()) return;
  console.error(error ?? stats.toString({ all: false, errors: true }));
  process.exitCode = 1;
});
