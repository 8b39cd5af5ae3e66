// The banks of LDS: what a visit wants of each, phase by phase, and what padding or a swizzle would change.

/** Where an address of a buffer lies in another layout: as `tools/page/lds.py`, Layout.moved. */
function movedAddress(address, base, { row, padding, bits, unit }) {
  if (address < 0) return address;
  const number = Math.floor((address - base) / row), within = (address - base) % row;
  return base + number * (row + padding) + (within ^ (number & (1 << bits) - 1) * unit);
}

/** What each bank is asked for in each phase: [{ lanes, banks: Map(bank -> Map(word -> lanes)), lost }]. */
function phasesOf(rule, size, addresses) {
  const dwords = Math.max(1, size >> 2);
  return rule.phases.map((lanes) => {
    const banks = new Map();
    for (const lane of lanes) {
      if (addresses[lane] < 0) continue;
      for (let part = 0; part < dwords; part++) {
        const word = Math.floor(addresses[lane] / 4) + part, bank = word % rule.banks;
        if (!banks.has(bank)) banks.set(bank, new Map());
        const words = banks.get(bank);
        words.set(word, [...(words.get(word) || []), lane]);
      }
    }
    return { lanes, banks, lost: Math.max(1, ...[...banks.values()].map((words) => words.size)) - 1 };
  });
}

/** Clocks that an access loses to bank conflicts. */
const lostClocks = (rule, size, addresses) => sum(phasesOf(rule, size, addresses).map((phase) => phase.lost));

class LdsView extends View {
  static has = (doc) => doc.kernels?.some((kernel) => kernel.lds?.accesses.length);

  get lds() { return this.kernel.lds; }

  /** Banks and phases of an access. */
  rule({ kind, bytes }) { return this.lds.rules[kind + Math.max(4, bytes)]; }

  get number() {
    const { accesses } = this.lds, of = accesses.findIndex((access) => access.row === state.row);
    if (this.chosen !== undefined && accesses[this.chosen].row === state.row) return this.chosen;
    if (of >= 0) return (this.chosen = of);
    return (this.chosen = clamp(this.chosen ?? this.worst(), 0, accesses.length - 1));
  }

  worst() {
    const totals = this.lds.accesses.map((access) => sum(access.lost));
    return totals.indexOf(Math.max(...totals));
  }

  layout(buffer) {
    const { unit, rows } = this.lds.buffers[buffer];
    return (this.layouts[buffer] ??= { row: rows.includes(128) ? 128 : rows[0], padding: 0, bits: 0, unit });
  }

  build() {
    this.built = state.kernel;
    this.layouts = {};
    this.chosen = undefined;
    this.controls = h("div", { class: "bar" });
    this.picture = h("div", { class: "banks" });
    this.table = h("div", {});
    this.said = h("div", { class: "card" });
    fill(this.node, this.said, this.controls, h("div", { class: "split" }, this.picture, this.table));
  }

  controlsOf(access) {
    const buffer = this.lds.buffers[access.buffer], layout = this.layout(access.buffer);
    const set = (changes) => { Object.assign(layout, changes); this.draw(); };
    const { rows } = buffer, bits = Number.isInteger(Math.log2(layout.row)) ? clamp(Math.log2(layout.row / layout.unit), 0, 4) : 0;
    layout.bits = Math.min(layout.bits, bits);
    fill(this.controls,
      slider("Visit", 0, access.visits.length - 1, 1, this.visit, (visit) => select({ visit }), (at) => `${at + 1} of ${access.visits.length}`),
      choice("Rows of", rows.map((row) => [row, `${row} bytes`]), layout.row, (row) => { set({ row: +row }); this.controlsOf(access); }),
      slider("Padding", 0, 64, layout.unit, layout.padding, (padding) => set({ padding }), (count) => `${count} bytes`),
      bits ? slider("XOR", 0, bits, 1, layout.bits, (bits) => set({ bits }), (count) => (count ? `${count} bit${count > 1 ? "s" : ""} of the row` : "none")) : null,
      buffer.suggest.map((one) => h("button", { type: "button", class: "suggest", title: `${one.added} bytes more`, onclick: () => { set({ row: one.row, padding: one.padding, bits: one.bits, unit: one.unit }); this.controlsOf(access); } }, `Suggested: ${one.text}`)),
      layout.padding || layout.bits ? button("As it is", () => { set({ padding: 0, bits: 0 }); this.controlsOf(access); }) : null);
  }

  get visit() { return clamp(state.visit ?? 0, 0, this.access.visits.length - 1); }

  addresses(access, visit) {
    const layout = this.layout(access.buffer), base = this.lds.buffers[access.buffer].first;
    return access.visits[visit].map((address) => movedAddress(address, base, layout));
  }

  get access() { return this.lds.accesses[this.number]; }

