// Who owns which element: the operands of a matrix instruction as grids, its registers as lanes, both of one selection.

const LANES = 64;
const laneOf = (place) => (place < 0 ? -1 : place >> 5 & 63), registerOf = (place) => place >> 11, bitOf = (place) => place & 31;
const NAMES = { A: "A", B: "B", D: "D", IDX: "indices", SCALE_A: "scales of A", SCALE_B: "scales of B" };

/** The element at an index of an operand's places: [row, column, block]. */
const elementAt = (operand, at) => {
  const each = operand.rows * operand.columns;
  return [Math.floor((at % each) / operand.columns), at % operand.columns, Math.floor(at / each)];
};

class FragmentsView extends View {
  pasted = null;

  static has = (doc) => doc.fragments?.length > 0;

  /** The instruction that is shown: that of the selected row, or the one chosen. */
  get one() { return this.doc.fragments[clamp(state.fragment ?? 0, 0, this.doc.fragments.length - 1)]; }

  of(name) { return this.one.operands[name]; }

  /** Rows of the kernel that are this instruction and have values. */
  get places() {
    const kernel = this.kernel;
    return kernel?.visits ? Object.keys(kernel.visits).map(Number).filter((row) => kernel.matrix[row] === this.one.key) : [];
  }

  get visits() {
    const rows = this.places;
    if (!rows.length) return null;
    this.place = rows.includes(state.row) ? state.row : rows.includes(this.place) ? this.place : rows[0];
    return this.kernel.visits[this.place];
  }

  build() {
    const one = this.one, visits = this.visits, kernel = this.kernel;
    this.built = this.signature();
    this.names = Object.keys(one.operands);
    const block = one.blocks > 1 ? slider("Block", 0, one.blocks - 1, 1, this.block, (value) => select({ block: value })) : null;
    const picker = this.doc.fragments.length > 1 ? choice("Instruction", this.doc.fragments.map((f, at) => [at, f.key]), state.fragment ?? 0, (at) => select({ fragment: +at, row: undefined, element: undefined, lane: undefined })) : null;
    const colours = [["lane", "lane"], ["register", "register"], ...(visits ? [["value", "value"]] : [])];
    const values = visits && [
      choice("At", this.places.map((row) => [row, hex(kernel.code.columns.offset[row])]), this.place, (row) => select({ row: +row })),
      slider("Visit", 0, visits.length - 1, 1, this.visit, (visit) => select({ visit }), (at) => `${at + 1} of ${visits.length}`),
    ];
    this.info = h("div", { class: "info", "aria-live": "polite" });
    const grids = h("div", { class: "matrices" });
    const place = { A: "2 / 1", B: "1 / 2", D: "2 / 2" };
    this.cells = {};
    this.edge = this.cellEdge();
    for (const name of this.names) grids.append(h("figure", { style: place[name] ? { "grid-area": place[name] } : { "grid-column": "1 / 3" }, class: `operand o-${name}` }, this.grid(name)));
    grids.append(h("div", { style: { "grid-area": "1 / 1" }, class: "corner" }, this.info));
    this.files = h("div", { class: "files" }, this.names.map((name) => this.registers(name)));
    fill(this.node,
      h("div", { class: "bar" }, picker, choice("Colour by", colours, this.colour, (colour) => select({ colour })), block, values),
      h("details", { class: "about", open: true }, h("summary", {}, h("code", {}, one.key), ` on ${one.target}`), one.lines.slice(0, 3).map((line) => h("p", {}, line))),
      grids, h("h2", {}, "Registers"), aside("A column is a lane, a row a register of the operand."), this.files,
      this.doc.chains ? this.chains() : null, this.notations());
  }

  signature() { return [state.fragment, state.kernel, this.visits && this.place, this.colour, this.block, this.visit].join(); }

  get colour() { return state.colour === "value" && !this.visits ? "lane" : state.colour ?? "lane"; }

  get block() { return clamp(state.block ?? 0, 0, this.one.blocks - 1); }

  get visit() { return clamp(state.visit ?? 0, 0, (this.visits?.length ?? 1) - 1); }

  cellEdge() {
    const { m, n } = this.one, { A, B } = this.one.operands, wide = (A?.columns ?? 0) + n, high = (B?.rows ?? 0) + m;
    const room = Math.max(600, (this.node.clientWidth || innerWidth) - 160);
    return clamp(Math.floor(Math.min(room / wide, 1500 / high)), 13, 36);
  }

