"""The operators beyond convolutional networks: index, recurrent, sampling, signal, attention, loss, loops, com.microsoft. Families of
op_cases.py. `c.alone()`: ONNX Runtime has no such operator (its values are compared in the onnx package's backend tests)."""
import numpy as np
from onnx import TensorProto, helper

F, S64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, value_info = helper.make_node, helper.make_tensor_value_info


def index(c):
    x = {"x": c.real(3, 4)}
    for name, opset in (("Scatter", 9), ("ScatterElements", 11)):
        c.op(name, name, x, {"i": np.int64([[0, 2, 1, 0]]), "u": c.real(1, 4)}, opset=opset, axis=0)
    for reduction in ("none", "add", "mul", "max", "min"):
        at = [[1, 0, -1], [0, 3, 2]] if reduction == "none" else [[1, 1, -1], [0, 3, 3]]
        c.op(f"scatter_elements_{reduction}", "ScatterElements", x, {"i": np.int64(at), "u": c.real(2, 3)}, opset=18, axis=1, reduction=reduction)
        c.op(f"scatter_nd_{reduction}", "ScatterND", x, {"i": np.int64([[0], [2]]), "u": c.real(2, 4)}, opset=18, reduction=reduction)
    c.op("scatter_nd_run_time", "ScatterND", {**x, "i": np.int64([[0, 1], [2, 3]]), "u": c.real(2)}, opset=16)
    c.op("top_k1", "TopK", {"x": c.real(2, 7)}, opset=9, outputs=2, out=[F, S64], axis=1, k=3)
    c.op("top_k10", "TopK", {"x": c.real(2, 7)}, {"k": np.int64([4])}, opset=10, outputs=2, out=[F, S64])
    c.op("top_k11", "TopK", {"x": c.real(5, 2)}, {"k": np.int64([2])}, opset=13, outputs=2, out=[F, S64], axis=0, largest=0)
    for exclusive in (0, 1):
        for reverse in (0, 1):
            c.op(f"cumsum_{exclusive}_{reverse}", "CumSum", x, {"a": np.int64(1)}, opset=14, exclusive=exclusive, reverse=reverse)
    c.op("reverse_sequence", "ReverseSequence", {"x": c.real(4, 3, 2)}, {"n": np.int64([4, 2, 1])}, time_axis=0, batch_axis=1)
    c.op("reverse_sequence_batch", "ReverseSequence", {"x": c.real(3, 4)}, {"n": np.int64([1, 2, 4])}, time_axis=1, batch_axis=0)
    c.graph("max_unpool", [node("MaxPool", ["x"], ["p", "i"], kernel_shape=[2, 2], strides=[2, 2]),
                           node("MaxUnpool", ["p", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])], {"x": c.real(1, 2, 4, 6)}, {"y": F})
    c.op("col2im", "Col2Im", {"x": c.real(1, 8, 9)}, {"image": np.int64([4, 4]), "block": np.int64([2, 2])}, opset=18)
    c.op("col2im_pads", "Col2Im", {"x": c.real(2, 6, 15)}, {"image": np.int64([5, 5]), "block": np.int64([1, 3])}, opset=18, pads=[0, 1, 0, 1],
         strides=[1, 2])
    for upper in (0, 1):
        c.op(f"trilu_{upper}", "Trilu", {"x": c.real(2, 4, 5)}, {"k": np.int64(upper - 1)}, opset=14, upper=upper)
    c.op("trilu_default", "Trilu", {"x": c.real(4, 4)}, opset=14)
    c.op("eye_like", "EyeLike", {"x": c.real(3, 4)}, opset=9, k=1)
    c.op("eye_like_dtype", "EyeLike", {"x": c.real(3, 3)}, opset=9, out=S64, dtype=S64)
    c.op("center_crop_pad", "CenterCropPad", {"x": c.real(5, 4, 3)}, {"s": np.int64([3, 7])}, opset=18, axes=[0, 1])
    c.op("compress", "Compress", {"x": c.real(3, 4)}, {"k": np.bool_([True, False, True])}, opset=11, axis=0)
    c.op("compress_flat", "Compress", {"x": c.real(2, 3)}, {"k": np.bool_([False, True, True, False, True])}, opset=11)
    for axis in (0, -1):
        c.op(f"one_hot_{axis}", "OneHot", {"i": np.int64([1, -1, 7, 0])}, {"d": np.int64([3]), "v": np.float32([0.5, 2])}, opset=11, axis=axis)
    c.alone()
    for mode in ("linear", "circular"):
        c.op(f"tensor_scatter_{mode}", "TensorScatter", {"past": c.real(2, 4, 3), "u": c.real(2, 2, 3)}, {"at": np.int64([1, 2])}, opset=24, mode=mode, axis=1)
    c.op("cumprod", "CumProd", {"x": c.real(3, 4)}, {"a": np.int64(0)}, opset=26, exclusive=1)


