// A plan: the algorithm tree to open and close, each level's tile inside the one above, limits as bars.

class TreeView extends View {
  static has = (doc) => Boolean(doc.tree);

  build() {
    const { tree, resources } = this.doc;
    this.branches = [];
    const nested = tree.nodes.reduceRight((inside, node, at) => this.branch(node, at, inside), null);
    const all = (open) => () => this.branches.forEach((one) => { one.open = open; });
    const buttons = h("div", { class: "bar" }, button("Open all", all(true)), button("Close all", all(false)));
    const said = tree.feasible ? `${tree.policy} tiles, bound by ${tree.binding}` : `does not fit: ${tree.remedy}`;
    fill(this.node, h("div", { class: "two" },
      h("div", {}, buttons, h("p", { class: tree.feasible ? "" : "bad" }, said), nested),
      h("div", {}, h("h2", {}, "Tiles, each in the one above"), this.pictures(), h("h2", {}, "Limits"), this.bars(this.planned(tree)),
        (resources || []).map(({ kernel, rows }) => [h("h2", {}, `As linked: ${kernel}`), this.bars(this.linked(rows))]))));
  }

  branch(node, at, inside) {
    const [[title, ...lines], ...more] = node.sections;
    const made = h("details", { open: true, class: "branch", "data-level": at }, h("summary", {}, h("b", {}, title), node.children ? h("span", { class: "dim" }, ` ${number(node.children)} below`) : null), [...lines, ...more.flat()].map((line) => h("p", { class: "text" }, line)), inside);
    this.branches.push(made);
    return made;
  }

  /** For each operand its tiles from the device down: a picture a level, cut as the next one cuts it. */
  pictures() {
    const nodes = this.doc.tree.nodes, operands = nodes[0].views.map((view) => view.operand);
    const of = (node, name) => node.views.find((view) => view.operand === name)?.extents.slice(-2).map(([low, high, tile]) => Math.min(tile, high - low) || tile);
    return operands.map((name, which) => {
      const steps = nodes.map((node) => [node.level, of(node, name)]).filter(([, shape]) => shape);
      const parts = [], side = 138;
      steps.forEach(([level, [rows, columns]], at) => {
        const x0 = 8 + at * 184, scale = side / Math.max(rows, columns), w = Math.max(4, columns * scale), hh = Math.max(4, rows * scale), y0 = 24;
        const next = steps[at + 1]?.[1], tone = css(cividis(0.2 + 0.22 * at));
        parts.push(s("text", { x: x0, y: 14, class: "start" }, `${level}  ${rows} × ${columns}`), s("rect", { x: x0, y: y0, width: w, height: hh, class: "tile", fill: at ? tone : "none" }));
        if (!next) return;
        const tw = Math.min(w, next[1] * scale), th = Math.min(hh, next[0] * scale);
        for (let x = tw; tw >= 3 && x < w - 0.5; x += tw) parts.push(s("path", { class: "cut", d: `M${x0 + x} ${y0}v${hh}` }));
        for (let y = th; th >= 3 && y < hh - 0.5; y += th) parts.push(s("path", { class: "cut", d: `M${x0} ${y0 + y}h${w}` }));
        const inner = css(cividis(0.2 + 0.22 * (at + 1))), to = 8 + (at + 1) * 184, scale2 = side / Math.max(...next), h2 = Math.max(4, next[0] * scale2);
        parts.push(s("rect", { x: x0, y: y0, width: Math.max(2, tw), height: Math.max(2, th), fill: inner, class: "tile" }));
        parts.push(s("path", { class: "zoom", d: `M${x0 + Math.max(2, tw)} ${y0}L${to} ${y0}M${x0 + Math.max(2, tw)} ${y0 + Math.max(2, th)}L${to} ${y0 + h2}` }));
      });
      return h("figure", { class: "tiles" }, h("figcaption", {}, h("b", {}, name), which ? "" : "  rows × columns; the first tile of each level is filled"), s("svg", { class: "grid", width: 8 + 184 * steps.length, height: 174, "aria-label": `tiles of ${name}` }, parts));
    });
  }

  /** Limits as bars. rows: { level, name, binding, share, bad, said, left, note, remedy } */
  bars(rows) {
    return h("div", { class: "bars" }, rows.map((row) => [h("span", { class: "dim" }, row.level), h("span", {}, row.name, row.binding ? h("span", { class: "tag note" }, "binds") : null), this.gauge(row.share, row.bad, row.binding),
      h("span", { class: "n", title: row.note }, `${row.said} ${row.unit}`), h("span", { class: `n${row.bad ? " bad" : " dim"}`, title: row.remedy }, row.left)]));
  }

  gauge(share, bad, binding) {
    return h("span", { class: `gauge${bad ? " bad" : share > 1 ? " over" : ""}${binding ? " binds" : ""}`, role: "meter", "aria-valuenow": Math.round(100 * share), "aria-valuemin": 0, "aria-valuemax": 100, title: `${number(100 * share)} %` }, h("i", { style: { width: `${100 * clamp(share, 0, 1)}%` } }));
  }

  left({ slack, floor }) { return `${number(Math.abs(slack))} ${slack < 0 ? (floor ? "below" : "over") : floor ? "above" : "left"}`; }

  /** Limits of a plan: what it uses of each. */
  planned({ nodes }) {
    return nodes.flatMap((node) => node.constraints.map((row) => ({ ...row, level: node.level, share: row.limit ? row.use / row.limit : 0, bad: row.hard && !row.satisfied, said: `${number(row.use)} of ${number(row.limit)}`, left: this.left(row) })));
  }

  /** Limits of a linked kernel: what the plan derived and what the code takes. */
  linked(rows) {
    return rows.map((row) => ({ ...row, level: row.node, share: row.limit ? Math.max(row.derived, row.actual ?? 0) / row.limit : 0, bad: row.hard && row.slack < 0,
      said: `${number(row.derived)}${row.actual !== null ? `, takes ${number(row.actual)}` : ""} of ${row.floor ? "at least " : ""}${number(row.limit)}`, left: this.left(row) }));
  }

  update() { if (!this.node.firstChild) this.build(); }
}