  values(name) {
    const visit = this.visits?.[this.visit];
    if (!visit?.[name]) return null;
    return valuesOf(this.of(name), visit[name]);
  }

  /** The colour of each element of an operand. */
  tints(name) {
    const { places, registers } = this.of(name);
    if (this.colour === "value") {
      const values = this.values(name);
      if (values) {
        const most = Math.max(...values.filter(Number.isFinite).map(Math.abs), 1e-30);
        return values.map((value) => (Number.isFinite(value) ? diverging(0.5 + value / most / 2) : [200, 0, 200]));
      }
    }
    if (this.colour === "register") return places.map((place) => cividis(registers > 1 ? (registerOf(place) + bitOf(place) / 32) / registers : bitOf(place) / 32));
    return places.map((place) => cividis(laneOf(place) / (LANES - 1)));
  }

  grid(name) {
    const operand = this.of(name), { rows, columns, places, bits } = operand, edge = this.edge;
    const block = this.block, first = block * rows * columns, tints = this.tints(name), values = this.values(name);
    const left = 26, top = 20, parts = [], step = edge < 18 ? 4 : 1;
    this.cells[name] = new Map();
    for (let j = 0; j < columns; j += step) parts.push(axis(left + (j + 0.5) * edge, top - 5, j));
    for (let i = 0; i < rows; i += step) parts.push(axis(left - 11, top + (i + 0.5) * edge + 4, i));
    for (let at = first; at < first + rows * columns; at++) {
      const [i, j] = elementAt(operand, at), place = places[at], x = left + j * edge, y = top + i * edge, tint = tints[at];
      const texts = [];
      if (edge >= 18 && place >= 0) {
        const upper = this.colour === "value" && values ? shortly(values[at]).slice(0, 6) : String(laneOf(place));
        const lower = edge >= (bits < 32 ? 34 : 26) && this.colour !== "value" ? `v${registerOf(place)}${bits < 32 ? "." + bitOf(place) : ""}` : "";
        texts.push(s("text", { x: x + edge / 2, y: y + edge / 2 + (lower ? -1 : 4), fill: ink(tint), class: this.colour === "value" ? "small" : "" }, upper));
        if (lower) texts.push(s("text", { x: x + edge / 2, y: y + edge / 2 + 10, fill: ink(tint), class: "small" }, lower));
      }
      const wrong = this.pasted?.name === name && this.pasted.differ.has(at);
      const cell = s("g", { class: `cell${wrong ? " wrong" : ""}`, "data-at": at }, s("rect", { x, y, width: edge, height: edge, fill: place < 0 ? "none" : css(tint) }), texts);
      this.cells[name].set(at, cell);
      parts.push(cell);
    }
    const made = s("svg", { width: left + columns * edge + 4, height: top + rows * edge + 4, class: "grid", role: "grid", tabindex: 0, "aria-label": `${NAMES[name]}: ${rows} by ${columns}`,
      ...this.pointing(name), onkeydown: (e) => this.move(name, e) }, parts);
    const shape = `${NAMES[name]} (${rows}, ${columns})${this.one.blocks > 1 ? `, block ${block}` : ""}`;
    return [h("figcaption", {}, h("b", {}, shape), ` ${operand.type}, ${operand.registers} register${operand.registers > 1 ? "s" : ""} a lane`, operand.doubt && h("span", { class: "tag note", title: operand.doubt }, "unverified")), made];
  }

  registers(name) {
    const operand = this.of(name), { places, registers, bits } = operand, tints = this.tints(name);
    const edge = 15, left = 40, packed = Math.max(1, Math.floor(32 / bits)), parts = [];
    for (let lane = 0; lane < LANES; lane += 4) parts.push(axis(left + (lane + 0.5) * edge, 12, lane));
    for (let r = 0; r < registers; r++) parts.push(axis(left - 18, 18 + r * edge + 11, `v${r}`));
    const seen = new Set();
    places.forEach((place, at) => {
      if (place < 0 || seen.has(place)) return;
      seen.add(place);
      const high = edge / packed, y = 18 + registerOf(place) * edge + (Math.floor(bitOf(place) / 32 * packed)) * high;
      parts.push(s("rect", { x: left + laneOf(place) * edge, y, width: edge, height: bits > 32 ? 2 * edge : high, fill: css(tints[at]), class: "slot", "data-at": at }));
    });
    const svg = s("svg", { width: left + LANES * edge + 4, height: 22 + registers * edge, class: "grid", "aria-label": `registers of ${NAMES[name]}`, ...this.pointing(name) }, parts);
    (this.slots ??= {})[name] = svg;
    return h("figure", { class: "file" }, h("figcaption", {}, h("b", {}, NAMES[name])), svg);
  }

