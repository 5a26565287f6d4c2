"""Integer TFLite models as tf2onnx writes them: NHWC in and out, a Transpose before and behind each convolution, weights per channel with
DequantizeLinear, biases as int32 with DequantizeLinear at scale sx*sw[c], activation codes int8 or uint8 with zero points."""
import numpy as np
import onnx
import pytest

from judge import judge
from networks import Net, inputs_of

TO_NCHW, TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


class TfliteNet(Net):
    def __init__(self, seed, codes):
        super().__init__(seed)
        self.codes = codes  # np.int8 or np.uint8

    def zero(self, asymmetric):
        """The code of 0 for a tensor that has both signs, or none below 0."""
        return self.codes(asymmetric if self.codes is np.uint8 else asymmetric - 128)

    def view(self, x, scale, zero):
        """What every TFLite tensor is: codes. tf2onnx writes QuantizeLinear, DequantizeLinear behind each operator."""
        q = self.op("QuantizeLinear", x, np.float32(scale), self.zero(zero))
        return self.op("DequantizeLinear", q, np.float32(scale), self.zero(zero))

    def conv(self, x, x_scale, cin, cout, kernel=3, stride=1, depthwise=False, name=None):
        group = cin if depthwise else 1
        w = self.weights(cout, cin // group, kernel, kernel)
        scale = (np.abs(w).max((1, 2, 3)) / 127).astype(np.float32)
        codes = np.clip(np.round(w / scale.reshape(-1, 1, 1, 1)), -127, 127).astype(np.int8)
        b_scale = (np.float32(x_scale) * scale).astype(np.float32)
        bias = np.round(self.bias(cout) / b_scale).astype(np.int32)
        weights = self.op("DequantizeLinear", codes, scale, np.zeros(cout, np.int8), axis=0)
        bias = self.op("DequantizeLinear", bias, b_scale, np.zeros(cout, np.int32), axis=0)
        x = self.op("Transpose", x, perm=TO_NCHW)
        even = stride == 2  # SAME padding of TensorFlow on an even size: more behind than before
        y = self.op("Conv", x, weights, bias, name=name, group=group, strides=[stride] * 2, kernel_shape=[kernel] * 2,
                    pads=[kernel // 2 - even * (kernel > 1)] * 2 + [kernel // 2] * 2)
        return self.op("Transpose", y, perm=TO_NHWC)


def mobile(codes):
    """An inverted residual with ReLU6, a mean, a fully connected layer, a softmax: MobileNet as a TFLite file."""
    n = TfliteNet(21, codes)
    x = n.view(n.input("x", [1, 24, 24, 3]), 0.03, 128)
    x = n.view(n.relu6(n.conv(x, 0.03, 3, 16, stride=2, name="stem")), 6 / 255, 0)
    y = n.view(n.relu6(n.conv(x, 6 / 255, 16, 32, kernel=1, name="expand")), 6 / 255, 0)
    y = n.view(n.relu6(n.conv(y, 6 / 255, 32, 32, depthwise=True, name="depthwise")), 6 / 255, 0)
    y = n.view(n.conv(y, 6 / 255, 32, 16, kernel=1, name="project"), 0.06, 120)
    x = n.view(n.op("Add", x, y), 0.07, 100)
    x = n.view(n.op("ReduceMean", x, axes=[1, 2], keepdims=0), 0.05, 100)
    w = n.weights(10, 16)
    scale = np.float32(np.abs(w).max() / 127)
    weights = n.op("DequantizeLinear", np.round(w / scale).astype(np.int8), scale, np.int8(0))
    bias = n.op("DequantizeLinear", np.arange(-50, 50, 10).astype(np.int32), np.float32(0.05) * scale, np.int32(0))
    y = n.op("MatMul", x, n.op("Transpose", weights, perm=[1, 0]), name="head")
    y = n.view(n.op("Add", y, bias), 0.08, 128)
    return n.model(n.view(n.op("Softmax", y, axis=-1), 1 / 256, 0))


def decoder(codes):
    """Concat along the last axis, Resize between transposes, an odd input size."""
    n = TfliteNet(22, codes)
    x = n.view(n.input("x", [1, 17, 13, 4]), 0.03, 128)
    a = n.view(n.op("Relu", n.conv(x, 0.03, 4, 8, name="first")), 0.03, 0)
    b = n.op("Transpose", n.op("MaxPool", n.op("Transpose", a, perm=TO_NCHW), kernel_shape=[2, 2], strides=[2, 2]), perm=TO_NHWC)
    b = n.view(n.op("LeakyRelu", n.conv(n.view(b, 0.03, 0), 0.03, 8, 8, name="low"), alpha=0.2), 0.04, 40)
    up = n.op("Resize", n.op("Transpose", b, perm=TO_NCHW), "", "", np.int64([1, 8, 17, 13]), mode="nearest", nearest_mode="floor",
              coordinate_transformation_mode="asymmetric")
    x = n.view(n.op("Concat", a, n.view(n.op("Transpose", up, perm=TO_NHWC), 0.04, 40), axis=3), 0.04, 40)
    return n.model(n.view(n.op("Sigmoid", n.view(n.conv(x, 0.04, 16, 3, kernel=1, name="last"), 0.1, 128)), 1 / 256, 0))


@pytest.mark.parametrize("codes", [np.int8, np.uint8], ids=["int8", "uint8"])
@pytest.mark.parametrize("network, convolutions", [(mobile, ["stem", "expand", "depthwise", "project", "head"]), (decoder, ["first", "low", "last"])])
def test_runs_as_onnxruntime_does_in_integers(network, convolutions, codes):
    model = network(codes)
    verdict = judge(model, inputs_of(model, 4, seed=5))
    assert verdict.quantized == len(convolutions) and not verdict.fallbacks, verdict.fallbacks
    layers = verdict.engine.layers
    for name in convolutions:
        assert any(name in l["onnx_nodes"] and l["precision"] == "int8" for l in layers), name


@pytest.mark.parametrize("network", [mobile, decoder])
def test_the_transposes_cost_nothing(network):
    """Channels last is how Octavo stores activations: no region moves data, but for what a network input or output needs."""
    model = network(np.int8)
    moves = [l for l in judge(model, inputs_of(model, 1, seed=5)).engine.layers if l["precision"] == "move" or l["kind"].startswith("copy")]
    assert [l["name"] for l in moves] == []


def test_a_bias_scale_in_the_next_bit_stays_that_of_the_file():
    """A bias whose scale is not fl(sx*sw) cannot be added to the accumulator; the layers are int8 all the same."""
    model, changed = mobile(np.int8), 0
    biases = {n.input[1] for n in model.graph.node if n.op_type == "DequantizeLinear" and n.name in
              {m.input[2].removesuffix("_out") for m in model.graph.node if m.op_type == "Conv"}}
    for t in model.graph.initializer:
        if t.name in biases:
            t.CopyFrom(onnx.numpy_helper.from_array(np.nextafter(onnx.numpy_helper.to_array(t), np.float32(1)), t.name))
            changed += 1
    assert changed == 4
    verdict = judge(model, inputs_of(model, 4, seed=5))
    assert verdict.quantized == 5 and not verdict.fallbacks
