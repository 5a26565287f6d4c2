// What stands below the graphs: all regions as a table, working memory over time, and two plans compared.
function rowsOf(names, rows, choose) {
  // rows: {cells: [[text, sort key, numeric]], key, kept}
  let order = null;
  const body = h("tbody", {});
  const fill = () => {
    const shown = rows.filter((r) => r.kept !== false);
    if (order) {
      const [column, sign] = order;
      shown.sort((a, b) => { const [x, y] = [a.cells[column][1], b.cells[column][1]]; return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y))); });
    }
    body.replaceChildren(...shown.map((r) => {
      const act = () => choose(r.key);
      return h("tr", { tabindex: 0, "data-key": r.key, onclick: act, onkeydown: (e) => { if (e.key === "Enter") act(); } },
        r.cells.map(([text, , numeric]) => h("td", { class: numeric ? "n" : "" }, text)));
    }));
  };
  const head = names.map(([name, numeric], i) => h("th", { scope: "col", class: numeric ? "n" : "" }, h("button", {
    onclick: (e) => {
      order = [i, order && order[0] === i ? -order[1] : numeric ? -1 : 1];
      for (const th of e.target.closest("tr").children) th.removeAttribute("aria-sort");
      e.target.closest("th").setAttribute("aria-sort", order[1] < 0 ? "descending" : "ascending");
      fill();
    }}, name)));
  fill();
  return h("table", { class: "sheet" }, h("thead", {}, h("tr", {}, head)), body);
}

function regionTable(plan, keeps, choose) {
  const noisy = plan.noise.some((n) => n !== undefined);
  const names = [["#", true], ["region"], ["precision"], ["time", true], ["share", true], ...(noisy ? [["dB", true]] : []), ["kernel"], ["why"]];
  const rows = plan.regions.map((r, i) => ({
    key: `region:${i}`, kept: keeps(`region:${i}`),
    cells: [[i, i, true], [r.name, r.name], [r.precision, r.precision], [timeText(plan.times[i]), plan.times[i] || 0, true], [`${(100 * plan.share(i)).toFixed(1)} %`, plan.share(i), true],
            ...(noisy ? [[plan.noise[i] === undefined ? "" : plan.noise[i].toFixed(1), plan.noise[i] === undefined ? Infinity : plan.noise[i], true]] : []),
            [plan.slowKernel(i) ? `${r.tactic} (slow)` : r.tactic, r.tactic], [r.reason, r.reason]]}));
  return rowsOf(names, rows, choose);
}

/// Bytes that buffers in the order of their offsets take: a result may stand in the place of an operand.
function covered(buffers) {
  let bytes = 0, end = 0;
  for (const b of buffers) {
    bytes += Math.max(0, b.offset + b.bytes - Math.max(end, b.offset));
    end = Math.max(end, b.offset + b.bytes);
  }
  return bytes;
}

