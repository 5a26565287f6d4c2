"""octavo run on folders, patterns, lists, pipes and batches; outputs as text, JSON, CSV, .npy and .npz; hints and stored preprocessing."""
import csv
import io
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
QDQ, FP32, IMAGES, LABELS = DIGITS / "digits_qdq.onnx", DIGITS / "digits_fp32.onnx", DIGITS / "images", DIGITS / "labels.txt"
SCALE = ["--scale", "1/255"]


def octavo(*args, code=0, **more):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, check=False, timeout=300, **{"stdin": subprocess.DEVNULL, **more})
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}"
    return done


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "e.octavo"
    octavo("build", QDQ, "-o", path, "--effort", "0", "--threads", "1", "--shapes", "image:1x1x16x16")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Seven pictures whose names sort differently as numbers, and files that are no input."""
    path = tmp_path_factory.mktemp("pictures")
    for i, source in zip((1, 2, 3, 9, 10, 11, 20), sorted(IMAGES.glob("*.png"))):
        shutil.copy(source, path / f"p{i}.png")
    (path / "notes.txt").write_text("no picture")
    (path / "below").mkdir()
    return path


ORDER = [f"p{i}.png" for i in (1, 2, 3, 9, 10, 11, 20)]


def names_of(text):
    return [pathlib.Path(line).name for line in text.decode().splitlines() if not line.startswith(" ")]


@pytest.fixture(scope="module")
def want(engine, folder):
    """One picture at a time."""
    rows = []
    for name in ORDER:
        octavo("run", engine, "--input", folder / name, *SCALE, "-o", folder.parent / "one.npz")
        rows.append(np.load(folder.parent / "one.npz")["head"][0])
    return np.stack(rows)


def test_folders_patterns_and_lists_are_sorted(engine, folder):
    assert names_of(octavo("run", engine, "--input", folder, *SCALE).stdout) == ORDER
    assert names_of(octavo("run", engine, "--input", folder / "p?.png", *SCALE).stdout) == ORDER[:4]
    assert names_of(octavo("run", engine, "--input", folder / "*.png", *SCALE).stdout) == ORDER
    listed = folder.parent / "list.txt"
    listed.write_text(f"# pictures\n{folder.name}/p20.png\n\n{folder / 'p1.png'}\n")
    assert names_of(octavo("run", engine, "--input", f"@{listed}", *SCALE).stdout) == ["p20.png", "p1.png"]
    several = octavo("run", "--input", folder / "p3.png", folder / "p1.png", engine, *SCALE[:1], SCALE[1]).stdout  # as a shell expands *.png
    assert names_of(several) == ["p3.png", "p1.png"]


def test_names_that_name_nothing(engine, folder):
    assert b"no file matches" in octavo("run", engine, "--input", folder / "q*.png", code=5).stderr
    assert b"no .jpg" in octavo("run", engine, "--input", folder / "below", code=5).stderr
    (folder.parent / "empty.txt").write_text("# nothing\n")
    assert b"names no file" in octavo("run", engine, "--input", f"@{folder.parent / 'empty.txt'}", code=5).stderr
    assert b"No such file" in octavo("run", engine, "--input", folder / "absent.png", code=7).stderr


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 8])
def test_pictures_fill_batches(folder, want, batch):
    """The last batch is short; each picture keeps its name and gets its own scores."""
    out = folder.parent / "batch.npz"
    octavo("run", QDQ, "--input", folder, *SCALE, "--batch", batch, "--effort", "0", "--threads", "1", "-o", out)
    got = np.load(out)
    assert [pathlib.Path(n).name for n in got["names"]] == ORDER
    np.testing.assert_array_equal(got["head"], want)


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_arrays_fill_batches(folder, want, batch, tmp_path):
    pictures = np.stack([np.asarray(Image.open(folder / n)) for n in ORDER])[:, None].astype(np.float32) / np.float32(255)
    np.save(tmp_path / "all.npy", pictures)
    out = tmp_path / "out.npz"
    octavo("run", QDQ, "--input", tmp_path / "all.npy", "--batch", batch, "--effort", "0", "--threads", "1", "-o", out)
    np.testing.assert_array_equal(np.load(out)["head"], want)
    parts = tmp_path / "parts"
    parts.mkdir()
    for i, x in enumerate(pictures):
        np.save(parts / f"{i}.npy", x[None])
    octavo("run", QDQ, "--input", parts, "--batch", batch, "--effort", "0", "--threads", "1", "-o", out)
    got = np.load(out)
    np.testing.assert_array_equal(got["head"], want)
    assert [pathlib.Path(n).name for n in got["names"]] == [f"{i}.npy" for i in range(7)]


def test_json(engine, folder, want, tmp_path):
    octavo("run", engine, "--input", folder, *SCALE, "--labels", LABELS, "--top", "2", "-o", tmp_path / "out.json")
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [pathlib.Path(r["input"]).name for r in results] == ORDER
    for r, scores in zip(results, want):
        np.testing.assert_array_equal(np.float32(r["outputs"]["head"])[0], scores)
        best = np.argsort(-scores, kind="stable")[:2]
        assert [t["class"] for t in r["top"]] == list(best)
        assert [np.float32(t["score"]) for t in r["top"]] == list(scores[best])
        assert r["top"][0]["label"] == LABELS.read_text().splitlines()[best[0]]


def test_csv(engine, folder, want, tmp_path):
    octavo("run", engine, "--input", folder, *SCALE, "--labels", LABELS, "--top", "1", "-o", tmp_path / "out.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [pathlib.Path(line["input"]).name for line in lines] == ORDER
    assert [int(line["class"]) for line in lines] == list(want.argmax(1))
    assert [np.float32(line["score"]) for line in lines] == list(want.max(1))


def test_text_and_npy(engine, folder, want, tmp_path):
    printed = octavo("run", engine, "--input", folder, *SCALE).stdout
    octavo("run", engine, "--input", folder, *SCALE, "-o", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes() == printed
    octavo("run", engine, "--input", folder, *SCALE, "-o", tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), want)


def test_formats_are_known_before_the_run(engine, folder, tmp_path):
    assert b"the ending says the format" in octavo("run", engine, "--input", folder, "-o", tmp_path / "out.xml", code=2).stderr
    assert b"known are text, json" in octavo("run", engine, "--input", folder, "--format", "yaml", code=2).stderr


def test_stdin_and_stdout(engine, folder, want):
    with open(folder / "p9.png", "rb") as picture:
        done = octavo("run", engine, "--input", "-", *SCALE, "-o", "-", "--format", "json", stdin=picture)
    result = json.loads(done.stdout)["results"][0]
    assert result["input"] == "stdin"
    np.testing.assert_array_equal(np.float32(result["outputs"]["head"])[0], want[3])
    done = octavo("run", engine, "--input", folder, *SCALE, "-o", "-", "--format", "npz")
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout))["head"], want)
    with open(QDQ, "rb") as model:  # the model itself
        done = octavo("run", "-", "--input", folder / "p9.png", *SCALE, "--effort", "0", "-o", "-", "--format", "json", stdin=model)
    assert json.loads(done.stdout)["results"][0]["top"][0]["class"] == want[3].argmax()


def test_an_engine_through_pipes(folder, want):
    """build to stdout, run from a process substitution, outputs into another."""
    script = f"""
