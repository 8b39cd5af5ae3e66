// Source and instructions side by side: what each cost, where it jumps, which registers live.

// Columns that a heat can be of: [key, head, what it says].
const COLUMNS = [
  ["executions", "executed", "wave-instructions executed"],
  ["bytes", "bytes", "bytes asked for or stored by all lanes"],
  ["distinct", "distinct", "bytes of device memory touched, each once"],
  ["idle", "idle lanes", "lanes of 64 that had nothing to do, all executions of a memory instruction together"],
  ["lds_lost", "LDS lost", "clocks lost to LDS bank conflicts"],
  ["stall", "stall", "modelled clocks in which a wave did not go on, all waves of a compute unit"],
];
const CLASS_NAMES = { valu: "vector ALU", salu: "scalar ALU", mfma: "matrix", vmem: "vector memory", smem: "scalar memory", lds: "LDS", branch: "branch", wait: "wait", other: "other" };
const ROW = 20, JUMP = 7, DEEPEST = 9, LETTER = 7.7; // pixels; of a monospaced font
/** The width of a column of code, with two letters for marks. */
const widthOf = (texts) => `${LETTER * (2 + Math.max(...texts.map((text) => text.length)))}px`;

/** A place of each jump beside the code, so that none crosses another at the same place: [[from, to, place]]. */
function placed(jumps) {
  const ends = [];
  return [...jumps].sort((a, b) => Math.abs(a[0] - a[1]) - Math.abs(b[0] - b[1])).map(([from, to]) => {
    const low = Math.min(from, to), high = Math.max(from, to);
    let place = ends.findIndex((taken) => taken.every(([a, b]) => high < a || low > b));
    if (place < 0) place = ends.push([]) - 1;
    ends[place].push([low, high]);
    return [from, to, place];
  });
}

class SourceView extends View {
  static has = (doc) => doc.kernels?.length > 0;

  build() {
    const { code } = this.kernel, columns = code.columns;
    this.built = state.kernel;
    this.ends = null;
    this.shown = COLUMNS.filter(([key]) => columns[key]);
    this.files = Object.keys(code.files);
    this.rowsOf = new Map();
    (columns.line || []).forEach((line, row) => { if (line >= 0) this.rowsOf.set(code.lines[line], [...(this.rowsOf.get(code.lines[line]) || []), row]); });
    this.findings = new Map();
    code.findings.forEach((finding, at) => { for (const row of [finding.row, finding.other]) if (row !== null) this.findings.set(row, [...(this.findings.get(row) || []), at]); });
    this.most = Object.fromEntries(["vgprs", "agprs", "sgprs"].map((key) => [key, Math.max(1, ...(columns[key] || [1]))]));
    this.details = h("aside", { class: "details", "aria-live": "polite" });
    this.search = h("input", { type: "search", placeholder: "Search instructions   /", "aria-label": "Search instructions", oninput: () => this.find(0), onkeydown: (e) => { if (e.key === "Enter") this.find(e.shiftKey ? -1 : 1); } });
    this.found = h("span", { class: "dim", "aria-live": "polite" });
    const heats = [["", "nothing"], ...this.shown];
    const bar = h("div", { class: "bar" }, choice("Heat by", heats, this.heat, (heat) => select({ heat })), this.search, this.found,
      h("span", { class: "legend" }, [...new Set(columns.class)].filter(Boolean).map((name) => h("span", { class: `dot c-${name}` }, CLASS_NAMES[name]))));
    this.jumps = placed(code.jumps);
    this.jumpWidth = 14 + JUMP * Math.min(DEEPEST, 1 + Math.max(0, ...this.jumps.map(([, , place]) => place)));
    this.node.style.setProperty("--cols", `${this.jumpWidth}px ${columns.at ? widthOf(columns.at) : "50px"} minmax(${widthOf(columns.text)},1fr) ${this.shown.map(() => "74px").join(" ")} 72px`);
    this.list = this.codeList(code);
    const panes = h("div", { class: `panes${this.files.length ? "" : " alone"}` }, this.files.length ? this.pane = this.filePane(code) : null, h("div", { class: "pane" }, this.list.node));
    fill(this.node, bar, panes, this.details);
    if (code.elsewhere) bar.append(h("span", { class: "dim" }, `${number(code.elsewhere)} executions in code without a symbol, which is not shown`));
  }

  get heat() { return state.heat ?? (this.shown.some(([key]) => key === "stall") ? "stall" : "executions"); }

