"""Operators for random graphs (test_random_graphs.py): a function each, which adds nodes to a `Graph` and gives the name of a result.

`exact` values are multiples of 1/8 that every implementation computes alike; operators with jumps (rounding, comparisons, indices) take only those.
graph_ops_moving.py and graph_ops_wide.py add to OPS."""
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
    parts = g.values[x].astype(np.float64).reshape(g.shape(x)[0] * groups, -1)
    # The onnx package subtracts the square of the mean from the mean of the squares, in float32: nothing is left of values far from zero that hardly differ.
    if np.any(parts.mean(1) ** 2 > 200 * (parts.var(1) + 0.01)):
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