set -e
"{OCTAVO}" run <("{OCTAVO}" build <(cat "{QDQ}") -o - --effort 0 --threads 1 --shapes image:1x1x16x16) \\
  --input <(cat "{folder}/p9.png") --scale 1/255 -o >(cat > "{folder.parent}/piped.json") --format json
sleep 0.5
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads((folder.parent / "piped.json").read_text())["results"][0]
    np.testing.assert_array_equal(np.float32(result["outputs"]["head"])[0], want[3])


def test_labels_that_do_not_fit(engine, folder, tmp_path):
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    said = octavo("run", engine, "--input", folder / "p1.png", *SCALE, "--labels", tmp_path / "few.txt").stderr.decode()
    assert "warning: --labels" in said and "has 2 names, but the model has 10 classes" in said
    assert b"warning" not in octavo("run", engine, "--input", folder / "p1.png", *SCALE, "--labels", LABELS).stderr


def test_hint_about_preprocessing(folder, engine):
    said = octavo("run", QDQ, "--input", folder / "p1.png", "--effort", "0").stderr.decode()
    assert 'hint: no preprocessing is given: pixels go into "image" as 0 to 255' in said and "quantizes that input to" in said
    for how in (SCALE, ["--preset", "cifar"], ["--mean", "0"]):
        done = octavo("run", QDQ, "--input", folder / "p1.png", "--effort", "0", *how[:2], code=0 if how[0] != "--preset" else 2)
        assert b"hint" not in done.stderr


