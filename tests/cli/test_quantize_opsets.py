"""octavo quantize of models of older opsets, which are carried over to opset 13."""
import json

import numpy as np
import onnx
from onnx import helper, numpy_helper
import pytest
from ort_exact import LEVELS, exact_session
from quantizing import quantize, run


def test_a_model_of_opset_11_is_carried_over(tmp_path):
    """Split, Squeeze and Clip, whose attributes became inputs, a Resize whose empty scales opset 13 forbids beside sizes, and a Softmax over
    one dimension and over two."""
    def model(path, axis):
        h, f32 = onnx.helper, np.float32
        nodes = [h.make_node("Conv", ["image", "w"], ["c"]), h.make_node("Clip", ["c", "zero", "six"], ["d"]),
                 h.make_node("Split", ["d"], ["a", "b"], axis=1, split=[1, 3]), h.make_node("Conv", ["b", "v"], ["e"]),
                 h.make_node("Squeeze", ["e"], ["s"], axes=[1]), h.make_node("Softmax", ["s"], ["p"], axis=axis),
                 h.make_node("Resize", ["a", "none", "none", "sizes"], ["r"], mode="nearest")]
        values = [onnx.numpy_helper.from_array(np.array([1, 1, 32, 32]), "sizes"), onnx.numpy_helper.from_array(np.zeros(0, f32), "none")]
        values += [onnx.numpy_helper.from_array(v.astype(f32), n) for n, v in (
            ("w", np.linspace(-1, 2, 4).reshape(4, 1, 1, 1)), ("v", np.linspace(1, 2, 3).reshape(1, 3, 1, 1)), ("zero", np.array(0)),
            ("six", np.array(6)))]
        graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("image", 1, [1, 1, 16, 16]), h.make_tensor_value_info("none", 1, [0])],
                             [h.make_tensor_value_info("p", 1, [1, 16, 16]), h.make_tensor_value_info("a", 1, [1, 1, 16, 16]),
                              h.make_tensor_value_info("r", 1, [1, 1, 32, 32])], values)
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 11)], ir_version=7), path)

    model(tmp_path / "m.onnx", -1)
    quantize(tmp_path / "q.onnx", "--report", tmp_path / "r", model=tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    exact_session(tmp_path / "q.onnx", LEVELS.ORT_DISABLE_ALL)  # ONNX Runtime takes it, too
    assert made.opset_import[0].version == 13 and json.loads((tmp_path / "r").read_text())["sqnr_db"] > 30
    model(tmp_path / "old.onnx", 1)  # over two dimensions
    assert "opset 11 became 13" in quantize(tmp_path / "old.q.onnx", "--report", tmp_path / "r", model=tmp_path / "old.onnx").stdout
    onnx.checker.check_model(onnx.load(tmp_path / "old.q.onnx"), full_check=True)
    assert json.loads((tmp_path / "r").read_text())["sqnr_db"] > 30


def older(opset, tail, path):
    """A convolution, which is quantized, and `tail` behind it in a file of this opset."""
    h = onnx.helper
    w = np.linspace(-1, 1, 4 * 9).reshape(4, 1, 3, 3).astype(np.float32)
    values = [onnx.numpy_helper.from_array(w, "w"), *(onnx.numpy_helper.from_array(v, n) for n, v in tail[1].items())]
    graph = h.make_graph([h.make_node("Conv", ["image", "w"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]), *tail[0]], "g",
                         [h.make_tensor_value_info("image", 1, [1, 1, 16, 16])], [h.make_tensor_value_info("y", 1, [None] * (3 if tail[0][-1].op_type == "Squeeze" else 4))], values)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=4), path)


