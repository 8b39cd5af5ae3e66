// What a launch read and wrote of each buffer, as a picture of its bytes.

const TRAFFIC = [[0, 114, 178], [213, 94, 0], [0, 158, 115]];  // read, written, both: Okabe and Ito

class TrafficView {
  constructor(doc) {
    this.doc = doc;
    this.node = h("div", { class: "view traffic" });
  }

  static has = (doc) => doc.kernels?.some((kernel) => kernel.traffic?.length);

  build() {
    const kernel = this.doc.kernels[state.kernel], c = kernel.counters;
    this.built = state.kernel;
    const share = (asked, distinct) => (distinct ? `${number(asked / distinct)} times each` : "nothing");
    fill(this.node, h("p", {}, `Read ${bytes(c.global_read_bytes ?? 0)}, ${bytes(c.unique_read_bytes ?? 0)} of them distinct (${share(c.global_read_bytes, c.unique_read_bytes)}); written ${bytes(c.global_write_bytes ?? 0)}, ${bytes(c.unique_write_bytes ?? 0)} distinct (${share(c.global_write_bytes, c.unique_write_bytes)}).`),
      h("p", { class: "legend", style: { margin: 0 } }, ["read", "written", "both", "never touched"].map((name, at) => h("span", { class: "dot", style: { color: at < 3 ? css(TRAFFIC[at]) : "var(--line)" } }, name))),
      h("div", { class: "buffers" }, (kernel.traffic || []).map((one) => this.picture(one))));
  }

  picture(one) {
    const { across, down, cells } = one, scale = Math.max(1, Math.floor(288 / Math.max(across, down))), canvas = h("canvas", { width: across, height: down, style: { width: `${across * scale}px`, height: `${down * scale}px` } });
    const pen = canvas.getContext("2d"), pixels = pen.createImageData(across, down);
    for (let at = 0; at < across * down; at++) {
      const parts = [0, 1, 2].map((kind) => cells[3 * at + kind] / 255), sum = parts[0] + parts[1] + parts[2];
      for (let channel = 0; channel < 3; channel++) pixels.data[4 * at + channel] = sum ? TRAFFIC.reduce((total, colour, kind) => total + (parts[kind] / sum) * colour[channel], 0) : 128;
      pixels.data[4 * at + 3] = sum ? 90 + 165 * Math.min(1, sum) : 40;
    }
    pen.putImageData(pixels, 0, 0);
    const told = h("p", { class: "dim" }, "Point at the picture.");
    canvas.addEventListener("mousemove", (e) => {
      const box = canvas.getBoundingClientRect(), column = clamp(Math.floor(((e.clientX - box.left) / box.width) * across), 0, across - 1), row = clamp(Math.floor(((e.clientY - box.top) / box.height) * down), 0, down - 1);
      const part = (extent, count, at, unit = 1) => [unit * Math.floor((at * extent) / count), unit * Math.floor(((at + 1) * extent) / count) - 1].filter((v, i, all) => !i || v > all[0]).join("–");
      const share = [0, 1, 2].map((kind) => Math.round(cells[3 * (row * across + column) + kind] / 2.55));
      told.textContent = `row ${part(one.rows, down, row)}, bytes ${part(one.row_bytes / one.unit, across, column, one.unit)}: ${share[0] + share[2]} % read, ${share[1] + share[2]} % written`;
    });
    const behind = one.behind ? `, ${number(one.behind)} of them behind its last whole row` : "";
    return h("figure", { class: "card" }, h("figcaption", {}, h("b", {}, one.name), ` ${bytes(one.bytes)}, ${number(one.rows)} rows of ${number(one.row_bytes)} bytes`), canvas,
      h("p", {}, `${bytes(one.read)} read, ${bytes(one.written)} written, ${bytes(one.never)} never touched${behind}`), told);
  }

  update() { if (this.built !== state.kernel) this.build(); }
}
