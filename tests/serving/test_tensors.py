"""Tensors and model arguments of `octavo serve`, without a network. Needs no further package."""
import pathlib

import numpy as np
import pytest

pytest.importorskip("octavo")
import octavo  # noqa: E402
from octavo.serve import BadRequest, Settings  # noqa: E402
from octavo.serve._tensors import TO_NUMPY, from_bytes, from_list, little_endian, to_list  # noqa: E402


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
    ("INT64", [1], [2**70], "1180591620717411303424 is outside -9223372036854775808 to 9223372036854775807, the range of INT64"),
    ("INT64", [2], [2**63, -1], "9223372036854775808 is outside"),
    ("INT64", [1], [-9.223372036854776e18 * 2], "is outside -9223372036854775808"),  # what orjson makes of an integer of more than 64 bits
    ("UINT64", [2], [2**64, 1], "18446744073709551616 is outside 0 to 18446744073709551615, the range of UINT64"),
    ("UINT64", [2], [1, 1.8446744073709552e19], "18446744073709551616 is outside"),
    ("UINT64", [2], [2**64 - 1, -1], "-1 is outside"),
    ("UINT32", [2, 1], [[1], [2**32]], "4294967296 is outside"),
    ("INT32", [2], [1, True], "true and false are not"),
    ("UINT8", [1], [False], "true and false are not"),
    ("FP32", [2], [True, 1.5], "true and false are not"),
    ("FP16", [2], [1, True], "true and false are not"),
    ("FP32", [2], [True, False], "true and false are not"),
    ("BOOL", [2], [True, 1], "not all numbers of the kind"),
    ("FP32", [2], [1, 1e39], r"1e\+39 is outside -3.4028234663852886e\+38 to 3.4028234663852886e\+38, the range of FP32; infinity is taken as binary data"),
    ("FP16", [1], [70000], "70000.0 is outside -65504.0 to 65504.0, the range of FP16"),
    ("FP16", [2, 1], [[1.0], [-65520.0]], "-65520.0 is outside"),
    ("FP32", [1], [{}], "an object is not"),
    ("FP32", [2], [1, [2]], "rectangular"),
    ("FP32", [2], [[1], 2], "rectangular"),
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


@pytest.mark.parametrize("datatype, data", [("UINT64", [2**64 - 1, 1, 2, 3]), ("UINT64", [[2**63, 0], [2**53 + 1, 1]]), ("INT64", [-2**63, 2**63 - 1, 2**53 + 1]), ("UINT8", [0, 255]),
                                            ("INT8", [-128, 127]), ("BOOL", [True, False]), ("FP16", [65504, -65519.9]), ("FP32", [3.4028234663852886e38, 1]), ("FP64", [1e308, 5, 2**64 - 1]),
                                            ("UINT64", []), ("FP32", [[], []])])
def test_every_number_in_range_arrives(datatype, data):
    right = np.array(data, TO_NUMPY[datatype])
    got = from_list("x", datatype, list(right.shape), data)
    assert got.dtype == right.dtype and got.shape == right.shape and np.array_equal(got, right)
    assert datatype[0] == "F" or np.array(got.tolist(), object).tolist() == data


def test_nesting_is_bounded():
    data = 1
    for _ in range(900):
        data = [data]
    with pytest.raises(BadRequest, match="rectangular"):
        from_list("x", "FP32", [1], data)


def test_infinity_of_a_protocol_buffer_stays():
    x = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    assert np.array_equal(from_list("x", "FP32", [4], x), x, equal_nan=True)


def test_json_does_not_hold_what_it_cannot_express():
    assert to_list("y", np.array([[1.5, 2]], np.float32)) == [1.5, 2.0] and to_list("y", np.array([True])) == [True]
    for lost in (np.nan, np.inf, -np.inf):
        for dtype in (np.float16, np.float32, np.float64):
            with pytest.raises(BadRequest, match="output 'y': 1 of 3 values are NaN or infinity, which JSON cannot express.*binary_data true.*gRPC"):
                to_list("y", np.array([1, lost, 2], dtype))


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


@pytest.mark.parametrize("wrong, text", [({"allow_origin": ["https://app.example/"]}, "--allow-origin https://app.example$"), ({"allow_origin": ["https://app.example/a?b"]}, "--allow-origin https://app.example$"),
                                         ({"allow_origin": ["https://app.example:443"]}, "--allow-origin https://app.example$"), ({"allow_origin": ["http://[::1]:80/"]}, r"--allow-origin http://\[::1\]$"),
                                         ({"allow_origin": ["https://app.example:8443/"]}, "--allow-origin https://app.example:8443$"), ({"allow_origin": ["*"]}, "pages of anybody"),
                                         ({"allow_origin": ["null"]}, "pages of anybody"), ({"allow_origin": ["app.example"]}, "SCHEME://HOST"), ({"allow_origin": [""]}, "SCHEME://HOST"),
                                         ({"allow_origin": ["https://*.example"]}, "SCHEME://HOST"), ({"allow_host": ["models.example:8000"]}, "--allow-host models.example$"),
                                         ({"allow_host": ["https://models.example/v2"]}, "--allow-host models.example$"), ({"allow_host": ["*.example"]}, r"once for each name, or --allow-host '\*'"),
                                         ({"allow_host": [""]}, "it is not a name"), ({"allow_host": ["[::1]:80"]}, "it is not a name"), ({"verify": ""}, "verify='': is empty")])
def test_settings_that_would_have_no_effect(wrong, text):
    """What no browser sends would never be equal, and an empty key would switch verification off."""
    with pytest.raises(octavo.UsageError, match=text):
        Settings(**wrong)


def test_names_and_origins_that_are_taken():
    Settings(allow_host=["models.example", "MODELS", "my_service.default.svc.cluster.local", "10.0.0.1", "::1", "*"],
             allow_origin=["https://app.example", "http://localhost:3000", "https://app.example:80", "HTTP://[::1]:8000", "chrome-extension://abcdef"])
