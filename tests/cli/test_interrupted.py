"""Every command that writes a file leaves the old one whole when the write fails (a limit on file sizes stands for a full disk) or the
process is killed while it writes."""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
FP32 = ROOT / "examples/digits/digits_fp32.onnx"
OLD = b"what was there before\n" * 3

# name: arguments; OUT is the file under test, other capitals are made by `inputs`.
WRITERS = {
    "build": ["build", QDQ, "-o", "OUT", "--effort", "0"],
    "build --timing-cache": ["build", QDQ, "-o", "ENGINE2", "--effort", "1", "--timing-cache", "OUT"],
    "cache pin": ["cache", "pin", "OUT", "--key", "KEY", "--tactic", "reference.region"],
    "convert --to-table": ["convert", QDQ, "--to-table", "OUT", "--approximate"],
    "convert --json": ["convert", QDQ, "--to-table", "TABLE2", "--json", "OUT", "--approximate"],
    "convert --float-model": ["convert", QDQ, "--to-table", "TABLE2", "--float-model", "OUT", "--approximate"],
    "convert --qdq-model": ["convert", FP32, "--from-table", "TABLE", "--qdq-model", "OUT"],
    "advise --apply": ["advise", "PAIRS", "--apply", "OUT", "--effort", "0"],
    "run --output": ["run", "ENGINE", "--input", "ARRAY", "--output", "OUT"],
    **{f"profile --{e}": ["profile", "ENGINE", "--runs", "2", f"--{e}", "OUT"]
       for e in ("exportProfile", "exportLayerInfo", "exportTimes", "exportOutput", "exportMetadata")},
}


def octavo(args, **more):
    return subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300, **more)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    made = {"ENGINE": folder / "e.octavo", "TABLE": folder / "t.cache", "ARRAY": folder / "x.npz", "PAIRS": folder / "pairs.onnx",
            "CACHE": folder / "times.txt"}

    def must(*args):
        done = octavo(args)
        assert done.returncode == 0, done.stderr
    must("build", QDQ, "-o", made["ENGINE"], "--effort", "1", "--timing-cache", made["CACHE"])
    made["KEY"] = made["CACHE"].read_text().splitlines()[-1].split(" | ", 1)[1]
    must("convert", QDQ, "--to-table", made["TABLE"], "--approximate")
    must("convert", FP32, "--from-table", made["TABLE"], "--qdq-model", made["PAIRS"], "--placement", "outputs")
    import onnx
    x = onnx.load(QDQ).graph.input[0]
    np.savez(made["ARRAY"], **{x.name: np.zeros([d.dim_value or 1 for d in x.type.tensor_type.shape.dim], np.float32)})
    return made


def arguments(name, inputs, folder, out):
    known = {**inputs, "OUT": out, "ENGINE2": folder / "other.octavo", "TABLE2": folder / "other.cache"}
    return [known.get(a, a) for a in WRITERS[name]]


def previous(name, inputs, out):
    """A file that the command accepts as the one to replace."""
    if "cache" in name:
        shutil.copy(inputs["CACHE"], out)
        if name == "build --timing-cache":  # a cache that lacks what the build measures
            out.write_text("\n".join(out.read_text().splitlines()[:2]) + "\n")
    else:
        out.write_bytes(OLD)
    return out.read_bytes()


def temporaries(folder):
    return [p for p in folder.iterdir() if p.suffix == ".tmp"]


@pytest.mark.parametrize("name", WRITERS)
def test_full_disk(name, inputs, tmp_path):
    out = tmp_path / "target"
    previous(name, inputs, out)
    done = octavo(arguments(name, inputs, tmp_path, out))
    assert done.returncode == 0, done.stderr
    good = out.read_bytes()
    assert good != OLD and not temporaries(tmp_path)
    for limit in (0, len(good) // 2, len(good) - 1):
        old = previous(name, inputs, out)
        out.chmod(0o640)
        done = octavo(arguments(name, inputs, tmp_path, out),
                      preexec_fn=lambda n=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)))
        if done.returncode == 0:  # another engine, time or random number than before may be shorter
            assert limit == len(good) - 1 and out.stat().st_size <= limit
            continue
        assert done.returncode == 7, (limit, done.returncode, done.stderr)
        assert "cannot write" in done.stderr and "File too large" in done.stderr, done.stderr
        if name == "build --timing-cache":  # written in several steps, each of which keeps what was there: the first may have fitted
            assert set(old.splitlines()) <= set(out.read_bytes().splitlines())
        else:
            assert out.read_bytes() == old
        assert out.stat().st_mode & 0o777 == 0o640
        assert not temporaries(tmp_path), "the temporary file is gone too"


@pytest.mark.parametrize("name", WRITERS)
def test_killed(name, inputs, tmp_path):
    out = tmp_path / "target"
    caught = 0
    for _ in range(6):
        old = previous(name, inputs, out)
        process = subprocess.Popen([OCTAVO, *map(str, arguments(name, inputs, tmp_path, out))], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        before = set(temporaries(tmp_path))
        while process.poll() is None:
            if set(temporaries(tmp_path)) - before:
                process.send_signal(signal.SIGKILL)
                caught += 1
                break
            time.sleep(0)
        code = process.wait(timeout=300)
        now = out.read_bytes()
        if code == -signal.SIGKILL and now == old:
            pass
        else:  # the rename came first, or the command was faster than the watcher: then all of it is there
            check = octavo(arguments(name, inputs, tmp_path, out))
            assert check.returncode == 0, check.stderr
            assert now != b"" and (now == old or abs(len(now) - out.stat().st_size) <= 0.5 * len(now)), "half a file"
        for left in temporaries(tmp_path):
            left.unlink()
    done = octavo(arguments(name, inputs, tmp_path, out))  # what a killed one left behind is in nobody's way
    assert done.returncode == 0, done.stderr
    if "profile" not in name and "run" not in name:
        assert caught > 0, "no write was ever caught in the act"
