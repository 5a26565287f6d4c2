"""More operators for random graphs, as in graph_ops.py: data movement, sampling, recurrent and quantized operators, attention, control flow."""
import numpy as np

from graph_ops import op


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
