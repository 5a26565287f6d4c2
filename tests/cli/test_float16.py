"""float16 as its user sees it: what a CPU refuses, and what a GPU takes. tests/api/emulated_float16_test.cc plans and runs for a GPU without one."""
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from test_implicit import COMMON, FP32, OCTAVO, octavo

GPU = ("--device", "cuda", "--effort", 0)


def on_gpu(*args):
    return octavo(*args, *GPU)


gpu = pytest.mark.skipif(not json.loads(octavo("doctor", "--system", "--json"))["cuda"]["gpus"], reason="no GPU")


def network(path, dtype):
    """Conv, Relu, a linear layer: all tensors of one float type."""
    rng = np.random.default_rng(1)
    kind = TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    weights = [numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(dtype), name) for name, shape in (("w", (32, 16, 3, 3)), ("b", (32,)), ("l", (2048, 64)))]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"], name="relu"),
             helper.make_node("Flatten", ["r"], ["f"], name="flatten"), helper.make_node("MatMul", ["f", "l"], ["y"], name="linear")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, [2, 16, 8, 8])], [helper.make_tensor_value_info("y", kind, [2, 64])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def layers(text):
    """{ONNX node: (precision, tactic)}."""
    return {node: (r["precision"], r["tactic"]) for r in json.loads(text)["regions"] for node in r["onnx_nodes"]}


def test_a_cpu_refuses_it_and_says_the_way_out(tmp_path):
    for given in (("--allow", "int8,float32,float16"), ("--precision", "*=float16")):
        text = octavo("build", FP32, *COMMON, "-o", tmp_path / "e", *given, code=2)
        assert 'no kernel of device "cpu" computes in float16' in text and "build for device cuda" in text and "float16-emulated" in text
    assert not (tmp_path / "e").exists()
    assert "known are int8, float32 and bfloat16, and on a GPU float16 and tf32" in octavo("build", FP32, *COMMON, "-o", tmp_path / "e", "--allow", "fp16", code=2)
    text = octavo("quantize", FP32, "--data", tmp_path, "-o", tmp_path / "q.onnx", "--allow", "int8,float16", "--min-sqnr", 20, code=2)
    assert "none computes in float16" in text and "octavo build --device cuda" in text


def large(path, factor=1.0, weight=0.05):
    """conv "first", a factor, pooling, conv "second"; one weight of it."""
    rng = np.random.default_rng(1)
    w0, w1 = ((rng.standard_normal((8, 8, 3, 3)) / 10).astype(np.float32) for _ in range(2))
    w1[0, 0, 0, 0] = weight
    constants = [numpy_helper.from_array(w0, "w0"), numpy_helper.from_array(w1, "w1"), numpy_helper.from_array(np.float32(factor), "k")]
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1] * 4), helper.make_node("Mul", ["a", "k"], ["b"], name="scale"),
             helper.make_node("MaxPool", ["b"], ["m"], name="pool", kernel_shape=[2, 2]),
             helper.make_node("Conv", ["m", "w1"], ["c"], name="second", pads=[1] * 4), helper.make_node("Relu", ["c"], ["y"], name="relu")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 8, 8, 8])], [helper.make_tensor_value_info("y", 1, [1, 8, 7, 7])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


REFERENCE = ("--device", "reference", "--effort", 0)


def test_without_float32_every_layer_is_float16_or_the_build_fails(tmp_path):
    allow = ("--allow", "int8,float16")
    text = octavo("build", large(tmp_path / "m.onnx"), "-o", tmp_path / "e", *REFERENCE, *allow)
    assert "float16: ranges were taken from one random input, which is no proof: no tensor comes near 65504; --calibration" in text
    wide = large(tmp_path / "w.onnx", weight=70000.0)
    text = octavo("build", wide, "-o", tmp_path / "no", *REFERENCE, *allow, code=2)
    assert 'layer "second" can have none of them' in text and 'float16: its weights "w1" reach 70000, and float16 ends at 65504' in text
    assert "allow float32 as well" in text and '--precision "second=float32"' in text and not (tmp_path / "no").exists()
    octavo("build", wide, "-o", tmp_path / "e", *REFERENCE, *allow, "--precision", "second=float32")
    assert 'not float16: its weights "w1" reach 70000' in octavo("explain", wide, *REFERENCE, "--allow", "int8,float32,float16")


def test_an_activation_beyond_float16_is_known_before_deployment(tmp_path):
    model, allow = large(tmp_path / "m.onnx", factor=70000.0), ("--allow", "int8,float32,float16")
    text = octavo("build", model, "-o", tmp_path / "e", *REFERENCE, *allow)
    assert "float16: ranges were taken from one random input, which is no proof: 4 tensors reach 32768 and stay wider; --calibration TABLE" in text
    found = layers(octavo("explain", model, *REFERENCE, *allow, "--json"))
    assert found["second"][0] == "float32"
    assert "on one random input, which is no proof for real data" in octavo("explain", model, *REFERENCE, *allow)
    table = tmp_path / "t.json"
    table.write_text(json.dumps({name: {"amax": 100.0} for name in "xabmc"}), encoding="utf-8")
    text = octavo("build", model, "-o", tmp_path / "e", *REFERENCE, "--allow", "float32,float16", "--calibration", table)
    assert "random input" not in text


def test_check_lists_what_comes_near_the_end_of_float16(tmp_path):
    np.save(tmp_path / "x.npy", np.full((1, 8, 8, 8), 0.5, np.float32))
    given = (large(tmp_path / "m.onnx", factor=100.0), *REFERENCE, "--allow", "int8,float32,float16")
    text = octavo("check", *given, "--data", tmp_path / "x.npy")
    assert "float16 ends at 65504; of " in text and "in 1 sample:\n" in text and " %  b\n" in text, text
    listed = json.loads(octavo("check", *given, "--data", tmp_path / "x.npy", "--json"))["float16"]
    assert [one["largest"] for one in listed] == sorted((one["largest"] for one in listed), reverse=True) and len(listed) <= 10
    assert not any(one["overflows"] for one in listed)
    text = octavo("check", large(tmp_path / "n.onnx", factor=1e7), *REFERENCE, "--precision", "second=float16", "--data", tmp_path / "x.npy")
    assert "inf  beyond   m" in text, text


TAKEN_ON_A_GPU = [(["--fp16"], "int8,float32,float16"), (["--best"], "int8,float32,bfloat16,float16"),
                  (["--fp16", "--bf16"], "int8,float32,bfloat16,float16"), (["--bf16"], "int8,float32,bfloat16"),
                  (["--layerPrecisions=conv1:fp16"], "conv1=float16")]


def said_of(given, types, *how):
    """What is taken is said before a GPU or a compiler is opened."""
    done = subprocess.run([OCTAVO, "explain", FP32, "--threads", "1", *how, *given], capture_output=True, text=True, check=False)
    option = "--precision" if "=" in types else "--allow"
    assert f"is taken as {option}={types}\n" in done.stderr and "has no effect" not in done.stderr, done.stderr


@pytest.mark.parametrize(("given", "types"), TAKEN_ON_A_GPU)
def test_options_of_trtexec_on_a_gpu(given, types):
    """Effort 1 measures and so opens the GPU first: without one nothing is compiled in vain."""
    said_of(given, types, "--effort", "1", "--device", "cuda")


@pytest.mark.parametrize("gpu_by_name", [["--gpu", "sm_86"], ["--gpu=sm_86"]], ids=["apart", "joined"])
@pytest.mark.parametrize(("given", "types"), TAKEN_ON_A_GPU)
def test_options_of_trtexec_for_a_gpu_by_name(given, types, gpu_by_name):
    """--gpu alone selects device cuda. No GPU and no compiler is needed: the note comes before the plan is made."""
    said_of(given, types, "--effort", "0", *gpu_by_name)


def test_emulated_it_is_computed_anywhere():
    rule = ("--precision", "*=float16-emulated")
    assert "0 differ" in octavo("check", FP32, *COMMON, *rule)
    assert "float16" not in {p for p, _ in layers(octavo("explain", FP32, *COMMON, *rule, "--json")).values()}


def test_a_float16_model_stays_float32_on_a_cpu(tmp_path):
    found = layers(octavo("explain", network(tmp_path / "h.onnx", np.float16), "--effort", 0, "--threads", 1, "--json"))
    assert found["conv"][0] == found["linear"][0] == "float32"


@gpu
def test_a_float16_model_on_a_gpu_needs_no_permission(tmp_path):
    path = network(tmp_path / "h.onnx", np.float16)
    found = layers(on_gpu("explain", path, "--json"))
    for node in ("conv", "linear"):
        assert found[node][0] == "float16" and found[node][1].startswith(("cuda.conv.f16.mma", "cuda.conv.f16.stream")), found
    text = on_gpu("explain", path)
    assert "its tensors are float16 in the model" in text and "float16: data and weights are float16, sums are float32" in text


@gpu
def test_allowed_on_a_gpu_and_hinted_at_without(tmp_path):
    path = network(tmp_path / "f.onnx", np.float32)
    allow = ("--allow", "int8,float32,float16")
    assert layers(on_gpu("explain", path, "--json"))["conv"][0] == "float32"
    found = layers(on_gpu("explain", path, *allow, "--json"))
    assert found["conv"][0] == found["linear"][0] == "float16"
    hint = "is spent in layers in float32; --allow int8,float32,float16 computes them in float16"
    assert hint in on_gpu("build", path, "-o", tmp_path / "a")
    assert hint not in on_gpu("build", path, "-o", tmp_path / "b", *allow)
    assert hint not in octavo("build", path, "-o", tmp_path / "c", "--effort", 0)
