// What all views share: the document, elements, the selection, and its place in the URL's fragment.

async function unpacked() {
  const bytes = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const NS = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style" && typeof value === "object") for (const [key, to] of Object.entries(value)) node.style.setProperty(key, to);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element; attributes that begin with "on" are listeners. */
const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
/** Replaces what is in a node. */
const fill = (node, ...children) => { node.replaceChildren(); return filled(node, null, children); };
/** An SVG element. */
const s = (tag, attributes, ...children) => filled(document.createElementNS(NS, tag), attributes, children);

const number = (value) =>
  typeof value !== "number" ? String(value ?? "") : Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(4);
const hex = (value) => "0x" + value.toString(16);
/** The address of a row of the code: an offset in the kernel, or in a function that it calls. */
const addressOf = (columns, row) => columns.at?.[row] || hex(columns.offset[row]);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const sum = (values) => values.reduce((all, value) => all + value, 0);
/** The step of an arrow key, [across, down], which then does nothing else; undefined for other keys. */
function arrows(event) {
  const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
  if (step) event.preventDefault();
  return step;
}
const range = (count) => Array.from({ length: count }, (_, at) => at);

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  for (; count >= 10240 && at < 3; at++) count /= 1024;
  return `${number(Math.round(count))} ${units[at]}`;
}

/** Text as a button that selects something. */
const link = (text, changes, title) => h("button", { class: "link", type: "button", title, onclick: () => select(changes) }, text);

const td = (value) => (value instanceof Node || Array.isArray(value) ? h("td", {}, value) : h("td", { class: typeof value === "number" ? "n" : "" }, number(value)));
/** A table; rows: lists of cells, or made rows. */
const table = (columns, rows, options) => h("table", options, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
  h("tbody", {}, rows.map((row) => (Array.isArray(row) ? h("tr", {}, row.map(td)) : row))));

const button = (text, onclick) => h("button", { type: "button", onclick }, text);
/** A number or word beside a picture's axis. */
const axis = (x, y, text) => s("text", { class: "axis", x, y }, text);
/** Names and what they stand for, [name, value, title]; those without a value are left out. */
const terms = (entries) => h("dl", {}, entries.map(([name, value, title]) => value !== undefined && [h("dt", { title }, name), h("dd", {}, value)]));
/** A paragraph beside the matter. */
const aside = (...children) => h("p", { class: "dim" }, children);
const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), children);

/** A labelled <select>; options are [value, text]. */
function choice(label, options, value, onchange) {
  const made = h("select", { onchange: () => onchange(made.value) }, options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("label", {}, label, " ", made);
}

/** A labelled slider that shows its value. */
function slider(label, low, high, step, value, oninput, shown = String) {
  const out = h("output", {}, shown(value));
  const input = h("input", { type: "range", min: low, max: high, step, value, oninput: () => { out.textContent = shown(+input.value); oninput(+input.value); } });
  return h("label", { class: "slider" }, label, " ", input, out);
}

// -- the selection ---------------------------------------------------------------------------------

// What is selected, in all views: numbers and short words, as they stand in the fragment.
const WORDS = ["view", "heat", "operand", "colour"];
const state = { view: "", kernel: 0 };
const listeners = [];

function read() {
  const found = {};
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (WORDS.includes(key)) found[key] = value; else if (Number.isInteger(+value)) found[key] = +value;
  return found;
}

/** Changes the selection (undefined: no longer selected), the fragment, and every view. */
function select(changes) {
  const before = { ...state };
  Object.assign(state, changes);
  for (const key of Object.keys(state)) if (state[key] === undefined) delete state[key];
  history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(state).filter(([key, value]) => key !== "kernel" || value)));
  listeners.forEach((listener) => listener(before));
}

/** Whether any of the keys changed. */
const changed = (before, ...keys) => keys.some((key) => before[key] !== state[key]);

/** What draws a part of the document: `node`, filled by `update(before)` whenever the selection changes. */
class View {
  constructor(doc, name) {
    this.doc = doc;
    this.node = h("div", { class: `view ${name}` });
  }

  /** The kernel that is selected, undefined in a document without any. */
  get kernel() { return this.doc.kernels?.[state.kernel]; }
}

// -- long lists ------------------------------------------------------------------------------------

/** A list of rows of one height of which only those in sight are made. */
class Rows {
  constructor(count, height, make, attributes = {}, head = null) {
    Object.assign(this, { count, height, make, made: new Map() });
    this.inner = h("div", { class: "rows", style: { height: `${count * height}px` } });
    this.node = h("div", { class: "list", tabindex: 0, ...attributes }, head, this.inner);
    this.node.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.node);
    addEventListener("beforeprint", () => this.draw(true));
    addEventListener("afterprint", () => this.draw());
  }

  draw(all = false) {
    const first = all ? 0 : Math.floor(this.node.scrollTop / this.height) - 12;
    const last = all ? this.count : Math.ceil((this.node.scrollTop + this.node.clientHeight) / this.height) + 12;
    for (const [at, row] of this.made) if (at < first || at >= last) { row.remove(); this.made.delete(at); }
    for (let at = Math.max(0, first); at < Math.min(this.count, last); at++) {
      if (this.made.has(at)) continue;
      const row = this.make(at);
      row.style.top = `${at * this.height}px`;
      row.style.height = `${this.height}px`;
      this.inner.append(row);
      this.made.set(at, row);
    }
  }

  renew() {
    this.made.forEach((row) => row.remove());
    this.made.clear();
    this.draw();
  }

  /** Scrolls so that a row is in sight. */
  show(at) {
    const { scrollTop, clientHeight } = this.node, y = at * this.height;
    if (y < scrollTop + this.height || y > scrollTop + clientHeight - 2 * this.height) this.node.scrollTop = y - clientHeight / 3;
    this.draw();
  }
}

// -- colours ---------------------------------------------------------------------------------------

// Cividis (Nuñez, Anderton, Renslow 2018), made for every kind of colour vision: nine points of it.
const CIVIDIS = ["#00224e", "#1c3a6e", "#434e6c", "#61626f", "#7d7c78", "#9b9476", "#bcae6c", "#dcca56", "#fee838"].map((c) => [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16)));
// Diverging, blue to orange through grey (Crameri's vik, simplified).
const DIVERGING = [[0, 64, 133], [90, 150, 190], [236, 236, 236], [214, 140, 80], [140, 45, 4]];

function mixed(points, share) {
  const at = clamp(share, 0, 1) * (points.length - 1), low = Math.min(Math.floor(at), points.length - 2), part = at - low;
  return points[low].map((value, channel) => Math.round(value + (points[low + 1][channel] - value) * part));
}

const css = (rgb) => `rgb(${rgb.join(" ")})`;
const cividis = (share) => mixed(CIVIDIS, share);
const diverging = (share) => mixed(DIVERGING, share);
/** Black or white, whichever is read better on a colour. */
const ink = ([r, g, b]) => (0.2126 * r + 0.7152 * g + 0.0722 * b > 120 ? "#111" : "#fff");
