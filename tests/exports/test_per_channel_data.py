"""NNCF quantizes what a depthwise convolution reads per channel. With one zero point that is still an integer convolution."""
import numpy as np
import pytest

import octavo
from judge import judge
from networks import Net, inputs_of

CHANNELS = 12


def depthwise(zero_points, outputs_each=1, kernel=3, stride=1, biased=True):
    """A view per channel, a depthwise convolution with `outputs_each` results a channel, a view per tensor."""
    n = Net(31)
    x = n.input("x", [2, CHANNELS, 11, 9])
    scale = (0.01 * 1.2 ** np.arange(CHANNELS)).astype(np.float32)
    zero = np.broadcast_to(np.asarray(zero_points), CHANNELS).astype(np.uint8)
    x = n.op("DequantizeLinear", n.op("QuantizeLinear", x, scale, zero, axis=1), scale, zero, axis=1)
    w = n.weights(CHANNELS * outputs_each, 1, kernel, kernel)
    w_scale = (np.abs(w).max((1, 2, 3)) / 127).astype(np.float32)
    codes = np.round(w / w_scale.reshape(-1, 1, 1, 1)).astype(np.int8)
    w = n.op("DequantizeLinear", codes, w_scale, np.zeros(len(codes), np.int8), axis=0)
    b_scale = np.repeat(scale, outputs_each) * w_scale
    bias = [n.op("DequantizeLinear", n.random.integers(-4000, 4000, len(codes)).astype(np.int32), b_scale, np.zeros(len(codes), np.int32), axis=0)]
    y = n.op("Conv", x, w, *bias[: int(biased)], name="depthwise", group=CHANNELS, kernel_shape=[kernel] * 2, strides=[stride] * 2,
             pads=[kernel // 2] * 4)
    return n.model(n.op("DequantizeLinear", n.op("QuantizeLinear", y, np.float32(0.02), np.uint8(117)), np.float32(0.02), np.uint8(117)))


@pytest.mark.parametrize("zero", [0, 128, 37])
@pytest.mark.parametrize("outputs_each, kernel, stride, biased", [(1, 3, 1, True), (1, 5, 2, False), (2, 3, 1, True), (3, 1, 1, False)])
def test_one_zero_point_is_an_integer_convolution(zero, outputs_each, kernel, stride, biased):
    model = depthwise(zero, outputs_each, kernel, stride, biased)
    feeds = inputs_of(model, 3, seed=8)
    verdict = judge(model, feeds)
    assert verdict.quantized == 1 and not verdict.fallbacks, verdict.fallbacks
    reference = octavo.build(model, shapes={"x": feeds[0]["x"].shape}, device="reference")
    for feed in feeds:
        ours, exact = verdict.engine.run(feed), reference.run(feed)
        assert all(np.array_equal(ours[name], exact[name]) for name in exact)


def test_several_zero_points_stay_float_and_it_says_so():
    model = depthwise(100 + np.arange(CHANNELS))
    verdict = judge(model, inputs_of(model, 3, seed=8))
    assert "quantized per axis, and its 12 zero points differ" in str(verdict.fallbacks["depthwise"])