def test_preprocessing_stored_in_the_engine(folder, want, tmp_path):
    stored = tmp_path / "stored.octavo"
    octavo("build", QDQ, "-o", stored, "--effort", "0", "--threads", "1", "--shapes", "image:1x1x16x16", *SCALE)
    done = octavo("run", stored, "--input", folder, "-o", tmp_path / "out.npz")
    assert b"hint" not in done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["head"], want)
    octavo("run", stored, "--input", folder, "--scale", "1/100", "-o", tmp_path / "out.npz")  # options count more
    assert (np.load(tmp_path / "out.npz")["head"] != want).any()
    plain = tmp_path / "plain.octavo"
    octavo("build", QDQ, "-o", plain, "--effort", "0", "--threads", "1", "--shapes", "image:1x1x16x16")
    hashes = [json.loads(octavo("explain", e, "--json").stdout)["plan_hash"] for e in (stored, plain)]
    assert hashes[0] == hashes[1]  # what pictures become is no part of the plan
    assert b"not one of torch" in octavo("build", QDQ, "-o", stored, "--preset", "keras", code=2).stderr


def test_outputs_of_other_models(tmp_path):
    """Two inputs, no classes: ranges as text, every element as CSV, nested lists as JSON."""
    import onnx
    from onnx import TensorProto, helper
    nodes = [helper.make_node("Add", ["a", "b"], ["y"], name="add"), helper.make_node("Relu", ["y"], ["z"], name="relu")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "abyz"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "two", values[:2], values[2:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              tmp_path / "two.onnx")
    x = np.float32([[1, -2, 3], [4, 5, -6]])
    np.save(tmp_path / "x.npy", x)
    common = ["run", tmp_path / "two.onnx", "--input", f"a={tmp_path / 'x.npy'}", "--input", f"b={tmp_path / 'x.npy'}", "--effort", "0"]
    octavo(*common, "-o", tmp_path / "out.json")
    result = json.loads((tmp_path / "out.json").read_text())["results"][0]
    assert result["input"] == str(tmp_path / "x.npy") and result["outputs"] == {"y": (2 * x).tolist(), "z": np.maximum(2 * x, 0).tolist()}
    octavo(*common, "-o", tmp_path / "out.csv")
    header, line = list(csv.reader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert header[:2] == ["input", "y[0]"] and [float(v) for v in line[1:7]] == (2 * x).ravel().tolist()
    assert b".npy file holds one array" in octavo(*common, "-o", tmp_path / "out.npy", code=2).stderr


def test_nonfinite_numbers_are_counted(tmp_path):
    """To stderr, the tensor where they begin first; stdout stays the results."""
    image = np.full((1, 1, 16, 16), 0.5, np.float32)
    np.save(tmp_path / "x.npy", image)
    image[0, 0, 3, 4], image[0, 0, 0, 0] = np.nan, np.inf
    np.save(tmp_path / "bad.npy", image)
    model = [FP32, "--shapes", "image:1x1x16x16", "--effort", "0"]
    good = octavo("run", *model, "--input", tmp_path / "x.npy", "--count-nonfinite", "--output", "-", "--format", "json")
    assert b"no NaN and no infinity" in good.stderr and json.loads(good.stdout)
    lines = [line for line in octavo("run", *model, "--input", tmp_path / "bad.npy", "--count-nonfinite").stderr.decode().splitlines() if line.startswith("tensor ")]
    assert lines[0] == 'tensor "image" (input): 1 NaN, 1 infinite of 256 elements' and len(lines) > 1, lines


def test_engines_run_on_no_more_threads_than_cores(tmp_path):
    """An engine for two threads on one core: the affinity decides where --threads does not."""
    octavo("build", QDQ, "-o", tmp_path / "two.octavo", "--threads", "2", "--effort", "0")
    here = sorted(os.sched_getaffinity(0))

    def threads(cores, *more):
        done = subprocess.run(["taskset", "-c", ",".join(map(str, cores)), OCTAVO, "bench", tmp_path / "two.octavo", "--seconds", "0.01", "--json", *more],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[0])["threads"]

    assert threads(here[:1]) == 1
    assert threads(here[:1], "--threads", "2") == 2
    if len(here) > 1:
        assert threads(here[:2]) == 2
