"""An engine in a notebook: inputs, outputs and the plan, a row a layer. Times are those of one short profile of the engine."""
import html
from typing import List

from ._octavo import Engine
from ._types import TensorInfo

_SECONDS_WORTH_IT = 0.5  # a profile that would take longer is left out: showing a value must not block a notebook


def _tensors(title: str, tensors: List[TensorInfo]) -> str:
    def one(t: TensorInfo) -> str:
        shape = " × ".join("?" if d is None else str(d) for d in t["shape"])
        return f"<code>{html.escape(t['name'])}</code> {html.escape(t['dtype'])} {shape}"
    return f"<div><b>{title}</b> " + ", ".join(one(t) for t in tensors) + "</div>"


def table(engine: Engine) -> str:
    """HTML of an engine; of one with open dimensions, only its inputs and outputs."""
    head = _tensors("inputs", engine.inputs) + _tensors("outputs", engine.outputs)
    if engine.open:
        return f"<div>{head}<div>shapes open: the plan is made when they are known</div></div>"
    from . import bench, profile
    times: List[float] = []
    total = ""
    short = bench(engine, seconds=0.01)
    if short["median_ms"] * 1e-3 * 12 < _SECONDS_WORTH_IT:
        measured = profile(engine, runs=10)
        times = [layer["median_ms"] for layer in measured["layers"]]
        total = f", {measured['median_ms']:.3f} ms a run"
    whole = sum(times) or 1.0
    rows = []
    for i, layer in enumerate(engine.layers):
        time = f"<td style='text-align:right'>{times[i]:.4f}</td><td style='text-align:right'>{100 * times[i] / whole:.1f} %</td>" if times else ""
        cells = [html.escape(str(layer[key])) for key in ("name", "precision", "tactic", "reason")]
        rows.append(f"<tr><td>{i}</td>{time}" + "".join(f"<td style='text-align:left'>{c}</td>" for c in cells) + "</tr>")
    names = ["#"] + (["ms", "share"] if times else []) + ["layer", "precision", "tactic", "reason"]
    header = "".join(f"<th>{name}</th>" for name in names)
    threads = f"{engine.threads} thread" + ("" if engine.threads == 1 else "s")
    return (f"<div>{head}<div>{len(rows)} layers, {threads}, plan {engine.plan_hash[:8]}{total}</div>"
            f"<table><thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>")