/// Each buffer of an arena as a rectangle: from the region that first touches it to the last, at its bytes.
function memoryChart(plan, chosen, choose) {
  const all = plan.regions.length, wide = 900, high = 190;
  const ends = [0];
  for (let i = 0; i < all; ++i) ends.push(ends[i] + (plan.total > 0 ? (plan.times[i] || 0) / plan.total : 1 / all));
  const charts = [];
  for (const device of plan.document.devices) {
    const buffers = plan.document.memory.filter((b) => b.device === device.name);
    if (!buffers.length) continue;
    const size = Math.max(device.arena_bytes, ...buffers.map((b) => b.offset + b.bytes));
    const inOrder = [...buffers].sort((a, b) => a.offset - b.offset);
    const live = plan.regions.map((_, i) => covered(inOrder.filter((b) => b.first <= i && i <= b.last)));
    const rects = buffers.map((b) => {
      const x = wide * ends[b.first], w = Math.max(wide * ends[b.last + 1] - x, 1);
      const hit = chosen >= b.first && chosen <= b.last;
      return h("rect", { class: `${colourOf(plan.regions[b.first])}${hit ? " live" : ""}`, x, y: high * (1 - (b.offset + b.bytes) / size), width: w, height: Math.max(high * b.bytes / size, 1),
        onclick: () => choose(`region:${b.first}`) }, h("title", {}, `“${b.name}” ${bytesText(b.bytes)} at byte ${b.offset}, from region ${b.first} to ${b.last}`));
    });
    const most = live.indexOf(Math.max(...live));
    charts.push(h("div", {}, h("div", {}, h("b", {}, `${device.name}: ${bytesText(device.arena_bytes)}`), ` reserved; most in use at once ${bytesText(live[most])}, in region ${most} (${plan.regions[most].name})`),
      h("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `Buffers of ${device.name}: ${buffers.length}; most in use in region ${most}` },
        h("rect", { class: "plain", width: wide, height: high }), rects),
      h("div", { class: "note" }, plan.total > 0 ? `left to right: one run, ${timeText(plan.total)} (${plan.source}); bottom to top: bytes` : "left to right: regions in order; bottom to top: bytes")));
  }
  return h("div", { class: "memory" }, charts.length ? charts : "no working memory: inputs and outputs are all there is");
}

/// Regions of two plans that stand for the same ONNX nodes: [[regions of a], [regions of b], node names], in the order of a.
function alike(a, b) {
  const quantizing = (n) => [a, b].some((p) => p.nodes.has(n) && isPair(p.nodes.get(n).op));
  const parent = new Map();
  const root = (k) => { while (parent.get(k) !== k) k = parent.get(k); return k; };
  const names = new Map();
  [a, b].forEach((p, side) => p.regions.forEach((_, i) => parent.set(`${side}:${i}`, `${side}:${i}`)));
  for (const [node, inA] of a.regionsOfNode) {
    const inB = b.regionsOfNode.get(node);
    if (!inB || quantizing(node)) continue;
    for (const k of inB) parent.set(root(`1:${k}`), root(`0:${inA[0]}`));
    for (const k of inA) parent.set(root(`0:${k}`), root(`0:${inA[0]}`));
    if (!names.has(`0:${inA[0]}`)) names.set(`0:${inA[0]}`, []);
    names.get(`0:${inA[0]}`).push(node);
  }
  const groups = new Map();
  for (const k of parent.keys()) {
    const r = root(k);
    if (!groups.has(r)) groups.set(r, [[], [], []]);
    const [side, i] = k.split(":").map(Number);
    groups.get(r)[side].push(i);
  }
  for (const [k, nodes] of names) groups.get(root(k))[2].push(...nodes);
  return [...groups.values()];
}

function comparison(a, b, groups, choose) {
  const sum = (p, regions) => regions.reduce((t, i) => t + (p.times[i] || 0), 0);
  const types = (p, regions) => [...new Set(regions.map((i) => p.regions[i].precision))].join(", ");
  const rows = groups.map(([inA, inB, nodes]) => {
    const [ta, tb] = [sum(a, inA), sum(b, inB)];
    const name = nodes.length ? nodes.slice(0, 4).join(" + ") + (nodes.length > 4 ? ` (+${nodes.length - 4})` : "") : inA.length ? a.regions[inA[0]].name : b.regions[inB[0]].name;
    return { key: inA.length ? `0 region:${inA[0]}` : `1 region:${inB[0]}`, gap: Math.abs(tb - ta),
      cells: [[name, name], [types(a, inA) || "–", types(a, inA)], [inA.length ? timeText(ta) : "–", ta, true], [types(b, inB) || "–", types(b, inB)], [inB.length ? timeText(tb) : "–", tb, true],
              [`${tb >= ta ? "+" : "−"}${timeText(Math.abs(tb - ta))}`, tb - ta, true]] };
  });
  rows.sort((x, y) => y.gap - x.gap);
  return rowsOf([["ONNX nodes"], ["first"], ["time", true], ["second"], ["time", true], ["difference", true]], rows, (key) => choose(Number(key[0]), key.slice(2)));
}
