"""octavo check A B and --against onnxruntime: two models on the same inputs, output by output; --from-model; the verdict about what is not judged."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
FP32, QDQ, PICTURE = DIGITS / "digits_fp32.onnx", DIGITS / "digits_qdq.onnx", DIGITS / "images/0_008.png"
QUICK = ("--effort", 0, "--threads", 1)


def check(*args, code=0, python=sys.executable):
    done = subprocess.run([OCTAVO, "check", *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300,
                          env={**os.environ, "OCTAVO_PYTHON": python})
    assert done.returncode == code, f"octavo check {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The digits network as an engine; the same under other names; with one weight changed; with another input."""
    folder = tmp_path_factory.mktemp("two")
    subprocess.run([OCTAVO, "build", FP32, "-o", folder / "fp32.octavo", *map(str, QUICK)], check=True, capture_output=True, timeout=120)
    model = onnx.load(FP32)
    for node in model.graph.node:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = {"image": "pixels", "head": "scores"}.get(name, name)
    model.graph.input[0].name, model.graph.output[0].name = "pixels", "scores"
    onnx.save(model, folder / "renamed.onnx")
    bias = next(t for t in model.graph.initializer if numpy_helper.to_array(t).shape == (10,))
    values = numpy_helper.to_array(bias).copy()
    values[3] += 0.5
    bias.CopyFrom(numpy_helper.from_array(values, bias.name))
    onnx.save(model, folder / "changed.onnx")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [1, 5])],
                              [helper.make_tensor_value_info("y", 1, [1, 5])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "other.onnx")
    return folder


def test_a_model_agrees_with_its_engine_in_either_order(files):
    for pair in ((FP32, files / "fp32.octavo"), (files / "fp32.octavo", FP32), (files / "fp32.octavo", files / "fp32.octavo")):
        done = check(*pair, *(QUICK if FP32 in pair else ()))
        assert "\nok: differences are at most 0.0001 + 0.0001 of the second model's magnitude" in done.stdout and "equal" in done.stdout
        assert "position" not in done.stdout
    done = json.loads(check(FP32, files / "fp32.octavo", *QUICK, "--input", PICTURE, "--scale", "1/255", "--json").stdout)
    assert done["ok"] and done["inputs"] == 1 and done["outputs"][0]["name"] == "head" and done["outputs"][0]["largest_gap"] == 0


def test_other_names_are_matched_by_position_and_that_is_said(files):
    done = check(FP32, files / "renamed.onnx", *QUICK)
    assert "inputs are matched by position: image -> pixels\noutputs are matched by position: head -> scores" in done.stdout
    data = json.loads(check("--input", PICTURE, "--scale", "1/255", "--json", *QUICK, FP32, files / "renamed.onnx").stdout)
    assert data["outputs"][0]["other"] == "scores" and len(data["notes"]) == 2


