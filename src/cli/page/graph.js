// A graph in a panel: Netron's grapher draws, its dagre lays out; here are the boxes, the choosing, the keys and the zoom.

/// The block inside a box. `lines`: [class, text, "end" if the end of a text that is too long is shown and not its beginning]; `share`: the part of the box's width that the time bar fills.
class Card {
  constructor(box) {
    this.box = box;
  }

  build(document, parent) {
    const { colour, lines, width, height, share } = this.box;
    parent.append(h("rect", { class: `fill ${colour}`, width, height, rx: 5 }));
    lines.forEach(([kind, text, part], i) => {
      const most = Math.floor((width - 14) / (kind === "name" ? 7.5 : 6.3));
      const kept = Math.max(most - 1, 1);
      const shown = text.length <= most ? text : part === "end" ? `…${text.slice(-kept)}` : `${text.slice(0, kept)}…`;
      parent.append(h("text", { class: `${kind} on-${colour}`, x: 8, y: 16 + 15 * i }, shown));
    });
    if (share > 0) parent.append(h("rect", { class: "time", x: 4, y: height - 6, width: Math.max((width - 8) * share, 1.5), height: 3 }));
    parent.append(h("title", {}, this.box.label));
  }

  measure() {
    this.width = this.box.width;
    this.height = this.box.height;
  }

  layout() {}

  update() {}
}

/// dagre in this thread, as the grapher asks a worker for it.
const layouter = {
  async request({ nodes, edges, layout, state }) {
    dagre.layout(nodes, edges, layout, state);
    return { type: "dagre.layout", nodes, edges, state };
  },
};

