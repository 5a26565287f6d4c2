"""The Python package as people use it: short forms, pickling, notebooks, the command as a module, checks and times, preprocessing."""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import octavo
from octavo._files import is_engine

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits"
QDQ, FLOAT = DIGITS / "digits_qdq.onnx", DIGITS / "digits_fp32.onnx"
OPTIONS = {"shapes": {"image": (1, 1, 16, 16)}, "threads": 1, "effort": 0}


@pytest.fixture(scope="module")
def engine():
    return octavo.build(QDQ, **OPTIONS)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).uniform(0, 1, (1, 1, 16, 16)).astype(np.float32)


def test_short_forms_of_inputs(engine, x):
    want = engine.run({"image": x})["head"]
    for given in ([x], (x,), x):
        np.testing.assert_array_equal(engine.run(given)["head"], want)
    with pytest.raises(octavo.InputError, match='2 arrays given, the model has 1 input: "image"'):
        engine.run([x, x])
    with pytest.raises(octavo.InputError, match="this is a str"):
        engine.run("image")
    with pytest.raises(TypeError):
        engine.run(None)
    with pytest.raises(octavo.InputError, match=r"shape \(2, 1, 16, 16\)"):
        engine.run([np.repeat(x, 2, 0)])


def test_bytes_and_pickle(engine, x, tmp_path):
    want = engine.run([x])["head"]
    data = engine.tobytes()
    assert is_engine(data) and is_engine(memoryview(data)) and not is_engine(QDQ.read_bytes()) and not is_engine(b"")
    engine.save(tmp_path / "e.octavo")
    assert data == (tmp_path / "e.octavo").read_bytes()
    for given in (data, bytearray(data), memoryview(data)):
        loaded = octavo.load(given)
        np.testing.assert_array_equal(loaded.run([x])["head"], want)
        assert loaded.plan_hash == engine.plan_hash
    copy = pickle.loads(pickle.dumps(engine))
    np.testing.assert_array_equal(copy.run([x])["head"], want)
    assert copy.threads == engine.threads
    with pytest.raises(octavo.EngineFileError):
        octavo.load(b"no engine")
    with pytest.raises(octavo.EngineFileError):
        octavo.load(data[:-100])
    fresh = pickle.loads(pickle.dumps(octavo.build(QDQ, effort=0, threads=1)))  # the model, to be built where it is run
    np.testing.assert_array_equal(fresh.run([x])["head"], want)


def test_engines_travel_to_other_processes(engine, x):
    """As spawn-started workers get them."""
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(_run_in_worker, (engine, x))
    np.testing.assert_array_equal(result, engine.run([x])["head"])


def _run_in_worker(engine, x):
    return engine.run([x])["head"]


@pytest.mark.parametrize("shapes", [{"image": 5}, {"image": "large"}, {"image": (1, None, 16, 16)}, [("image", (1, 1, 16, 16))], 3])
def test_wrong_shapes_are_errors_of_octavo(shapes):
    with pytest.raises(octavo.UsageError, match="shapes"):
        octavo.build(QDQ, shapes=shapes, effort=0)


@pytest.mark.parametrize("shape", [(1, 1, -3, 4), (-2, 1, 16, 16), (-1, 1, 16, 4), (-1, 1, 16)])
def test_open_dimensions_are_minus_one(shape):
    with pytest.raises(octavo.UsageError, match="-1 where a dimension stays open"):
        octavo.build(QDQ, shapes={"image": shape}, effort=0)


def test_a_fixed_dimension_stays_what_it_is():
    engine = octavo.build(QDQ, shapes={"image": (-1, 1, -1, 16)}, effort=0)
    assert engine.open and engine.inputs[0]["shape"] == (None, 1, 16, 16)


