"""Means of whole images whose channels are apart in memory, as those of a network input: they are added where they lie, without a copy."""
import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper


def build(kind, shape, **options):
    attributes = {"axes": list(range(2, len(shape)))} if kind == "ReduceMean" else {}
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    node = helper.make_node(kind, ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "mean", [value("x", shape)], [value("y", [*shape[:2], *[1] * (len(shape) - 2)])])
    return octavo.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), threads=2, timing_cache="none", effort=0, **options)


@pytest.mark.parametrize("kind", ["ReduceMean", "GlobalAveragePool"])
@pytest.mark.parametrize("shape", [[1, 32, 30, 41], [3, 5, 7, 7], [2, 3, 129], [1, 1, 8, 8], [1, 4, 3, 5, 6]])
def test_is_one_region_and_right(kind, shape):
    x = (np.random.default_rng(0).random(shape) + 1).astype("float32")
    engine = build(kind, shape)
    want = x.astype("float64").mean(tuple(range(2, len(shape))), keepdims=True)
    np.testing.assert_allclose(engine.run(x)["y"], want, rtol=3e-7)
    assert len(engine.layers) == 1
    assert "reference" not in engine.layers[0]["tactic"]


def test_an_image_with_channels_innermost_is_pooled():
    """The same operator behind a convolution, which stores channels innermost: no rows, a pool."""
    rng = np.random.default_rng(1)
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    w = numpy_helper.from_array(rng.standard_normal((16, 3, 3, 3)).astype("float32"), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("GlobalAveragePool", ["c"], ["y"])]
    graph = helper.make_graph(nodes, "pool", [value("x", [1, 3, 20, 20])], [value("y", [1, 16, 1, 1])], [w])
    engine = octavo.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), threads=1, timing_cache="none", effort=0,
                          disable=["fuse-conv-pool"])
    assert any("avg_pool" in layer["tactic"] for layer in engine.layers)
