"""Small float networks in ONNX, as exporters of frameworks write them, with seeded weights. NETWORKS: {name: function -> onnx.ModelProto}."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Net:
    """Builds one graph; arrays among the operands become initializers."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs = [], [], []

    def input(self, name, shape):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def op(self, kind, *operands, outputs=1, name=None, **attributes):
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        operands = [x if isinstance(x, str) else self.constant(x, f"{name}.in{i}") for i, x in enumerate(operands)]
        results = [f"{name}_out{i}" if i else f"{name}_out" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, operands, results, name=name, **attributes))
        return results[0] if outputs == 1 else results

    def constant(self, value, name=None):
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weights(self, *shape, gain=1.4):
        """Normal, by the fan-in, with channels of different magnitudes: quantization per channel matters."""
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else shape[0]
        w = self.random.normal(0, gain / np.sqrt(fan), shape)
        return (w * self.random.uniform(0.5, 1.5, (shape[0],) + (1,) * (len(shape) - 1))).astype(np.float32)

    def bias(self, n):
        return self.random.normal(0, 0.1, n).astype(np.float32)

    def conv(self, x, cin, cout, kernel=3, stride=1, group=1, name=None):
        pad = (kernel - 1) // 2
        return self.op("Conv", x, self.weights(cout, cin // group, kernel, kernel), self.bias(cout), name=name, kernel_shape=[kernel] * 2,
                       strides=[stride] * 2, pads=[pad] * 4, group=group)

    def relu6(self, x):
        return self.op("Clip", x, np.float32(0), np.float32(6))

    def model(self, *outputs):
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model, full_check=True)
        return model


def classifier(n, x, channels, classes):
    x = n.op("GlobalAveragePool", x)
    x = n.op("Flatten", x, axis=1)
    return n.op("Gemm", x, n.weights(classes, channels), n.bias(classes), transB=1)


def residual_cnn():
    n = Net(1)
    x = n.input("x", [1, 3, 24, 24])
    x = n.op("Relu", n.conv(x, 3, 16))
    x = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = n.op("Relu", n.conv(x, 16, 16))
    x = n.op("Relu", n.op("Add", n.conv(y, 16, 16), x))
    y = n.op("Relu", n.conv(x, 16, 32, stride=2))
    x = n.op("Relu", n.op("Add", n.conv(y, 32, 32), n.conv(x, 16, 32, kernel=1, stride=2)))
    return n.model(classifier(n, x, 32, 10))


def mobilenet_block():
    n = Net(2)
    x = n.relu6(n.conv(n.input("x", [1, 3, 24, 24]), 3, 16, stride=2))
    y = n.relu6(n.conv(x, 16, 48, kernel=1))
    y = n.relu6(n.conv(y, 48, 48, group=48))
    x = n.op("Add", x, n.conv(y, 48, 16, kernel=1))
    y = n.relu6(n.conv(x, 16, 48, kernel=1))
    x = n.conv(n.relu6(n.conv(y, 48, 48, kernel=5, stride=2, group=48)), 48, 24, kernel=1)
    return n.model(classifier(n, x, 24, 10))


def se_block():
    n = Net(3)
    x = n.op("HardSwish", n.conv(n.input("x", [1, 3, 24, 24]), 3, 16, stride=2))
    y = n.op("HardSwish", n.conv(x, 16, 16, group=16))
    s = n.op("GlobalAveragePool", y)
    s = n.op("HardSigmoid", n.conv(n.op("Relu", n.conv(s, 16, 8, kernel=1)), 8, 16, kernel=1), alpha=1 / 6)
    x = n.op("Add", x, n.conv(n.op("Mul", y, s), 16, 16, kernel=1))
    y = n.conv(x, 16, 16, kernel=1)
    x = n.op("Mul", y, n.op("Sigmoid", y))  # SiLU
    return n.model(classifier(n, x, 16, 10))


