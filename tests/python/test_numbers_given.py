"""Numbers that are none, or out of range, are refused where they come in, by the argument's name: nan fits no range, a float is no whole number."""
import pathlib
import subprocess
import sys

import numpy as np
import octavo
import pytest
from octavo._serve_command import main, parser
from octavo.serve._settings import Settings

FP32 = pathlib.Path(__file__).resolve().parents[2] / "examples/digits/digits_fp32.onnx"
NAN, INF = float("nan"), float("inf")
DATA = [{"image": np.full((1, 1, 16, 16), 0.5, np.float32)}]


@pytest.fixture(scope="module")
def engine():
    return octavo.build(FP32, shapes={"image": (1, 1, 16, 16)}, effort=0, threads=1)


def session(**attributes):
    options = octavo.SessionOptions()
    for name, value in attributes.items():
        setattr(options, name, value)
    return octavo.InferenceSession(str(FP32), options)


def session_effort(text):
    options = octavo.SessionOptions()
    options.add_session_config_entry("octavo.effort", text)
    return octavo.InferenceSession(str(FP32), options)


CALLS = [
    ("seconds", lambda e, v: octavo.bench(e, seconds=v), [NAN, INF, -1, "x"]),
    ("threads", lambda e, v: octavo.bench(e, 0, threads=v), [NAN, 1.5, 0, -1, 10**6, 2**80]),
    ("runs", lambda e, v: octavo.profile(e, runs=v), [NAN, 2.5, 0, -1, 2**80]),
    ("threads", lambda e, v: octavo.build(FP32, threads=v), [NAN, 1.5, 0, -1, 10**6]),
    ("effort", lambda e, v: octavo.build(FP32, effort=v), [NAN, 1.5, -1, 6, 2**80]),
    ("default_batch", lambda e, v: octavo.build(FP32, default_batch=v), [NAN, INF, -1, 1.5, "x"]),
    ("most_engines", lambda e, v: octavo.build(FP32, most_engines=v), [NAN, 0, -1]),
    ("max_elements", lambda e, v: octavo.build(FP32, max_elements={"y": v}), [NAN, 0, -1, 1.5, 2**28 + 1]),
    ("shapes['image']", lambda e, v: octavo.build(FP32, shapes={"image": (v, 1, 16, 16)}), [NAN, 2.5, "2"]),
    ("max error", lambda e, v: octavo.build(FP32, max_error=v), [NAN, -1]),
    ("'image'", lambda e, v: octavo.build(FP32, calibration={"image": v}), [NAN, INF, -1, (0, INF), (1, 0)]),
    ("seed", lambda e, v: octavo.check(FP32, seed=v), [NAN, -1, 1.5, 2**64]),
    ("threads", lambda e, v: octavo.quantize(FP32, DATA, threads=v), [NAN, 0, 10**6]),
    ("min_sqnr", lambda e, v: octavo.quantize(FP32, DATA, min_sqnr=v), [NAN, INF, -1]),
    ("percentile", lambda e, v: octavo.quantize(FP32, DATA, method="percentile", percentile=v), [NAN, INF, 0]),
    ("threads", lambda e, v: session(intra_op_num_threads=v), [NAN, -1, 10**6]),
    ("octavo.effort", lambda e, v: session_effort(v), ["nan", "-1", "9", ""]),
    ("free_dimension", lambda e, v: octavo.SessionOptions().add_free_dimension_override_by_name("N", v), [NAN, 0, 1.5]),
    ("threads", lambda e, v: Settings(threads=v), [0, 10**6]), ("effort", lambda e, v: Settings(effort=v), [-1, 6]), ("delay", lambda e, v: Settings(delay=v), [NAN, INF, -1]),
    ("timeout", lambda e, v: Settings(timeout=v), [NAN, INF, 0]), ("max_pending", lambda e, v: Settings(max_pending=v), [0, 2**62]),
]


@pytest.mark.parametrize("name,call,values", CALLS, ids=[f"{i}-{c[0]}" for i, c in enumerate(CALLS)])
def test_refused_by_name(engine, name, call, values):
    for value in values:
        with pytest.raises(octavo.Error) as error:
            call(engine, value)
        assert name in str(error.value), (value, str(error.value))
        assert isinstance(error.value, (octavo.UsageError, octavo.InputError, ValueError)), type(error.value)


def test_taken(engine):
    """What is a whole number to Python is one: of NumPy too."""
    assert octavo.bench(engine, np.float32(0.01), threads=np.int64(1))["threads"] == 1
    assert octavo.build(FP32, shapes={"image": np.array([2, 1, 16, 16])}, effort=np.int32(0), default_batch=None).inputs[0]["shape"][0] == 2


def test_threads_of_an_engine_file(engine, tmp_path):
    engine.save(tmp_path / "e.octavo")
    for value in (0, -1, 10**6):
        with pytest.raises(octavo.UsageError, match=f"threads={value}: give a whole number from 1 to 1024"):
            octavo.load(tmp_path / "e.octavo", threads=value)


@pytest.mark.parametrize("option", [a.option_strings[0] for a in parser()._actions if a.type in (int, float)] + ["--batch"])
def test_options_of_serve(option, capsys, monkeypatch):
    async def started(_, **__):  # a server that an option did not stop
        raise AssertionError(f"{option} was taken")

    monkeypatch.setattr("octavo.serve.Server.run", started)
    for value in ("nan", "-inf", "1e400", "", "-7"):
        try:
            code = main([str(FP32), f"{option}={value}"])
        except SystemExit as stop:
            code = stop.code
        told = capsys.readouterr().err
        assert code == 2 and (option in told or option[2:].removesuffix("-ms").removesuffix("-mb").replace("-", "_") in told), (value, told[-300:])


def test_options_of_serve_in_a_process():
    done = subprocess.run([sys.executable, "-c", "import sys; from octavo._serve_command import main; sys.exit(main(sys.argv[1:]))", str(FP32), "--timeout=nan"],
                          capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "timeout" in done.stderr, done.stderr[-300:]
