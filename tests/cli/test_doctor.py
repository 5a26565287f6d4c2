"""octavo doctor: a planted fault for each rule, found with its tensor and numbers; a healthy model has none; build warns of the same."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"


def run(*args):
    return subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)


def doctor(path, *args, code=None):
    done = run("doctor", path, "--json", *args)
    assert done.returncode in (0, 1), done.stderr
    if code is not None:
        assert done.returncode == code, done.stdout
    return json.loads(done.stdout)


def rules(report):
    return sorted({(f["severity"], f["rule"], f["tensor"]) for f in report["findings"]})


def net(path, *, sx=0.02, ws=None, codes=None, axis=0, bias=None, float_weights=None, transposed=False, sx_type=np.float32, groups=1):
    """x -> pair -> Conv(coded weights [4,3,3,3], bias). Healthy unless told otherwise."""
    rng = np.random.default_rng(1)
    shape = (3, 4, 3, 3) if transposed else (4, 3, 3, 3)
    if codes is None:
        codes = rng.integers(-100, 101, shape).astype(np.int8)
        for c in range(4):
            codes[(slice(None), c) if transposed else c].flat[0] = 127
    ws = np.full(codes.shape[axis], 0.01, np.float32) if ws is None else np.asarray(ws, np.float32)
    keep = {"sx": np.asarray(sx, sx_type), "zx": np.uint8(128), "ws": ws, "wz": np.zeros(ws.shape, np.int8), "w": codes}
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], name="q"),
             helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"], name="dq")]
    on = {"axis": axis} if ws.ndim else {}
    if float_weights is not None:
        keep["w"] = np.asarray(float_weights, np.float32)
        nodes.append(helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], name="q_w", **on))
    nodes.append(helper.make_node("DequantizeLinear", ["w" if float_weights is None else "wq", "ws", "wz"], ["wd"], name="dq_w", **on))
    inputs = ["xd", "wd"]
    if bias is not None:
        keep["b"] = np.asarray(bias)
        if keep["b"].dtype == np.int32:
            keep["bs"] = (np.float32(sx) * ws).astype(np.float32)
            nodes.append(helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], name="dq_b", **({"axis": 0} if ws.ndim else {})))
        inputs.append("b" if keep["b"].dtype != np.int32 else "bd")
    nodes.append(helper.make_node("ConvTranspose" if transposed else "Conv", inputs, ["y"], name="conv", pads=[1, 1, 1, 1]))
    save(path, nodes, keep, [1, 3, 6, 6], sx_type)


def save(path, nodes, keep, shape, x_type=np.float32, outputs=("y",)):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(x_type))
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", kind, shape)],
                              [helper.make_tensor_value_info(n, kind, None) for n in outputs],
                              [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in keep.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8), path)


def test_system():
    """This machine against what the system itself says; no GPU driver is a fact, not an error."""
    done = run("doctor", "--system", "--json")
    assert done.returncode == 0 and not done.stderr
    facts = json.loads(done.stdout)
    assert facts["threads"]["affinity"] == len(os.sched_getaffinity(0)) and 1 <= facts["threads"]["default"] <= facts["threads"]["affinity"]
    assert facts["memory"]["bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert facts["system"]["kernel"].split()[1] == os.uname().release
    model = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    assert facts["processor"]["name"] == (model or ["unknown"])[0]
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    assert (facts["processor"]["levels"]["avx2"] is None) == (" avx2 " in flags)
    assert facts["octavo"]["version"] in run("--version").stdout
    cuda = facts["cuda"]
    assert bool(cuda["gpus"]) or cuda["refusal"]
    assert (cuda["nvrtc"]["version"] is None) == (cuda["nvrtc"]["refusal"] is not None)
    assert facts["timing_cache"]["path"].startswith(os.environ["XDG_CACHE_HOME"])
    text = run("doctor", "--system").stdout
    assert all(word in text for word in ("processor", "caches", "threads", "CUDA driver", "NVRTC", "timing cache", "glibc"))


def test_system_sees_caps_and_a_timing_cache(tmp_path):
    more = {**os.environ, "OCTAVO_CPU": "portable", "XDG_CACHE_HOME": str(tmp_path), "OCTAVO_NVRTC": "/absent/libnvrtc.so"}
    (tmp_path / "octavo").mkdir()
    (tmp_path / "octavo/timing.txt").write_text("no cache\n")
    done = subprocess.run([OCTAVO, "doctor", "--system", "--json"], capture_output=True, text=True, check=True, env=more)
    facts = json.loads(done.stdout)
    assert facts["processor"]["cap"] == facts["processor"]["capabilities"] == "portable"
    assert "OCTAVO_CPU allows portable" in facts["processor"]["levels"]["avx2"] or "this processor has portable" in facts["processor"]["levels"]["avx2"]
    assert facts["timing_cache"]["bytes"] == 9 and "not a timing cache" in facts["timing_cache"]["refusal"]


def test_either_a_model_or_the_system():
    done = run("doctor")
    assert done.returncode == 2 and "MODEL is missing" in done.stderr and "--system" in done.stderr
    done = run("doctor", QDQ, "--system")
    assert done.returncode == 2 and "takes no MODEL" in done.stderr
    done = run("serve", QDQ)
    assert done.returncode == 2 and "pip install " in done.stderr and "[serve]" in done.stderr


def test_healthy(tmp_path):
    model = tmp_path / "m.onnx"
    for options in ({}, {"bias": np.zeros(4, np.int32)}, {"bias": np.float32([1, -2, 3, 4])}, {"ws": 0.01}, {"transposed": True, "axis": 1},
                    {"float_weights": np.linspace(-1.27, 1.27, 108).reshape(4, 3, 3, 3)}):
        net(model, **options)
        report = doctor(model, code=0)
        assert report["findings"] == [], options
    report = doctor(QDQ, code=0)
    assert report["findings"] == []
    assert all(n["device"] in ("cpu", "-") and n["kernel"] for n in report["nodes"])
    names = [n.name for n in onnx.load(QDQ).graph.node]
    assert [n["name"] for n in report["nodes"]] == names
    kinds = {op: {n["precision"] for n in report["nodes"] if n["op"] == op} for op in ("Conv", "Relu", "Sigmoid", "Mul")}
    # Epilogues are computed in float32; a Relu is the lower end of the 8-bit range here, so it is part of the rounding.
    assert kinds == {"Conv": {"int8"}, "Relu": {"int8"}, "Sigmoid": {"float32"}, "Mul": {"float32"}}


@pytest.mark.parametrize("scale, said", [(0, "is 0"), (-np.inf, "is infinite"), (np.nan, "is NaN"), (np.inf, "is infinite")])
def test_scale(tmp_path, scale, said):
    model = tmp_path / "m.onnx"
    net(model, sx=scale)
    report = doctor(model, code=1)
    assert ("error", "scale", "sx") in rules(report)
    finding = next(f for f in report["findings"] if f["tensor"] == "sx")
    assert said in finding["text"] and finding["nodes"] == ["q", "dq"]
    assert "\"sx\"" in report["refusal"]
    net(model, ws=[0.01, scale, 0.01, scale])
    finding = next(f for f in doctor(model, code=1)["findings"] if f["rule"] == "scale")
    assert finding["tensor"] == "ws" and "2 of 4 channels, the first is 1" in finding["text"]
    done = run("build", model, "-o", tmp_path / "e")
    assert done.returncode == 3 and done.stderr.count('"ws"') == 1, done.stderr  # once, not twice
    assert not (tmp_path / "e").exists()


def test_a_scale_below_0_is_no_finding(tmp_path):
    net(tmp_path / "m.onnx", sx=-0.05, ws=[0.01, -0.01, 0.01, -0.01])
    assert not {"scale", "denormal-scale"} & {rule for _, rule, _ in rules(doctor(tmp_path / "m.onnx"))}


def test_scale_of_zeros_is_a_warning(tmp_path):
    codes = np.ones((4, 3, 3, 3), np.int8) * 127
    codes[2] = 0
    net(tmp_path / "m.onnx", codes=codes, ws=[0.01, 0.01, 0, 0.01])
    report = doctor(tmp_path / "m.onnx", code=0)
    assert ("warning", "scale", "ws") in rules(report) and "for channel 2" in report["findings"][0]["text"]


def test_denormal(tmp_path):
    net(tmp_path / "m.onnx", sx=1e-40)
    assert ("warning", "denormal-scale", "sx") in rules(doctor(tmp_path / "m.onnx"))
    net(tmp_path / "m.onnx", ws=[0.01, 1e-40, 0.01, 0.01])
    assert ("warning", "denormal-scale", "ws") in rules(doctor(tmp_path / "m.onnx"))


def test_bias_overflow(tmp_path):
    net(tmp_path / "m.onnx", ws=[0.01, 1e-12, 0.01, 0.01], bias=np.float32([1, 5, 1, 1]))
    report = doctor(tmp_path / "m.onnx", code=0)
    assert rules(report) == [("warning", "bias-overflow", "b")]
    assert "1 of 4 entries" in report["findings"][0]["text"] and "channel 1" in report["findings"][0]["text"]
    done = run("build", tmp_path / "m.onnx", "-o", tmp_path / "e", "--effort", "0")
    assert done.returncode == 0 and done.stderr.count("[bias-overflow]") == 1 and '"b"' in done.stderr


def test_bias_clipped_and_accumulator(tmp_path):
    net(tmp_path / "m.onnx", bias=np.int32([0, 2147483647, 0, -2147483648]))
    report = doctor(tmp_path / "m.onnx", code=0)
    assert rules(report) == [("warning", "accumulator-overflow", "b"), ("warning", "bias-clipped", "b")]
    assert any("2 of 4 codes" in f["text"] and "channel 1 is 2147483647" in f["text"] for f in report["findings"])


def test_shared_bias(tmp_path):
    rng = np.random.default_rng(2)
    keep = {"s1": np.float32(0.02), "s2": np.float32(0.05), "z": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0),
            "w": rng.integers(-127, 128, (4, 3, 1, 1)).astype(np.int8), "b": np.arange(4, dtype=np.int32), "bs": np.float32(2e-4)}
    keep["w"][:, 0] = 100
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="dq_w"),
             helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], name="dq_b")]
    for i in "12":
        nodes += [helper.make_node("QuantizeLinear", ["x", f"s{i}", "z"], [f"q{i}"], name=f"q{i}"),
                  helper.make_node("DequantizeLinear", [f"q{i}", f"s{i}", "z"], [f"d{i}"], name=f"dq{i}"),
                  helper.make_node("Conv", [f"d{i}", "wd", "bd"], [f"y{i}"], name=f"conv{i}")]
    save(tmp_path / "m.onnx", nodes, keep, [1, 3, 4, 4], outputs=("y1", "y2"))
    report = doctor(tmp_path / "m.onnx", code=0)
    assert rules(report) == [("warning", "shared-bias", "b")]
    assert report["findings"][0]["nodes"] == ["conv1", "conv2"]
    keep["s2"] = keep["s1"]
    save(tmp_path / "m.onnx", nodes, keep, [1, 3, 4, 4], outputs=("y1", "y2"))
    assert doctor(tmp_path / "m.onnx", code=0)["findings"] == []


def test_axis(tmp_path):
    model = tmp_path / "m.onnx"
    net(model, axis=1, ws=[0.01, 0.02, 0.03])  # input channels
    report = doctor(model)
    assert rules(report) == [("warning", "axis", "ws")] and "output channels of Conv are dimension 0" in report["findings"][0]["text"]
    net(model, axis=0, transposed=True, ws=[0.01, 0.02, 0.03])
    assert "output channels of ConvTranspose are dimension 1" in doctor(model)["findings"][0]["text"]
    net(model, axis=0, ws=[0.01, 0.02, 0.03])  # three scales, four channels
    report = doctor(model, code=1)
    assert ("error", "axis", "ws") in rules(report) and "set axis to 1" in report["findings"][0]["text"]
    rng = np.random.default_rng(3)  # square weights whose scales were computed along the other axis
    w = rng.standard_normal((8, 8, 3, 3)).astype(np.float32) * np.exp(rng.uniform(-2, 2, (1, 8, 1, 1)))
    keep = {"sx": np.float32(0.02), "z": np.uint8(128), "w": w.astype(np.float32), "wz": np.zeros(8, np.int8),
            "ws": (np.abs(w).max((0, 2, 3)) / 127).astype(np.float32)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"]), helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"]),
             helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=0),
             helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], axis=0), helper.make_node("Conv", ["xd", "wd"], ["y"], name="conv")]
    save(model, nodes, keep, [1, 8, 5, 5])
    report = doctor(model)
    assert ("warning", "axis", "ws") in rules(report)
    assert "Likely they were computed along axis 1" in next(f["text"] for f in report["findings"] if f["rule"] == "axis")


def test_saturating_weights(tmp_path):
    w = np.linspace(-1.27, 1.27, 108).reshape(4, 3, 3, 3)
    w[3, 2, 2, 2] = 5
    net(tmp_path / "m.onnx", float_weights=w)
    report = doctor(tmp_path / "m.onnx", code=0)
    assert rules(report) == [("warning", "saturating-weights", "w")]
    assert "1 of 108" in report["findings"][0]["text"] and "the worst is 5, clipped to 1.27" in report["findings"][0]["text"]
    codes = np.random.default_rng(4).integers(-300, 301, (4, 64, 3, 3)).clip(-128, 127).astype(np.int8)
    keep_shape = {"codes": codes}
    net(tmp_path / "m.onnx", **keep_shape)
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 64
    onnx.save(model, tmp_path / "m.onnx")
    assert ("warning", "saturating-weights", "w") in rules(doctor(tmp_path / "m.onnx", code=0))


def test_weights_that_were_trained_on_after_their_scales_were_taken(tmp_path):
    """Float weights behind Q/DQ, as quantization-aware training exports them, beside scales of other weights."""
    w = np.linspace(-1.27, 1.27, 108).reshape(4, 3, 3, 3)
    w[1] /= 8
    net(tmp_path / "m.onnx", float_weights=w)
    report = doctor(tmp_path / "m.onnx", code=0)
    assert rules(report) == [("warning", "unused-weight-codes", "w")]
    assert "1 of 4 channels" in report["findings"][0]["text"] and "the scale and the weights disagree" in report["findings"][0]["text"]
    w[1] = 0  # any scale is right
    net(tmp_path / "m.onnx", float_weights=w)
    assert rules(doctor(tmp_path / "m.onnx")) == []


def test_one_layer_of_a_quantization_aware_model_with_weights_of_another_checkpoint(tmp_path):
    """Two layers as quantization-aware training exports them; the second one's weights were replaced, its Q/DQ pairs were not."""
    rng = np.random.default_rng(8)
    keep = {"s": np.float32(0.02), "z": np.uint8(128), "wz": np.zeros(4, np.int8)}
    nodes = []
    for i, (inputs, tensor, result) in enumerate((("x", 3, "y1"), ("y1", 4, "y"))):
        w = rng.standard_normal((4, tensor, 3, 3)).astype(np.float32)
        keep |= {f"w{i}": w, f"ws{i}": (np.abs(w).max((1, 2, 3)) / 127).astype(np.float32)}
        nodes += [helper.make_node("QuantizeLinear", [inputs, "s", "z"], [f"q{i}"]), helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]),
                  helper.make_node("QuantizeLinear", [f"w{i}", f"ws{i}", "wz"], [f"wq{i}"], axis=0),
                  helper.make_node("DequantizeLinear", [f"wq{i}", f"ws{i}", "wz"], [f"wd{i}"], axis=0),
                  helper.make_node("Conv", [f"d{i}", f"wd{i}"], [result], name=f"conv{i}")]
    save(tmp_path / "m.onnx", nodes, keep, [1, 3, 8, 8])
    assert rules(doctor(tmp_path / "m.onnx")) == []
    for factor, rule in ((1.2, "saturating-weights"), (0.2, "unused-weight-codes")):  # larger weights are clipped, smaller ones waste codes
        save(tmp_path / "m.onnx", nodes, {**keep, "w1": np.float32(factor) * keep["w1"]}, [1, 3, 8, 8])
        assert rules(doctor(tmp_path / "m.onnx", code=0)) == [("warning", rule, "w1")]


