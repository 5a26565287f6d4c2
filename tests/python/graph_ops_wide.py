"""More operators for random graphs, as in graph_ops.py: shapes and what is made of them, quantized products, losses, windows, scans."""
import numpy as np
from onnx import helper

from graph_ops import op


def shifted(g, array):
    """A constant plus one number that depends on data."""
    return g.node("Add", [g.constant(array), g.node("ReduceMean", [g.real()], keepdims=0)])


def codes(g, x, zero):
    return g.node("QuantizeLinear", [x, g.constant(np.float32(0.125)), g.constant(zero)])


@op
def squeeze(g):
    x = g.real(most=4)
    at = int(g.rng.integers(0, len(g.shape(x)) + 1))
    y = g.node("Unsqueeze", [x, g.constant(np.array([at], np.int64))], exact=g.exact(x))
    return g.node("Squeeze", [g.node("Neg", [y]), g.constant(np.array([at - len(g.shape(x)) - 1], np.int64))], exact=g.exact(x))


@op
def reduce_log_sum(g):
    x = g.clipped(0.25, 4)
    if not g.shape(x):
        return None
    return g.node("ReduceLogSum", [x, g.constant(np.array([g.axis(x)], np.int64))], keepdims=int(g.chance(0.5)))


@op
def cast_like(g):
    x = g.clipped(-100, 100, exact=True)
    like = g.constant(np.zeros(1, g.pick([np.int32, np.int64, np.int8])))
    return g.node("Cast", [g.node("CastLike", [x, like])], to=1, exact=True)


@op
def bitwise_not(g):
    x = g.node("Cast", [g.clipped(0, 100, exact=True)], to=g.pick([2, 6, 7]))
    return g.node("Cast", [g.node("BitwiseAnd", [g.node("BitwiseNot", [x]), g.node("Cast", [g.constant(np.int64(63))], to=helper.np_dtype_to_tensor_dtype(g.dtype(x)))])],
                  to=1, exact=True)


@op
def by_shape(g):
    x = g.real(least=1)
    shape = g.node("Shape", [x])
    if g.chance(0.3):
        return g.node("Add", [x, g.node("Cast", [g.node("Size", [x])], to=1)])
    if g.chance(0.5):
        filled = g.node("ConstantOfShape", [shape], value=helper.make_tensor("v", 1, [1], [g.pick([0.5, -2.0])]))
        return g.node("Mul", [x, filled], exact=False)
    return g.node("Reshape", [x, g.node("Concat", [g.constant(np.array([1], np.int64)), shape], axis=0)], exact=g.exact(x)) if len(g.shape(x)) < 5 else None


@op
def counted(g):
    x = g.real(least=1)
    numbers = g.node("Range", [g.constant(np.int64(n)) for n in (0, g.shape(x)[-1], 1)])
    return g.node("Add", [x, g.node("Cast", [numbers], to=1)], exact=g.exact(x))


@op
def eye(g):
    x = g.real(rank=2)
    return g.node("Add", [x, g.node("EyeLike", [x], k=g.pick([-1, 0, 1]))], exact=g.exact(x))


@op
def windowed(g):
    x = g.real(least=1)
    name = g.pick(["HannWindow", "HammingWindow", "BlackmanWindow"])
    return g.node("Mul", [x, g.node(name, [g.constant(np.int64(g.shape(x)[-1]))], periodic=int(g.chance(0.5)))])


@op
def stft(g):
    x = g.real(rank=2)
    if g.shape(x)[1] < 4:
        return None
    signal = g.node("Unsqueeze", [x, g.constant(np.array([2], np.int64))])
    return g.node("STFT", [signal, g.constant(np.int64(g.pick([1, 2]))), g.constant(np.float32([0.5, 1, 1, 0.5]))], onesided=int(g.chance(0.5)))


