"""What ONNX Runtime's quantizers write, in every form, compiled and compared with ONNX Runtime on the same file."""
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import octavo
from forms import FORMS
from judge import float_fallbacks, judge
from networks import NETWORKS, inputs_of
from pending import or_skip

ALL = {"float": lambda model, _feeds, _folder: model, **FORMS}

# {network: weighted nodes that the static forms quantize}. QOperator has no ConvTranspose, so that one less is quantized there.
QUANTIZED = {"residual_cnn": 7, "mobilenet_block": 8, "se_block": 7, "unet_piece": 7, "transformer_block": 9, "lstm_classifier": 1,
             "detection_head": 4}
# Products of two computed operands (attention): on codes, but computed in float so far.
FLOAT_PRODUCTS = {"transformer_block": {"matmul_13", "matmul_16"}}


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("network", NETWORKS)
def test_runs_as_onnxruntime_does(network, form, folder):
    source = NETWORKS[network]()
    model = ALL[form](source, inputs_of(source, 16, seed=12), folder)
    with or_skip():
        verdict = judge(model, inputs_of(source, 4, seed=11))
    if form == "float":
        assert verdict.quantized == 0
    elif form.startswith("dynamic"):
        assert verdict.quantized > 0 and not verdict.fallbacks, verdict.fallbacks
    else:
        assert verdict.quantized == QUANTIZED[network] - (network == "unet_piece" and form.startswith("qoperator"))
        fallbacks = {name.removesuffix("_quant") for name in verdict.fallbacks}
        assert fallbacks <= FLOAT_PRODUCTS.get(network, set()), verdict.fallbacks


def test_the_judge_can_say_no(folder, monkeypatch):
    """A weight scale that is 2 % off and layers in float are seen."""
    source = NETWORKS["residual_cnn"]()
    feeds = inputs_of(source, 4, seed=11)
    model = FORMS["qdq_u8s8_per_channel"](source, inputs_of(source, 16, seed=12), folder)
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    scale = next(t for t in wrong.graph.initializer if t.name == "conv_3.in1_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.02), scale.name))
    build = octavo.build
    monkeypatch.setattr(octavo, "build", lambda _model, **options: build(wrong, **options))
    with pytest.raises(AssertionError, match="difference from ONNX Runtime"):
        judge(model, feeds)
    monkeypatch.undo()

    engine = octavo.build(source, shapes={"x": (1, 3, 24, 24)}, threads=1, effort=0)
    for node in model.graph.node:  # the names of the quantized file, looked up in the engine of the float one
        node.name = node.name.removesuffix("_quant")
    assert len(float_fallbacks(engine, model)) == 7