  /** Listeners of a picture whose parts know their element: to mark what is pointed at, to choose what is clicked. */
  pointing(name) {
    const to = (then) => (event) => { const at = event.target.closest("[data-at]")?.dataset.at; if (at !== undefined) then(name, +at); };
    return { onmousemove: to((...place) => this.mark(...place)), onmouseleave: () => this.mark(), onclick: to((...place) => this.choose(...place)) };
  }

  choose(name, at) {
    const operand = this.of(name), place = operand.places[at];
    select({ operand: name, element: at, lane: place >= 0 ? laneOf(place) : undefined, block: this.one.blocks > 1 ? elementAt(operand, at)[2] : state.block });
  }

  move(name, event) {
    const { rows, columns } = this.of(name);
    const step = arrows(event);
    if (!step) return;
    const [i, j, block] = elementAt(this.of(name), state.operand === name ? state.element ?? 0 : 0);
    this.choose(name, block * rows * columns + clamp(i + step[1], 0, rows - 1) * columns + clamp(j + step[0], 0, columns - 1));
  }

  /** Marks an element, what its lane holds, and what it is a product of; without arguments, the selected one. */
  mark(name = state.operand, at = state.element) {
    const one = this.one;
    this.node.querySelectorAll(".near, .at, .lane").forEach((cell) => cell.classList.remove("near", "at", "lane"));
    if (!name || !this.of(name) || at === undefined || at >= this.of(name).places.length) {
      if (state.lane === undefined) return fill(this.info, aside("Point at an element or a register; click to keep it; arrow keys move."));
      this.markLane(state.lane);
      this.raise();
      return fill(this.info, h("h3", {}, `Lane ${state.lane}`), this.held(state.lane));
    }
    const operand = this.of(name), [i, j, block] = elementAt(operand, at), place = operand.places[at], lane = laneOf(place);
    if (place >= 0) this.markLane(lane);
    const cell = this.cells[name].get(at);
    cell?.classList.add("at");
    if (name === "D") this.near((other, [row, column]) => (other === "A" && row === i) || (other === "B" && column === j));
    this.slots[name].querySelectorAll("[data-at]").forEach((slot) => operand.places[slot.dataset.at] === place && slot.classList.add("at"));
    this.raise();
    const values = this.values(name), last = bitOf(place) + operand.bits - 1, pair = operand.bits > 32;
    fill(this.info, 
      h("h3", {}, `${NAMES[name]}[${i}, ${j}]${one.blocks > 1 ? ` of block ${block}` : ""}`),
      place < 0 ? h("p", {}, "in no register") : h("p", {}, h("b", {}, `lane ${lane}`), `, register ${registerOf(place)}${pair ? ` and ${registerOf(place) + 1}` : ""}${operand.bits < 32 ? `, bits ${bitOf(place)} to ${last}` : ""}`),
      values && h("p", {}, "value ", h("b", {}, shortly(values[at]))), aside(`Lane ${lane} holds`), this.held(lane));
  }

  /** What is marked is drawn last, so that no neighbour covers its edge. */
  raise() {
    for (const kind of [".near", ".lane", ".at"]) this.node.querySelectorAll(kind).forEach((cell) => cell.parentNode.append(cell));
  }

  near(test, mark = "near") {
    for (const [name, cells] of Object.entries(this.cells)) for (const [at, cell] of cells) if (test(name, elementAt(this.of(name), at), at)) cell.classList.add(mark);
  }

  markLane(lane) {
    const holds = (name, at) => laneOf(this.of(name).places[at]) === lane;
    this.near((name, _, at) => holds(name, at), "lane");
    for (const [name, svg] of Object.entries(this.slots)) svg.querySelectorAll("[data-at]").forEach((slot) => holds(name, slot.dataset.at) && slot.classList.add("lane"));
  }