@op
def col2im(g):
    columns = shifted(g, g.array([1, 2 * 4, 9]))
    return g.node("Col2Im", [columns, g.constant(np.array([4, 4], np.int64)), g.constant(np.array([2, 2], np.int64))])


@op
def affine_grid(g):
    return g.node("AffineGrid", [shifted(g, g.array([1, 2, 3]) / 2), g.constant(np.array([1, 2, 3, 4], np.int64))], align_corners=int(g.chance(0.5)))


@op
def losses(g):
    x = g.real(rank=2)
    labels = g.constant(g.rng.integers(0, g.shape(x)[1], g.shape(x)[0]).astype(np.int64))
    reduction = g.pick(["none", "mean", "sum"])
    if g.chance(0.5):
        return g.node("SoftmaxCrossEntropyLoss", [x, labels], reduction=reduction)
    weights = [g.constant(np.abs(g.array(g.shape(x)[1:])) + 0.25)] if g.chance(0.5) else []
    return g.node("NegativeLogLikelihoodLoss", [x, labels, *weights], reduction=reduction)


@op
def compress(g):
    x = g.real(least=1)
    axis = g.axis(x)
    keep = np.arange(g.shape(x)[axis]) % 2 == 0
    return g.node("Compress", [x, g.constant(keep)], axis=axis, exact=g.exact(x))


@op
def dropout(g):
    x = g.real()
    return g.node("Dropout", [x, g.constant(np.float32(0.5))], exact=g.exact(x))


@op
def qlinear_matmul(g):
    x = g.clipped(-4, 4, exact=True)
    if len(g.shape(x)) < 2:
        return None
    zero = np.uint8(128) if g.chance(0.5) else np.int8(4)  # even: the onnx package rounds the sum with the zero point
    w = g.rng.integers(-8, 9, [g.shape(x)[-1], 3]).astype(np.int8)
    scale, out = g.constant(np.float32(0.125)), g.constant(np.float32(1))
    y = g.node("QLinearMatMul", [codes(g, x, zero), scale, g.constant(zero), g.constant(w), scale, g.constant(np.int8(0)), out, g.constant(zero)])
    return g.node("DequantizeLinear", [y, out, g.constant(zero)])


@op
def qlinear_conv(g):
    x = g.clipped(-4, 4, exact=True)
    if len(g.shape(x)) != 4:
        return None
    zero = np.uint8(128)
    w = g.rng.integers(-8, 9, [2, g.shape(x)[1], 2, 2]).astype(np.int8)
    scale, out = g.constant(np.float32(0.125)), g.constant(np.float32(1))
    y = g.node("QLinearConv", [codes(g, x, zero), scale, g.constant(zero), g.constant(w), scale, g.constant(np.int8(0)), out, g.constant(zero)], pads=[1, 0, 0, 1])
    return g.node("DequantizeLinear", [y, out, g.constant(zero)])


@op
def scan(g):
    x = g.node("Tanh", [g.real(least=2)])
    n, rest = len(g.list), list(g.shape(x)[1:])
    info = [helper.make_tensor_value_info(f"s{n}{k}", 1, rest) for k in ("a", "r")]
    results = [helper.make_tensor_value_info(f"s{n}{k}", 1, rest) for k in ("b", "o")]
    body = helper.make_graph([helper.make_node("Add", [f"s{n}a", f"s{n}r"], [f"s{n}b"]), helper.make_node("Neg", [f"s{n}b"], [f"s{n}o"])], "step", info, results)
    return g.pick(g.nodes("Scan", [g.constant(g.array(rest)), x], 2, body=body, num_scan_inputs=1))


@op
def tensor_scatter(g):
    x = g.real(rank=3)
    b, t, d = g.shape(x)
    if t < 2:
        return None
    at = g.constant(g.rng.integers(0, t - 1, b).astype(np.int64))
    return g.node("TensorScatter", [x, g.constant(g.array([b, 2, d])), at], axis=1, mode=g.pick(["linear", "circular"]), exact=g.exact(x))
