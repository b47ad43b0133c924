// The graph's search: which statements match a query, and in which order. Exact matches come first, as in an editor.

/**
 * @typedef {{id: string, names: string[], scope: string, symbol: string, text: string, order: number}} Entry
 *   A statement that the search can find. A query that equals one of `names` is an exact match. Texts are in lower case.
 */

const NAME = 0, PLACE = 1, BEGINS = 2, PART = 3, TEXT = 4; // ranks of a match, the best first

/** Return the rank of an entry for a query in lower case; -1 if the entry does not match. */
export function rankOf(/** @type {Entry} */ { names, scope, symbol, text }, /** @type {string} */ query) {
  if (names.includes(query)) return NAME;
  if (symbol === query || `.${scope}.`.includes(`.${query}.`)) return PLACE;
  if (names.some((name) => name.startsWith(query))) return BEGINS;
  if (names.some((name) => name.includes(query))) return PART;
  return text.includes(query) ? TEXT : -1;
}

/** Return the matching entries, the best first. Entries of equal rank are in order from top to bottom. @returns {Entry[]} */
export function search(/** @type {Entry[]} */ entries, /** @type {string} */ asked) {
  const query = asked.trim().toLowerCase();
  if (!query) return [];
  // If the query as a whole does not match, an entry must match each word, such as a layer and a symbol. Its rank is that of its worst word.
  const words = query.split(/\s+/u);
  const rank = (entry) => {
    const whole = rankOf(entry, query), each = whole >= 0 ? [whole] : words.map((word) => rankOf(entry, word));
    return each.includes(-1) ? -1 : Math.max(...each);
  };
  const found = entries.map((entry) => ({ entry, rank: rank(entry) })).filter(({ rank }) => rank >= 0);
  return found.sort((a, b) => a.rank - b.rank || a.entry.order - b.entry.order).map(({ entry }) => entry);
}

/**
 * Return all entries: the nodes of a scene and, from the program's `index` (`search_index.py`), the statements that the scene does not show.
 * @param {any} scene @param {any} [index] @returns {Entry[]}
 */
export function entriesOf(scene, index = null) {
  const { node, strings } = scene, entries = /** @type {Map<string, Entry>} */ (new Map());
  const order = Array.from(node.id.keys()).sort((a, b) => node.y[a] - node.y[b] || node.side[a] - node.side[b]);
  const after = index ? index.rows.id.length : 0; // nodes that the index lacks come last
  for (const [place, i] of order.entries()) {
    const id = strings[node.id[i]], [name, full, detail, about] = [node.name, node.full, node.detail, node.about].map((column) => strings[column[i]]);
    const head = about.split("\n")[0], scope = head.includes("  ") ? head.split("  ")[0] : "";
    entries.set(id, {
      id, names: [name.replace(/^[▸▾] /u, ""), full, id.slice(2), ...detail.split(/[\s,;]+/u)].map((text) => text.toLowerCase()).filter(Boolean),
      scope: scope.toLowerCase(), symbol: "", text: `${name} ${full} ${detail} ${about}`.toLowerCase(), order: after + place,
    });
  }
  if (!index) return Array.from(entries.values());
  const { rows } = index;
  for (let i = 0; i < rows.id.length; i++) {
    const id = rows.id[i], [scope, place, symbol] = index.origins[rows.origin[i]] ?? ["", "", ""];
    const names = [index.strings[rows.name[i]], index.strings[rows.full[i]], ...rows.values[i].split(" ")].map((text) => text.toLowerCase()).filter(Boolean);
    const there = entries.get(id), more = `${names.join(" ")} ${scope} ${place} ${symbol}`.toLowerCase();
    if (there) Object.assign(there, { names: [...there.names, ...names], symbol: symbol.toLowerCase(), text: `${there.text} ${more}`, order: i });
    else entries.set(id, { id, names, scope: scope.toLowerCase(), symbol: symbol.toLowerCase(), text: more, order: i });
  }
  return Array.from(entries.values());
}
