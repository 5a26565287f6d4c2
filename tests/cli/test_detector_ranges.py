"""octavo quantize of detectors: by default the ranges, best or minmax, by which the scores at objects change less on the data."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from small_detectors import detector, samples

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"


def run(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=600)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def quantize(scene, head, data, output, *args):
    """What it prints, and the part of the report about scores."""
    threads = () if "--threads" in args else ("--threads", 2)
    out = run("quantize", scene / f"{head}.onnx", "--data", scene / f"{data}.npy", "--min-layer-sqnr", 0, *threads, *args, "--report",
              f"{output}.report", "-o", output).stdout
    return out, json.loads(pathlib.Path(f"{output}.report").read_text()).get("scores_at_objects")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detectors")
    for head in ("yolox", "nanodet"):
        detector(folder / f"{head}.onnx", head)
    for data in ("rare", "outliers", "none"):
        np.save(folder / f"{data}.npy", samples(data))
    return folder


def scores_of(scene, head, data, *model):
    """A row of class scores for each cell of each sample, by what the command computes."""
    run("run", *model, "--input", scene / f"{data}.npy", "--effort", 0, "-o", scene / "out.npz")
    out = {name: values for name, values in np.load(scene / "out.npz").items() if values.dtype == np.float32}
    if head == "nanodet":
        return np.concatenate([values.reshape(-1, 3) for name, values in out.items() if name.startswith("cls")])
    rows = out["out"].reshape(-1, 8)
    return rows[:, 4:5] * rows[:, 5:]


@pytest.mark.parametrize(("head", "data", "better", "file"), [("yolox", "rare", "minmax", "q.onnx"), ("nanodet", "outliers", "best", "q.onnx"),
                                                              ("nanodet", "rare", "minmax", "q.cache"), ("yolox", "outliers", "best", "q.cache")])
def test_the_ranges_that_change_the_scores_of_objects_less_are_taken(scene, tmp_path, head, data, better, file):
    """The files are those of --method, either way; the figures are those of the outputs."""
    text, scores = quantize(scene, head, data, tmp_path / file)
    exact = scores_of(scene, head, data, scene / f"{head}.onnx")
    cells = np.flatnonzero(exact.max(1) > 0.3)
    assert scores["objects"] == len(cells) == {"rare": 2, "outliers": 8}[data] and scores["method"] == better
    for method in ("best", "minmax"):
        other, nothing = quantize(scene, head, data, tmp_path / f"{method}.{file}", "--method", method)
        assert nothing is None and "scores at" not in other  # whoever names a method gets it
        same = (tmp_path / f"{method}.{file}").read_bytes() == (tmp_path / file).read_bytes()
        assert same == (method == better)
        model = (scene / f"{head}.onnx", "--calibration", tmp_path / f"{method}.{file}") if file.endswith(".cache") else (tmp_path / f"{method}.{file}",)
        rounded = scores_of(scene, head, data, *model)
        changes = [abs(rounded[c, exact[c].argmax()] - exact[c].max()) for c in cells]
        assert scores["mean_change"][method] == pytest.approx(np.mean(changes), abs=2e-3)  # sums of floats in another order, rounded again
    other = "best" if better == "minmax" else "minmax"
    changes = scores["mean_change"]
    assert 3 * changes[better] < changes[other]
    assert f"ranges by {better}: scores at {len(cells)} objects change by {changes[better]:.4f} on average instead of {changes[other]:.4f} with ranges by {other}" in text


def test_the_same_bytes_on_any_number_of_threads(scene, tmp_path):
    reports = set()
    for threads in (1, 3):
        quantize(scene, "yolox", "rare", tmp_path / f"{threads}.onnx", "--threads", threads)
        reports.add((tmp_path / f"{threads}.onnx.report").read_text())
    assert (tmp_path / "1.onnx").read_bytes() == (tmp_path / "3.onnx").read_bytes() and len(reports) == 1


def test_without_an_object_there_is_nothing_to_choose_by(scene, tmp_path):
    text, scores = quantize(scene, "nanodet", "none", tmp_path / "q.cache")
    assert scores == {"objects": 0, "method": "best", "mean_change": {}}
    assert "ranges by best: the data contain no object (no cell has a score above 0.3 in float), so minmax was not tried" in text


def test_other_networks_are_quantized_once(tmp_path):
    out = run("quantize", DIGITS / "digits_fp32.onnx", "--data", DIGITS / "images", "--scale", "1/255", "--report", tmp_path / "r", "-o", tmp_path / "q.onnx")
    assert "scores at" not in out.stdout and "scores_at_objects" not in json.loads((tmp_path / "r").read_text())