def table(path, header, scales):
    bits = {k: struct.unpack(">I", struct.pack(">f", v))[0] for k, v in scales.items()}
    path.write_text(f"TRT-8510-{header}\n" + "".join(f"{k}: {v:x}\n" for k, v in bits.items()))


def test_calibration_tables(tmp_path):
    model, cache, minmax = tmp_path / "m.onnx", tmp_path / "c", tmp_path / "m"
    nodes = [helper.make_node("Sigmoid", ["x"], ["a"], name="a"), helper.make_node("Clip", ["a", "lo", "hi"], ["b"], name="b"),
             helper.make_node("Softmax", ["b"], ["c"], name="c"), helper.make_node("Tanh", ["c"], ["d"], name="d"),
             helper.make_node("Relu", ["d"], ["y"], name="e")]
    save(model, nodes, {"lo": np.float32(0), "hi": np.float32(6)}, [1, 3, 4, 4])
    table(cache, "EntropyCalibration2", {"x": 0.02, "a": 0.1 / 127, "b": 6 / 127, "c": 4 / 127, "d": 0, "other": 1})
    report = doctor(model, "--calibration", cache, code=0)
    assert rules(report) == [("warning", "saturating-range", "a"), ("warning", "unknown-tensor", "other"), ("warning", "unusable-range", "d"),
                             ("warning", "wide-range", "c")]
    whole = {"x": 0.02, "a": 1 / 127, "b": 6 / 127, "c": 1 / 127, "d": 1 / 127}
    table(cache, "EntropyCalibration2", whole)
    report = doctor(model, "--calibration", cache)
    assert [f["rule"] for f in report["findings"]] == ["entropy-is-minmax"] and "4 of 4" in report["findings"][0]["text"]
    table(minmax, "MinMaxCalibration", whole)
    report = doctor(model, "--calibration", cache, "--minmax", minmax)
    assert "5 of its 5 ranges equal" in report["findings"][0]["text"]
    table(cache, "EntropyCalibration2", {k: 0.95 * v for k, v in whole.items()})
    assert doctor(model, "--calibration", cache, "--minmax", minmax)["findings"] == []
    table(cache, "MinMaxCalibration", whole)
    assert doctor(model, "--calibration", cache, "--minmax", minmax)["findings"] == []
    assert run("doctor", model, "--minmax", minmax).returncode == 2


