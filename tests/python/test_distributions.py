"""Distributions over a dimension that is no image's channels, as the bins of a box's sides in a detector's head: Softmax and what is computed of it
element by element keep the order of the operand, in which a distribution's elements lie side by side."""
import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper


def head(bins, height, width, axis):
    rng = np.random.default_rng(bins)
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    places = height * width
    shape = [1, 4, bins, places] if axis == 2 else [1, 2, places, bins]
    steps = np.arange(bins, dtype="float32").reshape([1, 1, bins, 1] if axis == 2 else [1, 1, 1, bins])
    constants = {"w": rng.standard_normal((4 * bins if axis == 2 else 2 * bins, 8, 1, 1)).astype("float32"), "shape": np.int64(shape), "steps": steps, "axes": np.int64([axis])}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Reshape", ["c", "shape"], ["r"]),
             helper.make_node("Softmax", ["r"], ["s"], axis=axis), helper.make_node("Mul", ["s", "steps"], ["m"]),
             helper.make_node("ReduceSum", ["m", "axes"], ["y"], keepdims=0)]
    out = [n for i, n in enumerate(shape) if i != axis]
    graph = helper.make_graph(nodes, "head", [value("x", [1, 8, height, width])], [value("y", out)], [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("bins", [5, 16, 17])
@pytest.mark.parametrize("axis", [2, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_equals_the_reference(bins, axis, threads):
    model = head(bins, 9, 13, axis)
    x = np.random.default_rng(1).standard_normal((1, 8, 9, 13)).astype("float32")
    engine = octavo.build(model, effort=0, threads=threads, timing_cache="none")
    np.testing.assert_allclose(engine.run(x)["y"], octavo.build(model, device="reference").run(x)["y"], rtol=2e-6)


def test_softmax_stores_as_it_reads():
    """No result of the head is stored with the elements of a distribution apart."""
    engine = octavo.build(head(16, 8, 8, 2), effort=0, threads=1, timing_cache="none")
    softmax = next(layer for layer in engine.layers if "softmax" in layer["tactic"])
    assert softmax["inputs"][0]["format"] is None and softmax["outputs"][0]["format"] is None  # neither channels nor places innermost