def unet_piece():
    n = Net(4)
    a = n.op("Relu", n.conv(n.input("x", [1, 1, 32, 32]), 1, 12))
    b = n.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2])
    b = n.op("LeakyRelu", n.conv(b, 12, 24), alpha=0.1)
    c = n.op("MaxPool", b, kernel_shape=[2, 2], strides=[2, 2])
    c = n.op("Relu", n.conv(c, 24, 32))
    up = n.op("ConvTranspose", c, n.weights(32, 24, 2, 2, gain=1.4), n.bias(24), kernel_shape=[2, 2], strides=[2, 2])
    b = n.op("Relu", n.conv(n.op("Concat", up, b, axis=1), 48, 24))
    up = n.op("Resize", b, "", np.float32([1, 1, 2, 2]), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    a = n.op("Relu", n.conv(n.op("Concat", up, a, axis=1), 36, 12))
    return n.model(n.op("Sigmoid", n.conv(a, 12, 1, kernel=1)))


def linear(n, x, rows, columns):
    return n.op("Add", n.op("MatMul", x, n.weights(columns, rows).T.copy()), n.bias(columns))


def transformer_block():
    n = Net(5)
    tokens, width, heads = 16, 32, 4
    x = n.input("x", [1, tokens, width])

    def norm(value):
        return n.op("LayerNormalization", value, n.random.uniform(0.8, 1.2, width).astype(np.float32), n.bias(width), axis=-1)

    y = norm(x)
    q, k, v = (n.op("Reshape", linear(n, y, width, width), np.int64([1, tokens, heads, width // heads])) for _ in range(3))
    q, v = (n.op("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
    scores = n.op("Mul", n.op("MatMul", q, n.op("Transpose", k, perm=[0, 2, 3, 1])), np.float32(1 / np.sqrt(width // heads)))
    y = n.op("MatMul", n.op("Softmax", scores, axis=-1), v)
    y = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), np.int64([1, tokens, width]))
    x = n.op("Add", x, linear(n, y, width, width))
    y = linear(n, norm(x), width, 64)
    e = n.op("Add", n.op("Erf", n.op("Div", y, np.float32(np.sqrt(2)))), np.float32(1))  # GELU as PyTorch writes it
    y = n.op("Mul", n.op("Mul", y, e), np.float32(0.5))
    x = norm(n.op("Add", x, linear(n, y, 64, width)))
    return n.model(linear(n, n.op("ReduceMean", x, axes=[1], keepdims=0), width, 10))


def lstm_classifier():
    n = Net(6)
    steps, features, hidden = 12, 16, 24
    x = n.op("Transpose", n.input("x", [1, steps, features]), perm=[1, 0, 2])
    size = 4 * hidden
    y, last, _ = n.op("LSTM", x, n.weights(1, size, features, gain=18.0), n.weights(1, size, hidden, gain=18.0),
                      n.bias(2 * size).reshape(1, -1), outputs=3, hidden_size=hidden)
    last = n.op("Squeeze", last, np.int64([0]))
    return n.model(n.op("Gemm", last, n.weights(10, hidden), n.bias(10), transB=1), y)


def detection_head():
    """Boxes and scores of 144 places; the best 20 by TopK, and what NonMaxSuppression keeps."""
    n = Net(7)
    x = n.op("Relu", n.conv(n.input("x", [1, 3, 24, 24]), 3, 16, stride=2))
    x = n.op("Relu", n.conv(x, 16, 24))
    scores = n.op("Sigmoid", n.op("Reshape", n.op("Transpose", n.conv(x, 24, 3, kernel=1), perm=[0, 2, 3, 1]), np.int64([1, -1, 3])))
    offsets = n.op("Reshape", n.op("Transpose", n.conv(x, 24, 4, kernel=1), perm=[0, 2, 3, 1]), np.int64([1, -1, 4]))
    grid = np.stack(np.meshgrid(np.arange(12), np.arange(12)), -1).reshape(1, -1, 2).astype(np.float32)
    centre = n.op("Add", n.op("Slice", offsets, np.int64([0]), np.int64([2]), np.int64([2])), grid)
    half = n.op("Exp", n.op("Slice", offsets, np.int64([2]), np.int64([4]), np.int64([2])))
    boxes = n.op("Concat", n.op("Sub", centre, half), n.op("Add", centre, half), axis=2)
    best = n.op("ReduceMax", scores, axes=[2], keepdims=0)
    top, index = n.op("TopK", best, np.int64([20]), outputs=2, axis=1)
    chosen = n.op("Gather", n.op("Squeeze", boxes, np.int64([0])), n.op("Squeeze", index, np.int64([0])), axis=0)
    keep = n.op("NonMaxSuppression", boxes, n.op("Transpose", scores, perm=[0, 2, 1]), np.int64([5]), np.float32([0.4]), np.float32([0.5]))
    kept = n.op("Cast", keep, to=TensorProto.FLOAT)
    return n.model(boxes, scores, top, chosen, kept)


NETWORKS = {f.__name__: f for f in (residual_cnn, mobilenet_block, se_block, unet_piece, transformer_block, lstm_classifier, detection_head)}


def inputs_of(model, count, seed):
    """`count` feeds for the model's inputs: smooth pictures (neighbours alike) in about [-2, 2]."""
    random = np.random.default_rng(seed)
    constants = {t.name for t in model.graph.initializer}
    feeds = []
    for _ in range(count):
        feed = {}
        for value in model.graph.input:
            if value.name in constants:
                continue
            shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
            x = random.normal(0, 1, shape)
            for axis in range(1, len(shape)):
                x = x + 0.5 * np.roll(x, 1, axis)
            feed[value.name] = (x / np.sqrt(1.25 ** (len(shape) - 1))).astype(np.float32)
        feeds.append(feed)
    return feeds
