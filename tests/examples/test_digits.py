"""The committed digits models: what they contain, how accurate they are, and that train.py reproduces them byte for byte."""
import collections
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from ort_exact import exact_session

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples/digits"
sys.path.insert(0, str(FOLDER))
import data  # noqa: E402
import exact  # noqa: E402

NAMES = ("digits_fp32.onnx", "digits_qdq.onnx")


def accuracy(name):
    _, (images, labels) = data.split()
    session = exact_session(FOLDER / name)
    scores = session.run(None, {"image": images[:, None].astype(np.float32) / np.float32(255)})[0]
    return (scores.argmax(1) == labels).mean()


def test_accuracy():
    fp32, int8 = (accuracy(name) for name in NAMES)
    assert fp32 >= 0.97
    assert int8 >= fp32 - 0.01


def test_contents():
    for name in NAMES:
        model = onnx.load(FOLDER / name)
        kinds = collections.Counter(n.op_type for n in model.graph.node)
        assert {"Conv", "ConvTranspose", "Add", "Concat", "Sigmoid", "MaxPool", "Gemm"} <= set(kinds)
        assert any(a.name == "group" and a.i > 1 for n in model.graph.node if n.op_type == "Conv" for a in n.attribute)
        assert (kinds["QuantizeLinear"] > 0) == (name == "digits_qdq.onnx")
        assert (FOLDER / name).stat().st_size < 300_000


def test_pictures_are_of_the_held_out_split():
    image = pytest.importorskip("PIL.Image")
    _, (images, labels) = data.split()
    files = sorted((FOLDER / "images").glob("*.png"))
    assert len(files) == 20
    for path in files:
        digit, index = path.stem.split("_")
        assert labels[int(index)] == int(digit)
        assert (np.asarray(image.open(path)) == images[int(index)]).all()


def test_exact_sums_do_not_depend_on_order():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((5, 4096)) * 10, rng.standard_normal((4096, 7))
    order = rng.permutation(4096)
    assert (exact.matmul(a, b) == exact.matmul(a[:, order], b[order])).all()
    assert (exact.total(a, 1) == exact.total(a[:, order], 1)).all()
    assert np.abs(exact.exp(a) / np.exp(np.clip(a, -60, 60)) - 1).max() < 1e-11


def train(*args):
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1")  # the result does not depend on it; a busy machine's time does
    command = [sys.executable, FOLDER / "train.py", *map(str, args)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=880, env=env).stdout.splitlines()


def test_training_is_the_same_on_every_machine():
    """The first epoch of the training that made the committed files; the long suite runs all of it."""
    assert train("--stop-after", 1)[0].endswith("parameters 3f1cfc3c72f9ed40")


@pytest.mark.skipif(os.environ.get("OCTAVO_LONG") != "1", reason="a minute of training: make test-long")
def test_training_reproduces_the_files(tmp_path):
    train("--out", tmp_path)
    for name in NAMES:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name