def test_a_folder_is_an_error_of_octavo(tmp_path):
    for call in (lambda: octavo.build(tmp_path), lambda: octavo.load(tmp_path), lambda: octavo.build(FLOAT, calibration=tmp_path),
                 lambda: octavo.doctor(tmp_path), lambda: octavo.preprocess(tmp_path, shape=(1, 3, 8, 8))):
        with pytest.raises(octavo.FileError, match="irectory|folder"):
            call()


def test_context_manager(x):
    with octavo.build(QDQ, **OPTIONS) as engine:
        want = engine.run([x])["head"]
    np.testing.assert_array_equal(engine.run([x])["head"], want)  # usable still; it makes its memory again
    engine.close()


def test_progress(x):
    steps = []
    octavo.build(QDQ, progress=steps.append, **{**OPTIONS, "effort": 2})
    assert steps[0] == "import" and steps[-1] == "engine" and any(s.startswith("plan: choice") for s in steps)
    with pytest.raises(octavo.CancelledError, match="plan"):
        octavo.build(QDQ, progress=lambda step: step != "plan", **OPTIONS)

    def broken(step):
        raise KeyError(step)
    with pytest.raises(KeyError, match="import"):
        octavo.build(QDQ, progress=broken, **OPTIONS)
    with pytest.raises(TypeError):
        octavo.build(QDQ, progress=3, **OPTIONS)


def test_explain(engine):
    text = octavo.explain(engine)
    assert "regions:" in text and "head" in text and text == engine.explain()
    assert json.loads(octavo.explain(QDQ, json=True, **OPTIONS))["plan_hash"] == engine.plan_hash
    with pytest.raises(TypeError):
        octavo.explain(QDQ, fast=True)


def test_check(x):
    report = octavo.check(QDQ, {"image": x}, **OPTIONS)
    assert report["ok"] and report["first_divergence"] is None and len(report["regions"]) > 3
    assert all(r["ok"] and r["different"] == 0 for r in report["regions"])
    assert octavo.check(QDQ.read_bytes(), effort=0)["ok"]
    with pytest.raises(octavo.InputError, match="must be float32"):
        octavo.check(QDQ, {"image": x.astype(np.float64)}, **OPTIONS)
    with pytest.raises(TypeError, match="no option 'fast'"):
        octavo.check(QDQ, fast=True)


@pytest.mark.parametrize("way", [octavo.bench, octavo.profile])
def test_bench_and_profile_say_what_they_take(way):
    with pytest.raises(octavo.UsageError, match=r"take an Engine, not str: octavo.load\(path\)"):
        way("model.octavo")


def test_bench_and_profile(engine, x):
    result = octavo.bench(engine, seconds=0.05)
    assert result["runs"] >= 10 and 0 < result["min_ms"] <= result["median_ms"] <= result["p99_ms"] and result["threads"] == 1
    times = octavo.profile(engine, runs=5, inputs={"image": x})
    assert [l["name"] for l in times["layers"]] == [l["name"] for l in engine.layers]
    assert abs(sum(l["share"] for l in times["layers"]) - 1) < 1e-6
    with pytest.raises(octavo.UsageError, match="open"):
        octavo.bench(octavo.build(QDQ, effort=0))
    with pytest.raises(octavo.InputError):
        octavo.bench(engine, inputs={})


def test_html(engine):
    html = engine._repr_html_()
    assert html.count("<tr>") == len(engine.layers) + 1 and "<th>ms</th>" in html and "<script" not in html
    assert "shapes open" in octavo.build(QDQ, effort=0)._repr_html_()


