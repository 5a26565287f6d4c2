// One plan: the document of `octavo explain --json`, and what the page derives from it.
const FILTERS = [
  ["slow", "slow", "regions that take 5 % of the time or more"],
  ["float", "float", "regions computed in a float type"],
  ["copies", "copies", "copies, and passes that only change type or scale"],
  ["roundings", "roundings", "regions inside which the placement of Q/DQ demands a rounding"],
  ["kernels", "slow kernels", "regions whose kernel has no vector code"],
];
const SLOW_SHARE = 0.05;
/// What the colours mean; style.css has them.
const COLOURS = { int8: "int8", float: "float32", bfloat: "bfloat16", convert: "change of type or scale", move: "copy", other: "other" };

/// The class that gives a region its colour.
function colourOf(region) {
  if (region.kind === "requantize" || region.precision.includes("->")) return "convert";
  if (region.precision.startsWith("int8")) return "int8";
  if (region.precision.startsWith("bfloat16")) return "bfloat";
  if (region.precision.startsWith("float")) return "float";
  return region.precision === "move" ? "move" : "other";
}

class Plan {
  constructor(document, index) {
    this.document = document;
    this.index = index;
    this.label = document.file || document.model || `plan ${index + 1}`;
    this.regions = document.regions;
    this.inputs = document.inputs;
    this.outputs = document.outputs;
    const profile = document.profile;
    this.times = this.regions.map((r, i) => (profile ? profile.regions[i] : r.seconds));
    this.timed = this.times.some((t) => t !== undefined);
    this.total = this.times.reduce((sum, t) => sum + (t || 0), 0);
    this.longest = Math.max(...this.times.map((t) => t || 0), 0);
    this.source = profile ? `median of ${profile.runs} runs, each region timed` : document.cost_source === "measured" ? "measured while planning" : "estimated, not measured";
    this.regionsOfNode = new Map();
    this.regions.forEach((r, i) => {
      for (const node of r.onnx_nodes) {
        if (!this.regionsOfNode.has(node)) this.regionsOfNode.set(node, []);
        this.regionsOfNode.get(node).push(i);
      }
    });
    this.nodes = new Map((document.onnx ? document.onnx.nodes : []).map((n) => [n.name, n]));
    this.roundings = this.regions.map(() => []);
    for (const rounding of document.roundings || []) {
      const around = new Set([...rounding.onnx_nodes, ...rounding.around]);
      const shared = this.regions.map((r) => r.onnx_nodes.filter((n) => around.has(n)).length);
      const most = Math.max(...shared);
      if (most > 0) this.roundings[shared.indexOf(most)].push(rounding);
    }
    this.noise = this.regions.map(() => undefined);
    for (const layer of document.accuracy ? document.accuracy.layers : []) {
      for (const i of this.regionsOfNode.get(layer.node) || []) {
        this.noise[i] = this.noise[i] === undefined ? layer.sqnr_db : Math.min(this.noise[i], layer.sqnr_db);
      }
    }
    this.classes = this.regions.map((r, i) => this.classesOf(r, i));
    this.texts = this.regions.map((r) => [r.name, r.tactic, r.precision, ...r.onnx_nodes, ...tensorsOf(r).map((t) => t.name)].join("\n").toLowerCase());
  }

  /// "54: 53 int8, 1 change of type or scale".
  counts() {
    const of = Object.entries(COLOURS).map(([colour, word]) => [this.regions.filter((r) => colourOf(r) === colour).length, word]);
    return `${this.regions.length}: ${of.filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`).join(", ")}`;
  }

  share(i) {
    return this.total > 0 ? (this.times[i] || 0) / this.total : 0;
  }

  slowKernel(i) {
    return this.regions[i].vector === false || this.regions[i].reference === true;
  }

  /// The filters that a region passes.
  classesOf(region, i) {
    const colour = colourOf(region);
    const passes = {
      slow: this.share(i) >= SLOW_SHARE, float: colour === "float" || colour === "bfloat", copies: region.kind === "copy" || region.kind === "requantize" || colour === "move",
      roundings: this.roundings[i].length > 0, kernels: this.slowKernel(i)};
    return new Set(FILTERS.map((f) => f[0]).filter((f) => passes[f]));
  }

  decisionsAbout(region) {
    const nodes = new Set(region.onnx_nodes);
    return this.document.decisions.filter((d) => d.onnx_nodes.some((n) => nodes.has(n)));
  }

  lawsAbout(region) {
    const laws = this.document.laws;
    if (!laws) return [];
    const nodes = new Set(region.onnx_nodes);
    return [...laws.applied.filter((l) => l.onnx_nodes.some((n) => nodes.has(n))).map((l) => [l.rule, l.reason, l.equation]),
            ...laws.refused.filter((l) => nodes.has(l.node)).map((l) => [l.rule, `refused at ${l.node}: ${l.reason}`, ""])];
  }
}

function tensorsOf(region) {
  return region.stages.flatMap((s) => [...s.inputs, ...(s.weights ? [s.weights] : []), ...s.outputs]);
}

function timeText(seconds) {
  if (seconds === undefined || seconds === null) return "no time";
  const us = seconds * 1e6;
  return us >= 1e4 ? `${(us / 1e3).toPrecision(4)} ms` : `${us.toPrecision(us >= 1000 ? 4 : 3)} µs`;
}

function bytesText(bytes) {
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(2)} MB` : bytes >= 1e3 ? `${(bytes / 1e3).toFixed(1)} kB` : `${bytes} B`;
}

function countText(n) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  return String(n);
}

/// An element. Children are text or elements: text is never markup.
function h(tag, attributes, ...children) {
  const svg = ["svg", "g", "rect", "text", "path", "line", "title"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) element.append(child instanceof Node ? child : String(child));
  return element;
}
