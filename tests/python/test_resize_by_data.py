"""Resize to sizes that data decide, with a bound that is given or that shapes give: equal to ONNX Runtime's for every size up to the bound."""
import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import octavo

ort = pytest.importorskip("onnxruntime")

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node
MOST = 13


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, outputs, constants, inputs=()):
    initializers = [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    inputs = [value("x", F32, [1, 2, 5, 7]), value("flags", F32, [100]), *inputs]
    made = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, initializers), opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 9
    onnx.checker.check_model(made)
    return made.SerializeToString()


#: n: how many flags are set.
COUNT = [node("Greater", ["flags", "half"], ["is"]), node("Cast", ["is"], ["ones"], to=I64), node("ReduceSum", ["ones", "zero"], ["n"], keepdims=1)]
CONSTANTS = {"half": np.float32(0.5), "zero": np.int64([0]), "first": np.int64([1, 2])}


def resized(mode, coordinates, nearest="round_prefer_floor", tail=(), **constants):
    sizes = [node("Add", ["n", "two"], ["n2"]), node("Concat", ["first", "n", "n2"], ["sizes"], axis=0)]
    resize = node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode, coordinate_transformation_mode=coordinates, nearest_mode=nearest)
    last = tail[-1].output[0] if tail else "y"
    return model([*COUNT, *sizes, resize, *tail], [value(last, F32, [1, None, "h", "w"])], {**CONSTANTS, "two": np.int64([2]), **constants})


def feed_of(n):
    rng = np.random.default_rng(n)
    flags = np.zeros(100, np.float32)
    flags[rng.permutation(100)[:n]] = 1
    return {"x": rng.standard_normal((1, 2, 5, 7)).astype(np.float32), "flags": flags}


def same(data, engine, n, what):
    feed = feed_of(n)
    want = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    got = np.asarray(next(iter(engine.run(feed).values())))
    assert got.shape == want.shape, what
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=what)


COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
CASES = [("nearest", c, n) for c, n in itertools.product(COORDINATES, ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])] + [
    ("linear", c, "round_prefer_floor") for c in COORDINATES]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_results_are_onnxruntimes(case):
    data = resized(*case)
    engine = octavo.build(data, effort=0, max_elements={"n": MOST})
    for n in (1, 2, 5, 7, 10, MOST):
        same(data, engine, n, f"{case} to {n} x {n + 2}")


def test_a_convolution_behind_it_is_refused_by_name():
    tail = [node("Conv", ["y", "k"], ["z"])]
    with pytest.raises(octavo.UnsupportedError, match="dimension 2"):
        octavo.build(resized("nearest", "half_pixel", tail=tail, k=np.ones((3, 2, 1, 1), np.float32)), effort=0, max_elements={"n": MOST})


def test_a_run_that_needs_more_is_an_error():
    engine = octavo.build(resized("linear", "half_pixel"), effort=0, max_elements={"n": MOST})
    with pytest.raises(octavo.InputError, match='size of "n" 14.*at most 13'):
        engine.run(feed_of(MOST + 1))


def test_without_a_bound_it_is_refused_by_name():
    nodes = [node("Greater", ["flags", "half"], ["is"]), node("Cast", ["is"], ["ones"], to=I64), node("CumSum", ["ones", "at"], ["sums"]),
             node("Gather", ["sums", "first"], ["some"]), node("Concat", ["first", "some"], ["sizes"], axis=0),
             node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")]
    with pytest.raises(octavo.UnsupportedError, match=r"--max-elements y=N"):
        octavo.build(model(nodes, [value("y", F32, ["a", "b", "h", "w"])], {**CONSTANTS, "at": np.int64(0)}), effort=0)


def test_scales_are_refused_by_name():
    nodes = [node("Sigmoid", ["flags"], ["s"]), node("Slice", ["s", "zero", "four"], ["scales"]), node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    with pytest.raises(octavo.UnsupportedError, match="give sizes.*--max-elements y=N"):
        octavo.build(model(nodes, [value("y", F32, ["a", "b", "h", "w"])], {**CONSTANTS, "four": np.int64([4])}), effort=0)


def test_modes_that_it_does_not_have_are_named():
    with pytest.raises(octavo.UnsupportedError, match='mode "cubic"'):
        octavo.build(resized("cubic", "half_pixel"), effort=0, max_elements={"n": MOST})
