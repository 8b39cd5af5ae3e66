// Two runs of the same kernels side by side: counters, and the instructions that differ.

class CompareView extends View {
  static has = (doc) => Boolean(doc.against);

  update() {
    const { against } = this.doc, mine = this.kernel, other = against.kernels[state.kernel];
    const cells = (a, b) => {
      const sign = a > b ? "+" : "−", by = Math.abs(a - b), share = b ? ` (${sign}${number((100 * by) / b)} %)` : "";
      return [a, b, h("span", { class: by ? "differs" : "dim" }, by ? sign + number(by) + share : "same")];
    };
    const names = [...new Set([...Object.keys(mine.counters), ...Object.keys(other.counters)])];
    const counters = names.map((name) => [name, mine.counters[name] ?? 0, other.counters[name] ?? 0]);
    const c = mine.code.columns, rows = [];
    for (const [key, head] of COLUMNS) for (let at = 0; at < c.text.length; at++) {
      const a = c[key]?.[at] ?? 0, b = other.columns[key]?.[at] ?? 0;
      if (a !== b) rows.push([Math.abs(a - b), [link(hex(c.offset[at]), { view: "source", row: at }), h("code", {}, c.text[at]), head, ...cells(a, b)]]);
    }
    rows.sort((a, b) => b[0] - a[0]);
    fill(this.node, h("p", {}, "This run beside ", h("b", {}, against.title), h("code", {}, ` ${against.command}`)), table(["counter", "this", "other", "difference"], counters.map(([name, a, b]) => [name, ...cells(a, b)])),
      h("h2", {}, rows.length ? `${number(rows.length)} counts of instructions differ${rows.length > 300 ? "; the 300 that differ most:" : ""}` : "Every instruction counts the same"),
      rows.length ? table(["at", "instruction", "column", "this", "other", "difference"], rows.slice(0, 300).map(([, row]) => row)) : null);
  }
}
