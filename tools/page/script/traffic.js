// What a launch read and wrote of each buffer, as a picture of its bytes.

const TRAFFIC = [[0, 114, 178], [213, 94, 0], [240, 228, 66]];  // read, written, both: Okabe and Ito

class TrafficView extends View {
  static has = (doc) => doc.kernels?.some((kernel) => kernel.traffic?.length);

  build() {
    const { kernel } = this, c = kernel.counters, told = kernel.traffic || [];
    this.built = state.kernel;
    this.by = told.some((one) => one.times) && this.by === "times" ? "times" : "kind";
    const line = (verb, asked, distinct) => `${verb} ${bytes(c[asked] ?? 0)}, ${bytes(c[distinct] ?? 0)} distinct`;
    const most = Math.max(1, ...told.flatMap((one) => one.times || [])) / 10;
    const legend = this.by === "times" ? [h("span", {}, "read once"), h("span", { class: "scale" }), h("span", {}, `${number(most)} times`)]
      : ["read", "written", "both", "never touched"].map((name, at) => h("span", { class: "dot", style: { color: at < 3 ? css(TRAFFIC[at]) : "var(--dim)" } }, name));
    fill(this.node, c.global_read_bytes === undefined ? null : h("p", {}, `${line("Read", "global_read_bytes", "unique_read_bytes")}; ${line("written", "global_write_bytes", "unique_write_bytes")}.`),
      h("div", { class: "bar" }, told.some((one) => one.times) && choice("Colour by", [["kind", "read or written"], ["times", "how often read"]], this.by, (by) => { this.by = by; this.build(); }), h("span", { class: "legend" }, legend)),
      h("div", { class: "buffers" }, told.map((one) => this.picture(one, most))));
  }

  /** Red, green, blue and opacity of a cell. */
  tint({ cells, times }, at, most) {
    const parts = cells.slice(3 * at, 3 * at + 3).map((part) => part / 255), [read, , both] = parts, touched = sum(parts);
    if (this.by === "times") return read + both ? [...cividis(most > 1 ? Math.log(Math.max(1, (times?.[at] ?? 10) / 10)) / Math.log(most) : 0), 255] : [128, 128, 128, 40];
    return touched ? [...[0, 1, 2].map((channel) => TRAFFIC.reduce((total, colour, kind) => total + (parts[kind] / touched) * colour[channel], 0)), 90 + 165 * Math.min(1, touched)] : [128, 128, 128, 40];
  }

  picture(one, most) {
    const { across, down, cells } = one, scale = Math.max(1, Math.floor(288 / Math.max(across, down))), canvas = h("canvas", { width: across, height: down, tabindex: 0, role: "img", "aria-label": `${one.name}: which bytes were touched; arrow keys move`, style: { width: `${across * scale}px`, height: `${down * scale}px` } });
    const pen = canvas.getContext("2d"), pixels = pen.createImageData(across, down);
    for (let at = 0; at < across * down; at++) pixels.data.set(this.tint(one, at, most), 4 * at);
    pen.putImageData(pixels, 0, 0);
    const told = aside("Point at the picture.");
    let here = [0, 0];
    const say = (column, row) => {
      here = [clamp(column, 0, across - 1), clamp(row, 0, down - 1)];
      const at = here[1] * across + here[0], share = cells.slice(3 * at, 3 * at + 3).map((part) => Math.round(part / 2.55));
      const part = (extent, count, at, unit = 1) => [unit * Math.floor((at * extent) / count), unit * Math.floor(((at + 1) * extent) / count) - 1].filter((v, i, all) => !i || v > all[0]).join("–");
      told.textContent = `row ${part(one.rows, down, here[1])}, bytes ${part(one.row_bytes / one.unit, across, here[0], one.unit)}: ${share[0] + share[2]} % read${one.times?.[at] ? `, ${number(one.times[at] / 10)} times` : ""}, ${share[1] + share[2]} % written`;
    };
    canvas.addEventListener("mousemove", (e) => say(Math.floor(e.offsetX / scale), Math.floor(e.offsetY / scale)));
    canvas.addEventListener("keydown", (e) => { const step = arrows(e); if (step) say(here[0] + step[0], here[1] + step[1]); });
    const { columns } = this.kernel.code, share = (count) => `${bytes(count)} (${number((100 * count) / one.bytes)} %)`, to = (row) => link(hex(columns.offset[row]), { view: "source", row }, columns.text[row]);
    const facts = { read: share(one.read), written: share(one.written), "re-read": one.asked ? `${share(one.again)}; ${number(one.asked / one.read)} times each, at most ${number(one.most)}` : undefined,
      "never touched": share(one.never) + (one.behind ? `; ${number(one.behind)} touched after its last whole row` : ""),
      "out of range": one.clipped.length ? [`${number(sum(one.clipped.map(([, lanes]) => lanes)))} lanes, which a buffer resource clips, at`, one.clipped.slice(0, 8).map(([row]) => to(row)), one.clipped.length > 8 ? "…" : ""] : one.wrong.length ? "" : "nothing" };
    return h("figure", { class: "card" }, h("figcaption", {}, h("b", {}, one.name), ` ${bytes(one.bytes)}, ${number(one.rows)} rows of ${number(one.row_bytes)} bytes`), canvas, told,
      terms(Object.entries(facts)), one.wrong.map(([row, text]) => h("p", { class: "bad" }, to(row), ` ${text}`)));
  }

  update() { if (this.built !== state.kernel) this.build(); }
}
