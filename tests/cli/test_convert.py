"""octavo convert: explicit model -> calibration table and float model -> explicit model, to the last bit."""
import json
import os
import pathlib
import re
import struct
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code > 1 else done.stdout


def plan_of(*args):
    out = pathlib.Path(args[0]).with_suffix(".octavo")
    return re.search(r"plan ([0-9a-f]{32})", octavo("build", *args, "-o", out, "--effort", 0, "--threads", 1)).group(1)


def table(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith("TRT-")
    return {line[:line.rindex(": ")]: line[line.rindex(": ") + 2:] for line in lines[1:]}


def toy(path, zero=0, dtype=np.int8, second=None, per_axis=False):
    """x -> Q/DQ -> Conv -> Relu (-> second Q/DQ) -> output."""
    weights = np.random.default_rng(1).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    weights[:, 0, 0, 0] = 127
    scale = np.full(3, 0.02, np.float32) * np.arange(1, 4, dtype=np.float32) if per_axis else np.float32(0.0173)
    inits = [numpy_helper.from_array(np.asarray(scale), "s"), numpy_helper.from_array(np.full(np.shape(scale), zero, dtype), "z"),
             numpy_helper.from_array(weights, "w"),
             numpy_helper.from_array(np.array([0.011, 0.013, 0.0017, 0.019], np.float32), "ws"), numpy_helper.from_array(np.zeros(4, np.int8), "wz")]
    axis = {"axis": 1} if per_axis else {}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "Q", **axis), helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "DQ", **axis),
             helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], "WDQ", axis=0),
             helper.make_node("Conv", ["xd", "wd"], ["c"], "conv", pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"], "relu")]
    last = "r"
    if second is not None:
        inits += [numpy_helper.from_array(np.float32(second), "s2"), numpy_helper.from_array(np.int8(0), "z2")]
        nodes += [helper.make_node("QuantizeLinear", ["xd", "s2", "z2"], ["q2"], "Q2"), helper.make_node("DequantizeLinear", ["q2", "s2", "z2"], ["d2"], "DQ2"),
                  helper.make_node("Relu", ["d2"], ["r2"], "relu2")]
    outputs = [last] + (["r2"] if second is not None else [])
    graph = helper.make_graph(nodes, "toy", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def check_round_trip(model, folder, placement):
    """Explicit -> table + float -> explicit: the same plan; the table again: the same lines."""
    ranges, floats, again, json_ranges = folder / "t.cache", folder / "f.onnx", folder / "q.onnx", folder / "r.json"
    octavo("convert", model, "--to-table", ranges, "--float-model", floats, "--json", json_ranges, "--header", "8510-MinMaxCalibration")
    assert ranges.read_text().startswith("TRT-8510-MinMaxCalibration\n")
    assert not {n.op_type for n in onnx.load(floats).graph.node} & {"QuantizeLinear", "DequantizeLinear"}
    octavo("convert", floats, "--from-table", ranges, "--qdq-model", again, "--placement", placement)
    assert plan_of(again) == plan_of(model)
    second = folder / "t2.cache"
    octavo("convert", again, "--to-table", second)
    first = table(ranges)
    assert table(second) and all(first[name] == bits for name, bits in table(second).items())
    exact = {name: struct.unpack(">f", bytes.fromhex(bits.zfill(8)))[0] for name, bits in first.items()}
    assert {n: float(np.float32(a / 127.0)) for n, a in json.loads(json_ranges.read_text()).items()} == exact
    return ranges, floats, json_ranges


def test_toy_round_trip_and_implicit_twin(tmp_path):
    model = toy(tmp_path / "toy.onnx")
    ranges, floats, json_ranges = check_round_trip(model, tmp_path, "inputs")
    assert table(ranges) == {"x": "3c8db8bb"} and struct.pack(">f", np.float32(0.0173)).hex() == "3c8db8bb"
    assert plan_of(floats, "--calibration", ranges) == plan_of(floats, "--calibration", json_ranges) == plan_of(model)
    text = ranges.read_text().replace("3c8db8bb", "3c8db8bc")  # one ulp more: another plan, so the comparison can fail
    ranges.write_text(text)
    assert plan_of(floats, "--calibration", ranges) != plan_of(model)


def test_real_model_round_trip(tmp_path):
    source = DATA / "models/resnet20_cifar10_fp32.onnx"
    if not source.exists():
        pytest.skip("needs the test data")
    model = tmp_path / "resnet20.onnx"
    subprocess.run([os.sys.executable, DATA / "bench/placements.py", source, model, "residual"], check=True, capture_output=True)
    ranges, floats, _ = check_round_trip(model, tmp_path, "residual")
    assert plan_of(floats, "--calibration", ranges) == plan_of(model)


def test_what_a_table_cannot_say(tmp_path):
    out = tmp_path / "t.cache"
    text = octavo("convert", toy(tmp_path / "u8.onnx", zero=100, dtype=np.uint8), "--to-table", out, code=4)
    assert 'tensor "x" has zero point 100 (u8)' in text and "--approximate" in text and not out.exists()
    assert "errors up to" in octavo("convert", tmp_path / "u8.onnx", "--to-table", out, "--approximate")
    amax = np.float32(0.0173) * np.float32(155)
    assert table(out)["x"] == struct.pack(">f", amax / np.float32(127)).hex()
    text = octavo("convert", toy(tmp_path / "axis.onnx", per_axis=True), "--to-table", out, code=4)
    assert 'tensor "x" has 3 scales along axis 1' in text
    text = octavo("convert", toy(tmp_path / "two.onnx", second=0.05), "--to-table", out, code=4)
    assert 'tensor "x" is quantized with scale' in text and "a table holds one" in text
    assert octavo("convert", toy(tmp_path / "middle.onnx", zero=128, dtype=np.uint8), "--to-table", out)  # u8 around 128 is symmetric
    assert table(out) == {"x": "3c8db8bb"}


def test_errors_leave_files_alone(tmp_path):
    model, ranges, out = toy(tmp_path / "toy.onnx"), tmp_path / "t.cache", tmp_path / "q.onnx"
    out.write_bytes(b"old")
    octavo("convert", model, "--to-table", ranges, "--float-model", tmp_path / "f.onnx")
    assert "has Q/DQ pairs already" in octavo("convert", model, "--from-table", ranges, "--qdq-model", out, code=2)
    assert "known are inputs, residual and outputs" in octavo("convert", tmp_path / "f.onnx", "--from-table", ranges, "--qdq-model", out, "--placement", "x", code=2)
    ranges.write_text("TRT-8510-MinMaxCalibration\nnobody: 3c8db8bb\nx: 0\n")
    assert "no tensor of" in octavo("convert", tmp_path / "f.onnx", "--from-table", ranges, "--qdq-model", out, "--placement", "inputs", code=2)
    assert "not VERSION-ALGORITHM" in octavo("convert", model, "--to-table", ranges, "--header", "new", code=2)
    (tmp_path / "broken.onnx").write_bytes(model.read_bytes()[:200])
    octavo("convert", tmp_path / "broken.onnx", "--to-table", ranges, code=3)
    assert "say which way" in octavo("convert", model, code=2)
    assert out.read_bytes() == b"old"
