"""Sets of parameters of one kernel: effort 3 times them, `explain` and the cache show them, `cache pin` fixes one, and every one gives the same bits."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
# Which regions there are is left at its default: measured times may choose other regions at every build, and the pinned one must be in all of them.
SAME_REGIONS = [word for choice in ("fuse-conv-pool", "stages", "stage-operand", "stage-store", "block", "horizontal", "one-pass", "concat", "stores", "segments",
                                    "epilogue-pass", "direct-store", "row-order", "split-views", "split-conv", "above-moves", "inner-view", "by-image") for word in ("--disable", choice)]


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code > 1 else done.stdout


def regions(engine):
    return json.loads(octavo("explain", engine, "--json"))["regions"]


def family(tactic):
    return re.split(r"[{(@]", tactic)[0]


def variants(region):
    """The other sets of parameters of the tactic that was taken, of those that have a time."""
    return [a["tactic"] for a in region["alternatives"] if a["tactic"] != region["tactic"] and family(a["tactic"]) == family(region["tactic"])
            and "{" in a["tactic"] and "(" not in a["tactic"] and a.get("seconds", -1) > 0]


def test_a_set_of_parameters_is_timed_shown_pinned_and_bit_equal(tmp_path):
    times, engine, pinned = tmp_path / "times.txt", tmp_path / "first.octavo", tmp_path / "pinned.octavo"
    build = ["--threads", 1, "--timing-cache", times, *SAME_REGIONS]
    octavo("build", QDQ, "-o", engine, "--effort", 3, *build)
    layer = next((r for r in regions(engine) if variants(r)), None)
    if layer is None:
        pytest.skip("no kernel of this processor that was taken here has further sets of parameters")
    other = variants(layer)[0]
    shown = octavo("cache", "show", times)
    assert other in shown and layer["tactic"] in shown
    octavo("cache", "pin", times, "--key", layer["key"], "--tactic", other)
    octavo("build", QDQ, "-o", pinned, "--effort", 2, *build)  # an effort that does not try sets of parameters by itself
    after = next(r for r in regions(pinned) if r["key"] == layer["key"])
    assert after["tactic"] == other
    assert any(a["tactic"] == other and "pinned" in a["reason"] for a in after["alternatives"])
    data, outputs = tmp_path / "x.npz", []
    first = json.loads(octavo("explain", engine, "--json"))["inputs"][0]
    np.savez(data, **{first["name"]: np.random.default_rng(5).uniform(-1, 1, first["shape"]).astype(np.float32)})
    for which in (engine, pinned):
        to = tmp_path / f"{which.stem}.npz"
        octavo("run", which, "--input", data, "-o", to, "--threads", 1)
        outputs.append({k: v.tobytes() for k, v in np.load(to).items()})
    assert outputs[0] == outputs[1]
    octavo("check", QDQ, "--effort", 2, *build)
    octavo("cache", "unpin", times, "--key", layer["key"])
    octavo("build", QDQ, "-o", pinned, "--effort", 2, *build)
    assert not any("pinned" in a["reason"] for r in regions(pinned) for a in r["alternatives"])


def test_a_set_that_the_kernel_does_not_have_is_refused(tmp_path):
    times = tmp_path / "times.txt"
    octavo("build", QDQ, "-o", tmp_path / "e", "--effort", 1, "--threads", 1, "--timing-cache", times)
    layer = next(r for r in regions(tmp_path / "e") if "(" not in r["tactic"] and "conv" in r["tactic"])
    before = times.read_bytes()
    wrong = f"{family(layer['tactic'])}{{pixels=4711}}"
    said = octavo("cache", "pin", times, "--key", layer["key"], "--tactic", wrong, code=2)
    assert f'"{wrong}"' in said
    assert times.read_bytes() == before
