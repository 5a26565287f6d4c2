"""Operators for random graphs (test_random_graphs.py): a function each, which adds nodes to a `Graph` and gives the name of a result.

`exact` values are multiples of 1/8 that every implementation computes alike; operators with jumps (rounding, comparisons, indices) take only those.
One long file because it is a table."""
import numpy as np

OPS = []


def op(f):
    OPS.append(f)
    return f


def several(names, make):
    for name in names:
        def f(g, name=name):
            return make(g, name)
        f.__name__ = name
        OPS.append(f)


# Unary
several(["Relu", "Neg", "Abs"], lambda g, n: g.node(n, [x := g.real()], exact=g.exact(x)))
several(["Floor", "Ceil", "Round", "Sign"], lambda g, n: g.node(n, [g.real(exact=True)], exact=True))
several(["Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Mish", "HardSwish", "Sin", "Cos", "Atan", "Asinh", "Identity"],
        lambda g, n: g.node(n, [g.real()]))
several(["Exp", "Sinh", "Cosh", "Tan"], lambda g, n: g.node(n, [g.clipped(-1.25, 1.25)]))
several(["Asin", "Acos", "Atanh"], lambda g, n: g.node(n, [g.clipped(-0.875, 0.875)]))
several(["Sqrt", "Log", "Reciprocal"], lambda g, n: g.node(n, [g.clipped(0.125, 4)]))
several(["IsNaN", "IsInf"], lambda g, n: g.node("Cast", [g.node(n, [g.real()])], exact=True, to=1))


@op
def acosh(g):
    return g.node("Acosh", [g.clipped(1.125, 4)])


@op
def leaky(g):
    name = g.pick(["LeakyRelu", "Elu", "Celu", "ThresholdedRelu"])
    return g.node(name, [g.real(exact=name == "ThresholdedRelu")], alpha=g.pick([0.125, 0.5, 1.0, 1.5]))


@op
def selu(g):
    return g.node("Selu", [g.real()], **g.maybe(alpha=1.5, gamma=1.25))


@op
def hard_sigmoid(g):
    return g.node("HardSigmoid", [g.real()], **g.maybe(alpha=0.25, beta=0.375))


@op
def gelu(g):
    return g.node("Gelu", [g.real()], approximate=g.pick(["none", "tanh"]))


@op
def swish(g):
    return g.node("Swish", [g.real()], alpha=g.pick([1.0, 0.5]))


@op
def shrink(g):
    return g.node("Shrink", [g.real(exact=True)], lambd=g.pick([0.5, 1.0]), bias=g.pick([0.0, 0.25]), exact=True)


@op
def clip(g):
    x = g.real()
    return g.node("Clip", [x, g.constant(np.float32(-1.5)), g.constant(np.float32(g.pick([0.5, 6])))], exact=g.exact(x))


@op
def prelu(g):
    x = g.real()
    return g.node("PRelu", [x, g.constant(g.array([g.shape(x)[-1]] if g.shape(x) else []))])


# Binary, with broadcasting
def pair(g, exact=False):
    """A value and another that broadcasts against it: the value of another node, or a constant."""
    x = g.real(exact=exact)
    others = [y for y in g.reals(exact) if broadcasts(g.shape(x), g.shape(y))]
    if others and g.chance(0.7):
        return x, g.pick(others)
    shape = [d if g.chance(0.6) else 1 for d in g.shape(x)][g.rng.integers(0, len(g.shape(x)) + 1):]
    return x, g.constant(g.array(shape))


def broadcasts(a, b):
    n = max(len(a), len(b))
    a, b = [1] * (n - len(a)) + list(a), [1] * (n - len(b)) + list(b)
    return all(p == q or p == 1 or q == 1 for p, q in zip(a, b)) and np.prod([max(p, q) for p, q in zip(a, b)]) < 4096