  draw() {
    const access = this.access, rule = this.rule(access);
    const now = this.addresses(access, this.visit), phases = phasesOf(rule, access.bytes, now);
    const edge = rule.banks > 32 ? 11 : 20, left = 62, parts = [];
    let y = 18;
    for (let bank = 0; bank < rule.banks; bank += rule.banks > 32 ? 4 : 2) parts.push(axis(left + (bank + 0.5) * edge, 12, bank));
    phases.forEach((phase, at) => {
      const depth = phase.lost + 1;
      parts.push(axis(30, y + 14, `phase ${at}`));
      parts.push(s("rect", { x: left, y, width: rule.banks * edge, height: depth * edge, class: "ground" }));
      for (const [bank, words] of phase.banks) [...words].forEach(([word, lanes], level) => {
        const x = left + bank * edge, top = y + level * edge, tint = cividis(lanes[0] / 63), on = lanes.includes(state.lane);
        const title = `bank ${bank}, LDS byte ${hex(4 * word)}: lane${lanes.length > 1 ? "s" : ""} ${lanes.join(", ")}${access.bytes > 4 ? `, dword ${word - Math.floor(now[lanes[0]] / 4)}` : ""}`;
        parts.push(s("g", { class: `bank${level ? " conflict" : ""}${on ? " lane" : ""}`, "data-lane": lanes[0] }, s("title", {}, title), s("rect", { x, y: top, width: edge, height: edge, fill: css(tint) }),
          edge > 16 ? s("text", { x: x + edge / 2, y: top + 14, fill: ink(tint) }, lanes.length > 1 ? `${lanes[0]}+` : String(lanes[0])) : null));
      });
      parts.push(s("text", { class: `axis${phase.lost ? " bad" : ""}`, x: left + rule.banks * edge + 38, y: y + 14 }, phase.lost ? `${phase.lost} lost` : ""));
      y += depth * edge + 6;
    });
    const svg = s("svg", { class: "grid", width: left + rule.banks * edge + 76, height: y + 6, "aria-label": "banks by phase", onclick: (e) => { const lane = e.target.closest("[data-lane]")?.dataset.lane; if (lane !== undefined) select({ lane: +lane }); } }, parts);
    const code = this.kernel.code.columns, total = sum(phases.map((phase) => phase.lost));
    fill(this.picture, h("h2", {}, h("code", {}, `${hex(code.offset[access.row])} ${code.text[access.row]}`), access.part ? ", second place" : ""),
      h("p", {}, `${access.kind} of ${access.bytes} bytes a lane, ${rule.banks} banks in ${rule.phases.length} phases: `, h("b", {}, total ? `${total} clocks lost` : "no conflict"), h("span", { class: "dim" }, ` (${rule.source})`)),
      aside("A cell is a word that a lane wants of a bank; words below the first of a bank wait. A + stands for several lanes that share a word."), svg, state.lane !== undefined && now[state.lane] >= 0 ? h("p", {}, `Lane ${state.lane}: LDS byte ${hex(now[state.lane])}`) : null);
    this.drawTable(code);
  }

  drawTable(code) {
    let before = 0, after = 0;
    const rows = this.lds.accesses.map((access, at) => {
      const rule = this.rule(access), layout = this.layout(access.buffer), was = sum(access.lost);
      const is = layout.padding || layout.bits ? sum(range(access.visits.length).map((visit) => lostClocks(rule, access.bytes, this.addresses(access, visit)))) : was;
      before += was;
      after += is;
      return h("tr", { class: at === this.number ? "on" : "", onclick: () => { this.chosen = at; select({ row: access.row, visit: undefined }); } },
        [link(hex(code.offset[access.row]), {}, "show its banks"), [h("code", {}, code.text[access.row].split(" ")[0]), access.part ? " (2nd)" : ""], access.buffer, access.visits.length, was].map(td), h("td", { class: `n${is < was ? " better" : is > was ? " worse" : ""}` }, number(is)));
    });
    fill(this.table, table(["at", "access", "buffer", "visits", "lost", "with the sliders"], rows, { class: "pick" }));
    const buffers = this.lds.buffers.map((buffer, at) => h("p", {}, h("b", {}, `Buffer ${at}`), ` bytes ${hex(buffer.first)} to ${hex(buffer.end)}: `, buffer.suggest.length ? buffer.suggest.map((one) => `${one.text}, ${one.added ? `${bytes(one.added)} more` : "no byte more"}`).join("; or ") + " clears all its accesses." : this.lds.accesses.some((access) => access.buffer === at && access.lost.some(Boolean)) ? "no padding up to 64 bytes and no swizzle of a row clears all its accesses." : "no conflict."));
    fill(this.said, h("p", {}, `The first wave of the first workgroup: ${number(before)} clocks lost in the visits below`, after !== before ? `, ${number(after)} with the sliders.` : "."), buffers);
  }

  update(before) {
    if (!this.lds) return fill(this.node, aside("This kernel does not use LDS."));
    if (this.built !== state.kernel) this.build();
    this.controlsOf(this.access);
    this.draw();
  }
}
