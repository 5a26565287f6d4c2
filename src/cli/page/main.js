// The page: plans, panels, and what is chosen, searched and filtered.
const started = performance.now();
const $ = (id) => document.getElementById(id);

function complain(error) {
  $("problem").hidden = false;
  $("problem").textContent = `This page cannot show its plan: ${error && error.message ? error.message : error}`;
  document.documentElement.dataset.state = "failed";
  console.error(error);
}

class Page {
  constructor(documents) {
    this.plans = documents.map((d, i) => new Plan(d, i));
    this.filters = new Set();
    this.wanted = "";
    this.hits = [];
    this.hit = -1;
    this.chosen = null;  // [plan, key]
    this.tab = this.plans.length > 1 ? "compare" : null;
    this.current = 0;
    this.groups = this.plans.length > 1 ? alike(this.plans[0], this.plans[1]) : [];
    this.panels = [];
    document.title = `${this.plans.map((p) => p.label).join(" | ")} – Octavo plan`;
    $("title").textContent = this.plans.map((p) => p.label).join("  |  ");
  }

  async start() {
    this.head();
    for (const plan of this.plans) {
      const [boxes, links] = planBoxes(plan);
      this.panels.push({ plan, kind: "plan", panel: new GraphPanel(this.plans.length > 1 ? `${plan.index ? "Second" : "First"} plan: ${plan.label}` : "Plan: as wide as the time", "plan", boxes, links, (key) => this.choose(plan.index, key)) });
    }
    const shown = this.plans.find((p) => p.document.onnx && p.document.onnx.nodes.length);
    if (shown) {
      const [boxes, links] = onnxBoxes(shown);
      this.panels.push({ plan: shown, kind: "onnx", panel: new GraphPanel(`ONNX graph: ${boxes.length} nodes`, "onnx", boxes, links, (key) => this.choose(shown.index, key)) });
    }
    this.details = h("div", { class: "view", id: "details", tabindex: "0", "aria-live": "polite" }, h("p", { class: "note" }, "Choose a region or a node: click, or go there with Tab and the arrow keys."));
    $("panels").append(...this.panels.map((p) => p.panel.element), h("section", { class: "panel details", "aria-label": "Details" }, h("div", { class: "bar" }, h("b", {}, "Details")), this.details));
    for (const { panel, kind } of this.panels) {
      if (kind === "onnx") await new Promise((done) => setTimeout(done, 0));  // the plan is seen first
      await panel.draw();
    }
    this.tabs();
    this.refresh();
    document.documentElement.dataset.ms = String(Math.round(performance.now() - started));
    document.documentElement.dataset.state = "ready";
  }

  head() {
    const columns = [["", (p) => (this.plans.length > 1 ? (p.index ? "second" : "first") : "")], ["regions", (p) => p.counts()], ["time of the regions", (p) => (p.timed ? `${timeText(p.total)}, ${p.source}` : "no times")],
      ["whole run", (p) => (p.document.profile ? timeText(p.document.profile.median_seconds) : "–")], ["working memory", (p) => p.document.devices.map((d) => bytesText(d.arena_bytes)).join(" + ")],
      ["inputs", (p) => p.document.inputs.map((i) => `${i.name} [${i.shape}]`).join(", ")], ["decisions", (p) => (p.document.decided_for ? `of the plan for ${p.document.decided_for}` : "for these shapes")],
      ["threads", (p) => p.document.threads], ["plan", (p) => p.document.plan_hash.slice(0, 8)]];
    $("summary").append(h("table", {}, h("tr", {}, columns.map(([name]) => h("th", { scope: "col" }, name))), this.plans.map((p) => h("tr", {}, columns.map(([, of]) => h("td", {}, of(p)))))));
    for (const [name, label, title] of FILTERS) {
      const count = this.plans.map((p) => p.classes.filter((c) => c.has(name)).length);
      const button = h("button", { "aria-pressed": "false", "data-filter": name, title, disabled: count.every((n) => n === 0), onclick: () => {
        if (!this.filters.delete(name)) this.filters.add(name);
        button.setAttribute("aria-pressed", String(this.filters.has(name)));
        this.refresh();
      } }, `${label} ${count.join(" | ")}`);
      $("filters").append(button, " ");
    }
    for (const [name, text] of [...Object.entries(COLOURS), ["slow-kernel", "slow kernel"]]) $("legend").append(h("span", { class: `tag ${name}` }, text));
    $("search").addEventListener("input", () => { this.wanted = $("search").value.trim().toLowerCase(); this.hit = -1; this.refresh(); });
    $("search").addEventListener("keydown", (e) => { if (e.key === "Enter") this.nextHit(e.shiftKey ? -1 : 1); });
    document.addEventListener("keydown", (e) => {
      if (e.key === "/" && document.activeElement !== $("search")) { e.preventDefault(); $("search").focus(); }
      if (e.key === "Escape") { $("search").value = ""; this.wanted = ""; this.refresh(); }
    });
  }

