"""Names that a model does not have, in Python: each error names the nearest that it has."""
import pathlib

import numpy as np
import pytest

import octavo

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "examples/digits"
FP32 = DIGITS / "digits_fp32.onnx"
X = np.zeros((1, 1, 16, 16), np.float32)


def test_an_unknown_feed_beside_a_missing_one():
    for make in (lambda: octavo.build(FP32, effort=0), lambda: octavo.build(FP32, effort=0, shapes={"image": X.shape})):
        with pytest.raises(octavo.InputError, match='no input "imag"; nearest: "image"'):
            make().run({"imag": X})
    session = octavo.InferenceSession(str(FP32))
    with pytest.raises(Exception, match='no input "imag"; nearest: "image"'):
        session.run(None, {"imag": X})
    with pytest.raises(Exception, match='no input "imag"; nearest: "image"'):
        session.run_async(None, {"imag": X}, lambda *_: None, None)


def test_an_unknown_array_of_check_and_nonfinite():
    with pytest.raises(octavo.InputError, match='no input "imag"; nearest: "image"'):
        octavo.check(FP32, {"image": X, "imag": X}, effort=0)
    engine = octavo.build(FP32, effort=0, shapes={"image": X.shape})
    for feeds in ({"imag": X}, {"image": X, "imag": X}):
        with pytest.raises(octavo.InputError, match='no input "imag"; nearest: "image"'):
            engine.nonfinite(feeds)


def test_an_unknown_session_entry():
    options = octavo.SessionOptions()
    with pytest.raises(octavo.UsageError, match='no entry "octavo.efort"; nearest: "octavo.effort"'):
        options.add_session_config_entry("octavo.efort", "0")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # ONNX Runtime's own
    options.add_session_config_entry("octavo.effort", "0")


@pytest.mark.parametrize("model", [FP32, FP32.read_bytes()], ids=["file", "bytes"])
def test_a_range_of_no_tensor(model):
    with pytest.raises(octavo.UsageError, match='no tensor "imag"; nearest: "image"'):
        octavo.build(model, calibration={"imag": 1.0}, effort=0)
    octavo.build(model, calibration={"image": 1.0}, effort=0)


@pytest.mark.skipif(any(d.startswith("cuda") for d in octavo._octavo._devices()), reason="there is a GPU")
def test_an_open_model_for_a_gpu_that_is_not_there():
    with pytest.raises(octavo.Error, match='(?s)opening the GPU: .*name it: --gpu sm_90 .device "cuda:sm_90"'):
        octavo.build(FP32, device="cuda", effort=0)


@pytest.mark.skipif(any(d.startswith("cuda") for d in octavo._octavo._devices()), reason="there is a GPU")
@pytest.mark.parametrize("effort", [0, 1])
def test_nothing_is_compiled_for_a_gpu_that_is_not_there(effort):
    steps = []
    with pytest.raises(octavo.Error, match="opening the GPU"):
        octavo.build(FP32, shapes={"image": X.shape}, device="cuda", effort=effort, progress=steps.append)
    assert not [s for s in steps if s.startswith(("plan", "engine"))], steps


def test_options_of_quantize_without_effect():
    with pytest.raises(octavo.UsageError, match="percentile=99.0 has no effect"):
        octavo.quantize(FP32, [X], percentile=99.0)
    with pytest.raises(octavo.UsageError, match="labels has no effect"):
        octavo.quantize(FP32, [X], labels=[1])
