"""Numbers at the edges, through whole engines: results with a size of their own, NaN, long sums, ties, scales below 0."""
from fractions import Fraction

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import octavo  # noqa: E402

F, S64, U8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8
NAN = np.float32(np.nan)


def model_of(nodes, feeds, outputs, constants=(), opset=17):
    nodes = [helper.make_node(op, ins, outs, name=f"{op}_{i}", domain=attrs.pop("domain", ""), **attrs) for i, (op, ins, outs, attrs) in enumerate(nodes)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
                              [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(constants).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=9)


def peer(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def ours(model, feeds, **options):
    options.setdefault("effort", 0)
    return octavo.build(model, timing_cache="none", **options).run(feeds)


# ---- results with a size of their own
BOXES = np.float32([[[0, 0, 1, 1], [0, .1, 1, 1.1], [0, -.1, 1, .9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]])
SCORES = np.float32([[[.9, .75, .6, .95, .5, .3]]])
LIMITS = {"k": np.int64([3]), "i": np.float32([.5]), "t": np.float32([.4])}
SELECT = ("NonMaxSuppression", ["b", "s", "k", "i", "t"], ["rows"], {})


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("least", [.4, .97, 0])
def test_suppression_returns_the_selected_rows(device, least):
    nodes = [SELECT, ("Gather", ["rows", "column"], ["boxes"], {"axis": 1}), ("Cast", ["rows"], ["real"], {"to": F}),
             ("Slice", ["rows", "one", "three", "one"], ["tail"], {}), ("Gather", ["rows", "two"], ["flat"], {"axis": 1})]
    feeds = {"b": BOXES, "s": SCORES}
    model = model_of(nodes, feeds, {"rows": S64, "boxes": S64, "real": F, "tail": S64, "flat": S64},
                     {**LIMITS, "t": np.float32([least]), "column": np.int64([2]), "one": np.int64([1]), "three": np.int64([3]), "two": np.int64(1)})
    expected, got = peer(model, feeds), ours(model, feeds, device=device)
    assert {n: a.shape for n, a in got.items()} == {n: a.shape for n, a in expected.items()}
    for name, a in expected.items():
        np.testing.assert_array_equal(got[name], a, err_msg=name)


def test_a_run_after_another_has_its_own_size():
    feeds = {"b": BOXES, "s": SCORES}
    engine = octavo.build(model_of([SELECT], feeds, {"rows": S64}, LIMITS), timing_cache="none", effort=0)
    assert [len(engine.run({"b": BOXES, "s": SCORES * f})["rows"]) for f in (1, .43, 0, 1)] == [2, 1, 0, 2]


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("least", [.4, .97, 0])
def test_what_reads_selected_rows_reads_these_alone(device, least):
    feeds = {"b": BOXES, "s": SCORES}
    nodes = [SELECT, ("Gather", ["rows", "column"], ["index"], {"axis": 1}), ("Squeeze", ["index", "one"], ["flat"], {}),
             ("Squeeze", ["b", "zero"], ["all"], {}), ("Gather", ["all", "flat"], ["chosen"], {"axis": 0}), ("ReduceSum", ["chosen", "zero"], ["sum"], {"keepdims": 0}),
             ("Concat", ["chosen", "all"], ["both"], {"axis": 0}), ("Shape", ["chosen"], ["shape"], {})]
    model = model_of(nodes, feeds, {"chosen": F, "sum": F, "both": F, "shape": S64},
                     {**LIMITS, "t": np.float32([least]), "column": np.int64([2]), "one": np.int64([1]), "zero": np.int64([0])})
    expected, got = peer(model, feeds), ours(model, feeds, device=device)
    for name, a in expected.items():
        assert got[name].shape == a.shape, name
        np.testing.assert_allclose(got[name], a, rtol=1e-6, atol=1e-5, err_msg=name)


def test_sizes_of_an_engine_file_and_of_places_for_results(tmp_path):
    nodes = [("NonZero", ["x"], ["where"], {}), ("Transpose", ["where"], ["pairs"], {"perm": [1, 0]}), ("GatherND", ["x", "pairs"], ["values"], {})]
    x = np.float32([[0, 1, 2], [0, 0, 3]])
    engine = octavo.build(model_of(nodes, {"x": x}, {"where": S64, "values": F}, {}), timing_cache="none", effort=0)
    engine.save(str(tmp_path / "m.engine"))
    for one in (engine, octavo.load(str(tmp_path / "m.engine"))):
        assert [(o["name"], tuple(o["shape"])) for o in one.outputs] == [("where", (2, 6)), ("values", (6,))]
        for factor, rows in ((1, 3), (0, 0), (1, 3)):
            got = one.run({"x": x * np.float32(factor)})
            np.testing.assert_array_equal(got["where"], np.array(np.nonzero(x * factor)))
            np.testing.assert_array_equal(got["values"], (x * factor)[np.nonzero(x * factor)])
            assert got["values"].shape == (rows,) and got["where"].flags.c_contiguous
        place = np.zeros(6, np.float32)
        got = one.run({"x": x}, outputs={"values": place})
        np.testing.assert_array_equal(got["values"], [1, 2, 3])
        np.testing.assert_array_equal(place[:3], [1, 2, 3])


def test_sizes_that_nothing_says_to_be_equal_are_refused_by_name():
    nodes = [("NonZero", ["x"], ["a"], {}), ("NonZero", ["y"], ["b"], {}), ("Add", ["a", "b"], ["c"], {})]
    feeds = {"x": np.float32([1, 0, 2]), "y": np.float32([0, 1, 2])}
    with pytest.raises(octavo.UnsupportedError, match='node "Add_2".*"a" and "b" have sizes that data decide .NonZero_0 and NonZero_1., and nothing says that they are equal'):
        octavo.build(model_of(nodes, feeds, {"c": S64}, {}))


# ---- NaN
X = np.float32([[NAN, -1, 2, NAN, -0.0, 0, np.inf, -np.inf, .25, 7]])
Y = np.float32([[1, NAN, NAN, NAN, .5, -.5, NAN, NAN, .125, 8]])
UNARY = {"Relu": {}, "HardSigmoid": {}, "HardSwish": {}, "LeakyRelu": {}, "Sigmoid": {}, "Tanh": {}, "Abs": {}}


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_nan_stays_nan_where_it_does_in_onnx_runtime(device):
    x, y = np.tile(X, (3, 7)), np.tile(Y, (3, 7))  # vectors and what remains
    nodes = [(op, ["x"], [op], dict(attrs)) for op, attrs in UNARY.items()]
    nodes += [("Clip", ["x", "lo", "hi"], ["clip"], {}), ("Clip", ["x", "half", "hi"], ["clip_above"], {})]
    for op in ("Max", "Min"):
        nodes += [(op, ["x", "y"], [op], {}), (op, ["x", "half"], [op + "_constant"], {}), (op, ["zero", "x"], [op + "_first"], {}), (op, ["x", "zero"], [op + "_zero"], {})]
    names = [n[2][0] for n in nodes]
    model = model_of(nodes, {"x": x, "y": y}, {n: F for n in names}, {"lo": np.float32(-.5), "hi": np.float32(3), "half": np.float32(.5), "zero": np.float32(0)})
    expected, got = peer(model, {"x": x, "y": y}), ours(model, {"x": x, "y": y}, device=device)
    for n in names:
        np.testing.assert_allclose(got[n], expected[n], rtol=1e-5, atol=1e-6, err_msg=n)


@pytest.mark.parametrize("cpu", ["portable", "avx2"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_nan_stays_nan_in_other_types_and_under_limits_of_instructions(dtype, cpu):
    x, y = np.tile(X, (3, 7)).astype(dtype), np.tile(Y, (3, 7)).astype(dtype)
    nodes = [("Relu", ["x"], ["relu"], {}), ("Clip", ["x", "lo", "hi"], ["clip"], {}), ("Abs", ["x"], ["abs"], {})]
    for op in ("Max", "Min"):
        nodes += [(op, ["x", "y"], [op], {}), (op, ["x", "half"], [op + "_constant"], {}), (op, ["half", "x"], [op + "_first"], {})]
    names = [n[2][0] for n in nodes]
    tensor = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of(nodes, {"x": x, "y": y}, dict.fromkeys(names, tensor), {"lo": dtype(-.5), "hi": dtype(3), "half": dtype(.5)})
    expected, got = peer(model, {"x": x, "y": y}), ours(model, {"x": x, "y": y}, cpu=cpu)
    for n in names:
        np.testing.assert_array_equal(got[n], expected[n], err_msg=n)
        assert np.isnan(got[n]).any(), n


@pytest.mark.parametrize("cpu", ["portable", "avx2"])
def test_nan_of_float32_under_limits_of_instructions(cpu):
    x, y = np.tile(X, (3, 7)), np.tile(Y, (3, 7))
    nodes = [(op, ["x"], [op], {}) for op in ("Relu", "HardSigmoid", "HardSwish", "LeakyRelu")] + [("Clip", ["x", "lo", "hi"], ["clip"], {})]
    nodes += [(op, pair, [f"{op}_{pair[0]}_{pair[1]}"], {}) for op in ("Max", "Min") for pair in (["x", "y"], ["x", "half"], ["half", "x"])]
    nodes += [(op, ["x"], [op], {"axes": [1]}) for op in ("ReduceMax", "ReduceMin")]
    names = [n[2][0] for n in nodes]
    model = model_of(nodes, {"x": x, "y": y}, dict.fromkeys(names, F), {"lo": np.float32(-.5), "hi": np.float32(3), "half": np.float32(.5)})
    expected, got = peer(model, {"x": x, "y": y}), ours(model, {"x": x, "y": y}, cpu=cpu)
    for n in names:
        if n.startswith("Reduce"):
            assert np.isnan(got[n]).all(), n  # every row has one; ONNX Runtime's result depends on where it is
        else:
            np.testing.assert_allclose(got[n], expected[n], rtol=1e-5, atol=1e-6, err_msg=n)
            assert np.isnan(got[n]).any(), n


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_reductions_of_a_nan_are_nan(op, device):
    x = np.random.default_rng(1).standard_normal((2, 19, 5, 33)).astype(np.float32)
    for k, at in enumerate([(0, 0, 0, 0), (0, 7, 4, 32), (1, 18, 2, 9), (1, 3, 0, 16)]):
        x[at] = NAN if k else np.inf
    nodes = [(op, ["x"], [f"y{i}"], {"axes": axes}) for i, axes in enumerate([[1], [3], [2, 3], [0], [0, 1, 2, 3]])]
    got = ours(model_of(nodes, {"x": x}, {n[2][0]: F for n in nodes}), {"x": x}, device=device)
    for _, _, (name,), attrs in nodes:
        expected = (np.max if op == "ReduceMax" else np.min)(x, axis=tuple(attrs["axes"]), keepdims=True)
        np.testing.assert_array_equal(got[name], expected, err_msg=f"{attrs}")


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("kernel", [1, 3])
def test_nan_passes_what_follows_a_layer(device, kernel):
    """Behind float convolutions and products, where Relu and Clip are part of the layer's own loop; and behind an int8 convolution with a float residual."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 16, 12, 12)).astype(np.float32)
    r = rng.standard_normal((1, 32, 12, 12)).astype(np.float32)
    x[0, 3, 5, 5], r[0, 4, 1, 2] = NAN, NAN
    w, b = rng.standard_normal((32, 16, kernel, kernel)).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    same = {"pads": [kernel // 2] * 4}
    nodes = [("Conv", ["x", "w", "b"], ["c"], dict(same)), ("Relu", ["c"], ["relu"], {}),
             ("Conv", ["x", "w", "b"], ["c2"], dict(same)), ("Clip", ["c2", "zero", "six"], ["clip"], {}),
             ("QuantizeLinear", ["x", "s", "z"], ["q"], {}), ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
             ("DequantizeLinear", ["wq", "s"], ["wd"], {}), ("Conv", ["d", "wd"], ["c3"], dict(same)), ("Add", ["c3", "r"], ["a"], {}), ("Relu", ["a"], ["residual"], {}),
             ("QuantizeLinear", ["residual", "s", "z"], ["rq"], {}), ("DequantizeLinear", ["rq", "s", "z"], ["codes"], {}),
             ("Reshape", ["x", "flat"], ["xf"], {}), ("MatMul", ["xf", "m"], ["p"], {}), ("Relu", ["p"], ["product"], {})]
    feeds = {"x": x, "r": r}
    outputs = {n: F for n in ("relu", "clip", "residual", "codes", "product")}
    model = model_of(nodes, feeds, outputs,
                     {"w": w, "b": b, "zero": np.float32(0), "six": np.float32(6), "s": np.float32(.05), "z": np.uint8(128), "wq": np.int8(rng.integers(-99, 99, w.shape)),
                      "flat": np.int64([16, 144]), "m": rng.standard_normal((144, 40)).astype(np.float32)})
    expected, got = peer(model, feeds), ours(model, feeds, device=device)
    for n in outputs:
        if n != "codes":  # ONNX leaves open what code a NaN has; here it is that of 0
            assert np.isnan(expected[n]).any()
            np.testing.assert_array_equal(np.isnan(got[n]), np.isnan(expected[n]), err_msg=n)
    assert got["codes"][0, 4, 1, 2] == 0
    assert octavo.check(model, feeds, effort=0, timing_cache="none")["ok"]


def test_nonfinite_numbers_are_counted_where_they_begin():
    x = np.float32([[1, 0, -1, 4]])
    nodes = [("Log", ["x"], ["l"], {}), ("MatMul", ["l", "m"], ["p"], {}), ("Relu", ["p"], ["y"], {})]
    engine = octavo.build(model_of(nodes, {"x": x}, {"y": F}, {"m": np.ones((4, 3), np.float32)}), timing_cache="none", effort=0)
    assert engine.nonfinite({"x": np.float32([[1, 2, 3, 4]])}) == []
    found = engine.nonfinite({"x": x})
    assert found[0]["nan"] == 1 and found[0]["infinite"] == 1 and found[0]["elements"] == 4 and found[0]["nodes"] == ["Log_0"], found
    assert [t["nan"] for t in found[1:]] == [3] * len(found[1:]), found
    assert engine.nonfinite({"x": np.float32([[1, NAN, 3, 4]])})[0] == {"tensor": "x", "nodes": [], "nan": 1, "infinite": 0, "elements": 4}


# ---- long sums
def test_long_sums_are_as_exact_as_onnx_runtimes():
    rng = np.random.default_rng(3)
    x = (rng.random((1, 24, 120, 160)) + 1).astype(np.float32)
    one, zero = np.ones(24, np.float32), np.zeros(24, np.float32)
    nodes = [("ReduceMean", ["x"], ["mean"], {"axes": [2, 3]}), ("ReduceSum", ["x", "axes"], ["sum"], {}), ("GlobalAveragePool", ["x"], ["pool"], {}),
             ("Transpose", ["x"], ["t"], {"perm": [0, 2, 3, 1]}), ("ReduceMean", ["t"], ["last"], {"axes": [1, 2]}), ("InstanceNormalization", ["x", "one", "zero"], ["norm"], {})]
    model = model_of(nodes, {"x": x}, {n: F for n in ("mean", "sum", "pool", "last", "norm")}, {"axes": np.int64([2, 3]), "one": one, "zero": zero})
    wide = x.astype(np.float64)
    mean = wide.mean((2, 3), keepdims=True)
    true = {"mean": mean, "sum": wide.sum((2, 3), keepdims=True), "pool": mean, "last": mean.transpose(0, 2, 3, 1),
            "norm": (wide - mean) / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-5)}
    theirs = peer(model, {"x": x})
    for device in ("cpu", "reference"):
        got = ours(model, {"x": x}, device=device)
        for n, t in true.items():
            error, theirs_error = (np.abs(r[n] - t).max() / np.abs(t).max() for r in (got, theirs))
            assert error <= max(2 * theirs_error, 2.0**-23), f"{device} {n}: {error:.1e}, ONNX Runtime's {theirs_error:.1e}"


# ---- ties, scales below 0, sizes nobody knows
@pytest.mark.parametrize("b", [255, 7, 101])
def test_ties_of_exact_sums_are_rounded_as_ties(b):
    sa, sb, sc, za, zc = np.float32(0.00784314), np.float32(0.00392157), np.float32(0.00784314), 128, 3
    a = np.arange(256, dtype=np.uint8)[None]
    model = model_of([("QLinearAdd", ["a", "sa", "za", "b", "sb", "zb", "sc", "zc"], ["c"], {"domain": "com.microsoft"})], {"a": a}, {"c": U8},
                     {"sa": sa, "za": np.uint8(za), "b": np.uint8([[b]]), "sb": sb, "zb": np.uint8(0), "sc": sc, "zc": np.uint8(zc)})
    exact = [min(255, max(0, round((Fraction(float(sa)) * (int(v) - za) + Fraction(float(sb)) * b) / Fraction(float(sc))) + zc)) for v in a[0]]
    np.testing.assert_array_equal(ours(model, {"a": a})["c"][0], np.uint8(exact))


def test_a_residual_of_codes_stays_in_the_convolutions_layer():
    """The codes of QLinearAdd are read with other scales than they were written with; that must not keep the layers apart."""
    x, w = np.uint8(np.arange(16 * 64).reshape(1, 16, 8, 8) % 256), np.int8(np.arange(16 * 16 * 9).reshape(16, 16, 3, 3) % 101 - 50)
    constants = {"w": w, "ws": np.float32(.01), "wz": np.int8(0), "xs": np.float32(.02), "xz": np.uint8(128), "ys": np.float32(.3), "yz": np.uint8(120), "as": np.float32(.25), "az": np.uint8(100)}
    conv = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    nodes = [("QLinearConv", conv, ["y"], {"pads": [1, 1, 1, 1]}), ("QLinearAdd", ["y", "ys", "yz", "x", "xs", "xz", "as", "az"], ["a"], {"domain": "com.microsoft"}),
             ("QLinearConv", ["a", "as", "az", *conv[3:]], ["z"], {"pads": [1, 1, 1, 1]})]
    model = model_of(nodes, {"x": x}, {"z": U8}, constants)
    engine = octavo.build(model, timing_cache="none", effort=0)
    assert len(engine.layers) <= 2 + 2, [layer["name"] for layer in engine.layers]  # and copies at the ends
    assert np.abs(np.int32(engine.run({"x": x})["z"]) - np.int32(peer(model, {"x": x})["z"])).max() <= 1


def test_weights_with_scales_below_0_run_in_integers():
    x = np.uint8(np.arange(8 * 36).reshape(1, 8, 6, 6) % 256)
    w = np.int8(np.arange(8 * 8 * 9).reshape(8, 8, 3, 3) % 256 - 128)
    nodes = [("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], {"pads": [1, 1, 1, 1]})]
    model = model_of(nodes, {"x": x}, {"y": U8}, {"xs": np.float32(.02), "xz": np.uint8(128), "w": w, "ws": np.float32([.01, -.01, .02, -.03, .01, -.02, .01, -.01]), "wz": np.zeros(8, np.int8),
                                                  "ys": np.float32(.9), "yz": np.uint8(120)})
    exact = np.pad(x.astype(np.float64) - 128, ((0, 0), (0, 0), (1, 1), (1, 1)))
    scale = np.float64(np.float32([.01, -.01, .02, -.03, .01, -.02, .01, -.01])) * np.float64(np.float32(.02))
    windows = np.lib.stride_tricks.sliding_window_view(exact, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64)) * scale[None, :, None, None] / np.float64(np.float32(.9))
    got = ours(model, {"x": x})["y"]
    near_tie = np.abs(y - np.floor(y) - .5) < 1e-4
    np.testing.assert_array_equal(got[~near_tie], np.clip(np.rint(y) + 120, 0, 255).astype(np.uint8)[~near_tie])


def test_question_marks_are_dimensions_of_their_own():
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", F, ["?", 3, "?", "?"])],
                              [helper.make_tensor_value_info("y", F, ["?", 3, "?", "?"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    engine = octavo.build(model, timing_cache="none", effort=0)
    for shape in ((1, 3, 4, 9), (2, 3, 5, 5)):
        assert engine.run({"x": -np.ones(shape, np.float32)})["y"].shape == shape
