"""Scripts written for ONNX Runtime, run as they are and with one changed import: the same lines come out."""
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits"
QDQ, FP32, IMAGES = DIGITS / "digits_qdq.onnx", DIGITS / "digits_fp32.onnx", DIGITS / "images"
SCRIPTS = pathlib.Path(__file__).parent / "ort_scripts"
ARGUMENTS = {"classify.py": [FP32, *sorted(IMAGES.glob("*.png"))[:8]], "binding.py": [FP32], "evaluate.py": [FP32, IMAGES]}


def run(path, arguments, folder):
    done = subprocess.run([sys.executable, str(path), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=240, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_one_changed_import(name, tmp_path):
    pytest.importorskip("onnxruntime")
    text = (SCRIPTS / name).read_text()
    changed, count = re.subn(r"^import onnxruntime\b", "import octavo.onnxruntime", text, flags=re.M)
    changed = changed.replace("import octavo.onnxruntime\n", "import octavo as onnxruntime\n")
    assert count == 1
    (tmp_path / name).write_text(changed)
    assert run(tmp_path / name, ARGUMENTS[name], tmp_path) == run(SCRIPTS / name, ARGUMENTS[name], tmp_path)


def test_options_and_engines(tmp_path):
    options = octavo.SessionOptions()
    options.graph_optimization_level = octavo.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(tmp_path / "e.octavo")
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.add_free_dimension_override_by_name("N", 2)
    session = octavo.InferenceSession(QDQ, options)
    assert session.engine.threads == 1 and session.get_inputs()[0].shape == [2, 1, 16, 16]
    x = np.zeros((2, 1, 16, 16), np.float32)
    want = session.run(None, {"image": x})[0]
    import json
    events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    assert len(events) == len(session.engine.layers) and all(e["ph"] == "X" for e in events)
    loaded = octavo.InferenceSession(tmp_path / "e.octavo", octavo.SessionOptions())
    np.testing.assert_array_equal(loaded.run(["head"], {"image": x})[0], want)
    np.testing.assert_array_equal(octavo.InferenceSession((tmp_path / "e.octavo").read_bytes()).run(["head"], {"image": x})[0], want)


def test_errors():
    session = octavo.InferenceSession(QDQ, _quick())
    with pytest.raises(octavo.InputError, match="no output 'tail'"):
        session.run(["tail"], {"image": np.zeros((1, 1, 16, 16), np.float32)})
    with pytest.raises(octavo.InputError, match="missing"):
        session.run(None, {})
    with pytest.raises(octavo.UsageError, match="known are"):
        octavo.InferenceSession(QDQ, providers=["TensorrtExecutionProvider"])
    with pytest.raises(octavo.UnsupportedError, match="no plugins"):
        octavo.SessionOptions().register_custom_ops_library("mine.so")
    with pytest.raises(octavo.UnsupportedError, match="memory of the host"):
        session.io_binding().bind_output("head", "cuda")
    with pytest.raises(OSError):
        octavo.InferenceSession("absent.onnx")


def _quick():
    options = octavo.SessionOptions()
    options.add_session_config_entry("octavo.effort", "0")
    return options
