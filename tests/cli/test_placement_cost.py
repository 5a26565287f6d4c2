"""`octavo build` says what a placement of Q/DQ costs that keeps residual branches in float32, and which options change it."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
BLOCKS = 2
CPU = ("--effort", 0, "--threads", 1)


def build(model, *args):
    done = subprocess.run([OCTAVO, "build", model, "-o", model.with_suffix(".octavo"), *map(str, args)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def network(path, pairs):
    """Residual blocks; Q/DQ pairs "inputs": in front of convolutions alone; "residual": also in front of both operands of each Add; "none"."""
    rng, nodes, constants = np.random.default_rng(5), [], []

    def op(kind, inputs, name, **attributes):
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def pair(x, name):
        if pairs == "none":
            return x
        constants.extend([numpy_helper.from_array(np.float32(0.03), name + "_s"), numpy_helper.from_array(np.int8(0), name + "_z")])
        return op("DequantizeLinear", [op("QuantizeLinear", [x, name + "_s", name + "_z"], name + "_Q"), name + "_s", name + "_z"], name + "_DQ")

    def conv(x, name):
        constants.extend([numpy_helper.from_array(rng.integers(-127, 128, (32, 32, 3, 3)).astype(np.int8), name + "_w"),
                          numpy_helper.from_array(np.float32(0.0005), name + "_ws"), numpy_helper.from_array(np.int8(0), name + "_wz")])
        return op("Conv", [x, op("DequantizeLinear", [name + "_w", name + "_ws", name + "_wz"], name + "_W")], name, pads=[1, 1, 1, 1])

    x = op("Relu", [conv(pair("x", "x"), "stem")], "stem_relu")
    for i in range(BLOCKS):
        rounded = pair(x, f"in{i}")
        y = conv(pair(op("Relu", [conv(rounded, f"a{i}")], f"relu{i}"), f"mid{i}"), f"b{i}")
        operands = [pair(y, f"branch{i}"), rounded] if pairs == "residual" else [y, x]
        x = op("Relu", [op("Add", operands, f"add{i}")], f"out{i}")
    conv(pair(x, "end"), "last")
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 28, 28]), helper.make_tensor_value_info("last", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_pairs_in_front_of_convolutions_alone(tmp_path):
    said = build(network(tmp_path / "m.onnx", "inputs"), *CPU)
    found = re.search(r'^(\d+) tensors between regions are float32, because the placement of Q/DQ has no pair where they are read: writing and reading them moves at least '
                      r'([0-9.]+) kB, (\d+) % of the bytes of a run; the first is "stem_relu", which "(.*)" stores and "(.*)" reads$', said, re.MULTILINE)
    assert found and int(found[1]) == BLOCKS and float(found[2]) == pytest.approx(BLOCKS * 2 * 4 * 32 * 28 * 28 / 1e3, abs=0.1), said
    assert 10 < int(found[3]) < 90 and "stem" in found[4] and "add0" in found[5]
    assert re.search(r"^  the regions that store or read them take \d+ % of the estimated time( on the GPU, without the copies from and to the host)?$", said, re.MULTILINE), said
    assert "--qdq permit lets the planner read them as 8-bit codes" in said and "--allow" not in said
    assert re.search(r"of the measured time$", build(tmp_path / "m.onnx", "--effort", 1, "--threads", 1), re.MULTILINE)


@pytest.mark.parametrize("pairs", ["residual", "none"])
def test_nothing_is_said_where_nothing_is_lost(tmp_path, pairs):
    assert "the placement of Q/DQ" not in build(network(tmp_path / "m.onnx", pairs), *CPU)


def test_permitted_pairs_leave_nothing_to_say(tmp_path):
    """The way out that is named is one: no tensor is left in float32. Where the pairs stay, it is not named again."""
    model = network(tmp_path / "m.onnx", "inputs")
    assert "the placement of Q/DQ" not in build(model, *CPU, "--qdq", "permit", "--force", "pairs")
    said = build(model, *CPU, "--qdq", "permit", "--disable", "pairs")
    assert "the placement of Q/DQ" in said and "--qdq permit lets" not in said


def test_on_a_gpu_float16_is_a_way_out_beside_the_types_that_are_allowed(tmp_path):
    if json.loads(subprocess.run([OCTAVO, "doctor", "--system", "--json"], capture_output=True, text=True, check=True).stdout)["cuda"]["nvrtc"]["version"] is None:
        pytest.skip("no NVRTC here")
    model = network(tmp_path / "m.onnx", "inputs")
    said = build(model, "--gpu", "sm_86", "--allow", "int8,float32,bfloat16")
    assert "--allow int8,float32,bfloat16,float16 stores such tensors in float16" in said and "--qdq permit lets" in said
    assert "the placement of Q/DQ" not in build(model, "--gpu", "sm_86", "--allow", "int8,float32,bfloat16,float16")
