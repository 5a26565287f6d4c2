"""Networks with the heads of YOLOX and NanoDet that quantize in a second, and data on which one choice of ranges is better than the other."""
import numpy as np
import onnx

SIDE, CLASSES, BINS, STRIDES = 64, 3, 4, (8, 16, 32)


def detector(path, head):
    """Convolution 3x3 and Relu; for each level a convolution over the cell's pixels, whose first class scores by the largest ones."""
    h, rng = onnx.helper, np.random.default_rng(1)
    nodes, weights, infos = [], [], []

    def conv(x, y, values, bias, **attributes):
        weights.append(onnx.numpy_helper.from_array(values.astype(np.float32), f"{y}.w"))
        weights.append(onnx.numpy_helper.from_array(bias.astype(np.float32), f"{y}.b"))
        nodes.append(h.make_node("Conv", [x, f"{y}.w", f"{y}.b"], [y], name=y, **attributes))

    first = 0.05 * rng.standard_normal((4, 1, 3, 3))
    first[0, 0, 1, 1] = 1
    conv("image", "first", first, np.zeros(4), pads=[1, 1, 1, 1])
    nodes.append(h.make_node("Relu", ["first"], ["features"]))
    levels = {}
    for s in STRIDES:
        for part, columns in {"yolox": {"all": 5 + CLASSES}, "nanodet": {"scores": CLASSES, "sides": 4 * BINS}}[head].items():
            values = 0.02 * rng.standard_normal((columns, 4, s, s)) * (8 / s)
            bias = np.zeros(columns)
            if part != "sides":  # one pixel of about 10 is an object of class 0
                of = {"yolox": [4, 5], "nanodet": [0]}[head]
                values[of, 0] = 0.5 * (8 / s) ** 2
                bias[-CLASSES:] = -6
                bias[of] = -6 if s == 8 else -12
            conv("features", f"{part}{s}", values, bias, kernel_shape=[s, s], strides=[s, s])
            shape = np.array([1, columns, (SIDE // s) ** 2])
            weights.append(onnx.numpy_helper.from_array(shape, f"{part}{s}.shape"))
            nodes.append(h.make_node("Reshape", [f"{part}{s}", f"{part}{s}.shape"], [f"{part}{s}.flat"]))
            nodes.append(h.make_node("Transpose", [f"{part}{s}.flat"], [f"{part}{s}.cells"], perm=[0, 2, 1]))
            levels.setdefault(part, []).append(f"{part}{s}.cells")
    if head == "yolox":
        for i, (start, end) in enumerate(((0, 4), (4, 5 + CLASSES))):
            weights += [onnx.numpy_helper.from_array(np.array([v]), f"{name}{i}") for name, v in (("start", start), ("end", end), ("axis", 2))]
        nodes += [h.make_node("Concat", levels["all"], ["cells"], axis=1), h.make_node("Slice", ["cells", "start0", "end0", "axis0"], ["boxes"]),
                  h.make_node("Slice", ["cells", "start1", "end1", "axis1"], ["logits"]), h.make_node("Sigmoid", ["logits"], ["scores"]),
                  h.make_node("Concat", ["boxes", "scores"], ["out"], axis=2)]
        infos.append(h.make_tensor_value_info("out", 1, [1, sum((SIDE // s) ** 2 for s in STRIDES), 5 + CLASSES]))
    else:
        for s, name in zip(STRIDES, levels["scores"], strict=True):
            nodes.append(h.make_node("Sigmoid", [name], [f"cls{s}"]))
            infos.append(h.make_tensor_value_info(f"cls{s}", 1, [1, (SIDE // s) ** 2, CLASSES]))
        for s, name in zip(STRIDES, levels["sides"], strict=True):
            infos.append(h.make_tensor_value_info(name, 1, [1, (SIDE // s) ** 2, 4 * BINS]))
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("image", 1, [1, 1, SIDE, SIDE])], infos, weights)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


def samples(kind, count=8):
    """Noise of +-0.1 with objects. "rare": a bright pixel in two samples, which ranges by what the layers' sampled rows show clip.
    "outliers": objects of many middling pixels in every sample, and one dark pixel that is far out and means nothing. "none": no object."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-0.1, 0.1, (count, 1, SIDE, SIDE)).astype(np.float32)
    if kind == "rare":
        x[1, 0, 20, 28] = x[6, 0, 43, 51] = 14
    if kind == "outliers":
        for i in range(count):
            x[i, 0, 8 * i:8 * i + 8, 16:24] = rng.uniform(0.1, 0.3, (8, 8))
        x[3, 0, 60, 60] = -40
    return x
