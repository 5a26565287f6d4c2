"""Dynamic int8: networks of DynamicQuantizeLinear, ConvInteger and MatMulInteger as ONNX Runtime's tool makes them. Whatever is rewritten, fused and
packed, the outputs are the reference evaluator's bit for bit, and those of the network as written."""
import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper

ONLY_CPU = {"threads": 1, "timing_cache": "none"}


class Network:
    """Layers behind each other, each dynamically quantized."""

    def __init__(self, seed, weights):
        self.rng, self.weights = np.random.default_rng(seed), weights
        self.nodes, self.constants = [], []

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind, inputs, results=1, **attributes):
        names = [f"t{len(self.nodes)}_{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        return names if results > 1 else names[0]

    def codes(self, shape):
        """Weights, their zero point, their scale."""
        if self.weights == "u8":
            return self.rng.integers(0, 256, shape).astype("uint8"), np.uint8(self.rng.integers(100, 160))
        return self.rng.integers(-127, 128, shape).astype("int8"), np.int8(0)

    def scaled(self, kind, x, shape, channels, **attributes):
        codes, scale, zero = self.op("DynamicQuantizeLinear", [x], 3)
        w, w_zero = self.codes(shape)
        y = self.op(kind, [codes, self.constant(w), zero, self.constant(w_zero)], **attributes)
        both = self.op("Mul", [scale, self.constant(np.float32(0.01))])
        y = self.op("Mul", [self.op("Cast", [y], to=TensorProto.FLOAT), both])
        bias = self.rng.standard_normal(channels).astype("float32")
        return self.op("Add", [y, self.constant(bias if kind == "MatMulInteger" else bias.reshape(1, -1, 1, 1))])

    def conv(self, x, before, after, size, group=1, stride=1):
        pad = size // 2
        return self.scaled("ConvInteger", x, (after, before // group, size, size), after, group=group, strides=[stride] * 2, pads=[pad] * 4)

    def clip(self, x):
        return self.op("Clip", [x, self.constant(np.float32(0)), self.constant(np.float32(6))])

    def model(self, x, y, inputs, output):
        value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "dynamic", [value(x, inputs)], [value(y, output)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def bottlenecks(weights):
    """Inverted bottlenecks with an addition; zero points that are 0 behind Clip, and others."""
    n = Network(3, weights)
    x = n.conv("x", 3, 16, 3, stride=2)
    for stride in (1, 2):
        y = n.clip(n.conv(x, 16, 32, 1))
        y = n.clip(n.conv(y, 32, 32, 3, group=32, stride=stride))
        y = n.conv(y, 32, 16, 1)
        x = n.op("Add", [x, y]) if stride == 1 else y
    return n.model("x", n.op("Relu", [x]), [1, 3, 21, 19], [1, 16, 6, 5])


def products(weights):
    n = Network(5, weights)
    y = n.op("Relu", [n.scaled("MatMulInteger", "x", (24, 40), 40)])
    return n.model("x", n.scaled("MatMulInteger", y, (40, 7), 7), [5, 24], [5, 7])


@pytest.mark.parametrize("weights", ["u8", "s8"])
@pytest.mark.parametrize("network", [bottlenecks, products])
def test_equals_the_reference_and_what_was_written(network, weights):
    model = network(weights)
    x = np.random.default_rng(1).standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]).astype("float32")
    fast = octavo.build(model, effort=0, **ONLY_CPU)
    as_written = octavo.build(model, effort=0, disable=["drop-integer-cast"], **ONLY_CPU)
    reference = octavo.build(model, device="reference")
    assert len(fast.layers) < len(as_written.layers)
    for data in (x, -np.abs(x), np.abs(x), np.zeros_like(x)):
        want = next(iter(reference.run(data).values()))
        np.testing.assert_array_equal(next(iter(fast.run(data).values())), want)
        np.testing.assert_array_equal(next(iter(as_written.run(data).values())), want)
    assert np.isfinite(want).all()


@pytest.mark.parametrize("network", [bottlenecks, products])
def test_sums_scales_and_activations_are_one_region(network):
    """One region a layer, one that quantizes what it reads, and few that hold a handful of numbers."""
    engine = octavo.build(network("u8"), effort=0, **ONLY_CPU)
    slow = [layer["tactic"] for layer in engine.layers if "reference" in layer["tactic"]]
    assert not slow
    weighted = [layer for layer in engine.layers if layer["kind"] in ("conv", "gemm")]
    assert len(weighted) == sum(node.op_type.endswith("Integer") for node in network("u8").graph.node)


def codes_of(data):
    """Codes less their zero point, and the scale, as DynamicQuantizeLinear has them."""
    least, most = min(data.min(), 0), max(data.max(), 0)
    step = np.float32(most - least) / np.float32(255)
    offset = np.clip(np.rint(-least / step), 0, 255)
    return (np.clip(np.rint(data / step) + offset, 0, 255) - offset).astype(np.int64), step


@pytest.mark.parametrize("weights", ["u8", "s8"])
@pytest.mark.parametrize("terms", [514, 600, 1024, 3072])
@pytest.mark.parametrize("rows", [1, 3])
def test_sums_that_pass_two_to_the_24_are_one_product(weights, terms, rows):
    """Sums that float32 cannot hold are computed in int32, in one region with their zero points and scales, and are exact."""
    n = Network(terms, weights)
    codes, scale, zero = n.op("DynamicQuantizeLinear", ["x"], 3)
    w, w_zero = n.codes((terms, 33))
    y = n.op("Cast", [n.op("MatMulInteger", [codes, n.constant(w), zero, n.constant(w_zero)])], to=TensorProto.FLOAT)
    model = n.model("x", n.op("Mul", [y, scale]), [rows, terms], [rows, 33])
    engine = octavo.build(model, effort=0, **ONLY_CPU)
    assert not [layer["tactic"] for layer in engine.layers if "reference" in layer["tactic"]]
    assert [layer["kind"] for layer in engine.layers] == ["dynamic_quantize", "conv"]
    reference = octavo.build(model, device="reference")
    for data in (np.random.default_rng(1).standard_normal((rows, terms)), np.full((rows, terms), -3.0), np.linspace(-1, 1e3, rows * terms).reshape(rows, terms)):
        data = data.astype("float32")
        a, step = codes_of(data)
        want = (a @ (w.astype(np.int64) - int(w_zero))).astype(np.float32) * step
        got = next(iter(engine.run(data).values()))
        np.testing.assert_array_equal(got, next(iter(reference.run(data).values())))
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger"])
def test_long_sums_are_results_in_int32(kind):
    """Sums beyond 2^24 that leave the graph as they are: of a product, and of a convolution in groups with padding."""
    n = Network(7, "u8")
    codes, _, zero = n.op("DynamicQuantizeLinear", ["x"], 3)
    product = kind == "MatMulInteger"
    w, w_zero = n.codes((1500, 17) if product else (6, 90, 3, 3))
    attributes = {} if product else {"group": 2, "pads": [1, 1, 1, 1]}
    y = n.op(kind, [codes, n.constant(w), zero, n.constant(w_zero)], **attributes)
    shape = [2, 1500] if product else [1, 180, 5, 4]
    model = n.model("x", y, shape, [2, 17] if product else [1, 6, 5, 4])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32
    engine = octavo.build(model, effort=0, **ONLY_CPU)
    assert not [layer["tactic"] for layer in engine.layers if "reference" in layer["tactic"]]
    for data in (np.random.default_rng(2).standard_normal(shape), np.linspace(1, 900, int(np.prod(shape))).reshape(shape)):
        data = data.astype("float32")
        a, _ = codes_of(data)
        weights = w.astype(np.int64) - int(w_zero)
        if product:
            want = a @ weights
        else:
            padded, want = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros((1, 6, 5, 4), np.int64)
            for o in range(6):
                part = padded[:, o // 3 * 90:o // 3 * 90 + 90]
                for i in range(3):
                    for j in range(3):
                        want[:, o] += np.einsum("nchw,c->nhw", part[:, :, i:i + 5, j:j + 4], weights[o, :, i, j])
        got = next(iter(engine.run(data).values()))
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(got, next(iter(octavo.build(model, device="reference").run(data).values())))


@pytest.mark.parametrize("by_column", [False, True])
def test_fused_products_are_computed_in_integers(by_column):
    """What ONNX Runtime's optimizer makes of such networks: the same region as of the operators that it joined."""
    n = Network(9, "s8")
    w, _ = n.codes((1200, 40))
    scale = np.float32([0.01]) if not by_column else n.rng.uniform(0.005, 0.02, 40).astype("float32")
    y = n.op("DynamicQuantizeMatMul", ["x", n.constant(w), n.constant(scale), n.constant(np.int8([0])), n.constant(n.rng.standard_normal(40).astype("float32"))],
             domain="com.microsoft")
    model = n.model("x", y, [2, 1200], [2, 40])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    engine = octavo.build(model, effort=0, **ONLY_CPU)
    assert [layer["kind"] for layer in engine.layers] == ["dynamic_quantize", "conv"]
    assert engine.layers[1]["precision"] == "int8"
    data = np.random.default_rng(3).standard_normal((2, 1200)).astype("float32")
    a, step = codes_of(data)
    bias = numpy_helper.to_array(n.constants[-1])
    want = (a @ w.astype(np.int64)).astype(np.float32) * (step * scale) + bias
    np.testing.assert_allclose(next(iter(engine.run(data).values())), want, rtol=1e-5, atol=1e-5)
