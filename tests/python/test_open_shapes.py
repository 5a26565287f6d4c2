"""Engines of models with open dimensions: what a run with new shapes takes over, and that it times nothing."""
import importlib.util
import json
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_qdq.onnx"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("first_run", ROOT / "bench" / "first_run.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    path = tmp_path_factory.mktemp("open") / "encoder.onnx"
    bench.encoder(path, layers=2, n=32, heads=4, words=50, positions=64, inner=64)
    return path


def texts(shape, seed=0):
    rng = np.random.default_rng(seed)
    return {"ids": rng.integers(0, 50, shape), "mask": (rng.random(shape) < 0.9).astype(np.int64)}


def images(n, seed=0):
    return {"image": np.random.default_rng(seed).random((n, 1, 16, 16), dtype=np.float32)}


def test_new_shapes_of_an_encoder_give_what_engines_for_them_give_and_time_nothing(encoder, tmp_path):
    cache = tmp_path / "timing.txt"
    engine = octavo.build(encoder, effort=1, threads=2, timing_cache=cache)
    octavo.tune(engine, {"ids": (1, 20), "mask": (1, 20)}, {"ids": (4, 20), "mask": (4, 20)})
    timed = cache.read_bytes()
    for shape in ((1, 7), (3, 9), (8, 33), (2, 64), (5, 1), (1, 1), (4, 20), (7, 4), (4, 4)):
        data = texts(shape)
        own = octavo.build(encoder, effort=0, threads=2, shapes={name: shape for name in data})
        for name, value in engine.run(data).items():
            np.testing.assert_allclose(value, own.run(data)[name], rtol=1e-4, atol=1e-5, err_msg=str(shape))
    assert cache.read_bytes() == timed, "a run has timed something"
    with pytest.raises(octavo.Error, match="length"):
        engine.run({"ids": texts((2, 5))["ids"], "mask": texts((2, 6))["mask"]})


def test_any_batch_of_a_quantized_network_is_equal_bit_for_bit(tmp_path):
    cache = tmp_path / "timing.txt"
    engine = octavo.build(DIGITS, effort=2, threads=2, timing_cache=cache)
    octavo.tune(engine, {"image": (1, 1, 16, 16)}, {"image": (4, 1, 16, 16)})
    timed = cache.read_bytes()
    for n in (1, 2, 3, 5, 8, 9, 31, 32):
        own = octavo.build(DIGITS, effort=0, threads=2, shapes={"image": (n, 1, 16, 16)})
        data = images(n, n)
        expected = own.run(data)
        for name, value in engine.run(data).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=f"batch {n}")
    assert cache.read_bytes() == timed, "a run has timed something"


def test_an_engine_says_whose_decisions_it_has(tmp_path):
    engine = octavo.build(DIGITS, effort=1, threads=2, timing_cache=tmp_path / "timing.txt")
    octavo.tune(engine, {"image": (4, 1, 16, 16)})
    assert "image [4,1,16,16]" not in engine.at({"image": (4, 1, 16, 16)}).explain()
    assert "image [4,1,16,16]" in engine.at({"image": (6, 1, 16, 16)}).explain()


def test_what_late_may_be(tmp_path):
    with pytest.raises(octavo.UsageError, match="nearest, tune and background"):
        octavo.build(DIGITS, late="soon")
    cache = tmp_path / "timing.txt"
    engine = octavo.build(DIGITS, effort=1, threads=2, timing_cache=cache, late="tune")
    engine.run(images(2))
    timed = cache.read_bytes()
    engine.run(images(3))
    assert cache.read_bytes() != timed


def encoder_file(encoder, folder, *more):
    both = lambda n, k: f"ids:{n}x{k},mask:{n}x{k}"  # noqa: E731
    done = octavo_command("build", encoder, "--effort", "1", "--threads", "2", "--timing-cache", folder / "times.txt", "--minShapes", both(1, 1), "--optShapes", both(4, 20),
                          "--maxShapes", both(8, 64), "--shapes", both(1, 30), *more, "-o", folder / "encoder.octavo")
    assert done.returncode == 0, done.stderr
    return done.stdout


