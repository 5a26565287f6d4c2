"""Tensors and model arguments of `octavo serve`, without a network. Needs no further package."""
import pathlib

import numpy as np
import pytest

pytest.importorskip("octavo")
import octavo  # noqa: E402
from octavo.serve import BadRequest, Settings  # noqa: E402
from octavo.serve._tensors import TO_NUMPY, from_bytes, from_list, little_endian  # noqa: E402


@pytest.mark.parametrize("datatype", TO_NUMPY)
def test_binary_data_is_what_was_sent(datatype):
    dtype = np.uint16 if datatype == "BF16" else np.dtype(TO_NUMPY[datatype])
    x = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    y = from_bytes("x", datatype, [2, 3], bytes(little_endian(x)))
    assert y.dtype == dtype and np.array_equal(x, y)


@pytest.mark.parametrize("datatype, shape, data, text", [
    ("FP32", [2], b"\0" * 7, "is 8 bytes, 7 were sent"),
    ("FP99", [2], b"", "is none of"),
    ("FP32", [-1], b"", "not a list of sizes"),
    ("FP32", ["2"], b"", "not a list of sizes"),
    ("FP32", [True], b"\0" * 4, "not a list of sizes"),
    ("FP32", [1 << 39, 1 << 39], b"", "larger than any tensor"),
    ("BOOL", [2], b"\0\2", "neither 0 nor 1"),
])
def test_binary_data_that_contradicts_itself(datatype, shape, data, text):
    with pytest.raises(BadRequest, match=text):
        from_bytes("x", datatype, shape, data)


@pytest.mark.parametrize("datatype, shape, data, text", [
    ("INT8", [1], [128], "outside -128 to 127"),
    ("UINT8", [1], [-1], "outside 0 to 255"),
    ("INT64", [1], [2**70], "not all numbers|rectangular"),
    ("INT32", [1], [1.5], "not all numbers of the kind"),
    ("FP32", [1], ["1"], "not all numbers of the kind"),
    ("FP32", [1], [None], "not all numbers of the kind"),
    ("BOOL", [1], [1], "not all numbers of the kind"),
    ("FP32", [3], [1, 2], "3 elements, 2 were sent"),
    ("FP32", [3], [[1, 2], [3]], "rectangular"),
    ("FP32", [1], 1.0, "not a list"),
    ("FP32", [1], None, "not a list"),
    ("BF16", [1], [1], "binary data only"),
])
def test_numbers_that_do_not_fit(datatype, shape, data, text):
    with pytest.raises(BadRequest, match=text):
        from_list("x", datatype, shape, data)


def test_numbers_nested_or_flat():
    assert np.array_equal(from_list("x", "INT16", [2, 2], [[1, 2], [3, 4]]), from_list("x", "INT16", [2, 2], [1, 2, 3, 4]))
    assert from_list("x", "FP16", [1], [1]).dtype == np.float16


def test_what_a_model_argument_names(tmp_path):
    models = pytest.importorskip("octavo.serve._models", reason="prometheus-client is not installed")
    for path in ("repo/a/1/model.onnx", "repo/a/3/model.onnx", "repo/b/1/x1.octavo", "repo/b/1/x8.octavo", "one.onnx"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"")

    def found(argument):
        return [(s.name, s.version, [f.name for f in s.files]) for s in models.find(argument.replace("@", str(tmp_path)))]
    assert found("@/one.onnx") == [("one", "1", ["one.onnx"])]
    assert found("n:7=@/one.onnx") == [("n", "7", ["one.onnx"])]
    assert found("@/repo/a") == [("a", "1", ["model.onnx"]), ("a", "3", ["model.onnx"])]
    assert found("@/repo") == [("a", "1", ["model.onnx"]), ("a", "3", ["model.onnx"]), ("b", "1", ["x1.octavo", "x8.octavo"])]
    for argument, text in (("@/absent.onnx", "no such file"), ("no name=@/one.onnx", "no such file"), ("n=@/one.onnx,@/one.onnx", "2 files")):
        with pytest.raises(octavo.Error, match=text):
            found(argument)
    (tmp_path / "empty").mkdir()
    with pytest.raises(octavo.Error, match="holds no models"):
        found("@/empty")


@pytest.mark.parametrize("wrong", [{"port": 70000}, {"batch": ()}, {"batch": (0,)}, {"delay": -1}, {"timeout": 0}, {"queue": 0}, {"threads": 0},
                                   {"max_request": 0}, {"max_pending": 5}])
def test_settings_are_checked(wrong):
    with pytest.raises(octavo.UsageError, match=next(iter(wrong))):
        Settings(**wrong)


def test_the_package_that_is_missing_is_named(tmp_path):
    import subprocess
    import sys
    (tmp_path / "starlette.py").write_text("raise ImportError('absent', name='starlette')\n")
    (tmp_path / "uvicorn.py").write_text("raise ImportError('absent', name='uvicorn')\n")
    done = subprocess.run([sys.executable, "-m", "octavo", "serve", "x.onnx"], capture_output=True, text=True, check=False, timeout=60,
                          env={"PYTHONPATH": f"{tmp_path}:{pathlib.Path(octavo.__file__).parents[1]}", "PATH": "/usr/bin"})
    assert done.returncode == 2 and "pip install 'uvicorn" in done.stderr and "[serve]" in done.stderr, done.stderr
