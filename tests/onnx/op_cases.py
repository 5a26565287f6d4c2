"""Single-operator ONNX models over attributes and opsets, for compare_ort.py. Each case: name, model, inputs, tolerance.

One long file because it is a table: a function a family, a line or two a case."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import op_cases_sizes
import op_cases_wide

F = TensorProto.FLOAT


class Case:
    """One model and its inputs. `steps`: allowed difference of integer outputs, in codes. `rel`: of floats, relative to the largest value.
    `peer`: ONNX Runtime has the operator."""

    def __init__(self, name, model, feeds, rel=2e-5, steps=0):
        self.name, self.model, self.rel, self.steps, self.peer = name, model, rel, steps, True
        self.feeds = {n: np.asarray(a) for n, a in feeds.items()}


def model_of(nodes, inputs, outputs, constants=(), opset=17, ir_version=8, microsoft=False):
    imports = [helper.make_opsetid("", opset)]
    if microsoft:
        imports.append(helper.make_opsetid("com.microsoft", 1))
    graph = helper.make_graph(
        nodes, "case",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(constants).items()])
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


class Cases:
    def __init__(self, seed=1):
        self.rng = np.random.default_rng(seed)
        self.list, self.peer = [], True

    def alone(self):
        """The cases of this family that follow are not compared with ONNX Runtime."""
        self.peer = False

    def real(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def codes(self, dtype, *shape):
        info = np.iinfo(dtype)
        x = self.rng.integers(info.min, info.max + 1, shape).astype(dtype)
        if x.size >= 4:
            x.flat[:4] = [info.min, info.max, info.min, info.max]
        return x

    def op(self, name, op, inputs, constants=(), opset=17, out=F, outputs=1, domain="", rel=2e-5, steps=0, order=None, extra=None,
           **attrs):
        """inputs and constants by name; operands in the order inputs then constants unless `order` says otherwise."""
        constants = dict(constants)
        operands = order if order is not None else list(inputs) + list(constants)
        names = [f"y{i}" for i in range(outputs)]
        node = helper.make_node(op, operands, names, name="the_node", domain=domain, **attrs, **(extra or {}))
        kinds = out if isinstance(out, list) else [out] * outputs
        model = model_of([node], inputs, dict(zip(names, kinds)), constants, opset, microsoft=domain != "")
        self.list.append(Case(f"{name}", model, inputs, rel, steps))
        self.list[-1].peer = self.peer

    def graph(self, name, nodes, inputs, outputs, constants=(), opset=17, rel=2e-5, steps=0, microsoft=False):
        self.list.append(Case(name, model_of(nodes, inputs, outputs, constants, opset, microsoft=microsoft), inputs, rel, steps))


def conv(c):
    for n, (x, w, attrs) in enumerate([
            ((1, 3, 7, 9), (4, 3, 3, 3), {}),
            ((2, 4, 8, 8), (6, 2, 3, 2), dict(group=2, strides=[2, 1], pads=[1, 0, 2, 1])),
            ((1, 6, 9, 9), (6, 1, 3, 3), dict(group=6, pads=[1, 1, 1, 1], dilations=[2, 2])),
            ((1, 6, 9, 9), (12, 1, 5, 5), dict(group=6, auto_pad="SAME_UPPER", strides=[2, 2])),
            ((1, 3, 10, 7), (5, 3, 4, 2), dict(auto_pad="SAME_LOWER", strides=[3, 2])),
            ((1, 3, 10, 7), (5, 3, 2, 3), dict(auto_pad="SAME_LOWER", dilations=[2, 1])),
            ((1, 3, 10, 7), (5, 3, 2, 3), dict(auto_pad="VALID", kernel_shape=[2, 3])),
            ((2, 3, 11), (4, 3, 3), dict(strides=[2], pads=[0, 2])),
            ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), dict(pads=[1, 0, 1, 0, 1, 0], strides=[1, 2, 1]))]):
        c.op(f"conv{n}", "Conv", {"x": c.real(*x)}, {"w": c.real(*w)}, **attrs)
        c.op(f"conv{n}_bias", "Conv", {"x": c.real(*x)}, {"w": c.real(*w), "b": c.real(w[0])}, opset=11, **attrs)
    for n, (x, w, attrs) in enumerate([
            ((1, 3, 5, 4), (3, 4, 3, 3), {}),
            ((1, 4, 5, 5), (4, 3, 2, 2), dict(strides=[2, 2])),
            ((2, 4, 5, 6), (4, 2, 3, 4), dict(group=2, strides=[2, 3], pads=[1, 0, 1, 2])),
            ((1, 2, 5, 6), (2, 3, 3, 3), dict(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])),
            ((1, 2, 5, 6), (2, 3, 3, 3), dict(dilations=[2, 3], pads=[0, 1, 2, 0])),
            ((1, 2, 5, 6), (2, 3, 4, 3), dict(strides=[3, 2], auto_pad="SAME_UPPER")),
            ((1, 2, 5, 6), (2, 3, 4, 3), dict(strides=[3, 2], auto_pad="SAME_LOWER")),
            ((1, 2, 5, 6), (2, 3, 3, 2), dict(strides=[1, 1], auto_pad="VALID")),
            ((1, 2, 5, 6), (2, 3, 3, 3), dict(strides=[2, 2], output_shape=[10, 12])),
            ((1, 2, 5, 6), (2, 3, 3, 3), dict(strides=[2, 2], output_shape=[10, 12], auto_pad="SAME_UPPER")),
            ((1, 2, 5, 6), (2, 3, 3, 3), dict(strides=[2, 2], output_shape=[9, 11])),
            ((2, 3, 7), (3, 2, 4), dict(strides=[2], pads=[1, 1]))]):
        c.op(f"conv_transpose{n}", "ConvTranspose", {"x": c.real(*x)}, {"w": c.real(*w)}, **attrs)
        c.op(f"conv_transpose{n}_bias", "ConvTranspose", {"x": c.real(*x)},
             {"w": c.real(*w), "b": c.real(w[1] * attrs.get("group", 1))}, opset=11, **attrs)


def gemm(c):
    for n, (a, b, bias, attrs) in enumerate([
            ((3, 5), (5, 4), None, {}), ((3, 5), (4, 5), (4,), dict(transB=1)), ((5, 3), (5, 4), (1, 4), dict(transA=1)),
            ((3, 5), (5, 4), (3, 4), dict(alpha=0.5, beta=2.0)), ((3, 5), (5, 4), (3, 1), {}), ((3, 5), (5, 4), (), dict(beta=0.25)),
            ((3, 5), (5, 4), (1,), dict(alpha=0.5)), ((5, 3), (4, 5), (4,), dict(transA=1, transB=1, alpha=1.5, beta=0.5))]):
        extra = {} if bias is None else {"c": c.real(*bias)}
        c.op(f"gemm{n}", "Gemm", {"a": c.real(*a)}, {"b": c.real(*b), **extra}, opset=13 if bias is None else 9, **attrs)
        if bias is not None:
            c.op(f"gemm{n}_run_time", "Gemm", {"a": c.real(*a), "b": c.real(*b), "c": c.real(*bias)}, **attrs)
    for n, (a, b) in enumerate([((3, 5), (5, 4)), ((2, 3, 5), (5, 4)), ((2, 3, 5), (2, 5, 4)), ((5,), (5, 4)), ((3, 5), (5,)),
                                ((2, 1, 3, 5), (4, 5, 2)), ((5,), (5,))]):
        c.op(f"matmul{n}", "MatMul", {"a": c.real(*a)}, {"b": c.real(*b)})
        c.op(f"matmul{n}_run_time", "MatMul", {"a": c.real(*a), "b": c.real(*b)}, opset=9)


def pool(c):
    shapes = [((1, 2, 7, 9), dict(kernel_shape=[3, 3])), ((2, 3, 8, 8), dict(kernel_shape=[2, 3], strides=[2, 2], pads=[1, 0, 0, 2])),
              ((1, 2, 9, 9), dict(kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")),
              ((1, 2, 8, 9), dict(kernel_shape=[4, 2], strides=[3, 1], auto_pad="SAME_LOWER")),
              ((1, 2, 10), dict(kernel_shape=[4], strides=[3], pads=[1, 2])),
              ((1, 1, 4, 5, 6), dict(kernel_shape=[2, 2, 3], strides=[1, 2, 2]))]
    for n, (x, attrs) in enumerate(shapes):
        c.op(f"max_pool{n}", "MaxPool", {"x": c.real(*x)}, opset=8, **attrs)
        for include in (0, 1):
            c.op(f"average_pool{n}_{include}", "AveragePool", {"x": c.real(*x)}, opset=7, count_include_pad=include, **attrs)
    for k in (2, 3, 4):
        for s in (1, 2, 3, 4):
            for p in range(min(k, 3)):
                for size in (5, 6, 7, 8):
                    attrs = dict(kernel_shape=[k, k], strides=[s, s], pads=[p, p, p, 0], ceil_mode=1)
                    x = {"x": c.real(1, 1, size, size + 1)}
                    c.op(f"max_pool_ceil_{k}_{s}_{p}_{size}", "MaxPool", x, opset=12, **attrs)
                    for include in (0, 1):
                        c.op(f"average_pool_ceil_{k}_{s}_{p}_{size}_{include}", "AveragePool", x, opset=19, count_include_pad=include, **attrs)
    c.op("max_pool_dilated", "MaxPool", {"x": c.real(1, 2, 9, 9)}, opset=10, kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 1, 1, 1])
    c.op("average_pool_dilated", "AveragePool", {"x": c.real(1, 2, 9, 9)}, opset=19, kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 1, 1, 1])
    c.op("max_pool_u8", "MaxPool", {"x": c.codes(np.uint8, 1, 2, 6, 6)}, opset=12, out=TensorProto.UINT8, kernel_shape=[2, 2])
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        for x in ((2, 3, 5, 4), (1, 4, 6), (1, 2, 3, 4, 5)):
            c.op(f"{op}_{len(x)}", op, {"x": c.real(*x)})


def activation(c):
    x = np.concatenate([c.real(200, scale=4.0), np.float32([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 6.0, 88.0, -88.0, 20.0, -20.0])])
    positive = np.abs(x) + np.float32(0.01)
    for op, opset, attrs in [("Relu", 13, {}), ("LeakyRelu", 16, {}), ("LeakyRelu", 7, dict(alpha=0.3)), ("Elu", 7, dict(alpha=1.5)), ("Selu", 7, {}),
                             ("Selu", 7, dict(alpha=1.2, gamma=1.1)), ("Sigmoid", 13, {}), ("HardSigmoid", 7, {}), ("HardSigmoid", 7, dict(alpha=0.3, beta=0.4)),
                             ("HardSwish", 14, {}), ("Tanh", 13, {}), ("Erf", 13, {}), ("Gelu", 20, {}), ("Gelu", 20, dict(approximate="tanh")),
                             ("Mish", 18, {}), ("Softplus", 7, {}), ("Softsign", 7, {}), ("Abs", 13, {}), ("Neg", 13, {}), ("Floor", 13, {}), ("Ceil", 13, {}),
                             ("Round", 11, {}), ("Sign", 13, {}), ("Sin", 7, {}), ("Cos", 7, {}), ("Celu", 12, dict(alpha=1.3)), ("ThresholdedRelu", 10, dict(alpha=0.7)),
                             ("Identity", 13, {})]:
        c.op(f"{op}_{opset}_{len(attrs)}_{attrs.get('approximate', '')}", op, {"x": x}, opset=opset, **attrs)
    c.op("Exp", "Exp", {"x": np.clip(x, -80, 80)}, rel=1e-5)
    for op in ("Log", "Sqrt", "Reciprocal"):
        c.op(op, op, {"x": positive})
    c.op("clip6", "Clip", {"x": x}, opset=6 + 1, min=-1.0, max=2.5)
    c.op("clip6_one", "Clip", {"x": x}, opset=10, max=2.5)
    c.op("clip11", "Clip", {"x": x}, {"lo": np.float32(-1), "hi": np.float32(6)}, opset=11)
    c.op("clip12_hi", "Clip", {"x": x}, {"hi": np.float32(3)}, opset=12, order=["x", "", "hi"])
    c.op("clip12_lo", "Clip", {"x": x}, {"lo": np.float32(0)}, opset=12, order=["x", "lo"])
    c.op("clip13_run_time", "Clip", {"x": x, "lo": np.float32(-0.5), "hi": np.float32(0.5)}, opset=13)
    c.op("clip_int", "Clip", {"x": c.codes(np.int32, 30)}, {"lo": np.int32(-100), "hi": np.int32(100)}, opset=13, out=TensorProto.INT32)
    c.op("not", "Not", {"x": c.real(9) > 0}, out=TensorProto.BOOL)
    c.op("prelu", "PRelu", {"x": c.real(2, 3, 4, 4)}, {"slope": c.real(3, 1, 1)}, opset=9)
    c.op("prelu_last", "PRelu", {"x": c.real(2, 3, 4)}, {"slope": c.real(4)}, opset=16)
    c.op("quick_gelu", "QuickGelu", {"x": x}, domain="com.microsoft", alpha=1.702)
    nodes = [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], ["y"])]
    c.graph("silu", nodes, {"x": x}, {"y": F})


def elementwise(c):
    pairs = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4, 5), (3, 1, 1)), ((), (2, 2))]
    for op in ("Add", "Sub", "Mul", "Div"):
        for n, (a, b) in enumerate(pairs):
            c.op(f"{op}{n}", op, {"a": c.real(*a), "b": c.real(*b) + np.float32(3)}, opset=7)
            c.op(f"{op}{n}_const", op, {"a": c.real(*a)}, {"b": c.real(*b) + np.float32(3)}, opset=14)
    ints = {"a": c.rng.integers(-50, 50, (3, 4)).astype(np.int64), "b": np.int64([3, -4, 7, -2])}
    for op in ("Add", "Sub", "Mul", "Div"):
        c.op(f"{op}_s64", op, ints, out=TensorProto.INT64)
    for fmod in (0, 1):
        c.op(f"mod_{fmod}", "Mod", ints, out=TensorProto.INT64, fmod=fmod)
    c.op("mod_float", "Mod", {"a": c.real(3, 4, scale=9.0), "b": np.float32([3, -4, 7, -2])}, fmod=1)
    c.op("pow", "Pow", {"a": np.abs(c.real(3, 4)) + np.float32(0.1)}, {"b": np.float32([2, 0.5, -1, 3])})
    c.op("pow2", "Pow", {"a": c.real(3, 4)}, {"b": np.float32(2)}, opset=7)
    c.op("pow_int_exponent", "Pow", {"a": c.real(3, 4)}, {"b": np.int64(3)}, opset=13)
    for op in ("Max", "Min", "Sum", "Mean"):
        c.op(f"{op}_3", op, {"a": c.real(2, 3), "b": c.real(3), "c": c.real(2, 1)}, opset=8)
        c.op(f"{op}_1", op, {"a": c.real(2, 3)}, opset=8)
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        c.op(op, op, {"a": np.float32([1, 2, 3, 4]), "b": np.float32([2, 2, 2, 2])}, opset=16, out=TensorProto.BOOL)
        c.op(op + "_s64", op, {"a": np.int64([1, 2, 3, 4]), "b": np.int64([2, 2, 2, 2])}, opset=16, out=TensorProto.BOOL)
    for op in ("And", "Or", "Xor"):
        c.op(op, op, {"a": c.real(4, 4) > 0, "b": c.real(4) > 0}, out=TensorProto.BOOL)
    c.op("where", "Where", {"k": c.real(3, 1) > 0, "a": c.real(3, 4), "b": c.real(4)})


def move(c):
    x = {"x": c.real(2, 3, 4, 5)}
    c.op("transpose", "Transpose", x, perm=[0, 3, 1, 2])
    c.op("transpose_default", "Transpose", x)
    c.op("transpose_none", "Transpose", x, perm=[0, 1, 2, 3])
    for n, (shape, attrs) in enumerate([([0, -1], {}), ([6, 20], {}), ([-1], {}), ([2, 0, 0, 5, 1], {}), ([2, 60], dict(allowzero=1))]):
        c.op(f"reshape{n}", "Reshape", x, {"s": np.int64(shape)}, opset=14, **attrs)
    for axis in (0, 1, 2, 4, -1):
        c.op(f"flatten{axis}", "Flatten", x, axis=axis)
    c.op("squeeze11", "Squeeze", {"x": c.real(1, 3, 1, 2)}, opset=11, axes=[0, -2])
    c.op("squeeze13", "Squeeze", {"x": c.real(1, 3, 1, 2)}, {"a": np.int64([2])}, opset=13)
    c.op("squeeze13_all", "Squeeze", {"x": c.real(1, 3, 1, 2)}, opset=13)
    c.op("unsqueeze11", "Unsqueeze", {"x": c.real(3, 2)}, opset=11, axes=[0, 3])
    c.op("unsqueeze13", "Unsqueeze", {"x": c.real(3, 2)}, {"a": np.int64([-1, 0])}, opset=13)
    for axis in (0, 1, -1):
        c.op(f"concat{axis}", "Concat", {"a": c.real(2, 3, 2), "b": c.real(2, 3, 2), "c": c.real(2, 3, 2)}, axis=axis)
    c.op("concat_mixed", "Concat", {"a": c.real(2, 3)}, {"b": c.real(2, 5)}, axis=1)
    for mode in ("constant", "reflect", "edge"):
        c.op(f"pad2_{mode}", "Pad", x, opset=9, mode=mode, pads=[0, 1, 2, 3, 0, 0, 1, 2])
        c.op(f"pad11_{mode}", "Pad", x, {"p": np.int64([0, 1, 2, 3, 0, 0, 1, 2]), "v": np.float32(1.5)}, opset=11, mode=mode)
    c.op("pad18", "Pad", x, {"p": np.int64([1, 2, 3, 0]), "v": np.float32(2), "a": np.int64([-1, 1])}, opset=18, order=["x", "p", "v", "a"])
    c.op("pad18_no_value", "Pad", x, {"p": np.int64([1, 2, 3, 0]), "a": np.int64([3, 1])}, opset=18, order=["x", "p", "", "a"])
    c.op("pad_negative", "Pad", x, {"p": np.int64([0, -1, 1, 0, 0, 0, -2, -1])}, opset=13)
    slices = [([0, 1], [2, 3], [1, 2], [1, 1]), ([1], [1000], [3], [2]), ([-1], [-1000], [2], [-1]), ([3, -2], [0, 100], [2, 0], [-2, 1]),
              ([4], [-6], [-1], [-2]), ([1, 0, 0, 0], [2, 3, -1, 5], None, None)]
    for n, (s, e, a, st) in enumerate(slices):
        consts = {"s": np.int64(s), "e": np.int64(e)}
        order = ["x", "s", "e", "", ""]
        if a is not None:
            consts["a"], order[3] = np.int64(a), "a"
        if st is not None:
            consts["st"], order[4] = np.int64(st), "st"
        while order[-1] == "":
            order.pop()
        c.op(f"slice10_{n}", "Slice", x, consts, opset=13, order=order)
    c.op("slice1", "Slice", x, opset=9, starts=[0, 1], ends=[2, -1], axes=[1, 3])
    c.op("split2", "Split", x, opset=11, outputs=3, axis=3, split=[1, 3, 1])
    c.op("split2_equal", "Split", x, opset=11, outputs=2, axis=2)
    c.op("split13", "Split", x, {"s": np.int64([2, 1])}, opset=13, outputs=2, axis=1)
    c.op("split18", "Split", x, opset=18, outputs=3, axis=3, num_outputs=3)
    for axis, index in [(0, np.int64(1)), (1, np.int64([2, 0, -1])), (2, np.int64([[0, 1], [3, 3]])), (-1, np.int32([4]))]:
        c.op(f"gather{axis}", "Gather", x, {"i": index}, axis=axis)
    c.op("gather_last", "Gather", x, {"i": np.int64(-1)}, axis=2)
    c.op("gather_run_time", "Gather", {"x": c.real(5, 2), "i": np.int64([4, 0, 1])}, axis=0)
    c.op("gather_elements", "GatherElements", {"x": c.real(3, 3)}, {"i": np.int64([[0, 2, -1], [1, 1, 0]])}, axis=0)
    c.op("gather_nd", "GatherND", {"x": c.real(2, 3, 4)}, {"i": np.int64([[0, 1], [1, 2], [-1, 0]])})
    rows = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 2, 3)
    c.op("gather_nd_one_index", "GatherND", {"x": rows}, {"i": np.int64([[[0], [-1]], [[3], [1]]])})
    c.op("gather_nd_one_index_given", "GatherND", {"x": rows, "i": np.int64([[2], [-4]])})
    c.op("gather_nd_batch", "GatherND", {"x": c.real(2, 3, 4)}, {"i": np.int64([[1], [2]])}, batch_dims=1)
    c.op("expand", "Expand", {"x": c.real(3, 1)}, {"s": np.int64([2, 1, 4])})
    c.op("tile", "Tile", {"x": c.real(2, 3)}, {"r": np.int64([2, 3])})
    for mode in ("DCR", "CRD"):
        c.op(f"depth_to_space_{mode}", "DepthToSpace", {"x": c.real(1, 8, 2, 3)}, opset=13, blocksize=2, mode=mode)
    c.op("space_to_depth", "SpaceToDepth", {"x": c.real(1, 2, 4, 6)}, blocksize=2)
    c.op("dropout7", "Dropout", {"x": c.real(3)}, opset=7, ratio=0.3)
    c.op("dropout12", "Dropout", {"x": c.real(3)}, {"r": np.float32(0.5), "t": np.bool_(False)}, opset=13)


def reduce(c):
    x = {"x": c.real(2, 3, 4, 5)}
    for op, since in [("ReduceMean", 18), ("ReduceSum", 13), ("ReduceMax", 18), ("ReduceMin", 18), ("ReduceProd", 18), ("ReduceL1", 18), ("ReduceL2", 18),
                      ("ReduceSumSquare", 18), ("ReduceLogSum", 18), ("ReduceLogSumExp", 18)]:
        data = {"x": np.abs(x["x"]) + np.float32(0.1)} if op == "ReduceLogSum" else x
        for axes in ([2, 3], [1], [-1, 0], None):
            for keep in (0, 1):
                label = f"{op}_{axes}_{keep}"
                c.op(label + "_attr", op, data, opset=since - 1 if since - 1 != 12 else 11, keepdims=keep, **({} if axes is None else dict(axes=axes)))
                c.op(label + "_input", op, data, {} if axes is None else {"a": np.int64(axes)}, opset=since, keepdims=keep)
    c.op("reduce_noop", "ReduceSum", x, opset=13, noop_with_empty_axes=1)
    ties = {"x": np.float32([[1, 3, 3, 2], [5, 5, 1, 5]])}
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            c.op(f"{op}_{last}", op, ties, opset=13, out=TensorProto.INT64, axis=1, select_last_index=last)
        c.op(f"{op}_default", op, x, opset=11, out=TensorProto.INT64, keepdims=0)


def resize(c):
    sizes = [(1, 1), (1, 5), (2, 3), (3, 2), (4, 8), (5, 7), (7, 5), (5, 13), (13, 5), (8, 3), (6, 11), (10, 10), (9, 4), (3, 17)]
    modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
    for coordinate in modes + ["tf_half_pixel_for_nn"]:
        opset = 11 if coordinate == "tf_half_pixel_for_nn" else 19
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            for a, b in sizes:
                x = {"x": c.real(1, 1, a, 4)}
                c.op(f"nearest_{coordinate}_{nearest}_{a}_{b}", "Resize", x, {"roi": np.float32([]), "sc": np.float32([]), "si": np.int64([1, 1, b, 6])},
                     opset=opset, mode="nearest", coordinate_transformation_mode=coordinate, nearest_mode=nearest)
    for coordinate in modes:
        for mode in ("linear", "cubic"):
            for a, b in sizes:
                c.op(f"{mode}_{coordinate}_{a}_{b}", "Resize", {"x": c.real(1, 2, a, 5)}, {"si": np.int64([1, 2, b, 7])}, opset=19, order=["x", "", "", "si"],
                     mode=mode, coordinate_transformation_mode=coordinate, rel=2e-4)
    for scale in (0.5, 0.6, 0.7, 1.3, 1.5, 2.0, 3.0, 2.6):
        for mode in ("nearest", "linear", "cubic"):
            c.op(f"{mode}_scale_{scale}", "Resize", {"x": c.real(1, 2, 10, 7)}, {"sc": np.float32([1, 1, scale, scale])}, opset=13, order=["x", "", "sc"],
                 mode=mode, rel=2e-4)
            c.op(f"{mode}_scale_asymmetric_{scale}", "Resize", {"x": c.real(1, 2, 10, 7)}, {"sc": np.float32([1, 1, scale, scale])}, opset=13,
                 order=["x", "", "sc"], mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor", rel=2e-4)
        for mode in ("nearest", "linear"):
            c.op(f"resize10_{mode}_{scale}", "Resize", {"x": c.real(1, 2, 10, 7)}, {"sc": np.float32([1, 1, scale, scale])}, opset=10, mode=mode, rel=2e-4)
    for n in range(240):  # odd sizes and scales, where f32 rounding decides
        a, scale = int(c.rng.integers(1, 48)), np.float32(round(float(c.rng.uniform(0.3, 3)), 1))
        if int(np.float32(a) * scale) < 1:
            continue
        coordinate, nearest = modes[n % 5], ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")[n // 5 % 4]
        c.op(f"nearest_random{n}_{coordinate}_{nearest}_{a}_{scale}", "Resize", {"x": c.real(1, 1, a, 2)}, {"sc": np.float32([1, 1, scale, 1])}, opset=19,
             order=["x", "", "sc"], mode="nearest", coordinate_transformation_mode=coordinate, nearest_mode=nearest, rel=0)
        if coordinate == "align_corners" and np.float32(a) * scale != int(np.float32(a) * scale):
            continue  # the onnx package's tests divide by a * scale - 1, ONNX Runtime by its floor - 1
        c.op(f"linear_random{n}_{coordinate}_{a}_{scale}", "Resize", {"x": c.real(1, 1, a, 2)}, {"sc": np.float32([1, 1, scale, 1])}, opset=19,
             order=["x", "", "sc"], mode="cubic" if n % 2 else "linear", coordinate_transformation_mode=coordinate, rel=2e-4)
    for mode in ("nearest", "linear"):
        c.op(f"upsample7_{mode}", "Upsample", {"x": c.real(1, 2, 3, 4)}, opset=7, mode=mode, scales=[1.0, 1.0, 2.0, 3.0])
        c.op(f"upsample9_{mode}", "Upsample", {"x": c.real(1, 2, 3, 4)}, {"s": np.float32([1, 1, 2, 2])}, opset=9, mode=mode)
    c.op("cubic_outside", "Resize", {"x": c.real(1, 1, 5, 5)}, {"si": np.int64([1, 1, 9, 8])}, opset=13, order=["x", "", "", "si"], mode="cubic",
         exclude_outside=1, cubic_coeff_a=-0.5, rel=2e-4)
    c.op("resize_axes", "Resize", {"x": c.real(1, 2, 5, 5)}, {"si": np.int64([9, 8])}, opset=18, order=["x", "", "", "si"], mode="nearest", axes=[2, 3])
    for policy in ("not_larger", "not_smaller"):
        c.op(f"resize_{policy}", "Resize", {"x": c.real(1, 2, 5, 8)}, {"si": np.int64([9, 9])}, opset=18, order=["x", "", "", "si"], mode="nearest", axes=[2, 3],
             keep_aspect_ratio_policy=policy)


def norm(c):
    c5 = lambda: {"s": c.real(3), "b": c.real(3), "m": c.real(3), "v": np.abs(c.real(3)) + np.float32(0.1)}
    for opset in (7, 9, 14, 15):
        c.op(f"batch_norm{opset}", "BatchNormalization", {"x": c.real(2, 3, 4, 4)}, c5(), opset=opset, epsilon=1e-3)
    c.op("batch_norm_2d", "BatchNormalization", {"x": c.real(5, 3)}, c5(), opset=15)
    c.op("batch_norm_run_time", "BatchNormalization", {"x": c.real(2, 3, 4), **c5()}, opset=15)
    c.op("instance_norm", "InstanceNormalization", {"x": c.real(2, 3, 5, 4)}, {"s": c.real(3), "b": c.real(3)})
    for axis in (-1, 1):
        shape = (4, 5) if axis == 1 else (5,)
        c.op(f"layer_norm{axis}", "LayerNormalization", {"x": c.real(3, 4, 5)}, {"s": c.real(*shape), "b": c.real(*shape)}, axis=axis)
    c.op("layer_norm_no_bias", "LayerNormalization", {"x": c.real(3, 4, 5)}, {"s": c.real(5)}, epsilon=1e-3)
    c.op("group_norm21", "GroupNormalization", {"x": c.real(2, 6, 3, 3)}, {"s": c.real(6), "b": c.real(6)}, opset=21, num_groups=3)
    c.op("group_norm18", "GroupNormalization", {"x": c.real(2, 6, 3, 3)}, {"s": c.real(2), "b": c.real(2)}, opset=18, num_groups=2)
    c.op("mean_variance", "MeanVarianceNormalization", {"x": c.real(2, 3, 4, 5)}, opset=13, rel=1e-4)
    c.op("mean_variance_axes", "MeanVarianceNormalization", {"x": c.real(2, 3, 4)}, opset=13, axes=[-1], rel=1e-4)
    c.op("lrn", "LRN", {"x": c.real(1, 7, 3, 3)}, size=3, alpha=0.1, beta=0.6, bias=1.5)
    c.op("lrn_even", "LRN", {"x": c.real(1, 7, 3, 3)}, size=4, alpha=0.1)
    for p in (1, 2):
        c.op(f"lp_norm{p}", "LpNormalization", {"x": c.real(3, 5)}, axis=1, p=p)
    for op in ("Softmax", "LogSoftmax"):
        for opset in (7, 11, 13):
            for axis in (None, 0, 1, 2, -1):
                c.op(f"{op}_{opset}_{axis}", op, {"x": c.real(2, 3, 4, scale=3.0)}, opset=opset, **({} if axis is None else dict(axis=axis)))


def shape(c):
    i64 = TensorProto.INT64
    x = {"x": c.real(2, 3, 4, 5)}
    c.op("shape", "Shape", x, out=i64)
    c.op("shape15", "Shape", x, out=i64, start=1, end=-1)
    c.op("size", "Size", x, out=i64)
    node = helper.make_node
    k = lambda name, value: node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value)))
    c.graph("reshape_arithmetic", [node("Shape", ["x"], ["s"]), k("i0", np.int64(0)), node("Gather", ["s", "i0"], ["b"], axis=0), k("ax", np.int64([0])),
                                   node("Unsqueeze", ["b", "ax"], ["bu"]), k("m1", np.int64([-1])), node("Concat", ["bu", "m1"], ["t"], axis=0),
                                   node("Reshape", ["x", "t"], ["y"])], x, {"y": F})
    c.graph("size_arithmetic", [node("Shape", ["x"], ["s"]), k("two", np.int64([2])), k("four", np.int64([4])), k("zero", np.int64([0])),
                                node("Slice", ["s", "two", "four", "zero"], ["hw"]), node("Cast", ["hw"], ["f"], to=F), k("h", np.float32([2, 1.5])),
                                node("Mul", ["f", "h"], ["g"]), node("Floor", ["g"], ["fl"]), node("Cast", ["fl"], ["i"], to=i64),
                                node("Slice", ["s", "zero", "two", "zero"], ["nc"]), node("Concat", ["nc", "i"], ["si"], axis=0),
                                node("Resize", ["x", "", "", "si"], ["y"], mode="nearest")], x, {"y": F}, opset=13)
    c.graph("constant_of_shape", [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["z"], value=numpy_helper.from_array(np.float32([2.5]))),
                                  node("Add", ["x", "z"], ["y"])], x, {"y": F})
    c.graph("range", [node("Constant", [], ["a"], value_int=0), node("Constant", [], ["b"], value_int=5), node("Constant", [], ["d"], value_int=1),
                      node("Range", ["a", "b", "d"], ["r"]), node("Cast", ["r"], ["rf"], to=F), node("Add", ["x", "rf"], ["y"])], x, {"y": F}, opset=13)
    c.graph("constants", [node("Constant", [], ["a"], value_float=1.5), node("Constant", [], ["b"], value_floats=[1., 2., 3., 4., 5.]),
                          node("Constant", [], ["i"], value_ints=[0, -1]), node("Add", ["x", "a"], ["t"]), node("Mul", ["t", "b"], ["u"]),
                          node("Reshape", ["u", "i"], ["y"])], x, {"y": F}, opset=13)
    c.graph("where_non_zero", [k("m", np.float32([0, 1, 0, 1])), node("NonZero", ["m"], ["nz"]), k("p", np.int64([-1])), node("Reshape", ["nz", "p"], ["i"]),
                               node("Gather", ["x", "i"], ["y"], axis=2)], x, {"y": F}, opset=13)
    c.graph("integer_chain", [node("Shape", ["x"], ["s"]), k("i", np.int64(2)), node("Gather", ["s", "i"], ["h"]), k("d", np.int64(2)), node("Div", ["h", "d"], ["hh"]),
                              k("one", np.int64(1)), node("Add", ["hh", "one"], ["e"]), k("z", np.int64([0])), node("Unsqueeze", ["e", "z"], ["eu"]),
                              k("st", np.int64([0])), k("ax", np.int64([2])), node("Slice", ["x", "st", "eu", "ax"], ["y"])], x, {"y": F}, opset=13)
    for source, to in [(np.float32, TensorProto.INT64), (np.float32, TensorProto.INT32), (np.int64, F), (np.float32, TensorProto.BOOL), (np.uint8, F), (np.int32, TensorProto.INT64),
                       (np.bool_, F), (np.float32, TensorProto.UINT8)]:
        data = (np.abs(c.real(20, scale=30.0))).astype(source)
        c.op(f"cast_{np.dtype(source).name}_{to}", "Cast", {"x": data}, opset=13, out=to, to=to)
    body = [node("LeakyRelu", ["a"], ["t"]), node("Add", ["t", "a"], ["r"])]
    body[0].attribute.add(name="alpha", ref_attr_name="k", type=onnx.AttributeProto.FLOAT)
    function = helper.make_function("my", "leak_and_add", ["a"], ["r"], body, [helper.make_opsetid("", 17)], ["k"])
    c.graph("function", [node("leak_and_add", ["x"], ["m"], domain="my", k=0.25), node("leak_and_add", ["m"], ["y"], domain="my", k=0.5)], x, {"y": F})
    c.list[-1].model.functions.append(function)
    c.list[-1].model.opset_import.append(helper.make_opsetid("my", 1))
    yes = helper.make_graph([node("Squeeze", ["x"], ["t"])], "yes", [], [helper.make_tensor_value_info("t", F, None)])
    no = helper.make_graph([node("Identity", ["x"], ["e"])], "no", [], [helper.make_tensor_value_info("e", F, None)])
    c.graph("if_known", [node("Shape", ["x"], ["s"]), k("i", np.int64(1)), node("Gather", ["s", "i"], ["d"]), k("one", np.int64(1)), node("Equal", ["d", "one"], ["q"]),
                         node("If", ["q"], ["y"], then_branch=yes, else_branch=no)], {"x": c.real(3, 1, 4)}, {"y": F}, opset=13)


def quant(c):
    u8, s8 = TensorProto.UINT8, TensorProto.INT8
    x = c.real(2, 3, 4, 4, scale=3.0)
    x.flat[:8] = [0.05, 0.15, -0.05, 1e9, -1e9, 0.25, 0.35, -0.15]  # ties at scale 0.1, saturation
    for opset in (10, 13, 19, 21, 23, 25):
        for zp in (np.uint8(128), np.int8(3), np.uint8(1)):
            code = u8 if zp.dtype == np.uint8 else s8
            c.op(f"q_{opset}_{zp.dtype}_{zp}", "QuantizeLinear", {"x": x}, {"s": np.float32(0.1), "z": zp}, opset=opset, out=code)
            c.op(f"dq_{opset}_{zp.dtype}_{zp}", "DequantizeLinear", {"x": c.codes(zp.dtype, 2, 5)}, {"s": np.float32(0.1), "z": zp}, opset=opset, rel=0)
    c.op("q_no_zp", "QuantizeLinear", {"x": np.abs(x)}, {"s": np.float32([0.1])}, opset=13, out=u8)
    c.op("q_output_dtype", "QuantizeLinear", {"x": x}, {"s": np.float32(0.1)}, opset=21, out=s8, output_dtype=s8)
    c.op("q_axis", "QuantizeLinear", {"x": x}, {"s": np.float32([0.1, 0.2, 0.05]), "z": np.int8([0, 1, -1])}, opset=13, out=s8, axis=1)
    c.op("q_axis_negative", "QuantizeLinear", {"x": x}, {"s": np.float32([0.1, 0.2, 0.05]), "z": np.uint8([0, 1, 7])}, opset=13, out=u8, axis=-3)
    c.op("dq_axis0", "DequantizeLinear", {"x": c.codes(np.int8, 3, 2)}, {"s": np.float32([0.1, 0.2, 0.05]), "z": np.int8([0, 1, -1])}, opset=13, axis=0, rel=0)
    c.op("dq_s32", "DequantizeLinear", {"x": c.rng.integers(-9999, 9999, 8).astype(np.int32)}, {"s": np.float32(0.001)}, opset=13, rel=0)
    c.op("q_run_time", "QuantizeLinear", {"x": x, "s": np.float32(0.1), "z": np.uint8(7)}, opset=13, out=u8)
    c.op("dq_run_time", "DequantizeLinear", {"x": c.codes(np.uint8, 9), "s": np.float32(0.1), "z": np.uint8(7)}, opset=13, rel=0)
    for n, data in enumerate([x[0], np.abs(x[0]) + 1, -np.abs(x[0]), np.zeros((2, 3), np.float32)]):
        data = np.clip(data, -50, 50)
        c.op(f"dynamic_quantize{n}", "DynamicQuantizeLinear", {"x": data}, opset=11, outputs=3, out=[u8, F, u8])
    node = helper.make_node
    for wtype, per_axis in [(np.int8, True), (np.int8, False), (np.uint8, False)]:
        w = c.codes(wtype, 4, 3, 3, 3)
        ws = np.float32([0.01, 0.02, 0.005, 0.03]) if per_axis else np.float32(0.01)
        wz = np.zeros(4, wtype) if per_axis else wtype(0 if wtype == np.int8 else 128)
        bs = (np.float32(0.05) * ws).astype(np.float32)
        c.graph(f"qdq_conv_{np.dtype(wtype).name}_{per_axis}",
                [node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
                 node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0), node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
                 node("Conv", ["xd", "wd", "bd"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]),
                 node("QuantizeLinear", ["r", "ys", "yz"], ["yq"]), node("DequantizeLinear", ["yq", "ys", "yz"], ["y"])],
                {"x": c.real(1, 3, 6, 6)}, {"yq": u8, "y": F},
                {"w": w, "ws": ws, "wz": wz, "b": c.rng.integers(-500, 500, 4).astype(np.int32), "bs": bs, "xs": np.float32(0.05), "xz": np.uint8(120),
                 "ys": np.float32(0.2), "yz": np.uint8(3)}, opset=13, steps=1, rel=0.05)
    c.graph("qdq_float_weights",
            [node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
             node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=0), node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], axis=0),
             node("Gemm", ["xd", "wd"], ["y"], transB=1)], {"x": c.real(2, 8)}, {"y": F},
            {"w": c.real(4, 8), "ws": np.float32([0.02, 0.03, 0.01, 0.05]), "wz": np.zeros(4, np.int8), "xs": np.float32(0.02), "xz": np.int8(5)}, opset=13)
    for xt in (np.uint8, np.int8):
        code = helper.np_dtype_to_tensor_dtype(np.dtype(xt))
        name = np.dtype(xt).name
        xz, yz = xt(100), xt(90)
        for per_axis in (False, True):
            ws = np.float32([0.01, 0.02, 0.005, 0.03]) if per_axis else np.float32(0.01)
            wz = np.zeros(4, np.int8) if per_axis else np.int8(0)
            c.op(f"qlinear_conv_{name}_{per_axis}", "QLinearConv", {"x": c.codes(xt, 1, 4, 6, 6)},
                 {"xs": np.float32(0.05), "xz": xz, "w": c.codes(np.int8, 4, 2, 3, 3), "ws": ws, "wz": wz, "ys": np.float32(0.15), "yz": yz,
                  "b": c.rng.integers(-900, 900, 4).astype(np.int32)}, out=code, steps=1, group=2, pads=[1, 1, 0, 0])
        c.op(f"qlinear_matmul_{name}", "QLinearMatMul", {"a": c.codes(xt, 3, 8)},
             {"as": np.float32(0.05), "az": xz, "b": c.codes(np.int8, 8, 5), "bs": np.float32(0.02), "bz": np.int8(2), "ys": np.float32(0.3), "yz": yz},
             out=code, steps=1)
        tail = {"ys": np.float32(0.08), "yz": yz}
        a = {"a": c.codes(xt, 1, 4, 5, 5)}
        for op in ("QLinearAdd", "QLinearMul"):
            c.op(f"{op}_{name}", op, {**a, "b": c.codes(xt, 1, 4, 5, 5)}, {"as": np.float32(0.05), "az": xz, "bs": np.float32(0.03), "bz": xt(9), **tail},
                 domain="com.microsoft", out=code, steps=1, order=["a", "as", "az", "b", "bs", "bz", "ys", "yz"])
        head = {"as": np.float32(0.05), "az": xz}
        c.op(f"QLinearGlobalAveragePool_{name}", "QLinearGlobalAveragePool", a, {**head, **tail}, domain="com.microsoft", out=code, steps=1, channels_last=0)
        c.op(f"QLinearAveragePool_{name}", "QLinearAveragePool", a, {**head, **tail}, domain="com.microsoft", out=code, steps=1, kernel_shape=[2, 2], strides=[2, 2])
        c.op(f"QLinearSigmoid_{name}", "QLinearSigmoid", a, {**head, "ys": np.float32(1 / 256), "yz": xt(np.iinfo(xt).min)}, domain="com.microsoft", out=code, steps=1)
        c.op(f"QLinearLeakyRelu_{name}", "QLinearLeakyRelu", a, {**head, **tail}, domain="com.microsoft", out=code, steps=1, alpha=0.1)
        c.op(f"QLinearSoftmax_{name}", "QLinearSoftmax", {"a": c.codes(xt, 3, 9)}, {"as": np.float32(0.02), "az": xz, "ys": np.float32(1 / 256), "yz": xt(np.iinfo(xt).min)},
             domain="com.microsoft", out=code, steps=1, axis=-1, extra=dict(opset=13))
        c.op(f"QLinearConcat_{name}", "QLinearConcat", {**a, "b": c.codes(xt, 1, 2, 5, 5)}, {**tail, "as": np.float32(0.05), "az": xz, "bs": np.float32(0.08), "bz": yz},
             domain="com.microsoft", out=code, steps=1, axis=1, order=["ys", "yz", "a", "as", "az", "b", "bs", "bz"])
        for trans in (0, 1):
            b = c.codes(np.int8, 5, 8) if trans else c.codes(np.int8, 8, 5)
            for out in (True, False):
                c.op(f"qgemm_{name}_{trans}_{out}", "QGemm", {"a": c.codes(xt, 3, 8)},
                     {"as": np.float32(0.05), "az": xz, "b": b, "bs": np.float32([0.01, 0.02, 0.03, 0.01, 0.05]), "bz": np.zeros(5, np.int8),
                      "c": c.rng.integers(-900, 900, 5).astype(np.int32), **({"ys": np.float32(0.3), "yz": yz} if out else {})},
                     domain="com.microsoft", out=code if out else F, steps=1, transB=trans, alpha=1.0)
        c.op(f"matmul_integer_{name}", "MatMulInteger", {"a": c.codes(xt, 3, 8)}, {"b": c.codes(np.int8, 8, 5), "az": xz, "bz": np.int8(-3)}, out=TensorProto.INT32)
    c.op("conv_integer", "ConvInteger", {"x": c.codes(np.uint8, 1, 3, 6, 6)}, {"w": c.codes(np.uint8, 4, 3, 3, 3), "xz": np.uint8(7), "wz": np.uint8(130)}, out=TensorProto.INT32,
         pads=[1, 1, 1, 1])
    c.op("conv_integer_run_time", "ConvInteger", {"x": c.codes(np.uint8, 1, 3, 6, 6), "xz": np.uint8(7)}, {"w": c.codes(np.uint8, 4, 3, 3, 3)}, out=TensorProto.INT32,
         order=["x", "w", "xz"])
    c.graph("dynamic_quantized_matmul",
            [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("MatMulInteger", ["q", "w", "z"], ["i"]), node("Cast", ["i"], ["f"], to=F),
             node("Mul", ["s", "ws"], ["m"]), node("Mul", ["f", "m"], ["y"])], {"x": c.real(3, 8)}, {"y": F}, {"w": c.codes(np.int8, 8, 5), "ws": np.float32(0.01)}, opset=13)


def half(c):
    f16 = TensorProto.FLOAT16
    node = helper.make_node
    x = c.real(1, 3, 6, 6).astype(np.float16)
    c.graph("f16_conv", [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])], {"x": x}, {"y": f16}, {"w": c.real(4, 3, 3, 3).astype(np.float16)}, rel=3e-3)
    c.graph("f16_mixed", [node("Cast", ["x"], ["h"], to=f16), node("Mul", ["h", "k"], ["m"]), node("Cast", ["m"], ["y"], to=F)], {"x": c.real(4, 4)}, {"y": F},
            {"k": np.float16(1.1)}, rel=3e-3)
    c.graph("f64", [node("Mul", ["x", "k"], ["y"])], {"x": c.real(4, 4).astype(np.float64)}, {"y": TensorProto.DOUBLE}, {"k": np.float64(1.1)}, rel=1e-6)


def all_cases():
    c = Cases()
    for family in (conv, gemm, pool, activation, elementwise, move, reduce, resize, norm, shape, quant, half, *op_cases_wide.FAMILIES, *op_cases_sizes.FAMILIES):
        first, c.peer = len(c.list), True
        family(c)
        for case in c.list[first:]:
            case.name = f"{family.__name__}/{case.name}"
    return c.list