def math(c):
    wide, unit = c.real(40, scale=3.0), np.tanh(c.real(40)).astype(np.float32)
    for op, x in [("Tan", unit), ("Asin", unit), ("Acos", unit), ("Atan", wide), ("Sinh", wide), ("Cosh", wide), ("Asinh", wide), ("Acosh", np.abs(wide) + 1),
                  ("Atanh", unit * np.float32(0.9))]:
        c.op(op, op, {"x": x.astype(np.float32)}, opset=9)
    a, b = c.codes(np.uint8, 12), c.codes(np.uint8, 12)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        c.op(op, op, {"a": a, "b": b}, opset=18, out=TensorProto.UINT8)
    c.op("BitwiseNot", "BitwiseNot", {"a": a}, opset=18, out=TensorProto.UINT8)
    for direction in ("LEFT", "RIGHT"):
        c.op(f"bit_shift_{direction}", "BitShift", {"a": a, "b": (b % 8).astype(np.uint8)}, opset=11, out=TensorProto.UINT8, direction=direction)
    special = np.float32([0, 1, np.nan, np.inf, -np.inf, -2])
    c.op("is_nan", "IsNaN", {"x": special}, opset=13, out=BOOL)
    for negative, positive in ((0, 1), (1, 0), (1, 1)):
        c.op(f"is_inf_{negative}_{positive}", "IsInf", {"x": special}, opset=10, out=BOOL, detect_negative=negative, detect_positive=positive)
    c.op("shrink", "Shrink", {"x": wide}, opset=9, lambd=0.8, bias=0.25)
    for opset in (7, 13):
        c.op(f"hardmax{opset}", "Hardmax", {"x": c.real(2, 3, 4)}, opset=opset, axis=1)
    for equation, shapes in [("ij,jk->ik", ((2, 3), (3, 4))), ("bij,bkj->bik", ((2, 3, 4), (2, 5, 4))), ("ij->ji", ((2, 3),)), ("...ij->...i", ((2, 3, 4),)),
                             ("i,j->ij", ((3,), (4,))), ("ij,ij->", ((2, 3), (2, 3))), ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 2))), ("bhid,bhjd->bhij", ((1, 2, 3, 4), (1, 2, 5, 4))),
                             ("ii->i", ((3, 3),))]:
        c.op(f"einsum_{equation}", "Einsum", {f"x{k}": c.real(*s) for k, s in enumerate(shapes)}, opset=12, equation=equation)
    for p in (1, 2, 3):
        c.op(f"lp_pool_{p}", "LpPool", {"x": c.real(1, 2, 6, 7)}, opset=11, kernel_shape=[2, 3], strides=[2, 1], p=p)
        c.op(f"global_lp_pool_{p}", "GlobalLpPool", {"x": c.real(2, 3, 4, 4)}, opset=7, p=p)
    c.op("det", "Det", {"x": c.real(2, 4, 4)}, opset=11, rel=1e-4)
    c.op("det_one", "Det", {"x": c.real(3, 3)}, opset=11, rel=1e-4)
    c.op("cast_like", "CastLike", {"x": c.real(6, scale=9.0)}, {"k": np.int64([0])}, opset=15, out=S64)
    c.op("resize10", "Resize", {"x": c.real(1, 2, 4, 5)}, {"s": np.float32([1, 1, 2, 1.5])}, opset=10, mode="linear", rel=2e-4)
    c.op("resize10_nearest", "Resize", {"x": c.real(1, 2, 4, 4)}, {"s": np.float32([1, 1, 2, 2])}, opset=10, mode="nearest")
    c.op("simplified_layer_norm", "SimplifiedLayerNormalization", {"x": c.real(2, 3, 8)}, {"s": c.real(8)}, epsilon=1e-3, axis=-1)
    c.op("rms_norm", "RMSNormalization", {"x": c.real(2, 3, 8)}, {"s": c.real(8)}, opset=23, epsilon=1e-3, axis=-1)
    c.alone()
    c.op("swish", "Swish", {"x": wide}, opset=24, alpha=0.5)
    c.op("swiglu", "SwiGLU", {"a": c.real(2, 4), "b": c.real(2, 4)}, opset=28, alpha=1.25)
    c.op("bit_cast", "BitCast", {"x": c.real(5)}, opset=26, out=TensorProto.INT32, to=TensorProto.INT32)


def recurrent(c):
    t, b, n, h = 4, 2, 3, 5
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}
    for op, g in gates.items():
        outputs = 3 if op == "LSTM" else 2
        for direction, d in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            w = {"w": c.real(d, g * h, n), "r": c.real(d, g * h, h), "b": c.real(d, 2 * g * h)}
            c.op(f"{op}_{direction}", op, {"x": c.real(t, b, n)}, w, opset=14, outputs=outputs, hidden_size=h, direction=direction, rel=1e-4)
        w = {"w": c.real(1, g * h, n), "r": c.real(1, g * h, h), "b": c.real(1, 2 * g * h), "n": np.int32([4, 2]), "h": c.real(1, b, h)}
        if op == "LSTM":
            w |= {"c0": c.real(1, b, h), "p": c.real(1, 3 * h)}
        extra = {"GRU": dict(linear_before_reset=1), "LSTM": {}, "RNN": dict(activations=["Relu"])}[op]
        c.op(f"{op}_states", op, {"x": c.real(t, b, n)}, w, opset=7, outputs=outputs, hidden_size=h, clip=3.0, rel=1e-4, **extra)
    c.op("LSTM_activations", "LSTM", {"x": c.real(t, b, n)}, {"w": c.real(1, 4 * h, n), "r": c.real(1, 4 * h, h)}, outputs=3, hidden_size=h,
         activations=["HardSigmoid", "Softsign", "Tanh"], activation_alpha=[0.25], activation_beta=[0.4], rel=1e-4)
    c.op("GRU_plain", "GRU", {"x": c.real(t, b, n)}, {"w": c.real(1, 3 * h, n), "r": c.real(1, 3 * h, h)}, outputs=2, hidden_size=h, rel=1e-4)


