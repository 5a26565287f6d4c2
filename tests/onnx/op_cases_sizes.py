"""Results whose sizes data decide, and what stands behind them. A family of op_cases.py. Each model runs on data that select nothing, something and everything."""
import numpy as np
from onnx import TensorProto, helper

F, S32, S64, BOOL, U8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8
node = helper.make_node


def masks(count):
    """Nothing, every third element, everything."""
    some = np.arange(count) % 3 == 1
    return {"none": np.zeros(count, bool), "some": some, "all": np.ones(count, bool)}


def sizes(c):
    real = np.linspace(-1.5, 2, 12).astype(np.float32)
    x = {"x": real.reshape(3, 4)}
    for name, mask in masks(12).items():
        m = mask.reshape(3, 4)
        for kind in (np.bool_, np.float32, np.int64, np.uint8, np.int32):
            c.op(f"non_zero_{name}_{np.dtype(kind).name}", "NonZero", {"m": m.astype(kind)}, opset=13, out=S64)
        c.op(f"non_zero_1_{name}", "NonZero", {"m": mask}, opset=13, out=S64)
        c.op(f"non_zero_3_{name}", "NonZero", {"m": mask.reshape(2, 3, 2)}, opset=13, out=S64)
        c.op(f"compress_{name}", "Compress", {**x, "k": mask[:4]}, opset=11, axis=1)
        c.op(f"compress_short_{name}", "Compress", {**x, "k": mask[:2]}, opset=11, axis=0)
        c.op(f"compress_flat_{name}", "Compress", {**x, "k": mask}, opset=11)
        where = [node("NonZero", ["m"], ["nz"]), node("Transpose", ["nz"], ["t"], perm=[1, 0]), node("GatherND", ["x", "t"], ["v"])]
        both = {**x, "m": m}

        def behind(what, nodes, outputs, constants=(), feeds=None, **more):
            c.graph(f"{what}_{name}", where + nodes, feeds or both, outputs, constants, **{"opset": 17, **more})

        behind("gather_nd", [], {"v": F, "t": S64})
        behind("pointwise", [node("Mul", ["v", "v"], ["w"]), node("Add", ["w", "one"], ["u"]), node("Relu", ["u"], ["y"]), node("Cast", ["v"], ["i"], to=S32)], {"y": F, "i": S32},
               {"one": np.float32([1])})
        behind("two_masks", [node("Less", ["x", "zero"], ["l"]), node("NonZero", ["l"], ["nz2"]), node("Gather", ["nz2", "first"], ["row"]), node("Cast", ["row"], ["r"], to=F)],
               {"v": F, "r": F}, {"zero": np.float32(0), "first": np.int64(0)})
        behind("shape", [node("Shape", ["v"], ["s"]), node("Size", ["nz"], ["n"]), node("Cast", ["s"], ["f"], to=F)], {"s": S64, "n": S64, "f": F})
        behind("reduce_sum", [node("ReduceSum", ["v"], ["y"], keepdims=0), node("ReduceL2", ["v"], ["l"], keepdims=1)], {"y": F, "l": F})
        behind("concat", [node("Concat", ["v", "a", "v"], ["y"], axis=0)], {"y": F}, {"a": np.float32([7, 8])})
        behind("concat_columns", [node("Unsqueeze", ["v", "one"], ["u"]), node("Mul", ["u", "u"], ["w"]), node("Concat", ["u", "w"], ["y"], axis=1)], {"y": F},
               {"one": np.int64([1])})
        behind("slice", [node("Slice", ["v", "b", "e"], ["y"]), node("Slice", ["v", "z", "b2"], ["h"]), node("Slice", ["v", "n2", "e"], ["t2"])], {"y": F, "h": F, "t2": F},
               {"b": np.int64([1]), "e": np.int64([2 ** 62]), "z": np.int64([0]), "b2": np.int64([-1]), "n2": np.int64([-2])})
        behind("top_k", [node("Shape", ["v"], ["s"]), node("Min", ["s", "three"], ["k"]), node("TopK", ["v", "k"], ["y", "i"]), node("Gather", ["v", "i"], ["g"])],
               {"y": F, "i": S64, "g": F}, {"three": np.int64([3])})
        behind("range", [node("Shape", ["v"], ["s"]), node("Squeeze", ["s"], ["n"]), node("Range", ["zero", "n", "two"], ["y"])], {"y": S64},
               {"zero": np.int64(0), "two": np.int64(2)})
        behind("constant_of_shape", [node("Shape", ["v"], ["s"]), node("ConstantOfShape", ["s"], ["z"]), node("Add", ["v", "z"], ["y"])], {"y": F})
        behind("expand", [node("Unsqueeze", ["v", "zero"], ["u"]), node("Shape", ["v"], ["s"]), node("Concat", ["three", "s"], ["to"], axis=0), node("Expand", ["u", "to"], ["y"]),
                          node("Expand", ["c", "s"], ["z"])], {"y": F, "z": F}, {"zero": np.int64([0]), "three": np.int64([3]), "c": np.float32([5])})
        behind("pad", [node("Shape", ["v"], ["s"]), node("Sub", ["twelve", "s"], ["rest"]), node("Concat", ["zero", "rest"], ["pads"], axis=0), node("Pad", ["v", "pads"], ["y"]),
                       node("Pad", ["v", "two", "half"], ["z"])], {"y": F, "z": F}, {"twelve": np.int64([12]), "zero": np.int64([0]), "two": np.int64([2, 1]), "half": np.float32(0.5)})
        behind("matmul", [node("Unsqueeze", ["v", "one"], ["u"]), node("MatMul", ["u", "w"], ["y"]), node("Transpose", ["u"], ["ut"]), node("MatMul", ["ut", "u"], ["z"])],
               {"y": F, "z": F}, {"one": np.int64([1]), "w": real[:5].reshape(1, 5)})
        behind("softmax", [node("Softmax", ["v"], ["y"], axis=0), node("CumSum", ["v", "axis"], ["z"]), node("CumSum", ["v", "axis"], ["r"], reverse=1)], {"y": F, "z": F, "r": F},
               {"axis": np.int64(0)})
        behind("scatter_nd", [node("Neg", ["v"], ["w"]), node("ScatterND", ["x", "t", "w"], ["y"])], {"y": F}, opset=16)
        behind("non_zero_again", [node("Greater", ["v", "zero"], ["g"]), node("NonZero", ["g"], ["nz2"]), node("Compress", ["v", "g"], ["y"], axis=0)], {"nz2": S64, "y": F},
               {"zero": np.float32(0.5)})
        behind("where", [node("Greater", ["v", "zero"], ["g"]), node("Where", ["g", "v", "zero"], ["y"])], {"y": F}, {"zero": np.float32(0)})
        rows = [node("NonZero", ["k"], ["nz"]), node("Squeeze", ["nz", "zero"], ["i"]), node("Gather", ["x", "i"], ["r"], axis=0)]
        image = np.linspace(-1, 1, 6 * 8).astype(np.float32).reshape(6, 2, 2, 2)
        feed = {"x": image, "k": mask[:6]}
        consts = {"zero": np.int64([0]), "flat": np.int64([-1]), "two": np.int64([-1, 2]), "keep": np.int64([0, -1])}
        c.graph(f"rows_reshape_{name}", rows + [node("Reshape", ["r", "flat"], ["y"]), node("Reshape", ["r", "two"], ["z"]), node("Flatten", ["r"], ["q"]), node("Reshape", ["q", "keep"], ["p"]) if name != "none" else node("Neg", ["q"], ["p"])],
                feed, {"y": F, "z": F, "p": F, "q": F}, consts)
        c.graph(f"rows_transpose_reshape_{name}", rows + [node("Transpose", ["r"], ["t"], perm=[1, 0, 2, 3]), node("Reshape", ["t", "flat"], ["y"]), node("Shape", ["t"], ["s"])],
                feed, {"y": F, "t": F, "s": S64}, consts)
        if name != "none":  # the known dimension first: as many rows as there are, 2, are the second one
            c.graph(f"rows_two_{name}", rows + [node("Shape", ["r"], ["s"]), node("Gather", ["s", "zero"], ["n"]), node("Concat", ["n", "eight"], ["to"], axis=0), node("Reshape", ["r", "to"], ["y"]),
                                              node("ReduceSum", ["y", "one"], ["p"])], feed, {"y": F, "p": F}, {**consts, "eight": np.int64([4, 2]), "one": np.int64([1])})
        c.graph(f"rows_reduce_{name}", rows + [node("ReduceMax", ["r"], ["y"], axes=[1, 2], keepdims=0), node("ReduceMean", ["r"], ["z"], axes=[3]), node("ArgMax", ["r"], ["a"], axis=1)],
                feed, {"y": F, "z": F, "a": S64}, consts)
        c.graph(f"rows_conv_{name}", rows + [node("Conv", ["r", "w"], ["y"], kernel_shape=[1, 1]), node("GlobalAveragePool", ["y"], ["z"]), node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2])],
                feed, {"y": F, "z": F, "p": F}, {**consts, "w": real[:6].reshape(3, 2, 1, 1)})
        c.graph(f"rows_elements_{name}", rows + [node("Flatten", ["r"], ["f"]), node("TopK", ["f", "k3"], ["v", "at"], axis=1), node("GatherElements", ["f", "at"], ["y"], axis=1),
                                                node("Gather", ["r", "last"], ["g"], axis=1)], feed, {"y": F, "v": F, "g": F}, {**consts, "k3": np.int64([3]), "last": np.int64(-1)})
        c.graph(f"rows_if_{name}", rows + [node("Size", ["i"], ["n"]), node("Equal", ["n", "none"], ["e"]),
                                          node("If", ["e"], ["y"], then_branch=helper.make_graph([node("Constant", [], ["ty"], value_floats=[3.0])], "a", [], [helper.make_tensor_value_info("ty", F, None)]),
                                               else_branch=helper.make_graph([node("Reshape", ["r", "flat"], ["ey"])], "b", [], [helper.make_tensor_value_info("ey", F, None)]))],
                feed, {"y": F}, {**consts, "none": np.int64(0)})
        rois = np.linspace(0, 1, 24).astype(np.float32).reshape(6, 4) * np.float32(1.5)
        c.graph(f"roi_align_{name}", [node("NonZero", ["k"], ["nz"]), node("Squeeze", ["nz", "zero"], ["i"]), node("Gather", ["b", "i"], ["r"], axis=0),
                                     node("Shape", ["i"], ["s"]), node("ConstantOfShape", ["s"], ["at"], value=helper.make_tensor("v", S64, [1], [1])),
                                     node("RoiAlign", ["x", "r", "at"], ["y"], output_height=2, output_width=2, sampling_ratio=2)],
                {"x": image, "b": rois, "k": mask[:6]}, {"y": F}, {"zero": np.int64([0])}, opset=16, rel=2e-4)
    for values in ("repeated", "equal", "different"):
        v = {"repeated": np.float32([2, 1, 1, 3, 4, 3, 1]), "equal": np.float32([5] * 7), "different": np.float32([4, 7, 1, 2, 9, 3, 8])}[values]
        for is_sorted in (0, 1):
            c.op(f"unique_{values}_{is_sorted}", "Unique", {"x": v}, opset=11, outputs=4, out=[F, S64, S64, S64], sorted=is_sorted)
            c.op(f"unique_s64_{values}_{is_sorted}", "Unique", {"x": v.astype(np.int64)}, opset=11, outputs=4, out=[S64] * 4, sorted=is_sorted)
            c.op(f"unique_axis_{values}_{is_sorted}", "Unique", {"x": np.stack([v[:4], v[:4], v[3:]])}, opset=11, outputs=4, out=[F, S64, S64, S64], sorted=is_sorted, axis=0)
        c.op(f"unique_columns_{values}", "Unique", {"x": np.stack([v, v[::-1], v])}, opset=11, outputs=4, out=[F, S64, S64, S64], axis=1)
    corner = np.float32([[0, 0], [0.1, 0.1], [2, 2], [2.1, 2], [5, 5], [9, 1]])
    boxes = np.concatenate([corner, corner + 1], -1)[None]
    scores = np.float32([[[0.9, 0.8, 0.7, 0.95, 0.3, 0.1], [0.2, 0.1, 0.6, 0.5, 0.4, 0.3]]])
    limits = {"n": np.int64([3]), "iou": np.float32([0.5])}
    keep = [node("NonMaxSuppression", ["b", "s", "n", "iou", "least"], ["y"]), node("Gather", ["y", "two"], ["i"], axis=1), node("Squeeze", ["i", "one"], ["k"]), node("Gather", ["bb", "k"], ["box"], axis=0),
            node("Squeeze", ["b", "zero"], ["bb"]), node("Slice", ["k", "zero", "one2"], ["first"]), node("Concat", ["box", "box"], ["wide"], axis=1)]
    for name, least in (("none", 1.0), ("some", 0.45), ("all", -1.0)):
        c.graph(f"suppression_{name}", [keep[0], *keep[1:3], keep[4], keep[3], *keep[5:]], {"b": boxes, "s": scores}, {"y": S64, "box": F, "first": S64, "wide": F},
                {**limits, "least": np.float32([least]), "two": np.int64([2]), "one": np.int64([1]), "zero": np.int64([0]), "one2": np.int64([2])})
        c.graph(f"suppression_batches_{name}", [node("NonMaxSuppression", ["b", "s", "n", "iou", "least"], ["y"])], {"b": np.concatenate([boxes, boxes + 1]), "s": np.concatenate([scores, scores[:, ::-1]])},
                {"y": S64}, {**limits, "least": np.float32([least])})
        # Only some boxes take part, as torchvision's detectors select them by score first.
        c.graph(f"suppression_of_some_{name}", [node("Greater", ["p", "least"], ["g"]), node("NonZero", ["g"], ["nz"]), node("Squeeze", ["nz", "zero"], ["i"]), node("Gather", ["b", "i"], ["bs"], axis=0),
                                               node("Gather", ["p", "i"], ["ps"], axis=0), node("Unsqueeze", ["bs", "zero"], ["b3"]), node("Unsqueeze", ["ps", "zero1"], ["p3"]),
                                               node("NonMaxSuppression", ["b3", "p3", "n", "iou"], ["y"])],
                {"b": boxes[0], "p": scores[0, 0]}, {"y": S64, "bs": F}, {**limits, "least": np.float32(least), "zero": np.int64([0]), "zero1": np.int64([0, 1])})


