"""Engines of models with open dimensions: what a run with new shapes takes over, and that it times nothing."""
import importlib.util
import pathlib

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