class GraphPanel {
  /// `boxes`: {key, minor (not what a reader looks for first), label (for screen readers), colour, classes, lines, width, height, share}; `links`: [from key, to key];
  /// `choose`: called with the key of a box that is clicked, or reached by keys.
  constructor(title, kind, boxes, links, choose) {
    this.boxes = boxes;
    this.choose = choose;
    this.zoom = 1;
    this.canvas = h("svg", { role: "group", "aria-label": `${title}. Arrow keys go from box to box.` });
    this.origin = h("g", {});
    this.canvas.append(this.origin);
    this.view = h("div", { class: "view" }, this.canvas);
    const zoomed = (factor) => () => this.zoomTo(this.zoom * factor);
    this.element = h("section", { class: `panel ${kind}`, "aria-label": title },
      h("div", { class: "bar" }, h("b", { title }, title),
        h("button", { onclick: zoomed(1 / 1.3), "aria-label": `${title}: smaller` }, "−"),
        h("button", { onclick: zoomed(1.3), "aria-label": `${title}: larger` }, "+"),
        h("button", { onclick: () => this.fit(), "aria-label": `${title}: fit the width` }, "fit")),
      this.view);
    this.links = links;
    this.elements = new Map();
    this.view.addEventListener("wheel", (e) => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      this.zoomTo(this.zoom * (e.deltaY < 0 ? 1.12 : 1 / 1.12));
    }, { passive: false });
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    this.drag();
  }

  async draw() {
    const graph = new grapher.Graph(false);
    graph.options = { direction: "vertical" };
    const nodes = new Map();
    for (const box of this.boxes) {
      const node = new grapher.Node();
      node.name = box.key;
      node.class = box.classes;
      node.blocks.push(new Card(box));
      nodes.set(box.key, node);
      graph.setNode(node);
    }
    this.paths = [];
    for (const [from, to] of this.links) {
      if (graph.edge(from, to)) continue;
      const edge = new grapher.Edge(nodes.get(from), nodes.get(to));
      edge.v = from;
      edge.w = to;
      graph.setEdge(edge);
      this.paths.push(edge);
    }
    graph.build(document, this.origin);
    for (const group of this.origin.querySelectorAll("[id]")) group.removeAttribute("id");  // two graphs in a page
    await graph.measure();
    await graph.layout(layouter);
    graph.update();
    this.size = [(graph.width || 100) + 40, (graph.height || 100) + 40];
    this.canvas.setAttribute("viewBox", `${(graph.originX || 0) - 20} ${(graph.originY || 0) - 20} ${this.size[0]} ${this.size[1]}`);
    for (const box of this.boxes) {
      const node = nodes.get(box.key);
      this.elements.set(box.key, node.element);
      node.element.setAttribute("role", "button");
      node.element.setAttribute("aria-label", box.label);
      node.element.setAttribute("aria-pressed", "false");
      node.element.setAttribute("tabindex", box === this.boxes[0] ? "0" : "-1");
      node.element.dataset.key = box.key;
      node.element.addEventListener("click", () => this.choose(box.key));
      box.at = [node.x - (graph.originX || 0) + 20, node.y - (graph.originY || 0) + 20];
    }
    this.zoomTo(Math.max(0.7, this.widest()));
    if (this.boxes.length) this.view.scrollTo(this.boxes[0].at[0] * this.zoom - this.view.clientWidth / 2, 0);
  }

  widest() {
    return Math.min(1, (this.view.clientWidth - 16) / this.size[0]);
  }

  fit() {
    this.zoomTo(Math.max(0.2, this.widest()));
  }

  zoomTo(zoom) {
    const [x, y] = [(this.view.scrollLeft + this.view.clientWidth / 2) / this.zoom, (this.view.scrollTop + this.view.clientHeight / 2) / this.zoom];
    this.zoom = Math.max(0.05, Math.min(3, zoom));
    this.canvas.setAttribute("width", this.size[0] * this.zoom);
    this.canvas.setAttribute("height", this.size[1] * this.zoom);
    this.view.scrollLeft = x * this.zoom - this.view.clientWidth / 2;
    this.view.scrollTop = y * this.zoom - this.view.clientHeight / 2;
  }

  drag() {
    let from = null;
    this.view.addEventListener("pointerdown", (e) => {
      if (e.target.closest(".node") || e.button !== 0) return;
      from = [e.clientX + this.view.scrollLeft, e.clientY + this.view.scrollTop];
      this.view.classList.add("dragging");
    });
    this.view.addEventListener("pointermove", (e) => {
      if (!from) return;
      this.view.scrollLeft = from[0] - e.clientX;
      this.view.scrollTop = from[1] - e.clientY;
    });
    const stop = () => { from = null; this.view.classList.remove("dragging"); };
    this.view.addEventListener("pointerup", stop);
    this.view.addEventListener("pointerleave", stop);
  }

  key(e) {
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    const keys = this.boxes.map((b) => b.key);
    const at = keys.indexOf(e.target.dataset.key);
    let to = at;
    if (e.key in steps) to = at + steps[e.key];
    else if (e.key === "Home") to = 0;
    else if (e.key === "End") to = keys.length - 1;
    else if (e.key !== "Enter" && e.key !== " ") return;
    e.preventDefault();
    if (to < 0 || to >= keys.length) return;
    this.elements.get(keys[to]).focus({ preventScroll: true });
    this.choose(keys[to]);
  }

  /// Marks the chosen boxes, those that belong to them (in the other plan, or of the same region), and the edges at them.
  mark(chosen, mates, scroll) {
    for (const [key, element] of this.elements) {
      element.classList.toggle("selected", chosen.has(key));
      element.classList.toggle("mate", mates.has(key) && !chosen.has(key));
      element.setAttribute("aria-pressed", String(chosen.has(key)));
    }
    const first = this.boxes.find((b) => chosen.has(b.key)) || this.boxes.find((b) => mates.has(b.key) && !b.minor) || this.boxes.find((b) => mates.has(b.key));
    for (const edge of this.paths || []) edge.element.classList.toggle("near", chosen.has(edge.v) || chosen.has(edge.w));
    if (!first || !this.elements.size) return;
    for (const [key, element] of this.elements) element.setAttribute("tabindex", key === first.key ? "0" : "-1");
    if (scroll) this.show(first);
  }

  show(box) {
    const [x, y] = box.at.map((v) => v * this.zoom);
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.view;
    const out = x < scrollLeft + 40 || x > scrollLeft + clientWidth - 40 || y < scrollTop + 30 || y > scrollTop + clientHeight - 30;
    if (out) this.view.scrollTo(x - clientWidth / 2, y - clientHeight / 2);
  }

  /// Boxes that `keeps` refuses fade.
  fade(keeps) {
    for (const [key, element] of this.elements) element.classList.toggle("dim", !keeps(key));
  }
}
