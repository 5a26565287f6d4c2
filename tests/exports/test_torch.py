"""What PyTorch and NNCF export, compiled and compared with ONNX Runtime on the same file. Needs torch; torchao for PT2E, nncf for NNCF."""
import importlib.util
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

import torch_forms
import torch_networks
from judge import judge
from networks import inputs_of
from pending import or_skip

NEEDS = {"pt2e_x86": "torchao", "pt2e_xnnpack": "torchao", "nncf": "nncf", "nncf_per_tensor": "nncf"}
# {network: {form: weighted nodes that the file quantizes, all of which must run as int8}}
QUANTIZED = {
    "residual_cnn": {"qat": 7, "qat_eager": 4, "pt2e_x86": 7, "pt2e_xnnpack": 7, "nncf": 7},
    "mobilenet_block": {"qat": 8, "qat_eager": 6, "pt2e_x86": 8, "pt2e_xnnpack": 8, "nncf": 8},
    "se_block": {"qat": 12, "qat_eager": 6, "pt2e_x86": 12, "pt2e_xnnpack": 12, "nncf": 8},
    "unet_piece": {"qat": 5, "qat_eager": 3, "pt2e_x86": 5, "pt2e_xnnpack": 5, "nncf": 4},
    "transformer_block": {"qat": 3, "pt2e_x86": 3, "pt2e_xnnpack": 5, "nncf": 6},
    "lstm_classifier": {"qat_eager": 12, "nncf": 0, "nncf_per_tensor": 0},
    "detection_head": {},
}
# Computed in float so far, with what the reason must say.
FLOAT = {("se_block", "nncf"): (2, "is quantized per axis, and its 32 zero points differ")}
# What PyTorch itself does not export, with its words.
NOT_EXPORTED = {
    ("transformer_block", "qat_eager"): "NonDynamicallyQuantizableLinear",
    ("detection_head", "qat"): "not implemented for 'Long'",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", torch_forms.FORMS)
@pytest.mark.parametrize("network", torch_networks.NETWORKS)
def test_runs_as_onnxruntime_does(network, form, folder):
    if importlib.util.find_spec(NEEDS.get(form, "torch")) is None:
        pytest.skip(f"{NEEDS[form]} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if why := NOT_EXPORTED.get((network, form)):  # as soon as PyTorch exports it, the test says so
            with pytest.raises((AssertionError, NotImplementedError), match=why):
                torch_forms.FORMS[form](*torch_networks.NETWORKS[network]())
            return
        model = torch_forms.FORMS[form](*torch_networks.NETWORKS[network]())
    with or_skip():
        verdict = judge(model, inputs_of(model, 4, seed=11))
        count, reason = FLOAT.get((network, form), (0, ""))
        assert len(verdict.fallbacks) == count and all(reason in str(why) for why in verdict.fallbacks.values()), verdict.fallbacks
        expected = QUANTIZED[network].get(form)
        assert verdict.quantized == expected or (expected is None and (verdict.quantized > 0 or form in ("torchscript", "dynamo")))