def sequence(c):
    x = {"x": np.linspace(-1, 1, 24).astype(np.float32).reshape(4, 6)}
    one, last = {"one": np.int64(1)}, {"last": np.int64(-1)}
    c.graph("at", [node("Neg", ["x"], ["n"]), node("SequenceConstruct", ["x", "n"], ["s"]), node("SequenceAt", ["s", "one"], ["a"]), node("SequenceAt", ["s", "last"], ["b"]), node("Add", ["a", "b"], ["y"])],
            x, {"y": F}, {**one, **last})
    c.graph("insert_erase", [node("Neg", ["x"], ["n"]), node("Abs", ["x"], ["p"]), node("SequenceEmpty", [], ["e"]), node("SequenceInsert", ["e", "x"], ["s1"]), node("SequenceInsert", ["s1", "n"], ["s2"]),
                             node("SequenceInsert", ["s2", "p", "zero"], ["s3"]), node("SequenceErase", ["s3", "one"], ["s4"]), node("Identity", ["s4"], ["s5"]), node("ConcatFromSequence", ["s5"], ["y"], axis=0),
                             node("SequenceLength", ["s5"], ["l"]), node("Cast", ["l"], ["lf"], to=F), node("Add", ["lf", "x"], ["z"])], x, {"y": F, "z": F}, {**one, "zero": np.int64(0)})
    for name, sizes_of, more in (("ones", None, {}), ("dropped", None, {"keepdims": 0}), ("equal", np.int64(4), {}), ("sizes", np.int64([1, 5]), {})):
        operands = ["x"] + ([] if sizes_of is None else ["sizes"])
        c.graph(f"split_{name}", [node("SplitToSequence", operands, ["s"], axis=1, **more), node("SequenceAt", ["s", "last"], ["y"]), node("SequenceAt", ["s", "zero"], ["z"])],
                x, {"y": F, "z": F}, {**last, "zero": np.int64(0), **({} if sizes_of is None else {"sizes": sizes_of})})
    c.graph("stack", [node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0), node("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=1)], x, {"y": F})


FAMILIES = (sizes, sequence)