def octavo_command(*arguments):
    return subprocess.run([sys.executable, "-m", "octavo", *map(str, arguments)], capture_output=True, text=True)


def test_a_second_tuned_shape_takes_the_packed_constants_of_the_first(encoder, tmp_path):
    """With times by which it costs 3 %: for 80 rows the first tactic is the fastest by far, for 20 rows the last one by a little."""
    profiles = {name: ((1, 1), (4, 20), (8, 64)) for name in ("ids", "mask")}
    cache, second = tmp_path / "times.txt", {"ids": (1, 20), "mask": (1, 20)}

    def tuned():
        engine = octavo.build(encoder, profiles=profiles, effort=1, threads=2, timing_cache=str(cache))
        octavo.tune(engine, second)
        return engine

    tuned()
    lines, tactics = cache.read_text().splitlines(), {}
    parts = [re.match(r"(\S+ t\d+)\s+[\d.]+ us\s+(\S+) \| (conv float f32\[(80|20),.*)", line) for line in lines]
    for m in filter(None, parts):
        tactics.setdefault(m[3], []).append(m[2])
    for i, m in enumerate(parts):
        if m is not None:
            order = sorted(tactics[m[3]])
            fast = {"80": {order[0]: 10}, "20": {order[0]: 10.3, order[-1]: 10}}[m[4]]
            lines[i] = f"{m[1]} {fast.get(m[2], 20):9.2f} us     {m[2]} | {m[3]}"
    cache.write_text("\n".join(lines) + "\n")
    engine = tuned()
    products = [[r for r in json.loads(engine.at(shapes).explain(True))["regions"] if r["key"].startswith("conv float")]
                for shapes in ({"ids": (4, 20), "mask": (4, 20)}, second)]
    said = "its constants are those of the plan for ids [4,20], mask [4,20]"
    shared = [any(said in a["reason"] for a in r["alternatives"] if a["tactic"] == r["tactic"]) for r in products[1]]
    assert any(shared)
    assert [r["tactic"] for r, s in zip(products[0], shared, strict=True) if s] == [r["tactic"] for r, s in zip(products[1], shared, strict=True) if s]



@pytest.mark.parametrize("more", [(), ("--no-model",)])
def test_one_file_serves_a_range(encoder, tmp_path, more):
    said = encoder_file(encoder, tmp_path, *more)
    assert "for ids [1,1] to [8,64], mask [1,1] to [8,64]; plans:" in said
    alone = octavo_command("build", encoder, "--effort", "1", "--threads", "2", "--timing-cache", tmp_path / "times.txt", "--shapes", "ids:4x20,mask:4x20", *more, "-o", tmp_path / "one.octavo")
    assert alone.returncode == 0, alone.stderr
    timed = (tmp_path / "times.txt").read_bytes()
    engine = octavo.load(tmp_path / "encoder.octavo")
    assert engine.open and [t["shape"] for t in engine.inputs] == [(None, None)] * 2 or [list(t["shape"]) for t in engine.inputs] == [[None, None]] * 2
    for shape in ((1, 1), (1, 7), (3, 9), (8, 33), (8, 64), (1, 64), (5, 1), (4, 20), (7, 4)):
        data = texts(shape)
        own = octavo.build(encoder, effort=0, threads=2, shapes={name: shape for name in data})
        for name, value in engine.run(data).items():
            np.testing.assert_allclose(value, own.run(data)[name], rtol=1e-4, atol=1e-5, err_msg=str(shape))
    assert (tmp_path / "times.txt").read_bytes() == timed, "a run has timed something"
    memory = engine.memory
    assert 0 < memory["working"] <= memory["working_most"] and memory["held"] <= memory["working_most"]
    for shape, text in (((9, 5), "dimension 0 is 9, its profile goes from 1 to 8"), ((2, 65), "dimension 1 is 65, its profile goes from 1 to 64")):
        with pytest.raises(octavo.InputError, match=text):
            engine.run(texts(shape))
    again = pickle.loads(pickle.dumps(engine))
    np.testing.assert_array_equal(list(again.run(texts((3, 9))).values())[0], list(engine.run(texts((3, 9))).values())[0])
    session = octavo.InferenceSession(str(tmp_path / "encoder.octavo"))
    np.testing.assert_array_equal(session.run(None, texts((5, 11)))[0], list(engine.run(texts((5, 11))).values())[0])


