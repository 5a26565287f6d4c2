"""Products of floats by constant weights of a few bits, in every form that models carry them: each keeps its codes, and gives what ONNX Runtime gives."""
import subprocess

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import octavo  # noqa: E402

ROWS, DEPTH, COLUMNS, BLOCK = 3, 96, 40, 32
BLOCKS = DEPTH // BLOCK


def packed(codes):
    """Two codes of 4 bits a byte, the first in the low half."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def small(name, kind, codes):
    """A tensor of 4-bit integers."""
    flat = np.asarray(codes).reshape(-1).astype(np.uint8) & 15
    return helper.make_tensor(name, kind, codes.shape, packed(np.append(flat, np.zeros(flat.size % 2, np.uint8))).tobytes(), raw=True)


def model_of(form):
    """(model, codes[bits, block, one zero point])"""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 16, (DEPTH, COLUMNS)).astype(np.uint8)
    scales = (rng.random((BLOCKS, COLUMNS)) * 0.1 + 0.01).astype(np.float32)
    zeros = rng.integers(0, 16, (BLOCKS, COLUMNS)).astype(np.uint8)
    array, constants, nodes, said, opset = numpy_helper.from_array, [], [], f"codes[4,{BLOCK},0]", 21
    if form.startswith("MatMulNBits"):
        constants = [array(packed(codes.T.reshape(COLUMNS, BLOCKS, BLOCK)), "w"), array(scales.T.reshape(-1).copy(), "s")]
        if form.endswith("zeros"):
            constants.append(array(packed(np.pad(zeros.T, [(0, 0), (0, 1)])).reshape(-1), "z"))
        else:
            said = f"codes[4,{BLOCK},1]"
        attributes = {"K": DEPTH, "N": COLUMNS, "bits": 4, "block_size": BLOCK}
        nodes = [helper.make_node("MatMulNBits", ["x"] + [c.name for c in constants], ["p"], name="product", domain="com.microsoft", **attributes)]
    else:
        attributes = {"axis": 0, "block_size": BLOCK}
        if form == "u4 blocks":
            constants = [small("w", TensorProto.UINT4, codes), array(scales, "s"), small("z", TensorProto.UINT4, zeros)]
        elif form == "s4 blocks":
            constants, said = [small("w", TensorProto.INT4, codes), array(scales, "s")], f"codes[4,{BLOCK},1]"
        elif form == "s4 columns":
            constants, attributes, said = [small("w", TensorProto.INT4, codes), array(scales[0], "s")], {"axis": 1}, f"codes[4,{DEPTH},1]"
        elif form == "u8 columns":
            wide = rng.integers(0, 256, (DEPTH, COLUMNS)).astype(np.uint8)
            constants, attributes = [array(wide, "w"), array(scales[0], "s"), array(zeros[0], "z")], {"axis": 1}
            said = f"codes[8,{DEPTH},0]"
        else:  # s8, one scale
            wide = rng.integers(-128, 128, (DEPTH, COLUMNS)).astype(np.int8)
            constants, attributes, said = [array(wide, "w"), array(np.float32(0.02), "s")], {}, f"codes[8,{DEPTH},1]"
        nodes = [helper.make_node("DequantizeLinear", [c.name for c in constants], ["d"], name="weights", **attributes),
                 helper.make_node("MatMul", ["x", "d"], ["p"], name="product")]
    nodes.append(helper.make_node("Relu", ["p"], ["y"], name="relu"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, [ROWS, DEPTH])], [value("y", TensorProto.FLOAT, [ROWS, COLUMNS])], constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), said


FORMS = ["MatMulNBits", "MatMulNBits zeros", "u4 blocks", "s4 blocks", "s4 columns", "u8 columns", "s8"]


def pinned(times, model):
    """Builds with the kernel that keeps codes, whichever is fastest; returns the engine and the region's key."""
    octavo.build(model, device="cpu", timing_cache=times)
    lines = times.read_text(encoding="utf-8").splitlines()
    keys = {}
    for i, line in enumerate(lines):
        key = (line.split()[1], line.split(" | ")[-1])  # threads too: a plan may run an image a thread
        if " cpu.linear.f32.codes." in line and key not in keys:
            keys[key] = lines[i] = line.replace(" us ", " us pin ", 1)
    times.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return octavo.build(model, device="cpu", timing_cache=times), [key for _, key in keys]


@pytest.mark.parametrize("form", FORMS)
def test_weights_stay_codes(form, tmp_path):
    model, said = model_of(form)
    feeds = {"x": np.random.default_rng(4).standard_normal((ROWS, DEPTH)).astype(np.float32)}
    options = onnxruntime.SessionOptions()  # optimizations round x to 8 bits in front of some of these
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    engine, keys = pinned(tmp_path / "times.txt", model)
    assert keys and all(said in key for key in keys)
    [layer] = engine.layers
    assert layer["tactic"].startswith("cpu.linear.f32.codes.")
    assert layer["onnx_nodes"] == sorted(node.name for node in model.graph.node)
    np.testing.assert_allclose(engine.run(feeds)["y"], expected, rtol=1e-4, atol=1e-4)
    engine.save(tmp_path / "codes.octavo")
    loaded = octavo.load(tmp_path / "codes.octavo")
    np.testing.assert_array_equal(loaded.run(feeds)["y"], engine.run(feeds)["y"])


def large(rows, depth=1024, columns=256):
    """A model of one product, and its feed."""
    rng = np.random.default_rng(1)
    weights = numpy_helper.from_array(rng.integers(0, 256, (columns, depth // 32, 16)).astype(np.uint8), "w")
    scales = numpy_helper.from_array((rng.random(columns * depth // 32) * 0.01).astype(np.float32), "s")
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=depth, N=columns, bits=4, block_size=32)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, [rows, depth])], [value("y", TensorProto.FLOAT, [rows, columns])], [weights, scales])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


def test_an_engine_holds_codes_instead_of_floats(tmp_path):
    """Half a byte a weight, and four for the scale of a block."""
    model = large(1)
    engine, _ = pinned(tmp_path / "times.txt", model)
    engine.save(tmp_path / "codes.octavo")
    constants = 1024 * 256 // 2 + 256 * 1024 // 32 * 4
    assert (tmp_path / "codes.octavo").stat().st_size < 2 * constants + len(model.SerializeToString()) + 65536 < 1024 * 256 * 4


def test_rows_of_an_open_model(tmp_path):
    """The decisions of one number of rows serve the others, in registers and by unpacked floats."""
    model = large("rows")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pinned(tmp_path / "times.txt", large(4))
    engine = octavo.build(model, device="cpu", shapes={"x": [4, 1024]}, timing_cache=tmp_path / "times.txt")
    for built in (engine, octavo.build(model, device="cpu", timing_cache=tmp_path / "times.txt")):
        for rows in (4, 1, 8, 9, 200) if built is not engine else (4,):
            x = np.random.default_rng(rows).standard_normal((rows, 1024)).astype(np.float32)
            np.testing.assert_allclose(built.run({"x": x})["y"], session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
