// What is known of one region, or of one ONNX node.
function list(pairs) {
  return h("dl", {}, pairs.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function few(values, count) {
  const shown = values.map((v) => (typeof v === "number" ? Number(v.toPrecision(6)) : v));
  return count === undefined ? shown.join(", ") : `${shown[0]} to ${shown[1]} (${count})`;
}

function tensorText(t) {
  const grid = t.scale === undefined ? "" : `, scale ${few(t.scale, t.scales)}, zero point ${few(t.zero_point, t.zero_points)}${t.axis === undefined ? "" : `, axis ${t.axis}`}`;
  return `${t.name ? `“${t.name}” ` : ""}${t.dtype} [${t.shape.join(", ")}]${grid}${t.place ? `, in ${t.place}` : ""}`;
}

function stageText(stage, number, of) {
  const rows = [["anchor", stage.anchor === "none" ? `none, over [${stage.shape.join(", ")}]` : `${stage.anchor} over [${stage.shape.join(", ")}]`]];
  for (const t of stage.inputs) rows.push(["reads", tensorText(t)]);
  if (stage.weights) rows.push(["weights", tensorText(stage.weights)]);
  for (const t of stage.outputs) rows.push(["stores", tensorText(t)]);
  return [h("h3", {}, of > 1 ? `Stage ${number + 1} of ${of}` : "Tensors"), list(rows), h("h3", {}, "Epilogue"), h("pre", { class: "program" }, stage.program.split("; ").join("\n") || "empty")];
}

function sheet(names, rows) {
  return h("table", { class: "sheet" }, h("thead", {}, h("tr", {}, names.map((n) => h("th", { scope: "col" }, n)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell))))));
}

/// `go`: called with a plan's index and a key ("region:3", "node:conv1").
function regionDetails(plan, i, go) {
  const r = plan.regions[i];
  const link = (key, text) => h("li", {}, h("button", { onclick: () => go(plan.index, key) }, text));
  const seconds = plan.times[i];
  const rate = seconds > 0 && r.macs > 0 ? `${(r.macs / seconds / 1e9).toPrecision(3)} GMAC/s` : undefined;
  const readers = plan.regions.flatMap((other, k) => (other.sources.some((s) => s.region === i) ? [k] : []));
  const parts = [
    h("h2", {}, `Region ${i}: ${r.name}`),
    h("p", {}, h("span", { class: `tag ${colourOf(r)}` }, r.precision), " ", plan.slowKernel(i) ? h("span", { class: "tag slow-kernel" }, "slow kernel") : ""),
    list([["kernel", r.tactic], ["time", `${timeText(seconds)}, ${(100 * plan.share(i)).toFixed(1)} % (${plan.source})`],
          ["counted with", plan.document.profile && r.seconds !== undefined ? `${timeText(r.seconds)} (${plan.document.cost_source})` : undefined],
          ["work", `${countText(r.macs)}MAC, ${bytesText(r.bytes)} read and written`], ["rate", rate], ["device", r.device],
          ["signal to noise", plan.noise[i] === undefined ? undefined : `${plan.noise[i].toFixed(1)} dB`]]),
    h("h3", {}, "Why"), h("p", { class: "reason" }, r.reason)];
  if (r.to_change) parts.push(h("h3", {}, "To change it"), h("p", {}, r.to_change));
  parts.push(h("h3", {}, "ONNX nodes"), h("ul", { class: "links nodes" }, r.onnx_nodes.map((n) => link(`node:${n}`, plan.nodes.has(n) ? `${plan.nodes.get(n).op} ${n}` : n))));
  const sources = r.sources.map((s) => (s.region === undefined ? link(`input:${s.input}`, `input ${s.input}`) : link(`region:${s.region}`, `${s.region} ${plan.regions[s.region].name}`)));
  parts.push(h("h3", {}, "Reads from"), h("ul", { class: "links" }, sources), h("h3", {}, "Read by"), h("ul", { class: "links" }, readers.map((k) => link(`region:${k}`, `${k} ${plan.regions[k].name}`))));
  r.stages.forEach((s, k) => parts.push(...stageText(s, k, r.stages.length)));
  parts.push(h("h3", {}, "Kernels that were weighed"), sheet(["kernel", "time", "why"], r.alternatives.map((a) => [
    a.tactic, a.seconds !== undefined ? timeText(a.seconds) : a.estimate !== undefined ? `${timeText(a.estimate)} (estimate)` : "", a.reason])));
  for (const d of plan.decisionsAbout(r)) {
    parts.push(h("h3", {}, `Choice: ${d.choice} at ${d.where}`), h("p", {}, `taken: ${d.chosen} (${d.reason})`), sheet(["candidate", "time", "note"], d.candidates.map((c) => [
      `${c.name}: ${c.description}`, c.seconds === undefined ? "" : timeText(c.seconds), c.note])));
  }
  if (plan.roundings[i].length) {
    parts.push(h("h3", {}, "Roundings that the placement demands"), h("ul", {}, plan.roundings[i].map((x) => h("li", {},
      `“${x.tensor}” to ${x.grid} (${x.onnx_nodes.join(", ")})${x.kind === "left_out" ? ": stored in float32 as well as in 8 bits" : ""}`))));
  }
  const laws = plan.lawsAbout(r);
  if (laws.length) parts.push(h("h3", {}, "Laws and rules"), sheet(["rule", "where", "equation"], laws));
  parts.push(h("h3", {}, "Key in the timing cache"), h("pre", {}, r.key || ""));
  return parts;
}

function nodeDetails(plan, name, go) {
  const node = plan.nodes.get(name);
  const regions = plan.regionsOfNode.get(name) || [];
  const inside = regions.length ? h("ul", { class: "links" }, regions.map((i) => h("li", {}, h("button", { onclick: () => go(plan.index, `region:${i}`) }, `${i} ${plan.regions[i].name}`))))
    : node && node.absorbed ? `none: ${node.absorbed}` : "none of its own: part of other nodes' regions";
  return [h("h2", {}, `ONNX node ${name}`),
    list([["operator", node ? node.op : "not in the main graph"], ["region", inside], ["reads", node ? node.inputs.filter((t) => t).join(", ") : undefined], ["makes", node ? node.outputs.join(", ") : undefined]])];
}
