// The roofline: what each kernel computes a byte of HBM, L2 and LDS, below what the GPU could do with it.

class RooflineView extends View {
  static has = (doc) => doc.roofline?.points.some((point) => point.flops && Object.keys(point.bytes).length);

  build() {
    const { gpu, dtype, peak, ceilings, points } = this.doc.roofline, width = 860, height = 460, left = 70, top = 20, right = 120, bottom = 50;
    const known = points.flatMap((point) => Object.entries(point.bytes).map(([level, count]) => ({ ...point, level, intensity: point.flops / count, roof: Math.min(peak, (point.flops / count) * ceilings[level]) }))).filter((one) => one.intensity > 0);
    const xs = [...known.map((one) => one.intensity), ...Object.values(ceilings).map((tb) => peak / tb)], low = Math.floor(Math.log10(Math.min(...xs)) - 0.3), high = Math.ceil(Math.log10(Math.max(...xs)) + 0.3);
    const ys = [peak, ...known.map((one) => one.roof), ...known.filter((one) => one.seconds).map((one) => one.flops / one.seconds / 1e12)], floor = Math.floor(Math.log10(Math.min(...ys)) - 0.3), ceil = Math.log10(peak) + 0.25;
    const x = (value) => left + ((Math.log10(value) - low) / (high - low)) * (width - left - right), y = (value) => top + (1 - (Math.log10(value) - floor) / (ceil - floor)) * (height - top - bottom);
    const parts = [];
    for (let at = low; at <= high; at++) parts.push(s("path", { class: "cut", d: `M${x(10 ** at)} ${top}V${height - bottom}` }), axis(x(10 ** at), height - bottom + 16, 10 ** at));
    for (let at = floor; at <= ceil; at++) parts.push(s("path", { class: "cut", d: `M${left} ${y(10 ** at)}H${width - right}` }), axis(left - 24, y(10 ** at) + 4, 10 ** at));
    const names = Object.keys(ceilings);
    for (const [name, tb] of Object.entries(ceilings)) {
      const knee = Math.min(peak / tb, 10 ** high), start = Math.max(10 ** low, 10 ** floor / tb);
      parts.push(s("path", { class: `roof l-${name}`, d: `M${x(start)} ${y(start * tb)}L${x(knee)} ${y(Math.min(peak, knee * tb))}H${x(10 ** high)}` }),
        axis(x(start) + 22, y(start * tb) - 8, name), s("text", { class: "start", x: width - right + 8, y: y(peak) + 4 + 18 * (names.indexOf(name) + 1) }, `${name} ${number(tb)} TB/s`));
    }
    parts.push(s("text", { class: "start", x: width - right + 8, y: y(peak) + 4 }, `${number(peak)} TFLOPS`));
    for (const one of known) {
      const title = `${one.name}: ${number(one.intensity)} FLOP a byte of ${one.level}, at most ${number(one.roof)} TFLOPS`, cx = x(one.intensity), cy = y(one.roof);
      parts.push(s("g", { class: `point l-${one.level}` }, s("title", {}, title), one.name === "planned" ? s("rect", { x: cx - 5, y: cy - 5, width: 10, height: 10, class: "hollow" }) : s("circle", { cx, cy, r: 6 })));
      if (one.seconds) parts.push(s("path", { class: `drop l-${one.level}`, d: `M${cx} ${cy}V${y(one.flops / one.seconds / 1e12)}` }), s("path", { class: `point l-${one.level}`, d: `M${cx - 6} ${y(one.flops / one.seconds / 1e12)}h12` }));
    }
    parts.push(axis((left + width - right) / 2, height - 12, "FLOP a byte"), s("text", { class: "start", x: 6, y: 12 }, "TFLOPS"));
    const rows = known.map((one) => [one.name, one.level, bytes(one.bytes[one.level]), one.intensity, one.roof, one.roof >= peak ? "the matrix units" : one.level]);
    fill(this.node, h("h2", {}, `${gpu}, ${dtype}`), aside("Circles: bytes as executed, of HBM each byte once, of L2 and LDS as asked for. Squares: what the plan moves. Each stands at the most that its level allows; a bar below it is the time, modelled or measured."),
      s("svg", { class: "grid", width, height, "aria-label": "roofline" }, parts), table(["", "level", "moved", "FLOP a byte", "at most TFLOPS", "limited by"], rows));
  }

  update() { if (!this.node.firstChild) this.build(); }
}
