"""Names that a model does not have are named, with the nearest that it has; and files of folders that cannot be read."""
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
FP32, IMAGES = ROOT / "examples/digits/digits_fp32.onnx", ROOT / "examples/digits/images"
SHAPE = (1, 1, 16, 16)
COMMON = ["--effort", "0", "--threads", "1", "--shapes", "image:1x1x16x16"]


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("names")
    x = np.full(SHAPE, 0.5, np.float32)
    np.save(path / "x.npy", x)
    np.savez(path / "wrong.npz", picture=x)
    np.savez(path / "plain.npz", x)
    np.savez(path / "right.npz", image=x, label=np.float32([1]))
    return path


def test_an_input_under_a_wrong_name(folder):
    said = octavo("run", FP32, *COMMON, "--input", f"imag={folder / 'x.npy'}", code=2).stderr
    assert f'--input imag={folder / "x.npy"}: the model has no input "imag"; nearest: "image"' in said and "No such file" not in said
    odd = folder / "a=b.npy"  # a file whose name holds the sign is a file
    shutil.copy(folder / "x.npy", odd)
    octavo("run", FP32, *COMMON, "--input", odd)


def test_arrays_under_wrong_names(folder):
    said = octavo("run", FP32, *COMMON, "--input", folder / "wrong.npz", code=5).stderr
    assert '"picture"' in said and '"image"' in said and f"--input image={folder / 'wrong.npz'}" in said
    octavo("run", FP32, *COMMON, "--input", f"image={folder / 'wrong.npz'}")  # whoever says so is believed
    octavo("run", FP32, *COMMON, "--input", folder / "plain.npz")  # NumPy's name for an array without one
    octavo("run", FP32, *COMMON, "--input", folder / "right.npz")
    said = octavo("quantize", FP32, "--data", folder / "wrong.npz", "-o", folder / "q.onnx", "--shapes", "image:1x1x16x16", code=5).stderr
    assert '"picture"' in said and '"image"' in said


def test_results_of_an_array_carry_its_file(folder):
    done = octavo("run", FP32, *COMMON, "--input", folder / "x.npy", "--output", "-", "--format", "json")
    assert json.loads(done.stdout)["results"][0]["input"] == str(folder / "x.npy")
    assert str(folder / "x.npy") in octavo("run", FP32, *COMMON, "--input", folder / "x.npy").stdout


@pytest.mark.parametrize("position", ["early", "late"])
def test_a_run_goes_on_after_an_unreadable_picture(tmp_path, position):
    """Late: behind the pictures that are decoded before the build."""
    source = sorted(IMAGES.glob("*.png"))[0]
    count = 20
    for i in range(count):
        shutil.copy(source, tmp_path / f"p{i}.png")
    bad = tmp_path / ("p1.png" if position == "early" else "p18.png")
    bad.write_bytes(source.read_bytes()[:60])
    done = octavo("run", FP32, "--effort", "0", "--threads", "1", "--scale", "1/255", "--input", tmp_path, "--batch", "3", "--format", "csv", code=5)
    rows = {pathlib.Path(line.split(",")[0]).name for line in done.stdout.splitlines()[1:]}
    assert rows == {f"p{i}.png" for i in range(count)} - {bad.name}
    assert str(bad) in done.stderr and "1 file could not be read; the others were run" in done.stderr
    whole = octavo("run", FP32, "--effort", "0", "--threads", "1", "--scale", "1/255", "--input", tmp_path / "p0.png", "--format", "csv").stdout.splitlines()[1:]
    scores = [line.split(",", 1)[1] for line in done.stdout.splitlines()[1:]]
    assert set(scores) == {line.split(",", 1)[1] for line in whole}  # each picture has its own scores, wherever its row lies
    assert str(bad) in octavo("run", FP32, "--effort", "0", "--scale", "1/255", "--input", bad, code=5).stderr  # named alone, it ends the run
    alone = tmp_path / "only"
    alone.mkdir()
    shutil.copy(bad, alone)
    octavo("run", FP32, "--effort", "0", "--scale", "1/255", "--input", alone, code=5)


def test_labels_in_a_folder_of_data(tmp_path):
    for source in sorted(IMAGES.glob("*.png"))[:3]:
        shutil.copy(source, tmp_path)
    (tmp_path / "labels.txt").write_text("1\n2\n3\n")
    np.save(tmp_path / "labels.npy", np.zeros(3, np.int64))  # an array of labels is no sample
    (tmp_path / "truth.txt").write_text("1\n2\n3\n")
    (tmp_path / "notes.txt").write_text("3 pictures")
    done = octavo("eval", FP32, "--shapes", "image:1x1x16x16", "--data", tmp_path, "--scale", "1/255", "--labels", tmp_path / "truth.txt")
    left_out = [line for line in done.stderr.splitlines() if "left out" in line]
    assert len(left_out) == 1 and "notes.txt" in left_out[0]
