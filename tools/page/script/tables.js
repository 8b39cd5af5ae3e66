// Tables: a document's own, and the registers of a wave at the places where `simgpu trace` stopped it.

const cards = (tables) => tables.map(([title, columns, rows]) => card(title, table(columns, rows)));

class RegistersView extends View {
  static has = (doc) => doc.kernels?.some((kernel) => kernel.stops?.length);

  update() {
    const stops = this.kernel.stops || [], at = clamp(state.stop ?? 0, 0, stops.length - 1), one = stops[at];
    if (!one) return fill(this.node);
    fill(this.node, stops.length > 1 ? slider("Visit", 0, stops.length - 1, 1, at, (stop) => select({ stop, row: stops[stop].row })) : null,
      h("h2", {}, "Before ", link(one.text, { view: "source", row: one.row })), aside(one.who),
      h("div", { class: "buffers" }, cards(one.tables)));
  }
}

class TablesView extends View {
  static has = (doc) => Boolean(doc.tables);

  update() { fill(this.node, cards(this.doc.tables)); }
}
