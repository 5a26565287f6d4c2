// The boxes of the two kinds of graphs: regions of a plan, and nodes of an ONNX model.
const NARROWEST = 170, WIDER_BY_TIME = 260;

/// "Conv + Sigmoid + Mul": the ONNX operators of a region in the order of the model, without Q/DQ where it has others. Of a plan without an ONNX graph:
/// what its stages compute.
function operatorsOf(plan, region) {
  const wanted = new Set(region.onnx_nodes);
  const all = [...plan.nodes.values()].filter((n) => wanted.has(n.name)).map((n) => n.op);
  const computing = all.filter((op) => !isPair(op));
  const ops = computing.length ? computing : [...new Set(all)];
  if (!ops.length) ops.push(...(region.precision === "move" ? ["copy"] : region.stages.map((s) => (s.anchor === "none" ? "element-wise" : s.anchor))));
  const counted = [];
  for (const op of ops) {
    const last = counted[counted.length - 1];
    if (last && last[0] === op) last[1] += 1;
    else counted.push([op, 1]);
  }
  return counted.map(([op, times]) => (times > 1 ? `${times} ${op}` : op)).join(" + ");
}

/// Of a plan: inputs, regions (as wide as their time), outputs, and what goes from where to where.
function planBoxes(plan) {
  const boxes = [], links = [];
  const end = (key, what, t) => boxes.push({
    key, label: `${what} ${t.name}`, colour: "plain", classes: "end", width: 150, height: 36, share: 0,
    lines: [["name", t.name], ["", `${what} ${t.dtype} ${t.shape.join("×")}`]]});
  for (const t of plan.inputs) end(`input:${t.name}`, "input", t);
  plan.regions.forEach((r, i) => {
    const part = plan.longest > 0 ? (plan.times[i] || 0) / plan.longest : 0;
    const time = plan.timed ? `${timeText(plan.times[i])} · ${(100 * plan.share(i)).toFixed(1)} %` : "";
    const slow = plan.slowKernel(i) ? "slow kernel, " : "";
    const noise = plan.noise[i] === undefined ? "" : ` · ${plan.noise[i].toFixed(1)} dB`;
    boxes.push({
      key: `region:${i}`, label: `region ${i}: ${r.name}, ${r.precision}, ${slow}${time || "no time"}`, colour: colourOf(r),
      classes: plan.slowKernel(i) ? "slow-kernel" : "", width: NARROWEST + WIDER_BY_TIME * part, height: 58, share: part,
      lines: [["name", `${i}: ${operatorsOf(plan, r)}`], ["", `${r.precision}  ${r.tactic}`], ["", `${slow}${time}${noise}`]]});
    for (const s of r.sources) links.push([s.region === undefined ? `input:${s.input}` : `region:${s.region}`, `region:${i}`]);
  });
  for (const t of plan.outputs) {
    end(`output:${t.name}`, "output", t);
    for (const i of t.regions) links.push([`region:${i}`, `output:${t.name}`]);
  }
  return [boxes, links];
}

/// An operator of Q/DQ pairs.
function isPair(op) {
  return /(^|\.)(QuantizeLinear|DequantizeLinear|DynamicQuantizeLinear)$/.test(op);
}

/// Of an ONNX graph; constants are left out.
function onnxBoxes(plan) {
  const { nodes, inputs, outputs } = plan.document.onnx;
  const boxes = [], links = [], makers = new Map();
  const end = (name, what) => boxes.push({
    key: `${what}:${name}`, label: `${what} ${name}`, colour: "plain", classes: "end", lines: [["name", name], ["", what]], width: 120, height: 36, share: 0});
  for (const name of inputs) {
    end(name, "input");
    makers.set(name, `input:${name}`);
  }
  const shown = nodes.filter((n) => n.op !== "Constant");
  for (const n of shown) for (const out of n.outputs) if (out) makers.set(out, `node:${n.name}`);
  for (const n of shown) {
    const regions = plan.regionsOfNode.get(n.name) || [];
    const where = regions.length ? `in region ${regions.join(", ")}` : n.absorbed || "in no region of its own";
    boxes.push({
      key: `node:${n.name}`, minor: isPair(n.op), label: `${n.op} ${n.name}, ${where}`, colour: regions.length ? colourOf(plan.regions[regions[0]]) : "plain",
      classes: "", lines: [["name", n.op], ["", n.name, "end"]], width: 150, height: 38, share: 0});
    for (const tensor of new Set(n.inputs)) if (makers.has(tensor)) links.push([makers.get(tensor), `node:${n.name}`]);
  }
  for (const name of outputs) {
    end(name, "output");
    if (makers.has(name)) links.push([makers.get(name), `output:${name}`]);
  }
  return [boxes, links];
}