def test_preprocess_is_what_the_command_does(tmp_path):
    from PIL import Image
    picture = tmp_path / "p.png"
    pixels = np.random.default_rng(3).integers(0, 256, (40, 30, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(picture)
    import onnx
    from onnx import TensorProto, helper
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 24, 24]) for n in "xy"]
    model = tmp_path / "neg.onnx"
    onnx.save(helper.make_model(helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", values[:1], values[1:]),
                                opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    for arguments, words in (({"preset": "torch"}, ["--preset", "torch"]), ({"scale": 1 / 255, "bgr": True}, ["--scale", "1/255", "--bgr"]),
                             ({"letterbox": 114, "mean": (1, 2, 3), "std": 2.0}, ["--letterbox", "114", "--mean", "1,2,3", "--std", "2"]),
                             ({"resize": (30, 28), "crop": 24}, ["--resize", "30x28", "--crop", "24"])):
        done = subprocess.run([sys.executable, "-m", "octavo", "run", str(model), "--input", str(picture), *words, "--effort", "0", "-o", str(tmp_path / "y.npy")],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        want = -np.load(tmp_path / "y.npy")
        for given in (picture, picture.read_bytes(), pixels, Image.open(picture)):
            got = octavo.preprocess(given, shape=(1, 3, 24, 24), **arguments)
            np.testing.assert_array_equal(got, want)
    engine = octavo.build(model, effort=0)
    assert octavo.preprocess(picture, engine, preset="tf").shape == (1, 3, 24, 24)
    with pytest.raises(octavo.UsageError, match="not one of torch"):
        octavo.preprocess(picture, engine, preset="keras")
    with pytest.raises(octavo.InputError, match="pixels are uint8"):
        octavo.preprocess(pixels.astype(np.float32), engine)
    with pytest.raises(octavo.InputError, match="ends early|decoding"):
        octavo.preprocess(picture.read_bytes()[:60], engine)


def test_the_command_as_a_module(tmp_path):
    run = lambda *args: subprocess.run([sys.executable, "-m", "octavo", *map(str, args)], capture_output=True, text=True, check=False, timeout=120)
    assert run("--version").stdout.startswith("octavo ")
    assert run("build", QDQ, "-o", tmp_path / "e.octavo", "--effort", "0").returncode == 0
    done = run("run", tmp_path / "absent.octavo")
    assert done.returncode != 0 and done.stderr.startswith("error: ")
    assert octavo.load(tmp_path / "e.octavo").plan_hash


def test_ctrl_c_ends_a_build_for_new_shapes(x):
    """Building inside run() can be stopped as well."""
    engine = octavo.build(QDQ, effort=5, threads=1)
    def interrupt():
        time.sleep(0.3)
        import signal
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    started = time.monotonic()
    try:
        engine.run([np.repeat(x, 4, 0)])
    except KeyboardInterrupt:
        assert time.monotonic() - started < 5
    else:
        try:
            time.sleep(5)  # the build was quicker than the signal
        except KeyboardInterrupt:
            pass
    thread.join()


def test_pairs_as_permissions(tmp_path):
    """octavo.build(qdq="permit"): the plan and the results of the float model with the same ranges."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def model(pairs):
        codes = np.random.default_rng(2).integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
        codes[:, 0] = 127
        constants = [numpy_helper.from_array(np.full(4, 0.01, np.float32), "ws"), numpy_helper.from_array(np.zeros(4, np.int8), "wz"),
                     numpy_helper.from_array(np.float32(0.02), "s"), numpy_helper.from_array(np.int8(0), "z"), numpy_helper.from_array(codes, "w")]
        pair = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]), helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"])]
        nodes = [*(pair if pairs else []), helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
                 helper.make_node("Conv", ["xd" if pairs else "x", "wd"], ["y"], "conv")]
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 5, 5])
        graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    permitted = octavo.build(model(True), qdq="permit", effort=0, threads=1)
    counterpart = octavo.build(model(False), calibration={"x": 0.02 * 127}, effort=0, threads=1)
    assert permitted.plan_hash == counterpart.plan_hash
    x = np.random.default_rng(5).uniform(-2, 2, (1, 4, 5, 5)).astype(np.float32)
    assert np.array_equal(permitted.run({"x": x})["y"], counterpart.run({"x": x})["y"])
    with pytest.raises(octavo.UsageError, match="known are demand and permit"):
        octavo.build(model(True), qdq="allow")
