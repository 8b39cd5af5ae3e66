// The modelled compute unit: a line a wave's place, an event an instruction, over clocks.

class WavesView extends View {
  static has = (doc) => doc.kernels?.some((kernel) => kernel.waves);

  get waves() { return this.kernel.waves; }

  build() {
    const waves = this.waves;
    this.built = state.kernel;
    let now = 0;
    this.came = waves.came.map((step) => (now += step));
    this.end = Math.max(1, ...this.came.map((came, at) => came + waves.until[at]));
    this.from = 0;
    this.to = this.end;
    this.high = clamp(Math.floor(520 / waves.places.length), 8, 26);
    this.canvas = h("canvas", { class: "timeline", tabindex: 0, role: "img", "aria-label": "waves over clocks; + and - zoom, arrows move" });
    this.told = aside("Wheel zooms, dragging moves; click an event to select its instruction. Keys: + − ← →");
    const classes = [...new Set(this.kernel.code.columns.class)].filter(Boolean);
    fill(this.node, h("p", {}, waves.said), waves.model_notes.map((note) => aside(note)),
      h("div", { class: "bar" }, h("span", { class: "legend", style: { margin: 0 } }, classes.map((name) => h("span", { class: `dot c-${name}` }, CLASS_NAMES[name])), h("span", {}, "pale: waiting to issue")), h("span", { class: "dim" }, waves.cut ? `the first ${number(waves.row.length)} events` : "")), this.canvas, this.told,
      h("p", {}, "Of the peaks: ", Object.entries(waves.shares).map(([unit, share]) => `${unit} ${number(100 * share)} %`).join(", ")));
    const at = (e) => { const box = this.canvas.getBoundingClientRect(); return [this.from + ((e.clientX - box.left - 110) / (box.width - 110)) * (this.to - this.from), Math.floor((e.clientY - box.top - 18) / this.high)]; };
    this.canvas.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(at(e)[0], e.deltaY > 0 ? 1.25 : 0.8); }, { passive: false });
    this.canvas.addEventListener("mousemove", (e) => { if (e.buttons) this.move(-e.movementX / (this.canvas.clientWidth - 110)); const found = this.event(...at(e)); this.told.textContent = found >= 0 ? this.say(found) : ""; });
    this.canvas.addEventListener("click", (e) => { const found = this.event(...at(e)); if (found >= 0) select({ row: waves.row[found] }); });
    this.canvas.addEventListener("keydown", (e) => { const middle = (this.from + this.to) / 2; ({ "+": () => this.zoom(middle, 0.7), "-": () => this.zoom(middle, 1.4), ArrowLeft: () => this.move(-0.1), ArrowRight: () => this.move(0.1) })[e.key]?.(); });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  zoom(at, factor) {
    const from = clamp(at - (at - this.from) * factor, 0, this.end), to = clamp(at + (this.to - at) * factor, from + 8, Math.max(this.end, from + 8));
    [this.from, this.to] = [from, to];
    this.draw();
  }

  move(share) {
    const width = this.to - this.from, from = clamp(this.from + share * width, 0, Math.max(0, this.end - width));
    [this.from, this.to] = [from, from + width];
    this.draw();
  }

  event(clock, place) { return this.waves.place.findIndex((where, at) => where === place && this.came[at] <= clock && clock < this.came[at] + this.waves.until[at]); }

  say(at) {
    const { code } = this.kernel, waves = this.waves, row = waves.row[at];
    return `${waves.places[waves.place[at]]}, workgroup ${waves.group[at]}, clock ${number(this.came[at])}: ${code.columns.text[row]}, ${number(waves.until[at])} clocks, ${number(waves.issue[at])} of them waiting${code.columns.reason?.[row] ? `; stalls on ${code.columns.reason[row]}` : ""}`;
  }

  draw() {
    const waves = this.waves, ratio = devicePixelRatio, width = this.canvas.clientWidth, high = 18 + waves.places.length * this.high + 6;
    this.canvas.style.height = `${high}px`;
    this.canvas.width = width * ratio;
    this.canvas.height = high * ratio;
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(this.canvas), { code } = this.kernel;
    pen.scale(ratio, ratio);
    pen.font = `11px ${style.getPropertyValue("--mono")}`;
    const x = (clock) => 110 + ((clock - this.from) / (this.to - this.from)) * (width - 110), dim = style.color, tints = {};
    const probe = h("span");
    this.node.append(probe);
    for (const name of Object.keys(CLASS_NAMES)) { probe.className = `c-${name}`; tints[name] = getComputedStyle(probe).color; }
    probe.remove();
    pen.fillStyle = dim;
    waves.places.forEach((place, at) => pen.fillText(place, 0, 18 + at * this.high + this.high / 2 + 4));
    for (const clock of [0, 0.25, 0.5, 0.75].map((part) => this.from + part * (this.to - this.from))) pen.fillText(number(Math.round(clock)), x(clock), 11);
    pen.beginPath();
    pen.rect(110, 0, width, high);
    pen.clip();
    for (let at = 0; at < waves.row.length; at++) {
      const came = this.came[at], until = came + waves.until[at];
      if (until < this.from || came > this.to) continue;
      const left = x(came), issue = x(came + waves.issue[at]), right = Math.max(x(until), left + 0.5), y = 18 + waves.place[at] * this.high;
      pen.fillStyle = tints[code.columns.class[waves.row[at]]] || dim;
      pen.globalAlpha = 0.28;
      pen.fillRect(left, y, issue - left, this.high - 2);
      pen.globalAlpha = 1;
      pen.fillRect(issue, y, Math.max(0.5, right - issue), this.high - 2);
      if (waves.row[at] === state.row) { pen.strokeStyle = "#d4006a"; pen.lineWidth = 2; pen.strokeRect(left, y, right - left, this.high - 2); }
    }
  }

  update() {
    if (!this.waves) return fill(this.node, aside("No time was modelled for this kernel."));
    if (this.built !== state.kernel) this.build();
    this.draw();
    if (state.row !== undefined) this.told.textContent = `Selected: ${this.kernel.code.columns.text[state.row]}`;
  }
}