def test_eval_matches_by_position_too(files):
    done = subprocess.run([OCTAVO, "eval", FP32, files / "renamed.onnx", "--data", DIGITS / "images", "--scale", "1/255", "--threads", "1"],
                          capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "inputs are matched by position: image -> pixels" in done.stderr and "equal" in done.stdout


def test_shapes_of_eval_are_those_of_the_first_model(files):
    """--shapes names inputs of the first model; the others are built for the same shapes, whatever their inputs are called."""
    data = ["--data", DIGITS / "images", "--scale", "1/255", "--threads", "1"]
    done = subprocess.run([OCTAVO, "eval", FP32, files / "renamed.onnx", files / "fp32.octavo", *data, "--shapes", "image:1x1x16x16"], capture_output=True, text=True,
                          check=False, timeout=300)
    assert done.returncode == 0 and "renamed.onnx: inputs are matched by position: image -> pixels" in done.stderr, done.stderr
    done = subprocess.run([OCTAVO, "eval", FP32, files / "renamed.onnx", *data, "--shapes", "pixels:1x1x16x16"], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2 and '"pixels"' in done.stderr, done.stderr


def test_a_difference_is_found_and_named(files):
    done = check(FP32, files / "changed.onnx", *QUICK, "--input", PICTURE, "--scale", "1/255", code=1)
    assert "DIFFERENT" in done.stdout and '"head": the largest difference is at [0,3]' in done.stdout and "1 of 10" in done.stdout
    needed = float(done.stdout.split("with --atol ")[1].split()[0])
    assert 0.4 < needed < 0.6
    check(FP32, files / "changed.onnx", *QUICK, "--input", PICTURE, "--scale", "1/255", "--atol", needed)
    data = json.loads(check(FP32, files / "changed.onnx", *QUICK, "--data", DIGITS / "images", "--scale", "1/255", "--json", code=1).stdout)
    row = data["outputs"][0]
    assert not data["ok"] and data["inputs"] == len(list((DIGITS / "images").glob("*.png"))) and row["beyond"] == data["inputs"] and row["elements"] == 10 * data["inputs"]


def test_against_onnx_runtime(files):
    pytest.importorskip("onnxruntime")
    done = check(FP32, "--against", "onnxruntime", *QUICK)
    assert "in onnxruntime" in done.stdout and "ok" in done.stdout
    done = check(files / "fp32.octavo", files / "renamed.onnx", "--against", "onnxruntime")
    assert "inputs are matched by position: image -> pixels" in done.stdout
    done = check(FP32, files / "changed.onnx", "--against", "onnxruntime", *QUICK, "--input", PICTURE, "--scale", "1/255", code=1)
    assert "[0,3]" in done.stdout


def test_errors_say_the_way_out(files, tmp_path):
    assert "an engine, and ONNX Runtime runs ONNX files" in check(files / "fp32.octavo", "--against", "onnxruntime", code=2).stderr
    done = check(FP32, files / "other.onnx", *QUICK, code=2)
    assert 'different inputs' in done.stderr and '"image"' in done.stderr and '"x" f32[1,5]' in done.stderr
    assert "are for two models" in check(FP32, "--atol", 1, code=2).stderr
    assert "--from-model: is for one model" in check(FP32, QDQ, "--from-model", code=2).stderr
    assert "octavo check" in check(files / "fp32.octavo", code=2).stderr
    assert "OCTAVO_PYTHON names" in check(FP32, "--against", "onnxruntime", *QUICK, python="/nowhere/python", code=4).stderr
    for no_python in ("/bin/true", "/bin/echo"):  # what ends well, and is no Python
        done = check(FP32, "--against", "onnxruntime", *QUICK, python=no_python, code=4)
        assert f'"{no_python}" was started to run ONNX Runtime, and wrote no result' in done.stderr and "OCTAVO_PYTHON names" in done.stderr and "octavo-check-" not in done.stderr
    for option in ("--atol", "--rtol"):
        assert f"error: {option}: Value -1 is not 0 or more\n" in check(FP32, QDQ, option, -1, code=2).stderr
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E \"$@\"\n")
    bare.chmod(0o755)
    assert "-m pip install onnxruntime" in check(FP32, "--against", "onnxruntime", *QUICK, python=str(bare), code=4).stderr
    (tmp_path / "strange.onnx").write_bytes(onnx.load(FP32).SerializeToString().replace(b"MaxPool", b"MaxPolo") + b"")
    assert "does not run" in check(FP32, tmp_path / "strange.onnx", "--against", "onnxruntime", *QUICK, code=4).stderr


def test_from_model_judges_the_model_as_imported():
    for model in (FP32, QDQ):
        done = check(model, "--from-model", *QUICK, "--input", PICTURE, "--scale", "1/255")
        assert done.stdout.startswith("ok"), done.stdout
    # The graph of the plan names every result; the model does not, and its output is compared once more, from the tensors stored before it.
    plain, from_model = (json.loads(check(QDQ, *QUICK, "--json", *more).stdout)["checked"][0]["regions"] for more in ((), ("--from-model",)))
    elements = [(a["elements"], b["elements"]) for a, b in zip(plain, from_model)]
    assert all(a > 0 for a, _ in elements) and any(b == 0 for _, b in elements), elements
    assert elements[-1][1] == 2 * elements[-1][0], elements
    assert "--calibration" in check(FP32, "--from-model", "--calibration", "x", code=2).stderr