def sample(c):
    x = c.real(2, 3, 5, 6)
    grid = np.clip(c.real(2, 4, 3, 2), -1.3, 1.3)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            c.op(f"grid_sample_{mode}_{padding}", "GridSample", {"x": x, "g": grid}, opset=16, mode=mode, padding_mode=padding, align_corners=int(padding == "border"), rel=2e-4)
    c.op("grid_sample_constant", "GridSample", {"x": x}, {"g": grid}, opset=16, rel=2e-4)
    for align in (0, 1):
        c.op(f"affine_grid_{align}", "AffineGrid", {"t": c.real(2, 2, 3)}, {"s": np.int64([2, 3, 4, 5])}, opset=20, align_corners=align)
    c.op("affine_grid_3d", "AffineGrid", {"t": c.real(1, 3, 4)}, {"s": np.int64([1, 2, 2, 3, 4])}, opset=20)
    rois = np.float32([[0.3, 0.4, 4.2, 3.9], [1, 1, 3, 2]])
    for mode in ("avg", "max"):
        c.op(f"roi_align_{mode}", "RoiAlign", {"x": x}, {"r": rois, "b": np.int64([0, 1])}, opset=16, mode=mode, output_height=2, output_width=3, sampling_ratio=2, rel=2e-4)
    c.op("roi_align_run_time", "RoiAlign", {"x": x, "r": rois}, {"b": np.int64([1, 0])}, opset=10, output_height=2, output_width=2, spatial_scale=0.5, sampling_ratio=1, rel=2e-4)
    corner = c.rng.random((1, 6, 2)).astype(np.float32)
    boxes, scores = np.concatenate([corner, corner + np.float32(0.4)], -1), c.rng.permutation(12).reshape(1, 2, 6).astype(np.float32) / 16
    limits = {"n": np.int64([2]), "iou": np.float32([0.5]), "least": np.float32([0.0])}
    c.op("nms", "NonMaxSuppression", {"b": boxes, "s": scores}, limits, opset=11, out=S64)
    c.op("nms_centre", "NonMaxSuppression", {"b": boxes, "s": scores}, limits, opset=10, out=S64, center_point_box=1)
    c.op("deform_conv", "DeformConv", {"x": c.real(1, 2, 5, 5), "o": c.real(1, 18, 3, 3, scale=0.3)}, {"w": c.real(4, 2, 3, 3)}, opset=19, order=["x", "w", "o"],
         kernel_shape=[3, 3], rel=2e-4)
    c.op("deform_conv_mask", "DeformConv", {"x": c.real(1, 4, 5, 5), "o": c.real(1, 16, 4, 4, scale=0.3), "m": c.real(1, 8, 4, 4)}, {"w": c.real(2, 2, 2, 2), "b": c.real(2)},
         opset=19, order=["x", "w", "o", "b", "m"], group=2, offset_group=2, rel=2e-4)


