"""octavo convert: between Q/DQ models and calibration tables; the commands of docs/tables.md."""
import json
import os
import pathlib
import re
import shlex
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


def octavo(*args, code=0, cwd=None):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300,
                          cwd=cwd)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


def bits(scale):
    return struct.unpack(">I", struct.pack(">f", np.float32(scale)))[0]


def table(path):
    lines = path.read_text().splitlines()
    return lines[0], {n: int(h, 16) for n, h in (line.rsplit(": ", 1) for line in lines[1:])}


def pairs(path):
    """{tensor: bits of the scale} of the activations that the model quantizes."""
    model = onnx.load(path)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    return {n.input[0]: bits(constants[n.input[1]].item()) for n in model.graph.node
            if n.op_type == "QuantizeLinear" and n.input[0] not in constants}


def toy(path, *, zero=np.int8(0), scales=(np.float32(0.1), np.float32(0.1)), axis=None, opset=13, weight_axis=0):
    """x -> pair -> Conv(weights as codes); x -> second pair -> Relu."""
    codes = (np.arange(36, dtype=np.int64).reshape(2, 2, 3, 3) * 7 % 255 - 127).astype(np.int8)
    keep = {"sx": np.asarray(scales[0], np.float32), "sy": np.asarray(scales[1], np.float32), "z": np.broadcast_to(zero, np.shape(scales[0])),
            "w": codes, "ws": np.float32([0.01, 0.03]), "wz": np.zeros(2, np.int8)}
    on = {} if axis is None else {"axis": axis}
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["xq"], name="Q1", **on),
             helper.make_node("DequantizeLinear", ["xq", "sx", "z"], ["xd"], name="D1", **on),
             helper.make_node("QuantizeLinear", ["x", "sy", "z"], ["yq"], name="Q2", **on),
             helper.make_node("DequantizeLinear", ["yq", "sy", "z"], ["yd"], name="D2", **on),
             helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="DW", axis=weight_axis),
             helper.make_node("Conv", ["xd", "wd"], ["c"], name="conv", pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["yd"], ["r"], name="relu")]
    shape = [1, 2, 4, 4]
    graph = helper.make_graph(nodes, "toy", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("c", "r")],
                              [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in keep.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return codes


def test_commands_of_the_document(tmp_path):
    shutil.copy(QDQ, tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/tables.md").read_text(), re.S)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines() if line]
    assert len(commands) == 3
    for command in commands:
        assert command[0] == "octavo"
        octavo(*command[1:], cwd=tmp_path)
    header, scales = table(tmp_path / "ranges.cache")
    assert header == "TRT-8510-MinMaxCalibration"
    assert pairs(QDQ).keys() <= scales.keys()
    amax = json.loads((tmp_path / "ranges.json").read_text())
    assert {n: bits(a / 127.0) for n, a in amax.items()} == scales
    onnx.checker.check_model(onnx.load(tmp_path / "float.onnx"))
    onnx.checker.check_model(onnx.load(tmp_path / "pairs.onnx"))
    assert not pairs(tmp_path / "float.onnx")
    used = pairs(tmp_path / "pairs.onnx")
    assert used and used.items() <= scales.items()
    again = table(tmp_path / "again.cache")[1]
    assert used.items() <= again.items() and again.items() <= scales.items()
    octavo("convert", "float.onnx", "--from-table", "ranges.json", "--qdq-model", "by_json.onnx", cwd=tmp_path)
    assert (tmp_path / "by_json.onnx").read_bytes() == (tmp_path / "pairs.onnx").read_bytes()


@pytest.mark.parametrize("placement", ["inputs", "residual", "outputs"])
def test_pairs_table_pairs_is_the_same_plan(tmp_path, placement):
    def convert(*args):
        return octavo("convert", *args, cwd=tmp_path)

    def plan(model):
        return octavo("build", model, "-o", "e", "--shapes", "image:1x1x16x16", "--effort", 0, "--threads", 1,
                      cwd=tmp_path).split("plan ")[1].split()[0]

    convert(QDQ, "--to-table", "t", "--float-model", "f.onnx", "--approximate")  # its activations are uint8
    convert("f.onnx", "--from-table", "t", "--qdq-model", "q.onnx", "--placement", placement)
    convert("q.onnx", "--to-table", "t2", "--float-model", "f2.onnx")
    convert("f2.onnx", "--from-table", "t2", "--qdq-model", "q2.onnx", "--placement", placement)
    assert pairs(tmp_path / "q.onnx") == pairs(tmp_path / "q2.onnx")
    assert plan("q.onnx") == plan("q2.onnx") != plan("f.onnx")


@pytest.mark.parametrize("weight_axis", [0, -4])
def test_weights_become_their_dequantized_values(tmp_path, weight_axis):
    codes = toy(tmp_path / "q.onnx", weight_axis=weight_axis)
    octavo("convert", "q.onnx", "--to-table", "t", "--float-model", "f.onnx", cwd=tmp_path)
    model = onnx.load(tmp_path / "f.onnx")
    assert [(n.name, *n.input) for n in model.graph.node] == [("conv", "x", "wd"), ("relu", "x")]
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    want = codes.astype(np.float32) * np.float32([0.01, 0.03]).reshape(2, 1, 1, 1)
    assert set(values) == {"wd"} and np.array_equal(values["wd"].view(np.uint32), want.view(np.uint32))
    assert table(tmp_path / "t") == ("TRT-100700-EntropyCalibration2", {"x": bits(0.1)})


@pytest.mark.parametrize("what, words", [
    ({"zero": np.int8(3)}, ["x", "3"]), ({"zero": np.uint8(0)}, ["x"]), ({"scales": (0.1, 0.2)}, ["x", "0.1", "0.2"]),
    ({"scales": ([0.1, 0.2], [0.1, 0.2]), "axis": 1}, ["x", "2 along axis 1"]),
])
def test_what_a_table_cannot_say(tmp_path, what, words):
    toy(tmp_path / "q.onnx", **what)
    for name in ("t", "f.onnx"):
        (tmp_path / name).write_text("here before")
    error = octavo("convert", "q.onnx", "--to-table", "t", "--float-model", "f.onnx", code=4, cwd=tmp_path)
    assert all(w in error for w in words) and error.startswith("error: pass --approximate to convert this model: "), error
    assert (tmp_path / "t").read_text() == (tmp_path / "f.onnx").read_text() == "here before"
    said = octavo("convert", "q.onnx", "--to-table", "t", "--approximate", cwd=tmp_path)
    assert "notes" in said
    largest = max(np.ravel(what.get("scales", (0.1, 0.1))))
    scale = np.array(table(tmp_path / "t")[1]["x"], np.uint32).view(np.float32)
    reach = largest * (255 if what.get("zero", np.int8(0)).dtype == np.uint8 else 128 + int(what.get("zero", 0)) if "zero" in what else 127)
    assert 127 * scale >= reach * (1 - 1e-6), (scale, reach, said)


def test_errors(tmp_path):
    toy(tmp_path / "q.onnx")
    toy(tmp_path / "axis.onnx", weight_axis=7)
    octavo("convert", "q.onnx", "--to-table", "t", "--float-model", "f.onnx", cwd=tmp_path)
    codes = onnx.load(tmp_path / "q.onnx")
    codes.graph.node.append(helper.make_node("Cast", ["xq"], ["number"], name="cast", to=TensorProto.FLOAT))
    codes.graph.output.append(helper.make_tensor_value_info("number", TensorProto.FLOAT, [1, 2, 4, 4]))
    onnx.save(codes, tmp_path / "codes.onnx")
    old = onnx.load(tmp_path / "f.onnx")
    old.opset_import[0].version = 6
    onnx.save(old, tmp_path / "old.onnx")
    (tmp_path / "bad").write_text("TRT-1-X\r\nx: 12345678g\r\n")
    (tmp_path / "zero").write_text("TRT-1-X\r\nx: 0")
    to, back = ("--to-table", "none"), ("--qdq-model", "none")
    for args, code, text in [(("q.onnx",), 2, "--to-table"), (("q.onnx", *to, "--header", "8510"), 2, "VERSION-ALGORITHM"),
                             (("ghost.onnx", *to), 7, "ghost.onnx"), (("t", *to), 3, "it is a TensorRT calibration table, not an ONNX model"),
                             (("f.onnx", *to), 2, "no quantized activations"), (("axis.onnx", *to), 3, "axis 7"),
                             (("codes.onnx", *to), 4, "cast"),
                             (("old.onnx", "--from-table", "t", *back), 4, "opset 6"), (("f.onnx", "--from-table", "bad", *back), 5, "line 2"),
                             (("f.onnx", "--from-table", "zero", *back), 2, "has a scale"),
                             (("q.onnx", "--from-table", "t", *back), 2, "pairs already"),
                             (("f.onnx", "--from-table", "t", *back, "--placement", "somewhere"), 2, "somewhere"),
                             (("f.onnx", "--from-table", "t"), 2, "--qdq-model")]:
        assert text in octavo("convert", *args, code=code, cwd=tmp_path)
        assert not (tmp_path / "none").exists()
