"""Attention as one region: the operators as import expands them, with masks known when it is built and later; what may attend nothing."""
import json
import os
import pathlib
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"


def octavo(*args):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def operator(tmp_path, mask=None, **attributes):
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    inputs, constants = ["q", "k", "v"], []
    if mask is not None:
        inputs.append("mask")
        constants.append(numpy_helper.from_array(mask, "mask"))
    node = helper.make_node("Attention", inputs, ["y"], q_num_heads=4, kv_num_heads=4, **attributes)
    graph = helper.make_graph([node], "g", [value(n, [1, 37, 64]) for n in "qkv"], [value("y", [1, 37, 64])], constants)
    path = tmp_path / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return path


def tactics(path, *options):
    regions = json.loads(octavo("explain", path, "--effort", 0, "--threads", 1, "--json", *options))["regions"]
    return [r["tactic"] for r in regions]


def window():
    mask = np.full((37, 37), -np.inf, np.float32)
    for q in range(37):
        mask[q, max(0, q - 3) : q + 2] = 0
    return mask


@pytest.mark.parametrize("given", [{}, {"is_causal": 1}, {"mask": window()}], ids=["plain", "causal", "constant-mask"])
def test_the_operator_is_one_region(tmp_path, given):
    path = operator(tmp_path, **given)
    assert sum("cpu.attention." in t for t in tactics(path)) == 1
    assert not any("attention" in t or "reference" in t for t in tactics(path, "--disable", "attention"))
    octavo("check", path, "--effort", 0)
    octavo("check", path, "--effort", 0, "--disable", "attention")


@pytest.mark.parametrize("kind, extra", [
    (TensorProto.FLOAT, {"mask": [1, 1, 37, 37]}), (TensorProto.BOOL, {"mask": [1, 1, 37, 37]}), (TensorProto.BOOL, {"mask": [37]}),
    (TensorProto.INT64, {"valid": [1]}), (TensorProto.INT64, {"valid": [1], "is_causal": 1}),
], ids=["numbers", "truth", "truth-of-keys", "lengths", "lengths-causal"])
def test_masks_known_at_run_time_leave_one_region_and_nothing_to_the_reference(tmp_path, kind, extra):
    causal = {"is_causal": 1} if extra.pop("is_causal", 0) else {}
    (name, shape), = extra.items()
    operands = ["q", "k", "v", *([name] if name == "mask" else ["", "", "", name])]
    node = helper.make_node("Attention", operands, ["y"], q_num_heads=4, kv_num_heads=4, **causal)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 37, 64]) for n in "qkv"] + [helper.make_tensor_value_info(name, kind, shape)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 37, 64])])
    path = tmp_path / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), path)
    used = tactics(path)
    assert sum("cpu.attention." in t for t in used) == 1 and not any("reference" in t for t in used), used
    octavo("check", path, "--effort", 0)


@pytest.mark.parametrize("queries", [1, 2, 15, 16, 17])
def test_programs_without_operands_along_the_tile_take_any_number_of_queries(tmp_path, queries):
    """Of one query the elements of a tile are no neighbours."""
    node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "valid"], ["y"], q_num_heads=4, kv_num_heads=4, softcap=3.0, is_causal=1)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, queries if n == "q" else 37, 64]) for n in "qkv"]
    graph = helper.make_graph([node], "g", [*inputs, helper.make_tensor_value_info("valid", TensorProto.INT64, [2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, queries, 64])])
    path = tmp_path / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), path)
    assert sum("cpu.attention." in t for t in tactics(path)) == 1
    octavo("check", path, "--effort", 0)


def test_a_query_that_may_attend_nothing_gives_zeros(tmp_path):
    mask = window()
    mask[5] = -np.inf
    path = operator(tmp_path, mask=mask)
    assert sum("cpu.attention." in t for t in tactics(path)) == 1
    octavo("check", path, "--effort", 0)
    values = {n: np.random.default_rng(1).standard_normal((1, 37, 64)).astype(np.float32) for n in "qkv"}
    for n, v in values.items():
        np.save(tmp_path / f"{n}.npy", v)
    octavo("run", path, "--effort", 0, *[f"--input={n}={tmp_path / n}.npy" for n in values], "--output", tmp_path / "y.npy")
    y = np.load(tmp_path / "y.npy")
    assert (y[0, 5] == 0).all() and (y[0, [4, 6]] != 0).all()


def fused(tmp_path, kind, mask=None, **attributes):
    """What ONNX Runtime's transformer optimizer makes of 37 tokens in 4 heads of 16; the mask is computed by the model."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((64, 192)) / 8, "b": rng.standard_normal(192) / 8}
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 37, 64]) for n in ("x" if kind == "Attention" else "qkv")]
    operands = ["x", "w", "b"] if kind == "Attention" else ["q", "k", "v", "b"]
    if mask is not None:
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT32, mask))
        operands.append("mask")
    node = helper.make_node(kind, operands, ["y"], domain="com.microsoft", num_heads=4, **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 37, 64])], constants)
    path = tmp_path / "fused.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8), path)
    return path


@pytest.mark.parametrize("kind", ["Attention", "MultiHeadAttention"])
@pytest.mark.parametrize("mask, given", [(None, {}), ([1], {}), ([1, 37], {"unidirectional": 1}), ([1, 37, 37], {})], ids=["plain", "length", "raw-causal", "of-queries"])
def test_what_the_transformer_optimizer_writes_is_one_region(tmp_path, kind, mask, given):
    path = fused(tmp_path, kind, mask, **given)
    used = tactics(path)
    assert sum("cpu.attention." in t for t in used) == 1 and not any("reference" in t for t in used), used
    octavo("check", path, "--effort", 0)