def signal(c):
    for opset in (17, 20):
        rest = {} if opset == 17 else {"axis": np.int64(1)}
        attrs = dict(axis=1) if opset == 17 else {}
        order = ["x"] if opset == 17 else ["x", "", "axis"]
        for onesided in (0, 1):
            c.op(f"dft{opset}_{onesided}", "DFT", {"x": c.real(1, 8, 1)}, rest, opset=opset, onesided=onesided, order=order, rel=1e-4, **attrs)
        c.op(f"dft{opset}_inverse", "DFT", {"x": c.real(2, 6, 2)}, rest, opset=opset, inverse=1, order=order, rel=1e-4, **attrs)
    c.op("dft_length", "DFT", {"x": c.real(1, 8, 1)}, {"n": np.int64(5)}, opset=17, axis=1, rel=1e-4)
    c.op("stft", "STFT", {"x": c.real(1, 32, 1)}, {"step": np.int64(4), "w": np.hanning(8).astype(np.float32)}, opset=17, rel=1e-4)
    c.op("stft_length", "STFT", {"x": c.real(1, 32, 1)}, {"step": np.int64(8), "n": np.int64(16)}, opset=17, order=["x", "step", "", "n"], onesided=0, rel=1e-4)
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        for periodic in (0, 1):
            c.graph(f"{op}_{periodic}", [node(op, ["n"], ["w"], periodic=periodic), node("Mul", ["x", "w"], ["y"])], {"x": c.real(2, 9)}, {"y": F}, {"n": np.int64(9)}, rel=1e-4)
    for bins, length, rate, low, high in ((8, 16, 8192, 0.0, 4096.0), (20, 64, 16000, 125.0, 7500.0), (5, 9, 8000, 300.0, 300.0)):
        values = {"n": np.int64(bins), "d": np.int64(length), "r": np.int64(rate), "l": np.float32(low), "h": np.float32(high)}
        c.graph(f"mel_{bins}", [node("MelWeightMatrix", list(values), ["w"]), node("MatMul", ["x", "w"], ["y"])],
                {"x": np.linspace(-1, 1, 2 * (length // 2 + 1), dtype=np.float32).reshape(2, -1)}, {"y": F}, values, rel=1e-4)


def attention(c):
    q, k, v = c.real(2, 4, 3, 8), c.real(2, 2, 5, 8), c.real(2, 2, 5, 6)
    plain = {"q": q, "k": k, "v": v}
    c.op("attention", "Attention", plain, opset=23, rel=1e-4)
    c.op("attention_causal", "Attention", plain, opset=23, is_causal=1, scale=0.25, softcap=5.0, rel=1e-4)
    c.op("attention_mask", "Attention", {**plain, "m": c.real(3, 5)}, opset=23, rel=1e-4)
    c.op("attention_bool_mask", "Attention", {**plain, "m": c.real(2, 4, 3, 5) < 1}, opset=23, rel=1e-4)
    c.op("attention_rank3", "Attention", {"q": c.real(2, 3, 16), "k": c.real(2, 5, 16), "v": c.real(2, 5, 8)}, opset=23, q_num_heads=2, kv_num_heads=2, rel=1e-4)
    c.op("attention_past", "Attention", {**plain, "pk": c.real(2, 2, 4, 8), "pv": c.real(2, 2, 4, 6)}, opset=23, outputs=3, order=["q", "k", "v", "", "pk", "pv"], rel=1e-4)
    angle = c.real(2, 3, 4)
    for interleaved in (0, 1):
        c.op(f"rotary_{interleaved}", "RotaryEmbedding", {"x": c.real(2, 2, 3, 8)}, {"c": np.cos(angle), "s": np.sin(angle)}, opset=23, interleaved=interleaved, rel=1e-4)
    c.op("rotary_positions", "RotaryEmbedding", {"x": c.real(2, 3, 16)}, {"c": np.cos(c.real(9, 2)), "s": np.sin(c.real(9, 2)), "p": np.int64([[0, 1, 2], [8, 3, 4]])},
         opset=23, num_heads=2, rotary_embedding_dim=4, rel=1e-4)
    c.alone()
    c.op("attention_window", "Attention", plain, opset=25, left_window_size=1, right_window_size=1)
    tokens = {"q": c.real(1, 3, 8), "k": c.real(1, 3, 4), "v": c.real(1, 3, 6)}
    heads = dict(q_num_heads=4, kv_num_heads=2, outputs=2, opset=27)
    c.op("linear_attention", "LinearAttention", tokens, update_rule="linear", **heads)
    c.op("linear_attention_gated", "LinearAttention", {**tokens, "d": -np.abs(c.real(1, 3, 4)), "b": np.abs(c.real(1, 3, 2))}, update_rule="gated_delta",
         order=["q", "k", "v", "", "d", "b"], **heads)
    c.op("causal_conv", "CausalConvWithState", {"x": c.real(2, 3, 5)}, {"w": c.real(3, 1, 3), "b": c.real(3)}, opset=27, outputs=2, activation="silu")


def loss(c):
    labels = np.int64([[0, 2], [1, 4]])
    for reduction in ("none", "mean", "sum"):
        c.op(f"nll_{reduction}", "NegativeLogLikelihoodLoss", {"x": c.real(2, 5, 2), "t": labels}, {"w": np.abs(c.real(5))}, opset=13, reduction=reduction)
        c.op(f"softmax_cross_entropy_{reduction}", "SoftmaxCrossEntropyLoss", {"x": c.real(2, 5, 2), "t": labels}, opset=13, reduction=reduction, outputs=2, rel=1e-4)
    c.op("nll_ignored", "NegativeLogLikelihoodLoss", {"x": c.real(4, 3), "t": np.int64([0, 2, 1, 2])}, opset=13, ignore_index=2)


def loops(c):
    body = helper.make_graph([node("Add", ["s", "x"], ["t"]), node("Identity", ["k"], ["k2"]), node("Identity", ["t"], ["scanned"])], "body",
                             [value_info("i", S64, []), value_info("k", BOOL, []), value_info("s", F, [2, 3])],
                             [value_info("k2", BOOL, []), value_info("t", F, [2, 3]), value_info("scanned", F, [2, 3])])
    c.graph("loop", [node("Loop", ["n", "yes", "x"], ["y", "all"], body=body)], {"x": c.real(2, 3)}, {"y": F, "all": F}, {"n": np.int64(3), "yes": np.bool_(True)})
    step = helper.make_graph([node("Add", ["s", "r"], ["t"]), node("Neg", ["t"], ["o"])], "step", [value_info("s", F, [3]), value_info("r", F, [3])],
                             [value_info("t", F, [3]), value_info("o", F, [3])])
    c.graph("scan", [node("Scan", ["s0", "x"], ["y", "all"], body=step, num_scan_inputs=1)], {"x": c.real(4, 3)}, {"y": F, "all": F}, {"s0": c.real(3)}, opset=11)
    c.graph("scan_reverse", [node("Scan", ["s0", "x"], ["y", "all"], body=step, num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1],
                                  scan_input_axes=[1], scan_output_axes=[1])], {"x": c.real(3, 4)}, {"y": F, "all": F}, {"s0": c.real(3)}, opset=11)
    yes = helper.make_graph([node("Mul", ["x", "x"], ["a"])], "yes", [], [value_info("a", F, None)])
    no = helper.make_graph([node("Neg", ["x"], ["b"])], "no", [], [value_info("b", F, None)])
    c.graph("if_on_data", [node("If", ["k"], ["y"], then_branch=yes, else_branch=no)], {"x": c.real(2, 3), "k": np.bool_(True)}, {"y": F})


def microsoft(c):
    ms = dict(domain="com.microsoft")
    c.op("Gelu", "Gelu", {"x": c.real(2, 5)}, **ms)
    x, bias = {"x": c.real(2, 3, 8)}, {"b": c.real(8)}
    c.op("FastGelu", "FastGelu", x, bias, rel=1e-3, **ms)
    c.op("BiasGelu", "BiasGelu", x, bias, rel=1e-4, **ms)
    c.op("QuickGelu", "QuickGelu", x, rel=1e-4, **ms)
    c.op("QuickGelu_alpha", "QuickGelu", x, rel=1e-4, alpha=0.5, **ms)
    c.op("FusedMatMul", "FusedMatMul", {"a": c.real(2, 4, 3), "b": c.real(2, 5, 4)}, transA=1, transB=1, alpha=0.5, **ms)
    c.op("SkipLayerNormalization", "SkipLayerNormalization", {**x, "s": c.real(2, 3, 8)}, {"g": c.real(8), "beta": c.real(8), **bias}, epsilon=1e-3, rel=1e-4, **ms)
    c.op("SkipSimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", {**x, "s": c.real(2, 3, 8)}, {"g": c.real(8)}, epsilon=1e-3, rel=1e-4, **ms)
    c.op("MatMulIntegerToFloat", "MatMulIntegerToFloat", {"a": c.codes(np.uint8, 3, 8)},
         {"b": c.codes(np.int8, 8, 4), "as": np.float32(0.02), "bs": np.abs(c.real(4)) + np.float32(0.01), "az": np.uint8(120), "bz": np.zeros(4, np.int8)}, rel=1e-4, **ms)
    c.op("DynamicQuantizeMatMul", "DynamicQuantizeMatMul", {"a": c.real(3, 8)}, {"b": c.codes(np.int8, 8, 4), "bs": np.float32([0.02]), "bz": np.int8([0])}, rel=1e-4, **ms)
    t, b, n, h = 3, 2, 4, 5
    for direction, d in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        per = {"ws": np.abs(c.real(d, 4 * h)) * np.float32(0.01) + np.float32(0.005), "wz": np.zeros((d, 4 * h), np.int8)} if d == 2 else {
            "ws": np.full(d, 0.01, np.float32), "wz": np.full(d, 3, np.int8)}
        rest = {"w": c.codes(np.int8, d, n, 4 * h), "r": c.codes(np.int8, d, h, 4 * h), "b": c.real(d, 8 * h), "h0": c.real(d, b, h), "c0": c.real(d, b, h), **per,
                "rs": np.full(d, 0.01, np.float32), "rz": np.zeros(d, np.int8)}
        c.op(f"DynamicQuantizeLSTM_{direction}", "DynamicQuantizeLSTM", {"x": c.real(t, b, n)}, rest, outputs=3, hidden_size=h, direction=direction, rel=1e-2,
             order=["x", "w", "r", "b", "", "h0", "c0", "", "ws", "wz", "rs", "rz"], **ms)
    for activation, params in (("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-1.0, 1.5]), ("Sigmoid", []), ("Tanh", []), ("HardSigmoid", [0.3, 0.4])):
        extra = dict(activation_params=params) if params else {}
        c.op(f"FusedConv_{activation}", "FusedConv", {"x": c.real(1, 3, 6, 6)}, {"w": c.real(4, 3, 3, 3), "b": c.real(4)}, activation=activation, rel=1e-4, **extra, **ms)
    c.op("FusedConv_sum", "FusedConv", {"x": c.real(1, 3, 6, 6), "z": c.real(1, 4, 4, 4)}, {"w": c.real(4, 3, 3, 3), "b": c.real(4)}, order=["x", "w", "b", "z"], activation="Relu",
         rel=1e-4, **ms)
    u8, tail = TensorProto.UINT8, {"s": np.float32(0.1), "z": np.uint8(128)}
    c.op("QuantizeLinear", "QuantizeLinear", {"x": c.real(2, 8)}, tail, out=u8, **ms)
    c.op("DequantizeLinear", "DequantizeLinear", {"x": c.codes(np.uint8, 2, 8)}, tail, rel=0, **ms)
    c.alone()
    c.op("QLinearConv", "QLinearConv", {"x": c.codes(np.uint8, 1, 3, 5, 5)},
         {"xs": np.float32(0.05), "xz": np.uint8(128), "w": c.codes(np.int8, 4, 3, 3, 3), "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.2), "yz": np.uint8(99)},
         out=u8, steps=1, **ms)


def transformer(c):
    """Attention and embeddings as ONNX Runtime's transformer optimizer writes them."""
    b, t, keys, heads, d = 2, 5, 7, 2, 4
    h = heads * d
    near = dict(domain="com.microsoft", rel=1e-4)
    s32 = TensorProto.INT32
    packed = {"w": c.real(6, 3 * h), "b": c.real(3 * h)}
    raw = np.int32([[1, 1, 0, 0, 1], [0, 1, 1, 1, 0]])
    each = (np.arange(b * t * t).reshape(b, t, t) % 3 != 0).astype(np.int32)
    rest = ["mask", "past", "bias"]

    def whole(name, given=None, outputs=1, **attributes):
        given = given or {}
        order = ["x", "w", "b", *[n if n in given else "" for n in rest]]
        c.op(f"attention_{name}", "Attention", {"x": c.real(b, t, 6), **given}, packed, order=order, outputs=outputs, num_heads=heads, **near, **attributes)

    whole("plain")
    whole("causal", unidirectional=1)
    whole("lengths", {"mask": np.int32([3, 5])}, scale=0.3)
    whole("ends_and_starts", {"mask": np.int32([4, 5, 1, 0])}, unidirectional=1)
    whole("raw_mask", {"mask": raw})
    whole("raw_mask_causal", {"mask": raw}, unidirectional=1, mask_filter_value=-2.0)
    whole("all_masked", {"mask": raw * np.int32([[0], [1]])})
    whole("mask_of_queries", {"mask": each}, unidirectional=1)
    whole("bias", {"mask": raw, "bias": c.real(1, heads, t, t)})
    whole("past", {"mask": np.concatenate([raw, raw[:, :3]], 1), "past": c.real(2, b, heads, 3, d)}, outputs=2, unidirectional=1)
    whole("present", outputs=2)
    c.op("attention_widths", "Attention", {"x": c.real(b, t, 6)}, {"w": c.real(6, 2 * h + 6), "b": c.real(2 * h + 6)}, num_heads=heads, qkv_hidden_sizes=[h, h, 6], **near)
    codes = {"w": c.codes(np.int8, 6, 3 * h) // np.int8(2), "b": c.real(3 * h), "xs": np.float32(0.02), "ws": (np.abs(c.real(3 * h)) * 0.01).astype(np.float32),
             "mask": np.int32([3, 5]), "xz": np.uint8(120), "wz": np.zeros(3 * h, np.int8)}
    c.op("quantized_attention", "QAttention", {"x": c.codes(np.uint8, b, t, 6)}, codes, num_heads=heads, unidirectional=1, **near)

    q, k, v, bias = c.real(b, t, h), c.real(b, keys, h), c.real(b, keys, 6 * heads), c.real(2 * h + 6 * heads)
    three, all_keys = {"q": q, "k": k, "v": v}, (np.arange(b * keys).reshape(b, keys) % 3 > 0).astype(np.int32)
    multi = dict(near, num_heads=heads)
    c.op("multi_head", "MultiHeadAttention", three, {"b": bias}, **multi)
    c.op("multi_head_lengths", "MultiHeadAttention", {**three, "m": np.int32([3, 7])}, order=["q", "k", "v", "", "m"], scale=0.2, **multi)
    c.op("multi_head_mask", "MultiHeadAttention", {**three, "m": all_keys, "a": c.real(1, heads, t, keys)}, {"b": bias}, order=["q", "k", "v", "b", "m", "a"], **multi)
    c.op("multi_head_causal_past", "MultiHeadAttention", {"q": q, "k": c.real(b, t, h), "v": c.real(b, t, h), "pk": c.real(b, heads, 3, d), "pv": c.real(b, heads, 3, d)},
         {"b": c.real(3 * h)}, order=["q", "k", "v", "b", "", "", "pk", "pv"], outputs=3, unidirectional=1, **multi)
    c.op("multi_head_cross", "MultiHeadAttention", {"q": q, "k": c.real(b, heads, keys, d), "v": c.real(b, heads, keys, d)}, {"b": c.real(3 * h)}, **multi)

    ids = np.int32([[0, 5, 8, 2, 2], [1, 1, 7, 3, 0]])
    tables = {"words": c.real(9, h), "positions": c.real(8, h), "g": c.real(h), "beta": c.real(h)}
    c.op("embed", "EmbedLayerNormalization", {"i": ids, "s": ids % 2, "m": raw}, {**tables, "segments": c.real(2, h)}, outputs=3, out=[F, s32, F], epsilon=1e-5,
         order=["i", "s", "words", "positions", "segments", "g", "beta", "m"], **near)
    c.op("embed_positions", "EmbedLayerNormalization", {"i": ids, "p": np.int32([[0, 2, 1, 7, 4]])}, tables, outputs=2, out=[F, s32],
         order=["i", "", "words", "positions", "", "g", "beta", "", "p"], **near)
    angle = c.real(9, d // 2)
    for interleaved in (0, 1):
        c.op(f"rotary_{interleaved}", "RotaryEmbedding", {"x": c.real(b, t, h), "p": np.int64([[0, 1, 2, 3, 4], [3, 4, 5, 6, 8]])}, {"c": np.cos(angle), "s": np.sin(angle)},
             interleaved=interleaved, **near)
    c.op("rotary_from", "RotaryEmbedding", {"x": c.real(b, t, h), "p": np.int64([2])}, {"c": np.cos(angle[:, :1]), "s": np.sin(angle[:, :1])}, num_heads=heads,
         rotary_embedding_dim=2, **near)
    c.op("rotary_heads", "RotaryEmbedding", {"x": c.real(b, heads, t, d), "p": np.int64([2])}, {"c": np.cos(angle), "s": np.sin(angle)}, **near)
    for activation, parameters in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
                                   ("Elu", {"activation_alpha": 0.7}), ("Softplus", {}), ("Softsign", {})):
        c.op(f"gemm_{activation}", "FusedGemm", {"x": c.real(3, 4)}, {"w": c.real(4, 5), "b": c.real(5)}, activation=activation, alpha=0.5, beta=2.0, **near, **parameters)
    c.op("transpose_matmul", "TransposeMatMul", {"a": c.real(2, 3, 4)}, {"w": c.real(5, 4)}, transB=1, alpha=0.5, **near)
    c.op("layer_norm_of_old_opset", "LayerNormalization", {"x": c.real(2, 3, 8)}, {"g": c.real(8), "beta": c.real(8)}, opset=13, rel=1e-4)
    c.alone()
    c.op("multi_head_packed", "MultiHeadAttention", {"q": c.real(b, t, heads, 3, d)}, **multi)
    c.op("multi_head_packed_keys", "MultiHeadAttention", {"q": q, "k": c.real(b, keys, heads, 2, d)}, **multi)
    c.op("bias_softmax", "BiasSoftmax", {"x": c.real(2, 3, 4, 5), "b": c.real(2, 1, 1, 5)}, axis=3, is_inner_broadcast=1, **near)
    c.op("bias_add", "BiasAdd", {"x": c.real(2, 3, 4), "b": c.real(4), "s": c.real(2, 3, 4)}, **near)
    c.op("gemm_fast_gelu", "GemmFastGelu", {"x": c.real(2, 3, 4)}, {"w": c.real(4, 5), "b": c.real(5)}, **near)


def numerics(c):
    """Values at the edges: integers that are resized, scales below 0, ties of QLinear operators, NaN. Each has values of its own."""
    u8, s8, s32 = np.uint8(np.arange(126) * 37 % 256).reshape(1, 2, 7, 9), np.int8(np.arange(126) * 91 % 256 - 128).reshape(1, 2, 7, 9), np.int32(np.arange(126) * 1009 % 5000 - 2500).reshape(1, 2, 7, 9)
    for name, x in (("u8", u8), ("s8", s8), ("s32", s32)):
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        for height, width, steps in ((2, 2, 0), (1.3, 0.7, 1)):
            c.op(f"resize_linear_{name}_{height}", "Resize", {"x": x}, {"sc": np.float32([1, 1, height, width])}, opset=13, order=["x", "", "sc"], out=kind, steps=steps, mode="linear")
    c.op("resize_linear_u8_deep", "Resize", {"x": u8.reshape(1, 2, 7, 3, 3)}, {"sc": np.float32([1, 1, 2, 2, 2])}, opset=13, order=["x", "", "sc"], out=TensorProto.UINT8, mode="linear")
    for mode in ("linear", "cubic"):
        c.op(f"resize_{mode}_u8_smooth", "Resize", {"x": u8}, {"sc": np.float32([1, 1, 0.5, 0.5])}, opset=18, order=["x", "", "sc"], out=TensorProto.UINT8, steps=1, mode=mode, antialias=1)

    signs = np.float32([0.02, -0.03, -0.01, 0.04])
    codes = np.int8(np.arange(32) * 67 % 256 - 128).reshape(4, 8)
    codes[1, 0], codes[2] = -128, np.clip(codes[2], -127, 127)
    real = np.linspace(-1, 1, 24, dtype=np.float32)
    for axis, scales in ((0, signs), (1, np.tile(signs, 2)), (0, np.float32(-0.03))):
        c.op(f"dequantize_below_0_{axis}_{scales.ndim}", "DequantizeLinear", {"q": codes}, {"s": scales, "z": np.zeros(scales.shape, np.int8)}, axis=axis)
        c.graph(f"weights_below_0_{axis}_{scales.ndim}", [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=axis), helper.make_node("MatMul", ["x", "d"], ["y"])],
                {"x": real.reshape(6, 4)}, {"y": F}, {"w": codes, "s": scales})
    for name, zero in (("u8", np.uint8(3)), ("s8", np.int8(-5))):
        kind = helper.np_dtype_to_tensor_dtype(zero.dtype)
        c.op(f"quantize_below_0_{name}", "QuantizeLinear", {"x": np.float32(np.arange(-200, 200) / 4)}, {"s": np.float32(-0.5), "z": zero}, out=kind)
        c.graph(f"pair_below_0_{name}", [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("Transpose", ["q"], ["t"]), helper.make_node("DequantizeLinear", ["t", "s", "z"], ["y"])],
                {"x": np.float32(np.arange(-200, 200) / 4).reshape(20, 20)}, {"y": F}, {"s": np.float32(-0.3), "z": zero})
    w, b = np.int8(np.arange(72) * 53 % 256 - 128).reshape(4, 2, 3, 3), np.int32([100, -200, 300, -400])
    c.op("conv_below_0", "QLinearConv", {"x": u8}, {"xs": np.float32(0.02), "xz": np.uint8(120), "w": w // 2, "ws": signs, "wz": np.zeros(4, np.int8), "ys": np.float32(0.7), "yz": np.uint8(110), "b": b},
         out=TensorProto.UINT8, steps=1)

    half, quarter, all_codes = np.float32(0.00784314), np.float32(0.00392157), np.arange(256, dtype=np.uint8)[None]
    for op, b in (("Add", 255), ("Add", 7), ("Mul", 129), ("Mul", 64)):  # sums and products that lie in the middle between two codes
        scales = {"as": half, "az": np.uint8(128), "b": np.uint8([[b]]), "bs": quarter if op == "Add" else np.float32(0.5), "bz": np.uint8(0), "ys": half, "yz": np.uint8(100)}
        c.op(f"ties_of_{op}_{b}", f"QLinear{op}", {"a": all_codes}, scales, domain="com.microsoft", out=TensorProto.UINT8)

    nan = np.float32([np.nan, -1, 2, np.nan, -0.0, 0, np.inf, -np.inf, 0.25])
    other = np.float32([1, np.nan, np.nan, np.nan, 0.5, -0.5, np.nan, np.nan, 0.125])
    for op in ("Relu", "HardSigmoid", "HardSwish", "LeakyRelu", "Sign"):
        c.op(f"nan_{op}", op, {"x": nan})
    c.op("nan_Clip", "Clip", {"x": nan}, {"lo": np.float32(-0.5), "hi": np.float32(1)})
    c.op("nan_Clip_positive", "Clip", {"x": nan}, {"lo": np.float32(0.5), "hi": np.float32(6)})
    for op in ("Max", "Min"):
        c.op(f"nan_{op}", op, {"x": nan, "z": other})
        c.op(f"nan_{op}_constant", op, {"x": nan}, {"z": np.float32(0.5)})
        c.op(f"nan_{op}_constant_first", op, {"x": nan}, {"z": np.float32(0)}, order=["z", "x"])
        c.op(f"nan_{op}_64", op, {"x": nan.astype(np.float64), "z": other.astype(np.float64)}, out=TensorProto.DOUBLE)


def language(c):
    """Weights of a few bits, and attention whose heads of keys several heads of queries share, behind a cache of four."""
    ms = dict(domain="com.microsoft", rel=1e-4)
    for bits, block, zeros in ((4, 16, False), (4, 32, True), (8, 16, True)):
        k, n = 40, 3
        blocks = -(-k // block)
        constants = {"b": c.codes(np.uint8, n, blocks, block * bits // 8), "s": c.real(n * blocks)}
        if zeros:
            constants["z"] = c.codes(np.uint8, n * -(-blocks * bits // 8))
        c.op(f"MatMulNBits_{bits}_{block}", "MatMulNBits", {"a": c.real(2, k)}, constants, K=k, N=n, bits=bits, block_size=block, **ms)
    angles = np.linspace(0, 3, 64).reshape(8, 8).astype(np.float32)
    for steps, past in ((1, 4), (3, 4), (3, 0)):
        heads = {"q": c.real(1, steps, 64), "k": c.real(1, steps, 32), "v": c.real(1, steps, 32)}
        cache = {"pk": c.real(1, 2, past, 16), "pv": c.real(1, 2, past, 16)} if past else {}
        constants = {"last": np.int32([steps + past - 1]), "total": np.int32(steps + past), "cos": np.cos(angles), "sin": np.sin(angles)}
        c.op(f"GroupQueryAttention_{steps}_{past}", "GroupQueryAttention", {**heads, **cache}, constants, outputs=3,
             order=["q", "k", "v", *(cache or ["", ""]), *constants], num_heads=4, kv_num_heads=2, do_rotary=1, **ms)


FAMILIES = (index, math, recurrent, sample, signal, attention, loss, loops, microsoft, transformer, numerics, language)