@op
def arithmetic(g):
    name = g.pick(["Add", "Sub", "Mul", "Max", "Min"])
    x, y = pair(g)
    exact = g.exact(x) and g.exact(y) and name != "Mul" and g.largest(x) + g.largest(y) < 1000
    return g.node(name, [x, y], exact=exact)


@op
def sum_of(g):
    x, y = pair(g)
    return g.node(g.pick(["Sum", "Mean", "Max", "Min"]), [x, y, x])


@op
def div(g):
    x = g.real()
    return g.node("Div", [x, g.constant(np.abs(g.array(g.shape(x)[-1:])) + 0.5)])


@op
def power(g):
    return g.node("Pow", [g.clipped(0.25, 3), g.constant(np.float32(g.pick([0.5, 2, 3, -1, 1.75])))])


@op
def mod(g):
    x = g.real(exact=True)
    return g.node("Mod", [x, g.constant(np.float32(g.pick([1.5, 0.75, 2])))], fmod=1, exact=True)


@op
def compare(g):
    x, y = pair(g, exact=True)
    return g.node("Cast", [g.node(g.pick(["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]), [x, y])], to=1, exact=True)


@op
def logic(g):
    x, y = pair(g, exact=True)
    a, b = g.node("Greater", [x, g.constant(np.float32(0))]), g.node("Less", [y, g.constant(np.float32(1))])
    c = g.node(g.pick(["And", "Or", "Xor"]), [a, b])
    return g.node("Cast", [g.node("Not", [c]) if g.chance(0.3) else c], to=1, exact=True)


@op
def where(g):
    x, y = pair(g, exact=True)
    condition = g.node("Less", [x, y])
    a, b = pair(g)
    if not broadcasts(g.shape(condition), g.shape(a)) or not broadcasts(g.shape(condition), g.shape(b)):
        a, b = x, y
    return g.node("Where", [condition, a, b], exact=g.exact(a) and g.exact(b))


# Integers
@op
def integers(g):
    to = g.pick([6, 7, 2, 3, 5, 4, 12])
    x = g.node("Cast", [g.clipped(0 if to in (2, 4, 12) else -3, 3, exact=True)], to=to)
    y = g.constant(g.rng.integers(1, 4, g.shape(x)[-1:]).astype(g.dtype(x)))
    z = g.node(g.pick(["Add", "Mul", "Max", "Min", "Div", "Mod"]), [x, y])
    return g.node("Cast", [z], to=1, exact=True)


@op
def bits(g):
    x = g.node("Cast", [g.clipped(0, 4, exact=True)], to=g.pick([2, 12, 13]))
    y = g.constant(g.rng.integers(0, 4, g.shape(x)[-1:]).astype(g.dtype(x)))
    z = g.pick([lambda: g.node(g.pick(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), [x, y]),
                lambda: g.node("BitShift", [x, y], direction=g.pick(["LEFT", "RIGHT"]))])()
    return g.node("Cast", [z], to=1, exact=True)


# Products
@op
def matmul(g):
    x = g.real(least=2)
    k, n = g.shape(x)[-1], int(g.rng.integers(1, 6))
    batch = list(g.shape(x)[:-2]) if g.chance(0.3) else []
    return g.node("MatMul", [x, g.constant(g.array(batch + [k, n]))])


@op
def matmul_of_values(g):
    x = g.real(least=2)
    perm = list(range(len(g.shape(x))))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    return g.node("MatMul", [x, g.node("Transpose", [g.node("Tanh", [x])], perm=perm)])


@op
def gemm(g):
    x = g.real(rank=2)
    ta, tb = int(g.chance(0.3)), int(g.chance(0.5))
    m, k = g.shape(x)[::-1] if ta else g.shape(x)
    n = int(g.rng.integers(1, 6))
    operands = [x, g.constant(g.array([n, k] if tb else [k, n]))]
    if g.chance(0.7):
        operands.append(g.constant(g.array(g.pick([[n], [1, n], [m, 1], [m, n], []]))))
    return g.node("Gemm", operands, transA=ta, transB=tb, **g.maybe(alpha=0.5, beta=2.0))


@op
def einsum(g):
    x = g.real(rank=3)
    a, b, c = g.shape(x)
    equation, y = g.pick([("abc,cd->abd", [c, 3]), ("abc,acd->abd", [a, c, 2]), ("abc->cab", None), ("abc->a", None), ("abc,abc->ab", [a, b, c]),
                          ("...c,c->...", [c]), ("abc,dbc->ad", [2, b, c])])
    return g.node("Einsum", [x] + ([g.constant(g.array(y))] if y else []), equation=equation)


def window(g, spatial, extents, pads=True):
    kernel = [int(g.rng.integers(1, min(3, e) + 1)) for e in extents]
    attrs = {"kernel_shape": kernel}
    if g.chance(0.6):
        attrs["strides"] = [int(g.rng.integers(1, 3)) for _ in range(spatial)]
    if pads and g.chance(0.6):
        attrs["pads"] = [int(g.rng.integers(0, k)) for k in kernel * 2]
    return attrs


@op
def conv(g):
    x = g.real(least=3, most=5)
    s = g.shape(x)
    attrs = window(g, len(s) - 2, s[2:])
    group = g.pick([d for d in (1, 2, s[1]) if s[1] % d == 0])
    out = group * int(g.rng.integers(1, 4))
    operands = [x, g.constant(g.array([out, s[1] // group, *attrs["kernel_shape"]]))]
    if g.chance(0.5):
        operands.append(g.constant(g.array([out])))
    return g.node("Conv", operands, group=group, **attrs)


@op
def conv_transpose(g):
    x = g.real(least=3, most=4)
    s = g.shape(x)
    attrs = window(g, len(s) - 2, s[2:], pads=False)
    return g.node("ConvTranspose", [x, g.constant(g.array([s[1], 2, *attrs["kernel_shape"]]))], **attrs)


@op
def pool(g):
    x = g.real(least=3, most=5)
    s = g.shape(x)
    name = g.pick(["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "LpPool"])
    if name.startswith("Global"):
        if len(s) != 4:
            return None  # the onnx package gives results of another rank
        return g.node(name, [x], exact=name == "GlobalMaxPool" and g.exact(x))
    attrs = window(g, len(s) - 2, s[2:], pads=name == "AveragePool")
    if name == "MaxPool" and g.chance(0.5):  # other pads: the onnx package gives another shape
        attrs["pads"] = [int(g.rng.integers(0, min(attrs["kernel_shape"])))] * (2 * len(attrs["kernel_shape"]))
    if name == "AveragePool" and g.chance(0.5):
        attrs["count_include_pad"] = 1
    if name == "LpPool":
        attrs["p"] = g.pick([1, 2])
    return g.node(name, [x], exact=name == "MaxPool" and g.exact(x), **attrs)


# Normalizations
@op
def batch_norm(g):
    x = g.real(least=2)
    c = g.shape(x)[1]
    return g.node("BatchNormalization", [x] + [g.constant(g.array([c])) for _ in range(3)] + [g.constant(np.abs(g.array([c])) + 0.5)])


@op
def instance_norm(g):
    x = g.real(least=3)
    if np.prod(g.shape(x)[2:]) < 2:
        return None
    c = g.shape(x)[1]
    return g.node("InstanceNormalization", [x, g.constant(g.array([c])), g.constant(g.array([c]))], epsilon=0.01)


@op
def group_norm(g):
    x = g.real(least=3)
    c = g.shape(x)[1]
    groups = g.pick([d for d in (1, 2, c) if c % d == 0])
    if np.prod(g.shape(x)[2:]) < 2:
        return None
    return g.node("GroupNormalization", [x, g.constant(g.array([c])), g.constant(g.array([c]))], num_groups=groups, epsilon=0.01)


@op
def layer_norm(g):
    x = g.real(least=1)
    axis = int(g.rng.integers(0, len(g.shape(x))))
    if np.prod(g.shape(x)[axis:]) < 2:
        return None
    shape = g.shape(x)[axis:]
    if g.chance(0.4):
        return g.node("RMSNormalization", [x, g.constant(g.array(shape))], axis=axis, epsilon=0.01)
    return g.node("LayerNormalization", [x, g.constant(g.array(shape)), g.constant(g.array(shape))], axis=axis, epsilon=0.01)


@op
def lrn(g):
    x = g.real(rank=4)
    if g.shape(x)[0] != g.shape(x)[1]:
        return None  # the onnx package computes as many channels as there are images
    return g.node("LRN", [x], size=g.pick([1, 3, 5]), alpha=0.1, beta=0.75, bias=1.0)


@op
def softmax(g):
    x = g.real(least=1)
    return g.node(g.pick(["Softmax", "LogSoftmax"]), [x], axis=g.axis(x))


@op
def hardmax(g):
    x = g.real(least=1, exact=True)
    return g.node("Hardmax", [x], axis=g.axis(x), exact=True)


# Reductions and indices
@op
def reduction(g):
    name = g.pick(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd"])
    x = g.clipped(-1.5, 1.5) if name == "ReduceProd" else g.real()
    rank = len(g.shape(x))
    axes = sorted(g.rng.choice(rank, g.rng.integers(1, rank + 1), replace=False).tolist()) if rank else []
    operands = [x] + ([g.constant(np.array(axes, np.int64))] if axes else [])
    return g.node(name, operands, keepdims=int(g.chance(0.5)), exact=name in ("ReduceMax", "ReduceMin") and g.exact(x))


@op
def arg(g):
    x = g.real(least=1, exact=True)
    y = g.node(g.pick(["ArgMax", "ArgMin"]), [x], axis=g.axis(x), keepdims=int(g.chance(0.5)), select_last_index=int(g.chance(0.3)))
    return g.node("Cast", [y], to=1, exact=True)


@op
def top_k(g):
    x = g.real(least=1, exact=True)
    axis = g.axis(x)
    k = int(g.rng.integers(1, g.shape(x)[axis] + 1))
    y, i = g.nodes("TopK", [x, g.constant(np.array([k], np.int64))], 2, axis=axis, largest=int(g.chance(0.5)))
    return g.mark(y, True) if g.chance(0.7) else g.node("Cast", [i], to=1, exact=True)


@op
def cumulative(g):
    x = g.real(least=1)
    return g.node("CumSum", [x, g.constant(np.array(g.axis(x), np.int64))], exclusive=int(g.chance(0.3)), reverse=int(g.chance(0.3)))


@op
def gather(g):
    x = g.real(least=1)
    axis = g.axis(x)
    n = g.shape(x)[axis]
    index = g.rng.integers(-n, n, g.pick([(2,), (1, 3), ()])).astype(g.pick([np.int64, np.int32]))
    return g.node("Gather", [x, g.constant(index)], axis=axis, exact=g.exact(x))


@op
def gather_elements(g):
    x = g.real(least=1)
    axis = g.axis(x)
    index = g.rng.integers(0, g.shape(x)[axis], g.shape(x)).astype(np.int64)
    return g.node("GatherElements", [x, g.constant(index)], axis=axis, exact=g.exact(x))


@op
def gather_nd(g):
    x = g.real(least=2)
    index = np.stack([g.rng.integers(0, d, 3) for d in g.shape(x)[:2]], -1).astype(np.int64)
    return g.node("GatherND", [x, g.constant(index)], exact=g.exact(x))


@op
def gather_by_values(g):
    """Indices that are computed when it runs."""
    x = g.real(least=1, exact=True)
    axis = g.axis(x)
    index = g.node("ArgMax", [x], axis=axis, keepdims=1)
    return g.node("GatherElements", [x, index], axis=axis, exact=True)


@op
def scatter(g):
    x = g.real(least=1)
    axis = g.axis(x)
    shape = list(g.shape(x))
    rows = np.stack([g.rng.permutation(shape[axis]) for _ in range(max(1, int(np.prod(shape)) // shape[axis]))])
    index = np.moveaxis(rows.reshape([d for i, d in enumerate(shape) if i != axis] + [shape[axis]]), -1, axis)
    return g.node("ScatterElements", [x, g.constant(index.astype(np.int64)), g.constant(g.array(shape))], axis=axis,
                  reduction=g.pick(["none", "add", "mul", "max", "min"]))


@op
def scatter_nd(g):
    x = g.real(least=2)
    shape = g.shape(x)
    index = g.rng.permutation(shape[0])[:2].reshape(-1, 1).astype(np.int64)
    return g.node("ScatterND", [x, g.constant(index), g.constant(g.array([len(index), *shape[1:]]))], reduction=g.pick(["none", "add"]))


@op
def one_hot(g):
    x = g.real(least=1, exact=True)
    index = g.node("ArgMax", [x], axis=g.axis(x), keepdims=0)
    return g.node("OneHot", [index, g.constant(np.array(4, np.int64)), g.constant(np.array([0.25, 2], np.float32))], exact=True)


# Moving
@op
def transpose(g):
    x = g.real(least=2)
    return g.node("Transpose", [x], perm=g.rng.permutation(len(g.shape(x))).tolist(), exact=g.exact(x))


@op
def reshape(g):
    x = g.real()
    total, shape = int(np.prod(g.shape(x))), []
    for d in (2, 3, 2):
        if total % d == 0 and g.chance(0.7):
            shape.append(d)
            total //= d
    return g.node("Reshape", [x, g.constant(np.array(shape + [-1], np.int64))], exact=g.exact(x))


@op
def flat(g):
    x = g.real(least=1)
    if g.chance(0.5):
        return g.node("Flatten", [x], axis=int(g.rng.integers(0, len(g.shape(x)) + 1)), exact=g.exact(x))
    return g.node("Unsqueeze", [x, g.constant(np.array([0], np.int64))], exact=g.exact(x)) if len(g.shape(x)) < 5 else None


@op
def slice_of(g):
    x = g.real(least=1)
    axis = g.axis(x)
    n = g.shape(x)[axis]
    start = int(g.rng.integers(0, n))
    bounds = [[start], [n + 3], [axis], [1]] if g.chance(0.6) else [[n - 1], [-n - 1], [axis], [-1 - int(g.chance(0.3))]]
    return g.node("Slice", [x] + [g.constant(np.array(b, np.int64)) for b in bounds], exact=g.exact(x))


@op
def concat(g):
    x = g.real(least=1)
    axis = g.axis(x)
    others = [y for y in g.reals() if len(g.shape(y)) == len(g.shape(x)) and all(a == b or i == axis for i, (a, b) in
                                                                                enumerate(zip(g.shape(x), g.shape(y))))]
    y = g.pick(others)
    return g.node("Concat", [x, y], axis=axis, exact=g.exact(x) and g.exact(y))


@op
def split(g):
    x = g.real(least=1)
    axis = g.axis(x)
    n = g.shape(x)[axis]
    if n < 2:
        return None
    parts = g.nodes("Split", [x, g.constant(np.array([1, n - 1], np.int64))], 2, axis=axis)
    return g.mark(g.pick(parts), g.exact(x))


@op
def pad(g):
    x = g.real(least=1)
    mode = g.pick(["constant", "reflect", "edge", "wrap"])
    most = [min(2, d - 1) if mode == "reflect" else min(2, d) for d in g.shape(x)]
    pads = np.array([g.rng.integers(0, m + 1) for m in most * 2], np.int64)
    operands = [x, g.constant(pads)]
    if mode == "constant" and g.chance(0.5):
        operands.append(g.constant(np.float32(1.25)))
    return g.node("Pad", operands, mode=mode, exact=g.exact(x))


@op
def tile(g):
    x = g.real(least=1)
    if np.prod(g.shape(x)) > 512:
        return None
    return g.node("Tile", [x, g.constant(g.rng.integers(1, 3, len(g.shape(x))).astype(np.int64))], exact=g.exact(x))


@op
def expand(g):
    x = g.real()
    if np.prod(g.shape(x)) > 512 or len(g.shape(x)) > 4:
        return None
    return g.node("Expand", [x, g.constant(np.array([2] + [1] * len(g.shape(x)), np.int64))], exact=g.exact(x))


@op
def blocks(g):
    x = g.real(rank=4)
    n, c, h, w = g.shape(x)
    if h % 2 == 0 and w % 2 == 0:
        return g.node("SpaceToDepth", [x], blocksize=2, exact=g.exact(x))
    if c % 4 == 0:
        return g.node("DepthToSpace", [x], blocksize=2, mode=g.pick(["DCR", "CRD"]), exact=g.exact(x))
    return None


@op
def trilu(g):
    x = g.real(least=2)
    return g.node("Trilu", [x, g.constant(np.array(int(g.rng.integers(-2, 3)), np.int64))], upper=int(g.chance(0.5)), exact=g.exact(x))


@op
def reverse(g):
    x = g.real(least=2)
    lens = g.rng.integers(1, g.shape(x)[0] + 1, g.shape(x)[1]).astype(np.int64)
    return g.node("ReverseSequence", [x, g.constant(lens)], time_axis=0, batch_axis=1, exact=g.exact(x))


# Sampling
@op
def resize(g):
    x = g.real(rank=4)
    mode = g.pick(["nearest", "linear", "cubic"])
    coordinates = g.pick(["half_pixel", "asymmetric", "align_corners"] if mode != "nearest" else ["asymmetric", "half_pixel"])
    if mode == "nearest":  # coordinates that hit a boundary are decided by rounding
        sizes = [d * k for d, k in zip(g.shape(x), [1, 1, int(g.rng.integers(1, 4)), 2])]
        extra = {"nearest_mode": "floor"} if coordinates == "asymmetric" else {"nearest_mode": "round_prefer_floor"}
    else:
        sizes = [*g.shape(x)[:2], int(g.rng.integers(1, 7)), int(g.rng.integers(2, 7))]
        extra = {}
    return g.node("Resize", [x, "", "", g.constant(np.array(sizes, np.int64))], mode=mode, coordinate_transformation_mode=coordinates, **extra)


@op
def grid_sample(g):
    x = g.real(rank=4)
    grid = g.rng.uniform(-0.9, 0.9, [g.shape(x)[0], 2, 3, 2]).astype(np.float32)
    return g.node("GridSample", [x, g.constant(grid)], mode=g.pick(["linear", "cubic"]), align_corners=int(g.chance(0.5)),
                  padding_mode=g.pick(["zeros", "border", "reflection"]))


# Recurrent
@op
def recurrent(g):
    x = g.real(rank=3)
    steps, batch, inputs = g.shape(x)
    name, gates = g.pick([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
    direction = g.pick(["forward", "reverse", "bidirectional"])
    d, h = 2 if direction == "bidirectional" else 1, 3
    operands = [x, g.constant(g.array([d, gates * h, inputs]) / 4), g.constant(g.array([d, gates * h, h]) / 4)]
    if g.chance(0.6):
        operands.append(g.constant(g.array([d, 2 * gates * h]) / 4))
    extra = {"linear_before_reset": 1} if name == "GRU" and g.chance(0.5) else {}
    results = g.nodes(name, operands, 2, hidden_size=h, direction=direction, **extra)
    return g.pick(results)


# Quantization
@op
def quantize(g):
    x = g.real(exact=True)
    per_axis = len(g.shape(x)) > 1 and g.chance(0.4)
    n = g.shape(x)[1] if per_axis else 0
    dtype = g.pick([np.int8, np.uint8, np.int16, np.uint16])
    scale = g.rng.choice([0.125, 0.25, 0.5], n if per_axis else ()).astype(np.float32)
    zero = g.rng.integers(*((-20, 20) if np.issubdtype(dtype, np.signedinteger) else (100, 140)), n if per_axis else ()).astype(dtype)
    s, z = g.constant(scale), g.constant(zero)
    codes = g.node("QuantizeLinear", [x, s, z], axis=1)
    return g.node("DequantizeLinear", [codes, s, z], axis=1, exact=True)


@op
def dynamic_quantize(g):
    x = g.real(exact=True)
    if g.largest(x) == 0:
        return None
    codes, s, z = g.nodes("DynamicQuantizeLinear", [g.node("Add", [x, g.constant(np.float32(0.0625))])], 3)
    return g.node("Cast", [codes], to=1)


@op
def lp_norm(g):
    x = g.real(least=1, exact=True)  # a norm of rounding errors is all rounding error
    if g.chance(0.5) and len(g.shape(x)) == 4:
        return g.node("MeanVarianceNormalization", [g.node("Add", [x, g.constant(g.array(g.shape(x)))])])
    return g.node("LpNormalization", [x], axis=g.axis(x), p=2)


@op
def integer_products(g):
    x = g.clipped(-4, 4, exact=True)
    if len(g.shape(x)) < 2:
        return None
    zero = g.constant(np.uint8(128))
    codes = g.node("QuantizeLinear", [x, g.constant(np.float32(0.125)), zero])
    kind = g.pick([np.int8, np.uint8])
    low, high = np.iinfo(kind).min, np.iinfo(kind).max + 1
    wz = g.constant(kind(3))
    if len(g.shape(x)) == 4 and g.chance(0.6):
        w = g.constant(g.rng.integers(low, high, [2, g.shape(x)[1], 2, 1]).astype(kind))
        y = g.node("ConvInteger", [codes, w, zero, wz], pads=[1, 0, 0, 0])
    else:
        y = g.node("MatMulInteger", [codes, g.constant(g.rng.integers(low, high, [g.shape(x)[-1], 3]).astype(kind)), zero, wz])
    return g.node("Mul", [g.node("Cast", [y], to=1), g.constant(np.float32(2.0 ** -10))])


@op
def attention(g):
    x = g.real(rank=4)
    b, h, t, d = g.shape(x)
    x = g.node("Tanh", [x])
    extra = {"is_causal": 1} if g.chance(0.4) else {}
    return g.node("Attention", [x, g.constant(g.array([b, h, 3, d]) / 4), g.constant(g.array([b, h, 3, 2]))], **extra)


@op
def rotary(g):
    x = g.real(rank=4)
    b, h, t, d = g.shape(x)
    if d % 2:
        return None
    angle = g.rng.uniform(0, 3, [b, t, d // 2]).astype(np.float32)
    return g.node("RotaryEmbedding", [x, g.constant(np.cos(angle)), g.constant(np.sin(angle))], interleaved=int(g.chance(0.5)))


@op
def dft(g):
    x = g.real(least=2)
    last = g.node("Unsqueeze", [x, g.constant(np.array([-1], np.int64))])
    return g.node("DFT", [last, "", g.constant(np.array(-2, np.int64))], onesided=int(g.chance(0.5)))


@op
def det(g):
    n = g.pick([2, 3])
    x = g.real(rank=2)
    return g.node("Det", [g.node("Tanh", [g.node("MatMul", [g.constant(g.array([n, g.shape(x)[0]])),
                                                           g.node("MatMul", [x, g.constant(g.array([g.shape(x)[1], n]))])])])])


@op
def deform_conv(g):
    x = g.real(rank=4)
    n, c, h, w = g.shape(x)
    if h < 2 or w < 2:
        return None
    offset = g.rng.uniform(-1, 1, [n, 8, h - 1, w - 1]).astype(np.float32)
    return g.node("DeformConv", [x, g.constant(g.array([2, c, 2, 2])), g.constant(offset), g.constant(g.array([2]))], kernel_shape=[2, 2])


@op
def roi_align(g):
    x = g.real(rank=4)
    rois = np.sort(g.rng.uniform(0, 4, [2, 2, 2]), axis=1).reshape(2, 4).astype(np.float32)
    return g.node("RoiAlign", [x, g.constant(rois), g.constant(g.rng.integers(0, g.shape(x)[0], 2).astype(np.int64))], output_height=2, output_width=2,
                  sampling_ratio=2, mode=g.pick(["avg"]))


@op
def centre_crop(g):
    x = g.real(least=1)
    axis = g.axis(x)
    return g.node("CenterCropPad", [x, g.constant(np.array([int(g.rng.integers(1, 8))], np.int64))], axes=[axis], exact=g.exact(x))


@op
def unpool(g):
    x = g.real(rank=4, exact=True)
    h, w = g.shape(x)[2:]
    if h % 2 or w % 2:
        return None
    y, i = g.nodes("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    return g.mark(g.node("MaxUnpool", [y, i], kernel_shape=[2, 2], strides=[2, 2]), True)


@op
def nms(g):
    """Its result has another shape than ONNX gives, so nothing reads it."""
    n = int(g.rng.integers(3, 9))
    corner, size = g.rng.integers(0, 8, [1, n, 2]) / 4, g.rng.integers(2, 8, [1, n, 2]) / 4
    x = g.real(exact=True)
    shift = g.node("ReduceMax", [x], keepdims=0, exact=True)  # boxes and scores depend on data
    boxes = g.node("Add", [g.constant(np.concatenate([corner, corner + size], -1).astype(np.float32)), shift])
    scores = g.node("Add", [g.constant((g.rng.permutation(2 * n).reshape(1, 2, n) / 16).astype(np.float32)), shift])
    return g.node("NonMaxSuppression", [boxes, scores, g.constant(np.array([int(g.rng.integers(1, 5))], np.int64)),
                                        g.constant(np.array([0.3], np.float32))])


@op
def branches(g):
    from onnx import helper
    x = g.real(least=1, exact=True)
    condition = g.node("Less", [g.node("ReduceSum", [x], keepdims=0), g.constant(np.float32(0.5))])

    def branch(kind):
        out = helper.make_tensor_value_info(f"b{len(g.list)}{kind}", 1, None)
        return helper.make_graph([helper.make_node(kind, [x], [out.name])], kind, [], [out])
    return g.node("If", [condition], then_branch=branch("Neg"), else_branch=branch("Abs"), captured=[x], exact=True)


@op
def loop(g):
    from onnx import helper
    x = g.node("Tanh", [g.real(least=1)])
    n = len(g.list)
    info = [helper.make_tensor_value_info(f"l{n}{k}", t, s) for k, t, s in (("i", 7, []), ("c", 9, []), ("x", 1, None))]
    results = [helper.make_tensor_value_info(f"l{n}{k}", t, None) for k, t in (("co", 9), ("y", 1))]  # it collects nothing: the onnx package stacks that otherwise
    body = helper.make_graph([helper.make_node("Identity", [f"l{n}c"], [f"l{n}co"]), helper.make_node("Sin", [f"l{n}x"], [f"l{n}s"]),
                              helper.make_node("Add", [f"l{n}x", f"l{n}s"], [f"l{n}y"])], "body", info, results)
    return g.node("Loop", [g.constant(np.array(3, np.int64)), g.constant(np.array(True)), x], body=body)