def test_commands_on_a_file_for_a_range(encoder, tmp_path):
    encoder_file(encoder, tmp_path)
    file = tmp_path / "encoder.octavo"
    both = "ids:3x9,mask:3x9"
    for call in (("bench", file, "--seconds", "0.01"), ("profile", file), ("explain", file), ("--loadEngine=" + str(file), "--duration=0.01")):
        for shapes in ((), ("--shapes", both)) if call[0] != "--loadEngine=" + str(file) else ((), ("--shapes=" + both,)):
            done = octavo_command(*call, *shapes)
            assert done.returncode == 0, done.stderr
            if call[0] in ("profile", "explain"):
                assert "range: ids [1,1] to [8,64], mask [1,1] to [8,64]" in done.stdout
                assert "working memory of a run:" in done.stdout and "in the range" in done.stdout
                assert ("this plan: ids [3,9], mask [3,9]; decisions: of the plan for ids [4,20], mask [4,20]" if shapes else "this plan: ids [4,20], mask [4,20]; decisions: its own") in done.stdout
    done = octavo_command("view", file, "--shapes", both, "-o", tmp_path / "page.html")
    assert done.returncode == 0 and "ids [4,20], mask [4,20]" in (tmp_path / "page.html").read_text(), done.stderr
    for name, value in texts((2, 30)).items():
        np.save(tmp_path / f"{name}.npy", value)
    done = octavo_command("run", file, "--input", f"ids={tmp_path / 'ids.npy'}", "--input", f"mask={tmp_path / 'mask.npy'}", "-o", tmp_path / "y.npy")
    assert done.returncode == 0 and np.load(tmp_path / "y.npy").shape[:2] == (2, 30), done.stderr
    done = octavo_command("bench", file, "--shapes", "ids:9x9,mask:9x9")
    assert done.returncode == 5 and "dimension 0 is 9, its profile goes from 1 to 8" in done.stderr and "to do: widen the range" in done.stderr
    done = octavo_command("rebuild", file, "--all")
    assert done.returncode == 0, done.stderr
    assert list(octavo.load(file).run(texts((3, 9))).values())[0].shape[:2] == (3, 9)


def test_a_range_whose_extents_are_rounded_is_planned_by_its_decisions(tmp_path):
    from onnx import TensorProto, helper, numpy_helper
    import onnx
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3), dtype=np.float32)
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "k"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    ends = ("--effort", "1", "--timing-cache", tmp_path / "t.txt", "--minShapes", "x:1x3x8x8", "--optShapes", "x:1x3x32x32", "--maxShapes", "x:1x3x64x64", "-o", tmp_path / "e.octavo")
    done = octavo_command("build", tmp_path / "m.onnx", *ends)
    assert done.returncode == 0 and "other shapes are planned when they first occur" in done.stdout, done.stderr
    engine = octavo.load(tmp_path / "e.octavo")
    for size in (8, 9, 31, 32, 64):
        x = np.random.default_rng(size).standard_normal((1, 3, size, size + 0 * size), dtype=np.float32)
        own = octavo.build(tmp_path / "m.onnx", effort=0, shapes={"x": x.shape})
        np.testing.assert_allclose(engine.run({"x": x})["y"], own.run({"x": x})["y"], rtol=1e-4, atol=1e-5)
    assert engine.memory["working_most"] is None
    done = octavo_command("build", tmp_path / "m.onnx", *ends, "--no-model")
    assert done.returncode == 2 and "have to be planned" in done.stderr and "leave out --no-model" in done.stderr
