"""octavo.quantize: the same model as the command makes, from arrays."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

import numpy as np
import onnx
import pytest
from small_detectors import detector
from small_detectors import samples as detector_samples

import octavo

MODEL = pathlib.Path(__file__).resolve().parents[2] / "examples/digits/digits_fp32.onnx"


def samples(n=12):
    rng = np.random.default_rng(3)
    return [{"image": rng.random((1, 1, 16, 16), np.float32)} for _ in range(n)]


@pytest.fixture(scope="module")
def made():
    return octavo.quantize(MODEL, samples(), threads=2)


def test_the_result_builds_and_says_what_it_is(made, tmp_path):
    engine = octavo.build(made, shapes={"image": (1, 1, 16, 16)}, effort=0, threads=1)
    exact = octavo.build(MODEL, shapes={"image": (1, 1, 16, 16)}, effort=0, threads=1)
    x = samples()[0]
    a, b = (next(iter(e.run(x).values())) for e in (exact, engine))
    assert np.abs(a - b).max() < 0.1 * np.abs(a).max() and not np.array_equal(a, b)
    assert "layers int8" in repr(made) and made.report["sqnr_db"] > 20
    assert made.ranges and all(low <= 0 < high for low, high in made.ranges.values())
    table = {name: list(ends) for name, ends in made.ranges.items()}  # as a table of the same model: just these scales
    (tmp_path / "r.json").write_text(json.dumps(table))
    options = {"shapes": {"image": (1, 1, 16, 16)}, "effort": 0, "threads": 1}
    assert (octavo.build(MODEL, calibration=tmp_path / "r.json", **options).plan_hash == octavo.build(MODEL, calibration=made.ranges, **options).plan_hash
            != octavo.build(MODEL, **options).plan_hash)
    made.save(tmp_path / "q.onnx")
    assert (tmp_path / "q.onnx").read_bytes() == made.model
    with pytest.raises(octavo.FileError):
        made.save(tmp_path / "no such folder/q.onnx")


def test_every_way_to_give_models_and_data_is_the_same(made):
    dicts = samples()
    batch = np.concatenate([d["image"] for d in dicts])
    loader = [(batch[i:i + 4], np.zeros(4)) for i in range(0, 12, 4)]  # as a DataLoader of (images, labels)
    for model, data in ((MODEL.read_bytes(), (d["image"] for d in dicts)), (onnx.load(MODEL), loader)):
        assert octavo.quantize(model, data, threads=1, measure=False).ranges == made.ranges


def test_detectors_take_the_better_of_two_ranges_unless_a_method_is_named(tmp_path):
    detector(tmp_path / "m.onnx", "yolox")
    made, best = (octavo.quantize(tmp_path / "m.onnx", [detector_samples("rare")], threads=2, measure=False, **named)
                  for named in ({}, {"method": "best"}))
    scores = made.report["scores_at_objects"]
    assert scores["method"] == "minmax" and scores["mean_change"]["minmax"] < scores["mean_change"]["best"]
    assert {t["method"] for t in made.report["tensors"]} == {"minmax"} and made.report["sqnr_db"] is None
    assert "scores_at_objects" not in best.report and best.model != made.model


def test_bfloat16_is_searched_and_the_build_is_told():
    """`precision` says which layers are bfloat16; emulated, on any processor, they change the result that float32 would give."""
    shape = {"shapes": {"image": (1, 1, 16, 16)}, "effort": 0, "threads": 1}
    made = octavo.quantize(MODEL, samples(), threads=2, min_sqnr=42, allow={"int8", "bfloat16", "float32"})
    assert made.precision and set(made.precision.values()) == {"bfloat16"} and f"{len(made.precision)} bfloat16, " in repr(made)
    assert made.report["sqnr_db"] >= 42
    wide = octavo.build(made, **shape)
    small = octavo.build(made, precision={node: "bfloat16-emulated" for node in made.precision}, **shape)
    exact = octavo.build(MODEL, **shape)
    total = {"wide": 0.0, "small": 0.0, "signal": 0.0}
    for x in samples():
        a, b, c = (next(iter(e.run(x).values())).astype(np.float64) for e in (exact, wide, small))
        assert not np.array_equal(b, c)
        total["signal"] += (a ** 2).sum()
        total["wide"] += ((a - b) ** 2).sum()
        total["small"] += ((a - c) ** 2).sum()
    assert 10 * np.log10(total["signal"] / total["small"]) == pytest.approx(made.report["sqnr_db"], abs=0.01)
    try:
        engine = octavo.build(made, precision=made.precision, **shape)
    except octavo.UnsupportedError as error:
        assert "nothing here can" in str(error)
    else:
        assert "bfloat16" in {layer["precision"] for layer in engine.layers}
    assert octavo.quantize(MODEL, samples(), threads=2, min_sqnr=30).precision == {}
    with pytest.raises(octavo.UsageError, match="no bound is given"):
        octavo.quantize(MODEL, samples(2), allow=["int8", "bfloat16"])


def test_what_is_wrong_is_said():
    with pytest.raises(octavo.InputError, match="16,16"):
        octavo.quantize(MODEL, [np.zeros((1, 1, 8, 8), np.float32)])
    with pytest.raises(octavo.InputError, match="nan"):
        octavo.quantize(MODEL, [np.full((1, 1, 16, 16), np.nan, np.float32)])
    with pytest.raises(octavo.InputError):
        octavo.quantize(MODEL, [])
    with pytest.raises(octavo.UsageError, match="iterable of samples"):
        octavo.quantize(MODEL, "folder")
    with pytest.raises(octavo.UsageError, match="right classes"):
        octavo.quantize(MODEL, samples(2), max_drop=0.01)


def test_bad_data_are_named_by_what_was_passed():
    spent = (s for s in samples())
    list(spent)
    with pytest.raises(octavo.InputError, match=r"data, a generator, gave no sample \(an iterator gives its samples once"):
        octavo.quantize(MODEL, spent)
    with pytest.raises(octavo.InputError, match="data, a list, gave no sample$"):
        octavo.quantize(MODEL, [])
    bad = samples()
    bad[7]["image"][0, 0, 3, 2] = np.nan
    with pytest.raises(octavo.InputError, match=r"sample 7, 'image' holds nan at \[0, 0, 3, 2\] \(1 of 256 elements"):
        octavo.quantize(MODEL, bad)
    with pytest.raises(octavo.InputError, match=r"sample 2 holds inf at"):
        octavo.quantize(MODEL, [s["image"] / (np.arange(len(samples())) != 2)[i] for i, s in enumerate(samples())])
    wrong = samples()
    wrong[5]["image"] = wrong[5]["image"][..., :8]
    with pytest.raises(octavo.InputError, match=r"sample 5\b") as caught:
        octavo.quantize(MODEL, wrong)
    assert ".np" not in str(caught.value) and "/tmp" not in str(caught.value)


def test_warnings_of_the_report_are_python_warnings(recwarn):
    made = octavo.quantize(MODEL, samples(3), threads=1, measure=False)
    said = [str(w.message) for w in recwarn if str(w.message).startswith("quantize: ")]
    assert made.report["warnings"] and said == [f"quantize: {text}" for text in made.report["warnings"]]


def test_progress_is_told_and_can_cancel():
    steps = []
    made = octavo.quantize(MODEL, samples(), threads=2, progress=steps.append)
    assert steps and all(isinstance(step, str) and step for step in steps) and steps[0] == "reading the model"
    assert made.model == octavo.quantize(MODEL, samples(), threads=2).model
    with pytest.raises(octavo.CancelledError):
        octavo.quantize(MODEL, samples(), threads=2, progress=lambda step: False)
    with pytest.raises(ZeroDivisionError):
        octavo.quantize(MODEL, samples(), threads=2, progress=lambda step: 1 // 0)


def test_ctrl_c_ends_it_soon():
    """Samples and fits that take minutes: the signal comes at the first step that is told."""
    pressed = []

    def press(step):
        if not pressed:
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    rng = np.random.default_rng(1)
    with pytest.raises(KeyboardInterrupt):
        octavo.quantize(MODEL, (rng.random((64, 1, 16, 16), np.float32) for _ in range(100)), threads=2, progress=press)
    assert time.monotonic() - pressed[0] < 5


def test_it_works_in_this_process_without_files_and_other_threads_go_on(monkeypatch, tmp_path):
    def forbidden(*_, **__):
        raise AssertionError("neither a process nor a file")

    monkeypatch.setattr(subprocess, "Popen", forbidden)
    monkeypatch.setattr(tempfile, "mkstemp", forbidden)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "no such folder"))
    turns, done = [0], threading.Event()

    def count():
        while not done.is_set():
            turns[0] += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    before = turns[0]
    start = time.monotonic()
    octavo.quantize(MODEL, samples(), threads=1)
    seconds, counted = time.monotonic() - start, turns[0] - before
    done.set()
    other.join()
    assert counted > 20 * seconds, (counted, seconds)


def test_labels_and_options_that_do_not_fit_are_said():
    for labels, text in (([1, 2], "2 for 12 samples"), ([1] * 11 + [77], "sample 11 has class 77, the network knows 0 to 9")):
        with pytest.raises(octavo.InputError, match=text):
            octavo.quantize(MODEL, samples(), labels=labels, max_drop=0.5)
    for options, text in (({"weights": "magic"}, "known are minmax, mse"), ({"activations": "magic"}, "known are asymmetric, symmetric"),
                          ({"method": "magic"}, "known are best, minmax"), ({"placement": "magic"}, "placement"), ({"threads": 0}, "a whole number from 1 to 1024"),
                          ({"max_drop": 7.0, "labels": [0] * 12}, "share of the samples"), ({"shapes": {"imag": (1, 1, 16, 16)}}, "no such input")):
        with pytest.raises(octavo.UsageError, match=text):
            octavo.quantize(MODEL, samples(), **options)
    right = octavo.quantize(MODEL, samples(), threads=2, labels=[0] * 12, max_drop=1.0)
    assert right.report["search"]