@pytest.mark.parametrize("narrow", [1, 10])
def test_unlike_parts_of_a_concatenation(tmp_path, narrow):
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="a"), helper.make_node("Conv", ["x", "w"], ["b"], name="b"),
             helper.make_node("Concat", ["a", "b"], ["c"], name="c", axis=1), helper.make_node("Conv", ["c", "v"], ["y"], name="d")]
    save(tmp_path / "m.onnx", nodes, {"w": rng.standard_normal((4, 3, 1, 1), np.float32), "v": rng.standard_normal((2, 8, 1, 1), np.float32)}, [1, 3, 4, 4])
    table(tmp_path / "c", "MinMaxCalibration", {"x": 0.02, "a": 100 / 127, "b": narrow / 127, "c": 100 / 127})
    report = doctor(tmp_path / "m.onnx", "--calibration", tmp_path / "c")
    assert rules(report) == ([("warning", "unlike-parts", "b")] if narrow == 1 else [])
    assert narrow > 1 or "of this part d keeps 1 of 127 codes" in report["findings"][0]["text"]


def test_refused_nodes(tmp_path):
    nodes = [helper.make_node("NoSuchOperator", ["x"], ["a"], name="first"), helper.make_node("Relu", ["a"], ["y"], name="relu")]
    save(tmp_path / "m.onnx", nodes, {}, [3, 3])
    report = doctor(tmp_path / "m.onnx", code=1)
    assert "NoSuchOperator" in report["refusal"] and '"first"' in report["refusal"]
    done = run("doctor", tmp_path / "m.onnx")
    assert done.returncode == 1 and "it cannot be compiled" in done.stdout
    (tmp_path / "m.onnx").write_bytes(b"no model")
    assert run("doctor", tmp_path / "m.onnx").returncode == 3
    assert run("doctor", tmp_path / "absent.onnx").returncode == 7


def test_dead_nodes_are_left_out(tmp_path):
    net(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0), "s0"))
    model.graph.node.append(helper.make_node("QuantizeLinear", ["x", "s0", "zx"], ["nobody"], name="dead"))
    onnx.save(model, tmp_path / "m.onnx")
    report = doctor(tmp_path / "m.onnx", code=0)
    assert report["findings"] == []
    assert next(n for n in report["nodes"] if n["name"] == "dead")["kernel"] == "reaches no output"


def test_text(tmp_path):
    shutil.copy(QDQ, tmp_path / "m.onnx")
    out = run("doctor", tmp_path / "m.onnx").stdout.splitlines()
    assert out[0].endswith("68 nodes, 0 errors, 0 warnings")
    assert any(line.split()[:3] == ["conv1", "Conv", "cpu"] for line in out)
    assert len(run("doctor", tmp_path / "m.onnx", "--no-nodes").stdout.splitlines()) == 1
