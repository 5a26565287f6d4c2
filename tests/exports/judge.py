"""Judges an exported file: Octavo's engine against ONNX Runtime on the same file, and which quantized layers run as int8."""
import dataclasses

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_errors
from ort_exact import exact_session

import octavo

FLOOR = 2e-5  # relative difference that the order of float32 sums explains
CHANCE = 1.25  # two differences that are both sums over rounding ties are equal up to chance
WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
KEEPS = {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Relu", "MaxPool"}
INTEGER = {"QLinearConv", "QLinearMatMul", "QGemm", "ConvInteger", "MatMulInteger"}


def run_ort(data, feeds, level):
    session = exact_session(data, level, threads=1)
    names = [o.name for o in session.get_outputs()]
    return [dict(zip(names, session.run(None, feed))) for feed in feeds]


def nudged(model, seed):
    """The same model with each float scale and weight tensor multiplied by 1 ± 2^-23: what any other order of float32 sums does to ties."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    random = np.random.default_rng(seed)
    for t in model.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT:
            value = numpy_helper.to_array(t)
            if value.size and np.isfinite(value).all():
                away = np.where(random.integers(0, 2, value.shape) == 0, -np.inf, np.inf).astype(np.float32)
                moved = np.where(value == np.round(value * 2) / 2, value, np.nextafter(value, away))  # 0, 0.5, 1, 6 are meant
                t.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), t.name))
    return model


def rms(x):
    return float(np.sqrt(np.mean(np.square(x)))) if np.size(x) else 0.0


def differences(runs, others):
    """{output: rms of the difference over all runs ÷ rms of the others}; inf where shapes differ."""
    found = {}
    for name in others[0]:
        a, b = ([np.asarray(r[name], np.float64) for r in side] for side in (runs, others))
        if any(x.shape != y.shape for x, y in zip(a, b)):
            found[name] = float("inf")
            continue
        a, b = (np.concatenate([x.reshape(-1) for x in side]) for side in (a, b))
        found[name] = rms(a - b) / max(rms(b), 1e-30)
    return found


def largest(*tables):
    return {name: max(t[name] for t in tables) for name in tables[0]}


def spread(model, feeds, plain):
    """{output: what ONNX Runtime's own optimizations, and a change of parameters in the last bit, do to it}. A level at which ONNX Runtime
    fails by itself (its QLinearAdd wants scalars, PyTorch writes scales of shape [1]) says nothing."""
    levels = ort.GraphOptimizationLevel
    data, tables = model.SerializeToString(), []
    for level in (levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_ALL):
        try:
            tables.append(differences(run_ort(data, feeds, level), plain))
        except onnxruntime_errors.Fail:
            continue
    for seed in range(4):
        tables.append(differences(run_ort(nudged(model, seed).SerializeToString(), feeds, levels.ORT_DISABLE_ALL), plain))
    finite = [{k: v if np.isfinite(v) else 0.0 for k, v in t.items()} for t in tables]
    return largest(*finite)


def step_of(values):
    """The step of the 8-bit grid that the values lie on, or 0."""
    steps = np.unique(values)
    return float(np.diff(steps).min()) if 2 <= len(steps) <= 256 else 0.0


def within_one_code(runs, others, name):
    step = step_of(np.concatenate([np.asarray(r[name], np.float64).reshape(-1) for r in others]))
    return step > 0 and all(np.abs(np.asarray(a[name], np.float64) - b[name]).max() <= 1.001 * step for a, b in zip(runs, others))


def quantized_nodes(model):
    """Names of the weighted nodes whose operands are both quantized: DequantizeLinear, through what only moves or selects values, or an
    integer operator."""
    made = {o: n for n in model.graph.node for o in n.output}

    def dequantized(name):
        node = made.get(name)
        while node is not None and node.op_type in KEEPS:
            node = made.get(node.input[0])
        return node is not None and node.op_type == "DequantizeLinear"

    return [n.name for n in model.graph.node
            if n.op_type in INTEGER or (n.op_type in WEIGHTED and dequantized(n.input[0]) and dequantized(n.input[1]))]


def float_fallbacks(engine, model):
    """Quantized nodes that no int8 region computes, with the reason that the engine gives."""
    heavy = [l for l in engine.layers if {"conv", "conv_transpose", "gemm", "matmul"} & set(l["kind"].split("+"))]
    found = {}
    for name in quantized_nodes(model):
        own = [l for l in heavy if name in l["name"].split(" + ")] or [l for l in heavy if name in l["onnx_nodes"]]
        if not own or any(l["precision"] != "int8" for l in own):
            found[name] = [(l["name"], l["precision"], l["reason"]) for l in own] or "in no heavy region"
    return found


@dataclasses.dataclass
class Verdict:
    engine: object
    quantized: int  # weighted nodes that the file quantizes
    difference: dict  # {output: from ONNX Runtime without optimizations}
    allowed: dict
    fallbacks: dict


def judge(model, feeds, shapes=None, **options):
    """Builds and runs `model` (a ModelProto) and compares; asserts that the outputs agree. Nodes without a name get one."""
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{i}"
    shapes = shapes or {name: x.shape for name, x in feeds[0].items()}
    engine = octavo.build(model, shapes=shapes, threads=1, effort=0, **options)
    runs = [engine.run(feed) for feed in feeds]
    plain = run_ort(model.SerializeToString(), feeds, ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert set(runs[0]) == set(plain[0])
    own, mine = spread(model, feeds, plain), differences(runs, plain)
    allowed = {name: CHANCE * max(own[name], FLOOR) for name in own}
    wrong = {name: (d, allowed[name]) for name, d in mine.items() if d > allowed[name] and not within_one_code(runs, plain, name)}
    assert not wrong, f"output: (difference from ONNX Runtime, allowed) {wrong}"
    return Verdict(engine, len(quantized_nodes(model)), mine, allowed, float_fallbacks(engine, model))
