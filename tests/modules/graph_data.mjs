// A small graph in the form in which Python sends graphs.

/** Return a table as Python sends it. `columns` are lists of 32-bit integers by name, or of floats if the name ends in `!`. */
function table(columns) {
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => {
    const float = name.endsWith("!"), list = float ? Float32Array.from(values) : Int32Array.from(values);
    return [name.replace("!", ""), [float ? "f" : "i", new DataView(list.buffer)]];
  }));
}

/** Return two forward and two backward statements, an arc across, an arc in the forward, a mark with an alias, and an edge. */
export function data() {
  const strings = ["t:a", "t:b", "t:c", "t:d", "saved:a", "remat:b", "copies:b", "copies:b2", "keep", "", "layers.0", "layers.0.attn", "layers.0.mlp"];
  return {
    strings, sections: [], height: 200,
    tables: {
      node: table({ id: [0, 1, 2, 3], side: [0, 0, 1, 1], flags: [0, 0, 0, 0], "y!": [34, 60, 34, 60], "height!": [17, 37, 17, 17] }),
      arc: table({ id: [4, 5], source: [0, 0], target: [2, 1], side: [0, 0], shape: [0, 1], style: [0, 1], "y0!": [42, 46], "y1!": [42, 70] }),
      mark: table({ id: [6], node: [1], text: [8], state: [0] }),
      alias: table({ id: [7], arc: [-1], mark: [0] }),
      run: table({ fusion: [7, 8, 7], side: [0, 0, 0], "y!": [34, 60, 80], "height!": [16, 10, 8] }),
      bar: table({ side: [], issue: [], wait: [] }),
      edge: table({ source: [0], target: [1] }),
      module: table({ scope: [10, 11, 12], depth: [0, 1, 1], "y!": [30, 30, 60], "height!": [70, 20, 40] }),
    },
  };
}
