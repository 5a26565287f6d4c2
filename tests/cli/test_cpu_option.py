"""--cpu: an engine built for a lesser processor runs on this one and says the same; one built for more than there is is refused by the
name of what is missing."""
import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ, PICTURE = ROOT / "examples/digits/digits_qdq.onnx", ROOT / "examples/digits/images/0_008.png"
LEVELS = ["portable", "avx2", "avx512", "avx512vnni", "amx"]
HERE = LEVELS.index(subprocess.run([OCTAVO, "--version"], capture_output=True, text=True, check=True).stdout.split("(")[1].split(")")[0])


def octavo(*args):
    return subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines")
    for level in [*LEVELS[:HERE + 1], "native"]:
        done = octavo("build", QDQ, "-o", folder / level, "--cpu", level, "--effort", "0", "--threads", "1")
        assert done.returncode == 0, done.stderr
    return folder


def outputs(engine, *args):
    path = engine.with_suffix(".npz")
    done = octavo("run", engine, "--input", PICTURE, "--scale", "1/255", "--output", path, *args)
    return done, np.load(path)["head"] if done.returncode == 0 else None


@pytest.mark.parametrize("built", LEVELS[:HERE + 1])
def test_engines_of_lesser_processors(engines, built):
    want = outputs(engines / "portable")[1]
    done, got = outputs(engines / built)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(got, want)
    for level in LEVELS[:HERE + 1]:
        done, got = outputs(engines / built, "--cpu", level)
        if LEVELS.index(level) >= LEVELS.index(built):
            assert done.returncode == 0, done.stderr
            np.testing.assert_array_equal(got, want)
        elif done.returncode != 0:  # a plan may need less than it was allowed
            assert done.returncode == 4 and "needs" in done.stderr and built[:4] in done.stderr, done.stderr


def test_the_best_engine_needs_what_it_says(engines):
    if HERE == 0:
        pytest.skip("this processor has no vector instructions that an engine could need")
    done, _ = outputs(engines / "native", "--cpu", "portable")
    assert done.returncode == 4 and "needs" in done.stderr


def test_levels_that_are_not_there():
    done = octavo("build", QDQ, "-o", "/dev/null", "--cpu", "avx9")
    assert done.returncode == 2 and "portable, avx2, avx512, avx512vnni, amx, native" in done.stderr
    if HERE + 1 < len(LEVELS):
        done = octavo("build", QDQ, "-o", "/dev/null", "--cpu", LEVELS[-1])
        assert done.returncode == 4 and "this processor has" in done.stderr