  head() {
    const cells = this.shown.map(([key, head, title]) => h("span", { class: "n", title }, head));
    return h("div", { class: "row head" }, h("span"), h("span", {}, "offset"), h("span", {}, "instruction"), cells, h("span", { title: "live registers after the instruction: vector, accumulation, scalar" }, "live"));
  }

  codeList(code) {
    const list = new Rows(code.columns.text.length, ROW, (at) => this.row(code, at), { role: "listbox", "aria-label": "Instructions" }, this.head());
    list.node.addEventListener("keydown", (e) => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[e.key];
      if (!step) return;
      e.preventDefault();
      select({ row: clamp((state.row ?? -1) + step, 0, list.count - 1) });
    });
    const width = this.jumpWidth;
    const arrows = this.jumps.map(([from, to, place]) => {
      const x = width - 8 - JUMP * Math.min(place + 1, DEEPEST), y0 = from * ROW + ROW / 2, y1 = to * ROW + ROW / 2;
      return s("path", { d: `M${width - 5} ${y0}H${x}V${y1}H${width - 5}m-4 -3l4 3l-4 3`, class: to <= from ? "jump back" : "jump", "data-from": from, "data-to": to });
    });
    list.inner.append(s("svg", { class: "jumps", width, height: list.count * ROW, "aria-hidden": "true" }, arrows));
    return list;
  }

  row(code, at) {
    const c = code.columns, findings = this.findings.get(at), heat = c[this.heat]?.[at] || 0;
    const [mnemonic, ...rest] = c.text[at].split(" ");
    const marks = findings && h("span", { class: `mark ${code.findings[findings[0]].severity}`, title: findings.map((f) => code.findings[f].message).join("\n") }, "●");
    const doubt = c.fidelity[at] !== "exact" && h("span", { class: "dim", title: `fidelity: ${c.fidelity[at]}` }, " ≈");
    const strip = ["vgprs", "agprs", "sgprs"].filter((key) => c[key]).map((key) => h("i", { class: key, style: { width: `${(100 * c[key][at]) / this.most[key]}%` } }));
    const title = `${c.vgprs?.[at] ?? 0} vector, ${c.agprs?.[at] ?? 0} accumulation, ${c.sgprs?.[at] ?? 0} scalar registers live`;
    const never = c.executions && !c.executions[at];
    return h("div", { class: `row${state.row === at ? " on" : ""}${never ? " never" : ""}${this.hit?.has(at) ? " hit" : ""}${this.related(code, at) ? " kin" : ""}`, role: "option", "aria-selected": state.row === at, id: `i${at}`, style: { "--heat": this.warmth(heat) }, onclick: () => select({ row: at }) },
      h("span"), h("span", { class: "dim" }, addressOf(c, at)), h("span", { class: "text" }, marks, h("b", { class: `c-${c.class[at]}` }, mnemonic), " ", rest.join(" "), doubt),
      this.shown.map(([key]) => h("span", { class: `n${key === this.heat ? " hot" : ""}`, title: key === "stall" && c.reason ? c.reason[at] : null }, c[key][at] ? number(c[key][at]) : "")), h("span", { class: "strip", title }, strip));
  }

  /** 0 to 1: a value of the chosen column between its least and its most. */
  warmth(value) {
    this.ends ??= (() => { const all = (this.kernel.code.columns[this.heat] || []).filter(Boolean); return [Math.min(...all), Math.max(...all)]; })();
    const [low, high] = this.ends;
    return !value || high === low ? 0 : 0.08 + 0.92 * Math.sqrt((value - low) / (high - low));
  }

  /** Whether a row comes from the source line of the selected one. */
  related(code, at) {
    const line = code.columns.line;
    return state.row !== undefined && line && line[at] >= 0 && line[at] === line[state.row];
  }

  filePane(code) {
    this.file = this.files.includes(this.file) ? this.file : this.hottest(code);
    const lines = code.files[this.file], heats = this.lineHeat(code);
    this.lines = new Rows(lines.length, ROW, (at) => {
      const name = `${this.file}:${at + 1}`, rows = this.rowsOf.get(name), here = state.row !== undefined && rows?.includes(state.row);
      const total = heats.by.get(name) || 0;
      return h("div", { class: `row line${rows ? " code" : ""}${here ? " on" : ""}`, style: { "--heat": total ? Math.sqrt(total / heats.most) : 0 }, onclick: () => rows && select({ row: rows[0] }) },
        h("span", { class: "dim n" }, String(at + 1)), h("span", { class: "text" }, lines[at] || " "), h("span", { class: "n dim" }, total ? number(total) : ""));
    }, { "aria-label": "Source" }, h("div", { class: "row head line" }));
    this.lines.node.style.setProperty("--text", widthOf(lines));
    const files = choice("Source", this.files.map((name) => [name, name]), this.file, (name) => this.open(name));
    this.lines.node.firstChild.append(files);
    return h("div", { class: "pane" }, this.lines.node);
  }

  /** Shows another source file. */
  open(file) {
    this.file = file;
    const before = this.pane;
    before.replaceWith(this.pane = this.filePane(this.kernel.code));
    this.lines.renew();
  }

  lineHeat(code) {
    const by = new Map(), heat = code.columns[this.heat] || [];
    this.rowsOf.forEach((rows, name) => by.set(name, sum(rows.map((row) => heat[row] || 0))));
    return { by, most: Math.max(1, ...by.values()) };
  }

  /** The file that most of the heat comes from. */
  hottest(code) {
    const totals = new Map();
    this.lineHeat(code).by.forEach((heat, name) => { const file = name.slice(0, name.lastIndexOf(":")); totals.set(file, (totals.get(file) || 0) + heat); });
    return [...this.files].sort((a, b) => (totals.get(b) || 0) - (totals.get(a) || 0))[0];
  }

  find(step) {
    const wanted = this.search.value.trim().toLowerCase(), texts = this.kernel.code.columns.text;
    const hits = wanted ? range(texts.length).filter((at) => texts[at].toLowerCase().includes(wanted)) : [];
    this.hit = new Set(hits);
    this.found.textContent = wanted ? `${hits.length} found` : "";
    const from = state.row ?? -1, after = step < 0 ? hits.findLast((at) => at < from) ?? hits.at(-1) : hits.find((at) => at >= from + step) ?? hits[0];
    if (hits.length) select({ row: after });
    this.list.renew();
  }

  update(before) {
    if (this.built !== state.kernel || changed(before, "heat")) this.build();
    if (state.row !== undefined && state.row >= this.list.count) return select({ row: undefined });
    const { code } = this.kernel;
    if (state.row !== undefined && code.columns.line && this.files.length) {
      const place = code.lines[code.columns.line[state.row]] || "", file = place.slice(0, place.lastIndexOf(":")), line = +place.slice(file.length + 1);
      if (file && file !== this.file && code.files[file]) this.open(file);
      if (code.files[file]) this.lines.show(line - 1);
    }
    this.list.renew();
    this.lines?.renew();
    if (state.row !== undefined) this.list.show(state.row);
    this.list.inner.querySelectorAll(".jump").forEach((path) => path.classList.toggle("on", [path.dataset.from, path.dataset.to].includes(String(state.row))));
    fill(this.details, this.detail(code));
  }

  detail(code) {
    const at = state.row, c = code.columns;
    if (at === undefined) return [aside("Click an instruction or a source line; arrow keys move; / searches.")];
    const facts = [...this.shown.map(([key, head, title]) => [head, c[key][at], title]), ["fidelity", c.fidelity[at]], ["live after it", code.live?.[at] || "nothing"]];
    if (c.reason?.[at]) facts.push(["stalls on", c.reason[at]]);
    if (c.line?.[at] >= 0) facts.push(["from", code.lines[c.line[at]]]);
    const jumps = code.jumps.filter((jump) => jump.includes(at)).map(([from, to]) => (from === at ? link(`jumps to ${addressOf(c, to)}`, { row: to }) : link(`reached from ${addressOf(c, from)}`, { row: from })));
    const also = [this.kernel.matrix[at] && link("its fragments", { view: "fragments" }), this.kernel.lds?.accesses.some((access) => access.row === at) && link("its LDS banks", { view: "lds" }), ...jumps];
    const told = (this.findings.get(at) || []).map((f) => h("pre", { class: `finding ${code.findings[f].severity}` }, code.findings[f].text));
    return [h("h3", {}, h("code", {}, `${c.at?.[at] || `${this.kernel.name}+${hex(c.offset[at])}`}  ${c.text[at]}`)), h("p", { class: "links" }, also),
      terms(facts.map(([name, value, title]) => [name, value ? number(value) : undefined, title])), ...told];
  }
}