  /** What a lane holds of each operand. */
  held(lane) {
    return h("dl", { class: "held" }, this.names.map((name) => {
      const operand = this.of(name), found = operand.places.map((place, at) => [place, at]).filter(([place]) => laneOf(place) === lane).sort((a, b) => a[0] - b[0]);
      const texts = found.slice(0, 16).map(([, at]) => { const [i, j, block] = elementAt(operand, at); return `${i},${j}${this.one.blocks > 1 ? "." + block : ""}`; });
      return [h("dt", {}, name), h("dd", {}, texts.join("  ") + (found.length > 16 ? ` and ${found.length - 16} more` : "") || "nothing")];
    }));
  }

  notations() {
    const one = this.one, known = this.names.filter((name) => this.of(name).triton), rows = known.map((name) => [name, this.copied(this.of(name).triton), this.copied(this.of(name).cute)]);
    const formulas = h("div", {}, this.names.map((name) => h("p", {}, h("code", {}, this.of(name).formula))));
    this.box = h("textarea", { rows: 3, spellcheck: "false", placeholder: "#ttg.linear<{register = [[1, 0], [2, 0]], lane = [[0, 1], …], …}>   or   ((16,4),4):((16,4),1)", "aria-label": "A layout to compare" }, this.pasted?.text ?? "");
    this.said = h("p", { class: "said", "aria-live": "polite" }, this.pasted?.said ?? "");
    const pick = h("select", { "aria-label": "operand" }, known.map((name) => h("option", { selected: name === this.pasted?.name }, name)));
    return [h("h2", {}, "The same layout, as others write it"), formulas, rows.length ? table(["", "Triton (rows, columns" + (one.blocks > 1 ? ", block first)" : ")"), "CuTe: (lanes, values) to row + rows · column"], rows) : null,
      rows.length ? h("div", { class: "paste" }, h("p", {}, "Paste a layout in either notation to see where it differs:"), this.box, h("div", { class: "bar" }, h("label", {}, "as ", pick), button("Compare", () => this.compare(pick.value))), this.said) : null];
  }

  copied(text) {
    return h("span", { class: "copied" }, h("code", {}, text), h("button", { class: "link", type: "button", title: "copy", onclick: () => navigator.clipboard?.writeText(text) }, "copy"));
  }

  compare(name) {
    const operand = this.of(name), text = this.box.value.trim();
    const layout = pastedLayout(text, operand, this.one.blocks);
    if (typeof layout === "string") { this.said.textContent = layout; return; }
    const differ = new Set(operand.places.map((_, at) => at));
    layout.forEach((at, index) => {
      const lane = index % LANES, value = Math.floor(index / LANES), bit = value * operand.bits;
      if (operand.places[at] === ((bit >> 5) << 11 | lane << 5 | bit & 31)) differ.delete(at);
    });
    this.pasted = { name, text, differ, said: differ.size ? `${number(differ.size)} of ${number(operand.places.length)} elements of ${name} lie elsewhere: they are outlined.` : `The same as ${name}: all ${number(operand.places.length)} elements.` };
    this.build();
    this.mark();
  }

  chains() {
    return [h("h2", {}, "Chained"), this.doc.chains.map((link) => {
      const said = link.reason || (link.free ? `yes, no data moves: ${link.formula}` : `not as it stands: ${link.moves.join("; ")}`);
      return card(`D of ${this.doc.fragments[0].key} as ${link.operand} of ${this.doc.fragments[1].key}`, h("p", {}, said), link.conversion && h("p", {}, `Each lane converts its own registers: ${link.conversion}.`), link.free && this.arrows(link));
    })];
  }

