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
    if (other.pairs) return this.beside(mine, other, counters, cells);
    const c = mine.code.columns, rows = [];
    for (const [key, head] of COLUMNS) for (let at = 0; at < c.text.length; at++) {
      const a = c[key]?.[at] ?? 0, b = other.columns[key]?.[at] ?? 0;
      if (a !== b) rows.push([Math.abs(a - b), [link(addressOf(c, at), { view: "source", row: at }), h("code", {}, c.text[at]), head, ...cells(a, b)]]);
    }
    rows.sort((a, b) => b[0] - a[0]);
    fill(this.node, h("p", {}, "This run beside ", h("b", {}, against.title), h("code", {}, ` ${against.command}`)), table(["counter", "this", "other", "difference"], counters.map(([name, a, b]) => [name, ...cells(a, b)])),
      h("h2", {}, rows.length ? `${number(rows.length)} counts of instructions differ${rows.length > 300 ? "; the 300 that differ most:" : ""}` : "Every instruction counts the same"),
      rows.length ? table(["at", "instruction", "column", "this", "other", "difference"], rows.slice(0, 300).map(([, row]) => row)) : null);
  }

  /** One kernel compiled twice: its instructions side by side, with what differs marked. */
  beside(mine, other, counters, cells) {
    const here = mine.code.columns, there = other.columns, seen = { same: 0, changed: 0, here: 0, there: 0 };
    const kind = ([a, b]) => (a < 0 ? "there" : b < 0 ? "here" : here.text[a] === there.text[b] ? "same" : "changed");
    other.pairs.forEach((pair) => seen[kind(pair)]++);
    const words = (text, against) => { const known = against?.split(/[ ,]+/) ?? []; return text.split(/([ ,]+)/).map((word, at) => (at % 2 || known[at / 2] === word ? word : h("mark", {}, word))); };
    const only = state.heat === "differs", shown = only ? other.pairs.filter((pair) => kind(pair) !== "same") : other.pairs;
    const side = (columns, at, against) => (at < 0 ? [h("span", { class: "text none" }), h("span")] : [h("span", { class: "text" }, words(columns.text[at], against)), h("span", { class: "n dim" }, number(columns.executions?.[at] ?? ""))]);
    const rows = new Rows(shown.length, ROW, (at) => {
      const [a, b] = shown[at];
      return h("div", { class: `row ${kind(shown[at])}`, onclick: () => a >= 0 && select({ row: a }) },
        h("span", { class: "dim" }, a < 0 ? "" : addressOf(here, a)), side(here, a, b < 0 ? undefined : there.text[b]), side(there, b, a < 0 ? undefined : here.text[a]));
    }, { class: "list beside" }, h("div", { class: "row head" }, ["offset", "this", "executed", "other", "executed"].map((name) => h("span", { class: name === "executed" ? "n" : "" }, name))));
    const width = (texts) => `minmax(${widthOf(texts)},1fr) 74px`;
    rows.node.style.setProperty("--cols", `${here.at ? widthOf(here.at) : "60px"} ${width(here.text)} ${width(there.text)}`);
    const resources = [...new Set([...Object.keys(mine.resources), ...Object.keys(other.resources)])].map((name) => [name, mine.resources[name] ?? 0, other.resources[name] ?? 0]);
    fill(this.node, h("p", {}, "This code beside ", h("b", {}, this.doc.against.title), h("code", {}, ` ${this.doc.against.command}`)),
      h("p", {}, `${number(seen.same)} instructions are the same, ${number(seen.changed)} have other operands, ${number(seen.here)} are only here, ${number(seen.there)} only there. `,
        button(only ? "show all" : "show what differs", () => select({ heat: only ? undefined : "differs" }))), rows.node,
      table(["resource", "this", "other", "difference"], resources.filter(([, a, b]) => typeof a === "number" && a !== b).map(([name, a, b]) => [name, ...cells(a, b)])),
      table(["counter", "this", "other", "difference"], counters.map(([name, a, b]) => [name, ...cells(a, b)])));
    rows.renew();
  }
}
