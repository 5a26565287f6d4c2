"""--calibration, --precision and --allow as their user sees them."""
import json
import os
import pathlib
import struct
import subprocess

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ, FP32 = (ROOT / "examples/digits" / f"digits_{kind}.onnx" for kind in ("qdq", "fp32"))
COMMON = ("--shapes", "image:1x1x16x16", "--effort", 0, "--threads", 1)


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


def ranges():
    """{tensor: largest magnitude} of the activations that the Q/DQ form quantizes."""
    model = onnx.load(QDQ)
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    out = {}
    for n in model.graph.node:
        if n.op_type == "QuantizeLinear" and n.input[0] not in constants:
            zero = constants[n.input[2]]
            codes = np.iinfo(zero.dtype)
            out[n.input[0]] = float(constants[n.input[1]].item()) * max(codes.max - int(zero.item()), int(zero.item()) - codes.min)
    return out


def plan(text):
    return text.split("plan ")[1].split()[0]


def test_table_and_json_say_the_same(tmp_path):
    amax = ranges()
    (tmp_path / "r.json").write_text(json.dumps(amax | {"ghost": 1.0}))
    lines = [f"{n}: {struct.pack('>f', np.float32(a / 127)).hex()}" for n, a in amax.items()]
    (tmp_path / "r.cache").write_text("\n".join(["TRT-8501-EntropyCalibration2", *lines]))
    by_json = octavo("build", FP32, *COMMON, "--no-model", "-o", tmp_path / "a", "--calibration", tmp_path / "r.json")
    by_table = octavo("build", FP32, *COMMON, "--no-model", "-o", tmp_path / "b", "--calibration", tmp_path / "r.cache")
    assert plan(by_json) == plan(by_table)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert "1 ranges name no tensor of the model:\n  ghost" in by_json and "name no tensor" not in by_table
    assert plan(octavo("build", FP32, *COMMON, "-o", tmp_path / "c")) != plan(by_table)
    assert "0 differ" in octavo("check", FP32, *COMMON, "--calibration", tmp_path / "r.cache")
    assert "the range of its input permits int8" in octavo("explain", FP32, *COMMON, "--calibration", tmp_path / "r.cache")
    kept = octavo("explain", FP32, *COMMON, "--calibration", tmp_path / "r.cache", "--precision", "*=float32")
    assert "by the rule" in kept and "the range of its input permits int8" not in kept
    assert "not among the allowed types" in octavo("explain", FP32, *COMMON, "--calibration", tmp_path / "r.cache", "--allow", "float32")


def test_errors_leave_the_file(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(ranges()))
    (tmp_path / "bad.cache").write_text("TRT-8501-EntropyCalibration2\nimage zz\n")
    engine = tmp_path / "e"
    engine.write_text("here before")
    for extra, code, text in [(("--calibration", tmp_path / "none"), 7, "none"), (("--calibration", tmp_path / "bad.cache"), 5, "line 2"),
                              (("--precision", "conv"), 2, "PATTERN=TYPE"), (("--precision", "x*=bfloat16"), 2, "bfloat16"),
                              (("--calibration", tmp_path / "r.json", "--precision", "ghost=int8"), 2, "matches no"),
                              (("--allow", "int4"), 2, "int4")]:
        assert text in octavo("build", FP32, *COMMON, "-o", engine, *extra, code=code)
        assert engine.read_text() == "here before"
