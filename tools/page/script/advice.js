// What to change in a kernel: the causes of its time, the first thing to change first, and its time without each.

class AdviceView extends View {
  static has = (doc) => doc.kernels?.some((kernel) => kernel.profile);

  update() {
    const { code } = this.kernel, { advice = [] } = this.kernel.profile || {};
    const line = ({ place, source }) => {
      const at = code.lines.indexOf(place), row = place.startsWith("0x") ? code.columns.offset.indexOf(parseInt(place)) : (code.columns.line || []).indexOf(at);
      return row >= 0 ? [link(place.split(" ")[0], { view: "source", row, heat: "stall" }), h("br"), h("code", {}, source)] : "the launch";
    };
    const bar = (gain) => h("span", { class: "gain", style: { "--share": gain } });
    const rows = advice.map((one) => [[bar(one.gain), `${one.bound ? "< " : ""}${number(100 * one.gain)} %`], `${number(1e6 * one.seconds)} µs`, one.kind, line(one), [one.why, h("br"), h("b", {}, one.change)]]);
    fill(this.node, rows.length ? table(["gain", "without it", "cause", "line", "what happens, and what to change"], rows) : h("p", {}, "No change was found that gains 1 %."),
      advice.some((one) => one.bound) ? aside("< is a bound: the time if this cost nothing. A change gains less.") : null);
  }
}
