"""--qdq permit: a Q/DQ model planned as its float model with the same ranges is, and what the build says that this changes."""
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
QDQ = ROOT / "examples/digits/digits_qdq.onnx"


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code > 0 else done.stdout


def network(path, pairs):
    """conv, pair, relu, pair, conv, pair: with the pairs, or without them; weights are float in both and go through codes."""
    rng, nodes, constants = np.random.default_rng(3), [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def rounded(tensor, scale, zero=np.int8(0)):
        if not pairs:
            return tensor
        s, z = constant(f"{tensor}_s", np.float32(scale)), constant(f"{tensor}_z", zero)
        nodes.append(helper.make_node("QuantizeLinear", [tensor, s, z], [f"{tensor}_q"], f"q_{tensor}"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{tensor}_q", s, z], [f"{tensor}_d"], f"dq_{tensor}"))
        return f"{tensor}_d"

    def conv(x, y):
        codes = rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8)
        codes[:, 0, 0, 0] = 127
        w = constant(f"{y}_w", codes.astype(np.float32) * np.float32(0.01))
        if pairs:
            w_s, w_z = constant(f"{y}_ws", np.float32([0.01] * 8)), constant(f"{y}_wz", np.zeros(8, np.int8))
            constants[:] = [c for c in constants if c.name != w]
            constant(w, codes)
            nodes.append(helper.make_node("DequantizeLinear", [w, w_s, w_z], [f"{w}_d"], axis=0))
            w = f"{w}_d"
        nodes.append(helper.make_node("Conv", [x, w], [y], y, pads=[1, 1, 1, 1]))
        return y

    c1 = rounded(conv(rounded("x", 0.02), "c1"), 0.5)
    nodes.append(helper.make_node("Relu", [c1], ["r1"], "relu"))
    last = rounded(conv(rounded("r1", 0.25), "c2"), 3.0)
    shape = [1, 8, 12, 12]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def models(tmp_path):
    network(tmp_path / "q.onnx", True)
    network(tmp_path / "f.onnx", False)
    (tmp_path / "ranges.json").write_text('{"x": 2.54, "c1": 63.5, "r1": 31.75, "c2": 381.0}')
    return tmp_path


def plan_of(text):
    return text.split("plan ")[1].split()[0]


def test_permitted_pairs_give_the_counterparts_plan(models):
    options = ["--threads", 1, "--effort", 0]
    demand = octavo("build", models / "q.onnx", "-o", models / "a.octavo", *options)
    permit = octavo("build", models / "q.onnx", "-o", models / "b.octavo", "--qdq", "permit", "--force", "pairs", *options)
    ranges = octavo("build", models / "f.onnx", "-o", models / "c.octavo", "--calibration", models / "ranges.json", *options)
    assert plan_of(permit) == plan_of(ranges) != plan_of(demand)
    assert "pairs: 4 taken as permissions" in permit
    assert "estimated on 4 seeded inputs (--data FOLDER measures it)" in permit
    assert "signal to noise" in permit.split("estimated on")[1] and "pairs:" not in demand
    assert plan_of(octavo("build", models / "q.onnx", "-o", models / "d.octavo", "--qdq", "demand", *options)) == plan_of(demand)


def test_on_data_the_change_is_measured(models):
    x = np.random.default_rng(1).uniform(-2.5, 2.5, (5, 8, 12, 12)).astype(np.float32)
    np.savez(models / "data.npz", x=x)
    said = octavo("build", models / "q.onnx", "-o", models / "b.octavo", "--qdq", "permit", "--force", "pairs", "--effort", 0, "--data", models / "data.npz")
    line = said.split("with every pair, on 5 samples:\n")[1].splitlines()[0]
    octavo("build", models / "q.onnx", "-o", models / "a.octavo", "--effort", 0)
    outputs = {}
    for name in "ab":
        found = []
        for i in range(5):
            np.savez(models / "one.npz", x=x[i:i + 1])
            octavo("run", models / f"{name}.octavo", "--input", models / "one.npz", "--output", models / "y.npz")
            found.append(next(iter(np.load(models / "y.npz").values())).astype(np.float64))
        outputs[name] = np.stack(found)
    noise = outputs["b"] - outputs["a"]
    expected = 10 * np.log10((outputs["a"] ** 2).sum() / (noise ** 2).sum())
    assert float(line.split("signal to noise ")[1].split(" dB")[0]) == pytest.approx(expected, abs=0.06), line
    assert 10 < expected < 60


def test_pairs_that_are_no_ranges_are_named(tmp_path):
    network(tmp_path / "q.onnx", True)
    model = onnx.load(tmp_path / "q.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.75), "c1_other"))
    q = next(n for n in model.graph.node if n.name == "q_c1")
    dq = next(n for n in model.graph.node if n.name == "dq_c1")
    at = list(model.graph.node).index(dq) + 1
    model.graph.node.insert(at, helper.make_node("QuantizeLinear", [q.input[0], "c1_other", q.input[2]], ["again_q"], "q_again"))
    model.graph.node.insert(at + 1, helper.make_node("DequantizeLinear", ["again_q", "c1_other", q.input[2]], ["again"], "dq_again"))
    model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, [1, 8, 12, 12]))
    onnx.save(model, tmp_path / "two.onnx")
    said = octavo("build", tmp_path / "two.onnx", "-o", tmp_path / "m.octavo", "--qdq", "permit", "--force", "pairs", "--effort", 0)
    assert "1 tensor keeps the rounding of the pairs: the tensor is read through several scales" in said


def test_zero_points_are_permissions_too(tmp_path):
    """The digits model has zero points, as exporters for CPUs write them."""
    said = octavo("build", QDQ, "-o", tmp_path / "m.octavo", "--qdq", "permit", "--force", "pairs", "--effort", 0)
    assert "taken as permissions" in said and "the rounding of the pairs" not in said
    noise = float(said.split("signal to noise ")[1].split(" dB")[0])
    assert noise > 20, said


def test_the_build_prints_the_time_of_each_candidate_and_takes_the_least(models):
    """Permission never costs: what is taken has the least of the times that are printed, and where that is the model as it stands, its plan."""
    options = ["--threads", 1, "--effort", 0]
    for model in (models / "q.onnx", QDQ):
        said = octavo("build", model, "-o", models / "p.octavo", "--qdq", "permit", *options)
        times = {m[1]: (float(m[2]), bool(m[3])) for m in re.finditer(r"^  (.+): estimated ([0-9.e+]+) us( \(taken\))?$", said, re.M)}
        assert {"every pair where it stands", "pairs as permissions"} <= set(times), said
        (taken,) = [t for t, is_taken in times.values() if is_taken]
        assert taken <= times["every pair where it stands"][0]
        if times["every pair where it stands"][1]:
            assert "pairs: all stay, because" in said and "signal to noise" not in said
            assert plan_of(said) == plan_of(octavo("build", model, "-o", models / "d.octavo", *options))
        else:
            assert "taken as permissions" in said and "difference from the outputs with every pair" in said


def test_wrong_uses_are_refused(models):
    octavo("build", models / "q.onnx", "-o", models / "a.octavo", "--effort", 0)
    assert "demand" in octavo("build", models / "q.onnx", "-o", models / "b.octavo", "--qdq", "both", code=2)
    assert not (models / "b.octavo").exists()
    error = octavo("bench", models / "a.octavo", "--qdq", "permit", code=2)
    assert "is an engine, which is already built" in error


def test_types_and_engines_of_a_gpu_do_not_end_the_build(models):
    """The model with every pair runs on the CPU, which has no kernels in float16; the engine itself is for a GPU that is not here."""
    if json.loads(octavo("doctor", "--system", "--json"))["cuda"]["nvrtc"]["version"] is None:
        pytest.skip("no NVRTC here")
    for allowed in ((), ("--allow", "int8,float32,float16"), ("--allow", "int8,float32,tf32")):
        said = octavo("build", models / "q.onnx", "-o", models / "b.octavo", "--qdq", "permit", "--force", "pairs", "--gpu", "sm_86", *allowed)
        assert "pairs: 4 taken as permissions" in said
        assert "the change of the outputs was not measured: the engine was built for" in said, said


def test_a_layer_that_quantizes_its_input_is_named_once(models):
    said = octavo("explain", models / "q.onnx", "--qdq", "permit", "--force", "pairs,stages", "--effort", 0, "--threads", 1)
    assert re.search(r"^ +0 .* c1 \+ relu ", said, re.M) and "c1 + c1" not in said, said
