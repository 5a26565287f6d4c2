"""The Python package on the digits example: results, errors, threads, files, and life beside `import onnx`."""
import json
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]
QDQ = ROOT / "examples" / "digits" / "digits_qdq.onnx"
FLOAT = ROOT / "examples" / "digits" / "digits_fp32.onnx"


def pictures(n=1, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (n, 1, 16, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def engine():
    return octavo.build(QDQ, shapes={"image": (1, 1, 16, 16)}, threads=1, effort=0)


def test_runs_and_agrees_with_onnxruntime():
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(FLOAT.read_bytes(), providers=["CPUExecutionProvider"])
    x = pictures(4)
    ours = octavo.build(FLOAT).run({"image": x})
    assert list(ours) == ["head"]
    assert ours["head"].dtype == np.float32 and ours["head"].shape == (4, 10)
    np.testing.assert_allclose(ours["head"], session.run(None, {"image": x})[0], rtol=1e-4, atol=1e-4)


def test_path_str_bytes_and_proto_are_one_model(engine):
    onnx = pytest.importorskip("onnx")
    shapes = {"image": [1, 1, 16, 16]}
    for model in (str(QDQ), QDQ.read_bytes(), onnx.load(QDQ)):
        assert octavo.build(model, shapes=shapes, threads=1, effort=0).plan_hash == engine.plan_hash


def test_outputs_are_written_where_the_caller_wants_them(engine):
    x = pictures()
    mine = np.full((1, 10), np.nan, np.float32)
    engine.run(x, outputs={"head": mine})
    np.testing.assert_array_equal(mine, engine.run(x)["head"])
    with pytest.raises(octavo.InputError):
        engine.run(x, outputs={"head": np.empty((1, 9), np.float32)})


def test_layers_are_as_the_schema_says(engine):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = json.loads((ROOT / "docs/explain.schema.json").read_text())
    layers = json.loads(json.dumps(engine.layers))  # tuples become lists
    jsonschema.validate(layers, {"$ref": "#/$defs/layers", "$defs": schema["$defs"]})
    assert octavo.SCHEMA == schema["properties"]["schema"]["const"]


def test_facts(engine):
    assert engine.inputs == [{"name": "image", "dtype": "float32", "shape": (1, 1, 16, 16), "format": None, "scale": None, "zero_point": None,
                              "axis": None, "symbols": ("N", None, None, None)}]
    assert [o["name"] for o in engine.outputs] == ["head"]
    assert len(engine.plan_hash) == 32
    assert not engine.open and engine.threads == 1 and engine.device == "cpu"
    assert "image float32(1, 1, 16, 16)" in repr(engine)
    keys = {"name", "kind", "onnx_nodes", "inputs", "outputs", "tactic", "precision", "reason", "reasons", "alternatives", "seconds", "seconds_source", "other_types"}
    for layer in engine.layers:
        assert set(layer) == keys
        assert (layer["seconds"] is None) == (layer["seconds_source"] is None)
        assert layer["name"] and layer["tactic"] and layer["reason"] and layer["reasons"] and layer["onnx_nodes"]
    convs = [l for l in engine.layers if l["kind"].startswith("conv") and l["precision"] == "int8"]
    assert convs and all(c["inputs"][0]["dtype"] == "uint8" and c["inputs"][0]["scale"] > 0 for c in convs)


def test_open_shapes_do_not_hide_what_no_shape_cures():
    from onnx import helper
    graph = helper.make_graph([helper.make_node("TfIdfVectorizer", ["x"], ["y"], name="the_node")], "g",
                              [helper.make_tensor_value_info("x", 1, ["N", 4])], [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(octavo.UnsupportedError, match='TfIdfVectorizer .*node "the_node"'):
        octavo.build(model)


def test_profiles():
    def shape(n):
        return (n, 1, 16, 16)
    e = octavo.build(QDQ, profiles={"image": (shape(1), shape(2), shape(3))}, effort=0)
    assert e.open and e.layers  # opt is built
    assert e.run({"image": pictures(3)})["head"].shape == (3, 10)
    with pytest.raises(octavo.InputError, match="its profile goes from"):
        e.run({"image": pictures(4)})
    with pytest.raises(octavo.UsageError, match="three: min, opt, max"):
        octavo.build(QDQ, profiles={"image": [shape(1)]})


def test_open_shapes_bind_at_first_run():
    e = octavo.build(QDQ)
    assert e.open and e.inputs[0]["shape"] == (None, 1, 16, 16)
    assert e.outputs[0]["name"] == "head" and e.outputs[0]["shape"] == (None, 10)
    with pytest.raises(octavo.UsageError, match="open dimensions"):
        e.layers
    x = pictures(3)
    y = e.run({"image": x})["head"]
    assert e.layers
    np.testing.assert_array_equal(e.run({"image": x[1:2]})["head"][0], y[1])
    np.testing.assert_array_equal(e.at({"image": (3, 1, 16, 16)}).run({"image": x})["head"], y)
    assert not octavo.build(QDQ, default_batch=1).open


def test_any_layout_gives_the_same_result(engine):
    x = pictures()
    expected = engine.run({"image": x})["head"]
    wide = np.zeros((1, 1, 16, 32), np.float32)
    wide[..., ::2] = x
    fortran = np.asfortranarray(x)
    swapped = x.astype(">f4")
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    for other in (wide[..., ::2], fortran, swapped, unaligned, read_only):
        np.testing.assert_array_equal(engine.run({"image": other})["head"], expected)


def test_dlpack_only_objects(engine):
    class Exchange:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **arguments):
            return self.array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = pictures()
    np.testing.assert_array_equal(engine.run({"image": Exchange(x)})["head"], engine.run({"image": x})["head"])


def test_inputs_are_used_in_place_and_results_are_fresh(engine):
    x = pictures()
    a = engine.run({"image": x})["head"]
    before = a.copy()
    x[:] = 1 - x
    b = engine.run({"image": x})["head"]
    np.testing.assert_array_equal(a, before)  # the second run wrote elsewhere
    assert not np.array_equal(a, b)           # and saw the changed input


def test_reference_device_is_equal_bit_for_bit(engine):
    reference = octavo.build(QDQ, device="reference", shapes={"image": (1, 1, 16, 16)})
    x = pictures(seed=5)
    np.testing.assert_array_equal(reference.run({"image": x})["head"], engine.run({"image": x})["head"])
    assert all(layer["tactic"].startswith("reference.") for layer in reference.layers)


def test_save_and_load(engine, tmp_path):
    path = tmp_path / "digits.octavo"
    engine.save(path)
    first = path.read_bytes()
    octavo.build(QDQ, shapes={"image": (1, 1, 16, 16)}, threads=1, effort=0).save(path)
    assert path.read_bytes() == first
    for loaded in (octavo.load(path), octavo.Engine.load(str(path), threads=2)):
        assert loaded.plan_hash == engine.plan_hash
        assert loaded.layers == engine.layers
        x = pictures(seed=3)
        np.testing.assert_array_equal(loaded.run({"image": x})["head"], engine.run({"image": x})["head"])
    assert octavo.load(path, threads=2).threads == 2
    path.write_bytes(first[:-1])
    with pytest.raises(octavo.EngineFileError, match="truncated"):
        octavo.load(path)
    with pytest.raises(octavo.FileError, match="No such file"):
        octavo.load(tmp_path / "absent")


@pytest.mark.parametrize("call, error, text", [
    (lambda e: e.run({"image": pictures().astype(np.float64)}), octavo.InputError, 'input "image" is float64, the model wants float32'),
    (lambda e: e.run({"image": pictures(2)}), octavo.InputError, r"shape \(2, 1, 16, 16\), the engine was built for \(1, 1, 16, 16\)"),
    (lambda e: e.run({}), octavo.InputError, 'input "image" is missing'),
    (lambda e: e.run({"image": pictures(), "more": pictures()}), octavo.InputError, 'no input "more"'),
    (lambda e: e.run({"image": np.array(["a"])}), octavo.InputError, "which no model input can have"),
    (lambda e: octavo.build("/absent.onnx"), octavo.FileError, "/absent.onnx"),
    (lambda e: octavo.build(b"garbage, not a model"), octavo.ModelError, "."),
    (lambda e: octavo.build(QDQ, device="tpu"), octavo.UsageError, "known are"),
    (lambda e: octavo.build(QDQ, threads=0), octavo.UsageError, "threads=0"),
    (lambda e: octavo.build(QDQ, shapes={"x": (1,)}), octavo.UsageError, 'input "x", but the model has no such input'),
    (lambda e: octavo.build(QDQ, disable=["nothing-real"], default_batch=1), octavo.UsageError, "nothing-real"),
    (lambda e: octavo.build(QDQ, fast=True), TypeError, "unexpected keyword argument 'fast'"),
    (lambda e: octavo.build(QDQ, disable="abc"), TypeError, "list of names"),
])
def test_errors(engine, call, error, text):
    with pytest.raises(error, match=text):
        call(engine)


def test_error_classes():
    assert issubclass(octavo.InputError, ValueError) and issubclass(octavo.UnsupportedError, RuntimeError)
    for name in ("UsageError", "ModelError", "UnsupportedError", "InputError", "EngineFileError", "FileError", "InternalError"):
        assert issubclass(getattr(octavo, name), octavo.Error)
    assert octavo.Engine.run.__doc__ and octavo.build.__doc__ and octavo.load.__doc__


def test_python_threads_run_one_engine_at_once(engine):
    inputs = [pictures(seed=s) for s in range(4)]
    expected = [engine.run({"image": x})["head"] for x in inputs]
    wrong = []

    def work(i):
        for _ in range(50):
            if not np.array_equal(engine.run({"image": inputs[i]})["head"], expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_gil_is_released_while_building():
    done = threading.Event()
    turns = 0

    def work():
        for n in range(30):
            octavo.build(QDQ, default_batch=1 + n, effort=0)
        done.set()

    t = threading.Thread(target=work)
    t.start()
    while not done.wait(0.001):
        turns += 1
    t.join()
    assert turns > 30  # more often than between two builds


@pytest.mark.parametrize("order", ["import onnx, octavo", "import octavo, onnx"])
def test_lives_beside_onnx(order):
    pytest.importorskip("onnx")
    code = (f"{order}, numpy as np\n"
            f"m = onnx.load({str(QDQ)!r}); onnx.checker.check_model(m)\n"
            "e = octavo.build(m, default_batch=1)\n"
            "print(e.run({'image': np.zeros((1, 1, 16, 16), np.float32)})['head'].shape)\n")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "(1, 10)"


def test_exports_nothing_but_its_entry():
    module = next(pathlib.Path(octavo.__file__).parent.glob("_octavo*.so"))
    lines = subprocess.run(["nm", "-D", "--defined-only", str(module)], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split()[-1] for line in lines]
    assert names == ["PyInit__octavo"]


def ranges_of_pairs(path):
    """{tensor: largest magnitude} of the activations that a Q/DQ model quantizes."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(path)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    ranges = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            zero = constants[node.input[2]]
            code = np.iinfo(zero.dtype)
            ranges[node.input[0]] = float(constants[node.input[1]].item()) * max(code.max - int(zero.item()), int(zero.item()) - code.min)
    return ranges


def test_calibration_permits_int8(tmp_path):
    ranges = ranges_of_pairs(QDQ)
    assert ranges
    options = {"shapes": {"image": (1, 1, 16, 16)}, "threads": 1, "effort": 0}
    plain = octavo.build(FLOAT, **options)
    permitted = octavo.build(FLOAT, calibration=ranges, **options)
    assert not any(layer["precision"] == "int8" for layer in plain.layers)
    assert any(layer["precision"] == "int8" and "permits int8" in layer["reason"] for layer in permitted.layers)
    table = tmp_path / "ranges.json"
    table.write_text(json.dumps(ranges))
    assert octavo.build(FLOAT, calibration=table, **options).plan_hash == permitted.plan_hash
    x = pictures(1)
    assert permitted.run({"image": x})["head"].argmax() == plain.run({"image": x})["head"].argmax()
    kept = octavo.build(FLOAT, calibration=ranges, precision={"*": "float32"}, **options)
    assert not any(layer["precision"] == "int8" for layer in kept.layers)
    assert octavo.build(FLOAT, calibration=ranges, allowed={"float32"}, **options).plan_hash == kept.plan_hash == plain.plan_hash


def test_layers_say_their_time_and_that_of_other_types():
    options = {"shapes": {"image": (1, 1, 16, 16)}, "threads": 1, "calibration": ranges_of_pairs(QDQ), "timing_cache": "none"}
    estimated = octavo.build(FLOAT, effort=0, **options).layers
    assert all(l["seconds"] > 0 and l["seconds_source"] == "estimated" for l in estimated if l["kind"].startswith("conv"))
    assert not any(l["other_types"] for l in estimated)  # effort 0 prices no other type
    engine = octavo.build(FLOAT, effort=2, **options)
    weighted = [l for l in engine.layers if l["precision"] == "int8" and l["kind"].startswith("conv")]
    assert weighted
    for layer in engine.layers:
        assert layer["kind"].startswith("conv") is False or (layer["seconds"] > 0 and layer["seconds_source"] == "measured")
        for other in layer["other_types"]:
            assert other["node"] in layer["onnx_nodes"] and other["type"] != layer["precision"] and other["seconds"] > 0
            assert other["seconds_source"] == "measured"
    assert all({o["type"] for o in l["other_types"]} == {"float32"} for l in weighted)
    assert octavo.load(engine.tobytes()).layers == engine.layers


def test_max_error_and_bfloat16():
    options = {"threads": 1, "effort": 0, "shapes": {"image": (1, 1, 16, 16)}, "calibration": {"image": 60.0, "act1": 90.0}}
    x = pictures(1)
    plain, free = (octavo.build(FLOAT, **{**options, "calibration": c}) for c in (None, options["calibration"]))
    assert any("permits int8" in layer["reason"] for layer in free.layers)
    strict = octavo.build(FLOAT, max_error=0, **options)
    assert not any("permits int8" in layer["reason"] for layer in strict.layers)
    assert any("--max-error 0" in layer["reason"] for layer in strict.layers)
    np.testing.assert_allclose(strict.run({"image": x})["head"], plain.run({"image": x})["head"], rtol=1e-4, atol=1e-5)
    for bad in (-1, float("nan")):
        with pytest.raises(octavo.UsageError, match="max error"):
            octavo.build(FLOAT, max_error=bad, **options)
    with pytest.raises(octavo.UsageError, match="known are int8, float32 and bfloat16"):
        octavo.build(FLOAT, allowed={"bf16"}, **options)
    try:
        small = octavo.build(FLOAT, threads=1, effort=0, shapes=options["shapes"], precision={"*": "bfloat16"})
    except octavo.UnsupportedError as error:
        assert "is to compute in bfloat16" in str(error)
        pytest.skip(str(error))
    assert any(layer["precision"] == "bfloat16" for layer in small.layers)
    assert small.run({"image": x})["head"].argmax() == plain.run({"image": x})["head"].argmax()


def test_calibration_errors(tmp_path):
    with pytest.raises(octavo.UsageError, match="negative"):
        octavo.build(FLOAT, calibration={"image": -1})
    with pytest.raises(octavo.FileError, match="nowhere"):
        octavo.build(FLOAT, calibration=tmp_path / "nowhere.cache")
    (tmp_path / "bad.cache").write_text("TRT-8501-EntropyCalibration2\nimage 3c\n")
    with pytest.raises(octavo.InputError, match="line 2"):
        octavo.build(FLOAT, calibration=tmp_path / "bad.cache")
    with pytest.raises(octavo.UsageError, match="matches no"):
        octavo.build(FLOAT, calibration={"image": 1}, precision={"ghost": "float32"}, shapes={"image": (1, 1, 16, 16)}, effort=0)
    with pytest.raises(TypeError):
        octavo.build(FLOAT, precision="int8")


def test_bindings():
    options = {"shapes": {"image": (1, 1, 16, 16)}, "threads": 1, "effort": 0}
    plain, bound = octavo.build(QDQ, **options), octavo.build(QDQ, bindings={"image": "uint8:hwc"}, **options)
    info = bound.inputs[0]
    assert tuple(info["shape"]) == (1, 16, 16, 1) and info["dtype"] == "uint8" and info["format"] == "uint8:hwc"
    scale, zero = np.float32(info["scale"]), info["zero_point"]
    x = pictures(1)[:1]
    codes = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8).reshape(1, 16, 16, 1)
    np.testing.assert_array_equal(bound.run({"image": codes})["head"], plain.run({"image": x})["head"])
    assert not np.array_equal(bound.run({"image": 255 - codes})["head"], plain.run({"image": x})["head"])
    with pytest.raises(octavo.UsageError, match="no such input or output"):
        octavo.build(QDQ, bindings={"picture": "uint8"}, **options)
    with pytest.raises(octavo.UsageError, match="not known"):
        octavo.build(QDQ, bindings={"image": "uint9"}, **options)


def test_doctor_finds_what_the_command_finds():
    from onnx import helper, numpy_helper
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="pair"), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["N", 4])], [helper.make_tensor_value_info("y", 1, None)],
                              [numpy_helper.from_array(np.float32(0), "s"), numpy_helper.from_array(np.uint8(0), "z")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = octavo.doctor(model)
    assert [(f["severity"], f["rule"], f["tensor"]) for f in found] == [("error", "scale", "s")]
    assert "pair" in found[0]["nodes"] and "must be finite and not 0" in found[0]["text"]
    assert octavo.doctor(QDQ) == [] and octavo.doctor(QDQ.read_bytes()) == []
    with pytest.raises(octavo.FileError):
        octavo.doctor("no_such_file.onnx")
    with pytest.raises(octavo.ModelError):
        octavo.doctor(b"no model")
    with pytest.raises(octavo.UsageError, match="give both"):
        octavo.doctor(QDQ, minmax="table.cache")
