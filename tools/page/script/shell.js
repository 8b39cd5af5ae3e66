// The window: head, tabs, the view in sight, help.

const VIEWS = [
  ["advice", "Advice", AdviceView],
  ["tables", "Tables", TablesView],
  ["source", "Source", SourceView],
  ["registers", "Registers", RegistersView],
  ["fragments", "Fragments", FragmentsView],
  ["lds", "LDS", LdsView],
  ["tree", "Tree", TreeView],
  ["roofline", "Roofline", RooflineView],
  ["waves", "Waves", WavesView],
  ["traffic", "Traffic", TrafficView],
  ["compare", "Compare", CompareView],
];

const icon = (text, title, onclick) => h("button", { type: "button", class: "icon", title, "aria-label": title, onclick }, text);

function theme() {
  const next = { "": "dark", dark: "light", light: "" };
  const root = document.documentElement, made = icon("", "light or dark", () => set(next[root.dataset.theme ?? ""]));
  const set = (name) => {
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    made.textContent = { dark: "☾", light: "☀", "": "◐" }[name];
  };
  set("");
  return made;
}

const KEYS = [["1 … 9", "choose a view"], ["/", "search instructions"], ["↑ ↓ ← →", "move in a list or a grid"], ["Enter", "next found; with Shift, the one before"], ["?", "this help"]];

function start(doc) {
  const views = VIEWS.filter(([, , view]) => view.has(doc)), made = {};
  const main = h("main", {}), help = h("dialog", {}, h("h2", {}, "Keys"), terms(KEYS.map(([key, what]) => [h("kbd", {}, key), what])), h("p", {}, "What is selected stands in the address: a copy of it opens the page at the same place."), h("form", { method: "dialog" }, h("button", {}, "Close")));
  const tabs = h("div", { role: "tablist", class: "tabs" }, views.map(([id, title], at) => h("button", { role: "tab", id: `tab-${id}`, type: "button", title: `key ${at + 1}`, onclick: () => select({ view: id }) }, title)));
  tabs.addEventListener("keydown", (e) => {
    const step = arrows(e)?.[0];
    if (!step) return;
    const at = (views.findIndex(([id]) => id === state.view) + step + views.length) % views.length;
    select({ view: views[at][0] });
    tabs.children[at].focus();
  });
  const kernels = doc.kernels?.length > 1 ? choice("Kernel", doc.kernels.map((kernel, at) => [at, kernel.name]), state.kernel, (at) => select({ kernel: +at, row: undefined, visit: undefined })) : null;
  document.body.append(
    h("header", {}, h("div", { class: "title" }, h("h1", {}, doc.title), aside(doc.command || `simgpu ${doc.simgpu}`)), kernels, tabs, theme(), icon("?", "keys", () => help.showModal())),
    facts(doc), findings(doc), ...(doc.notes || []).map((note) => h("p", { class: "notice" }, note)), main, help);
  const show = (before) => {
    const [id, , Chosen] = views.find(([name]) => name === state.view) || views[0];
    if (state.view !== id) state.view = id;
    const first = !made[id];
    made[id] ??= new Chosen(doc, id);
    if (main.firstChild !== made[id].node) fill(main, made[id].node);
    for (const tab of tabs.children) {
      const on = tab.id === `tab-${id}`;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
    }
    made[id].update(first || before.view !== id ? {} : before);
  };
  listeners.push(show);
  addEventListener("hashchange", () => { const found = read(); select({ ...Object.fromEntries(Object.keys(state).map((key) => [key, undefined])), kernel: 0, ...found }); });
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /INPUT|TEXTAREA|SELECT/.test(e.target.tagName)) return;
    const view = views[Number(e.key) - 1];
    if (view) select({ view: view[0] });
    else if (e.key === "?") help.showModal();
    else if (e.key === "/") { const box = main.querySelector("input[type=search]"); if (box) { e.preventDefault(); box.focus(); } }
  });
  Object.assign(state, read());
  state.kernel = clamp(state.kernel, 0, Math.max(0, (doc.kernels?.length ?? 1) - 1));
  show({});
  globalThis.simgpu = { doc, select, state, valueOf, valuesOf, pastedLayout, lostClocks, movedAddress };  // for the browser's console
  document.documentElement.dataset.ready = "";
}

/** What a run came to, on one line a kernel. */
function facts(doc) {
  const kernel = (one) => {
    const flops = one.counters.mfma_flops, said = [one.instructions && `${number(one.instructions)} wave-instructions`, one.grid && `grid ${one.grid.join(" × ")}`, one.block && `block ${one.block.join(" × ")}`,
      flops && `${number(flops / 1e6)} MFLOP in matrix units`, one.counters.unique_read_bytes !== undefined && `${bytes(one.counters.global_read_bytes)} asked for, ${bytes(one.counters.unique_read_bytes)} distinct`];
    const inexact = Object.entries(one.fidelity).filter(([kind, count]) => kind !== "exact" && count).map(([kind, count]) => `${number(count)} ${kind}`);
    return h("p", { class: "facts" }, h("b", {}, one.name), ` on ${one.target}: ${said.filter(Boolean).join(" · ")}`, inexact.length ? ` · ${inexact.join(", ")}` : one.instructions ? " · all exact" : "",
      one.error && h("span", { class: "tag error" }, one.error));
  };
  return h("div", { class: "head" }, (doc.kernels || []).map(kernel), doc.verdict ? h("p", { class: "facts" }, doc.verdict) : null);
}

/** What checks found, each with a way to its instruction. */
function findings(doc) {
  const found = (doc.kernels || []).flatMap((one, kernel) => one.code.findings.map((finding) => ({ ...finding, kernel })));
  return found.length ? h("details", { class: "findings", open: true }, h("summary", {}, `Findings: ${found.length}`), found.map(({ kind, severity, kernel, row, text }) =>
    h("pre", { class: `finding ${severity}` }, row !== null && [link(kind, { view: "source", kernel, row }), "\n"], text))) : "";
}

unpacked().then(start).catch((error) => { document.body.append(h("pre", { class: "finding error" }, `This page does not open in this browser: ${error}`)); throw error; });