  /** Rows of D, left, and the k of the operand that they become, right. */
  arrows(link) {
    const steps = Math.min(link.steps, 4), k = link.rows[0][0].length, edge = 15, rows = Math.max(...link.rows.flat(2)) + 1;
    const parts = [], high = Math.max(rows, steps * (k + 1)) * edge + 30;
    for (let row = 0; row < rows; row++) parts.push(s("rect", { x: 40, y: 20 + row * edge, width: 60, height: edge - 1, fill: css(cividis(row / rows)) }), axis(26, 31 + row * edge, row));
    for (let step = 0; step < steps; step++) for (let at = 0; at < k; at++) {
      const row = link.rows[step][0][at], y = 20 + (step * (k + 1) + at) * edge;
      parts.push(s("path", { class: "chain", d: `M100 ${27 + row * edge}C170 ${27 + row * edge} 190 ${y + 7} 258 ${y + 7}`, stroke: css(cividis(row / rows)) }),
        s("rect", { x: 260, y, width: 60, height: edge - 1, fill: css(cividis(row / rows)) }), axis(344, y + 11, `s${step} k${at}`));
    }
    return s("svg", { width: 400, height: high, class: "grid", "aria-label": "rows of D as k" }, axis(70, 12, "row of D"), axis(290, 12, `k of ${link.operand}`), parts);
  }

  update(before) {
    if (changed(before, "row") && state.row !== undefined) {
      const key = this.kernel?.matrix[state.row], at = this.doc.fragments.findIndex((f) => f.key === key);
      if (at >= 0 && at !== (state.fragment ?? 0)) return select({ fragment: at, element: undefined });
    }
    if (this.built !== this.signature()) this.build();
    this.mark();
  }
}

/** The element (index of places) of each (value, lane) by a pasted layout, value by value; or what is wrong with it. */
function pastedLayout(text, operand, blocks) {
  const { rows, columns } = operand, count = rows * columns * blocks;
  const index = (row, column, block) => (block * rows + row) * columns + column;
  const each = (values, element) => range(values * LANES).map((at) => element(Math.floor(at / LANES), at % LANES));
  if (/register/.test(text)) {
    const bases = {};
    for (const name of ["register", "lane"]) {
      const found = text.match(new RegExp(`['"]?${name}['"]?\\s*[=:]\\s*(\\[(?:\\s*\\[[^\\]]*\\]\\s*,?)*\\s*\\])`));
      try { bases[name] = JSON.parse(found[1]); } catch { return `No list of bases for "${name}": write it as ${name} = [[0, 1], [0, 2]].`; }
    }
    if (bases.lane.length !== 6) return `${bases.lane.length} bases for lanes: a wave of 64 has 6.`;
    const at = (list, bits) => list.reduce((sum, base, bit) => (bits >> bit & 1 ? base.map((x, d) => x ^ (sum[d] ?? 0)) : sum), list[0] ? list[0].map(() => 0) : []);
    const layout = each(2 ** bases.register.length, (value, lane) => {
      const a = at(bases.register, value), b = at(bases.lane, lane), sum = b.map((x, d) => x ^ (a[d] ?? 0));
      return index(sum.at(-2), sum.at(-1), sum.length > 2 ? sum[0] : 0);
    });
    return layout.every((x) => x >= 0 && x < count) ? layout : `It reaches elements outside (${rows}, ${columns}).`;
  }
  const parts = text.replace(/\s/g, "").split(":");
  if (parts.length !== 2) return "Neither notation: write bases of register and lane, or shape:stride.";
  let shape, stride;
  try { [shape, stride] = parts.map((part) => JSON.parse(part.replaceAll("(", "[").replaceAll(")", "]"))); } catch { return "The parentheses do not match."; }
  if (!Array.isArray(shape) || shape.length !== 2 || stride?.length !== 2) return "Give two modes: (lanes, values):(strides, strides).";
  const modes = (list, strides) => [list].flat(Infinity).map((size, at) => [size, [strides].flat(Infinity)[at]]);
  const lanes = modes(shape[0], stride[0]), values = modes(shape[1], stride[1]), size = (list) => list.reduce((product, [extent]) => product * extent, 1);
  if (size(lanes) !== LANES) return `${size(lanes)} lanes: a wave has 64.`;
  const walk = (list, at) => list.reduce((sum, [extent, step]) => { const here = at % extent; at = Math.floor(at / extent); return sum + here * step; }, 0);
  const layout = each(size(values), (value, lane) => {
    const found = walk(lanes, lane) + walk(values, value);
    return index(found % rows, Math.floor(found / rows) % columns, Math.floor(found / rows / columns));
  });
  return layout.every((x) => x >= 0 && x < count) ? layout : `It reaches elements outside (${rows}, ${columns}).`;
}