NODE = onnx.helper.make_node
OLDER = {
    "softmax of one dimension": (9, [NODE("Softmax", ["c"], ["y"], axis=3)], {}),
    "softmax of three": (12, [NODE("Softmax", ["c"], ["y"])], {}),
    "log_softmax of two": (11, [NODE("LogSoftmax", ["c"], ["y"], axis=2)], {}),
    "hardmax, negative axis": (11, [NODE("Hardmax", ["c"], ["y"], axis=-2)], {}),
    "upsample 7": (7, [NODE("Upsample", ["c"], ["y"], mode="nearest", scales=[1.0, 1.0, 2.0, 3.0])], {}),
    "upsample 9 linear": (9, [NODE("Upsample", ["c", "s"], ["y"], mode="linear")], {"s": np.array([1, 1, 2, 2], np.float32)}),
    "resize 10 up": (10, [NODE("Resize", ["c", "s"], ["y"], mode="nearest")], {"s": np.array([1, 1, 1.5, 2], np.float32)}),
    "resize 10 down": (10, [NODE("Resize", ["c", "s"], ["y"], mode="nearest")], {"s": np.array([1, 1, 0.6, 0.5], np.float32)}),
    "resize 10 linear": (10, [NODE("Resize", ["c", "s"], ["y"], mode="linear")], {"s": np.array([1, 1, 2, 2], np.float32)}),
    "batch norm, clip, pad and slice 7": (7, [
        NODE("BatchNormalization", ["c", "a", "b", "b", "a"], ["n"], spatial=1), NODE("Clip", ["n"], ["l"], min=-0.5, max=0.7),
        NODE("Pad", ["l"], ["p"], pads=[0, 0, 1, 1, 0, 0, 0, 1], value=0.25), NODE("Slice", ["p"], ["y"], axes=[2, 3], starts=[0, 1], ends=[7, 9])],
        {"a": np.linspace(0.5, 2, 4).astype(np.float32), "b": np.linspace(-1, 1, 4).astype(np.float32)}),
    "top_k 9": (9, [NODE("TopK", ["c"], ["y", "i"], k=3, axis=3)], {}),
    "scatter 10": (10, [NODE("Scatter", ["c", "at", "new"], ["y"], axis=1)],
                   {"at": np.array([[[[2]]]]), "new": np.array([[[[9]]]], np.float32)}),
    "reduce_sum and squeeze 11": (11, [NODE("ReduceSum", ["c"], ["r"], axes=[2], keepdims=1), NODE("Squeeze", ["r"], ["y"], axes=[2])], {}),
}


@pytest.mark.parametrize("name", OLDER)
def test_models_of_older_opsets_compute_what_they_did(name, tmp_path):
    """Without its pairs the quantized model is the float model in opset 13: ONNX Runtime gives both the same outputs."""
    opset, nodes, values = OLDER[name]
    older(opset, (nodes, values), tmp_path / "m.onnx")
    quantize(tmp_path / "q.onnx", "--no-equalization", "--no-bias-correction", "--rounding", "nearest", model=tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert made.opset_import[0].version == 13
    # out with the pairs: what is left is the float model in opset 13
    dequantized = {n.output[0]: n for n in made.graph.node if n.op_type == "DequantizeLinear"}
    rounded = {n.output[0]: n for n in made.graph.node if n.op_type == "QuantizeLinear"}
    plain = [n for n in made.graph.node if n.op_type not in ("QuantizeLinear", "DequantizeLinear")]
    original = {t.name: t for t in onnx.load(tmp_path / "m.onnx").graph.initializer}
    for node in plain:
        for i, read in enumerate(node.input):
            if read in dequantized and dequantized[read].input[0] in rounded:
                node.input[i] = rounded[dequantized[read].input[0]].input[0]
            elif read in dequantized:
                node.input[i] = "w"
    del made.graph.node[:]
    made.graph.node.extend(plain)
    if "w" not in {t.name for t in made.graph.initializer}:
        made.graph.initializer.append(original["w"])
    x = np.random.default_rng(1).random((1, 1, 16, 16), np.float32)
    ort = pytest.importorskip("onnxruntime")
    theirs, ours = (ort.InferenceSession(m).run(None, {"image": x})[0] for m in (str(tmp_path / "m.onnx"), made.SerializeToString()))
    np.testing.assert_array_equal(ours, theirs)


def test_what_later_opsets_cannot_say_is_refused_by_name(tmp_path):
    older(10, ([NODE("Resize", ["c", "s"], ["y"], "both_ways", mode="nearest")], {"s": np.array([1, 1, 2, 0.5], np.float32)}), tmp_path / "m.onnx")
    assert 'node "both_ways" cannot be carried over' in quantize(tmp_path / "q.onnx", model=tmp_path / "m.onnx", code=4).stderr
    older(6, ([NODE("Relu", ["c"], ["y"])], {}), tmp_path / "six.onnx")
    assert "version_converter" in quantize(tmp_path / "q.onnx", model=tmp_path / "six.onnx", code=4).stderr