  tabs() {
    const names = [["regions", "All regions"], ["memory", "Memory over time"], ...(this.plans.length > 1 ? [["compare", "Comparison"]] : [])];
    $("tabs").replaceChildren(...names.map(([name, label]) => h("button", { role: "tab", "data-tab": name, "aria-controls": "sheet", "aria-selected": String(this.tab === name), onclick: () => {
      this.tab = this.tab === name ? null : name;
      this.tabs();
      this.refresh();
    } }, label)));
    if (this.plans.length > 1 && this.tab !== "compare" && this.tab) {
      $("tabs").append(" of the ", ...this.plans.map((p) => h("button", { "aria-pressed": String(this.current === p.index), onclick: () => { this.current = p.index; this.tabs(); this.refresh(); } }, p.index ? "second" : "first")));
    }
  }

  /// Does a region (or a node, through its regions) pass the filters and the search?
  keeps(plan, key) {
    const [kind, name] = [key.slice(0, key.indexOf(":")), key.slice(key.indexOf(":") + 1)];
    if (kind === "region") {
      const i = Number(name);
      if (this.filters.size && ![...this.filters].some((f) => plan.classes[i].has(f))) return false;
      return !this.wanted || plan.texts[i].includes(this.wanted);
    }
    if (kind === "node") {
      const regions = plan.regionsOfNode.get(name) || [];
      if (this.filters.size && !regions.some((i) => [...this.filters].some((f) => plan.classes[i].has(f)))) return false;
      const node = plan.nodes.get(name);
      return !this.wanted || `${name}\n${node ? `${node.op}\n${node.inputs.join("\n")}\n${node.outputs.join("\n")}` : ""}`.toLowerCase().includes(this.wanted);
    }
    return !this.filters.size && (!this.wanted || name.toLowerCase().includes(this.wanted));
  }

  refresh() {
    for (const { plan, panel } of this.panels) panel.fade((key) => this.keeps(plan, key));
    this.hits = !this.wanted ? [] : this.plans.flatMap((p) => p.regions.map((_, i) => [p.index, `region:${i}`]).filter(([, key]) => this.keeps(p, key)));
    $("found").textContent = !this.wanted ? "" : this.hits.length ? `${this.hit < 0 ? "" : `${this.hit + 1} of `}${this.hits.length} found` : "nothing found";
    const plan = this.plans[this.current];
    const chosen = this.chosen && this.chosen[0] === plan.index && this.chosen[1].startsWith("region:") ? Number(this.chosen[1].slice(7)) : -1;
    const sheets = {
      regions: () => regionTable(plan, (key) => this.keeps(plan, key), (key) => this.choose(plan.index, key)), memory: () => memoryChart(plan, chosen, (key) => this.choose(plan.index, key)),
      compare: () => comparison(this.plans[0], this.plans[1], this.groups, (side, key) => this.choose(side, key))};
    const top = $("sheet").scrollTop;
    $("sheet").replaceChildren(...(this.tab ? [sheets[this.tab]()] : []));
    $("sheet").scrollTop = top;
    this.mark(false);
  }

  nextHit(step) {
    if (!this.hits.length) return;
    this.hit = (this.hit + step + this.hits.length) % this.hits.length;
    this.choose(...this.hits[this.hit]);
  }

  choose(side, key) {
    this.chosen = [side, key];
    this.current = side;
    const plan = this.plans[side];
    const go = (s, k) => this.choose(s, k);
    const name = key.slice(key.indexOf(":") + 1);
    if (key.startsWith("region:")) this.details.replaceChildren(...regionDetails(plan, Number(name), go));
    else if (key.startsWith("node:")) this.details.replaceChildren(...nodeDetails(plan, name, go));
    else this.details.replaceChildren(h("h2", {}, key.replace(":", " ")));
    this.details.scrollTop = 0;
    if (this.tab === "memory") this.refresh();
    if (this.wanted) $("found").textContent = this.hits.length ? `${this.hit < 0 ? "" : `${this.hit + 1} of `}${this.hits.length} found` : "nothing found";
    this.mark(true);
  }

  /// Shows the choice in every panel: itself, and what belongs to it.
  mark(scroll) {
    if (!this.chosen) return;
    const [side, key] = this.chosen;
    const plan = this.plans[side];
    const name = key.slice(key.indexOf(":") + 1);
    const regions = key.startsWith("region:") ? [Number(name)] : key.startsWith("node:") ? plan.regionsOfNode.get(name) || [] : [];
    const group = this.groups.find((g) => regions.some((i) => g[side].includes(i)));
    for (const { plan: other, kind, panel } of this.panels) {
      const mates = new Set();
      if (kind === "onnx") for (const i of other === plan ? regions : group ? group[other.index] : []) for (const n of other.regions[i].onnx_nodes) mates.add(`node:${n}`);
      if (kind === "plan") for (const i of other === plan ? regions : group ? group[other.index] : []) mates.add(`region:${i}`);
      panel.mark(new Set(other === plan ? [key] : []), mates, scroll);
    }
    for (const row of $("sheet").querySelectorAll("tr[data-key]")) row.classList.toggle("selected", this.tab === "compare" ? row.dataset.key === `${side} ${key}` : side === this.current && row.dataset.key === key);
  }
}

window.addEventListener("error", (e) => complain(e.error || e.message));
try {
  await new Page(JSON.parse($("data").textContent)).start();
} catch (error) {
  complain(error);
}
