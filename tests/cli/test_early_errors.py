"""What can be known to fail before a build fails before it: outputs that cannot be written, inputs that cannot be taken, folders where
files are wanted. And output that is lost is an error. "Before the build" is seen by --verbose, which names each step as it begins."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
QDQ, FP32, PICTURE = DIGITS / "digits_qdq.onnx", DIGITS / "digits_fp32.onnx", DIGITS / "images/0_008.png"
QUICK = ["--effort", "0", "--threads", "1"]


def octavo(*args, **more):
    return subprocess.run([OCTAVO, *map(str, args)], capture_output="stdout" not in more, text=True, check=False, stdin=subprocess.DEVNULL,
                          timeout=120, **({"stderr": subprocess.PIPE, **more} if more else {}))


def early(*args, code, says):
    done = octavo(*args, *QUICK, "--verbose")
    assert done.returncode == code, f"exit {done.returncode}\n{done.stderr}"
    assert says in done.stderr
    assert not re.search(r"^\[.*\] plan", done.stderr, re.M), f"the build had begun:\n{done.stderr}"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "e.octavo"
    assert octavo("build", QDQ, "-o", path, *QUICK).returncode == 0
    return path


ABSENT = "absent/file"
OUTPUTS = {
    "build -o": ["build", QDQ, "-o", ABSENT],
    "build -o FOLDER": ["build", QDQ, "-o", "."],
    "build --exportLayerInfo": ["build", QDQ, "-o", "e", "--exportLayerInfo", ABSENT],
    "build --exportProfile": ["build", QDQ, "-o", "e", "--exportProfile", ABSENT],
    "build --exportTimes": ["build", QDQ, "-o", "e", "--exportTimes", ABSENT],
    "build --exportOutput": ["build", QDQ, "-o", "e", "--exportOutput", ABSENT],
    "build --exportMetadata": ["build", QDQ, "-o", "e", "--exportMetadata", ABSENT],
    "build --timing-cache": ["build", QDQ, "-o", "e", "--timing-cache", ABSENT],
    "profile --exportProfile": ["profile", QDQ, "--exportProfile", ABSENT],
    "bench --exportTimes": ["bench", QDQ, "--exportTimes", ABSENT],
    "run -o": ["run", QDQ, "--input", PICTURE, "--output", ABSENT],
    "advise --apply": ["advise", QDQ, "--apply", ABSENT],
    "explain --build-without": ["explain", QDQ, "--roundings", "--build-without", ABSENT],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name, tmp_path):
    args = [tmp_path / a if a in (ABSENT, "e", ".") else a for a in OUTPUTS[name]]
    early(*args, code=7, says="it is a folder" if name.endswith("FOLDER") else "No such file or directory")
    assert not list(tmp_path.iterdir())


def test_protected_output(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    (tmp_path / "e").write_bytes(b"")
    (tmp_path / "e").chmod(0o444)
    early("build", QDQ, "-o", tmp_path / "e", code=7, says="protected")


def test_inputs(tmp_path):
    x = tmp_path / "x.npy"
    np.save(x, np.zeros((1, 1, 16, 16), np.int64))
    early("run", QDQ, "--input", x, code=5, says='input "image" takes f32, the array holds s64')
    np.save(x, np.zeros((1, 1, 16, 15), np.float32))
    early("run", QDQ, "--input", x, code=5, says='the array is f32[1,1,16,15]')
    early("run", QDQ, "--input", PICTURE, "--preset", "keras", code=2, says="not one of torch, tf")
    early("run", QDQ, "--input", PICTURE, "--scale", "1/0", code=2, says="--scale")
    early("check", QDQ, "--input", x, code=5, says="the array is")


FOLDERS = {
    "--calib": ["build", FP32, "-o", "OUT", "--calib", "DIR", *QUICK],
    "--minmax": ["doctor", FP32, "--calibration", "TABLE", "--minmax", "DIR", *QUICK],
    "--from-table": ["convert", FP32, "--from-table", "DIR", "--qdq-model", "OUT"],
    "--to-table of a folder": ["convert", "DIR", "--to-table", "OUT"],
    "build": ["build", "DIR", "-o", "OUT"],
    "run --input FOLDER without pictures": ["run", QDQ, "--input", "DIR", *QUICK],
    "run --labels": ["run", QDQ, "--input", PICTURE, "--labels", "DIR", *QUICK],
    "--timing-cache": ["build", QDQ, "-o", "OUT", "--timing-cache", "DIR", "--effort", "1"],
    "cache show": ["cache", "show", "DIR"],
    "explain an engine": ["explain", "DIR"],
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    table = tmp_path / "table.cache"
    table.write_text("TRT-8510-MinMaxCalibration\nimage: 3c010a14\n")
    known = {"DIR": folder, "OUT": tmp_path / "out", "TABLE": table}
    done = octavo(*[known.get(a, a) for a in FOLDERS[name]])
    assert done.returncode in (2, 5, 7), f"exit {done.returncode}: {done.stderr}"
    assert done.stderr.startswith("error: ") and str(folder) in done.stderr


FULL = {
    "explain": ["explain", QDQ, *QUICK],
    "explain --json": ["explain", QDQ, "--json", *QUICK],
    "explain --all": ["explain", QDQ, "--all", *QUICK],
    "build": ["build", QDQ, "-o", "OUT", *QUICK],
    "run": ["run", QDQ, "--input", PICTURE, *QUICK],
    "bench --json": ["bench", "ENGINE", "--seconds", "0.01", "--json"],
    "profile": ["profile", "ENGINE", "--runs", "2"],
    "check": ["check", QDQ, *QUICK],
    "doctor": ["doctor", QDQ, *QUICK],
    "doctor --json": ["doctor", QDQ, "--json", *QUICK],
    "cache show": ["cache", "show", "CACHE"],
    "--help": ["--help"],
    "--version": ["--version"],
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    path = tmp_path_factory.mktemp("cache") / "times.txt"
    assert octavo("build", QDQ, "-o", path.with_suffix(".octavo"), "--effort", "1", "--timing-cache", path).returncode == 0
    return path


@pytest.mark.parametrize("name", FULL)
def test_a_full_device(name, tmp_path, engine, cache):
    known = {"OUT": tmp_path / "out", "ENGINE": engine, "CACHE": cache}
    with open("/dev/full", "w") as full:
        done = octavo(*[known.get(a, a) for a in FULL[name]], stdout=full)
    assert done.returncode == 7, f"exit {done.returncode}: {done.stderr}"
    assert done.stderr.endswith("error: cannot write the output: No space left on device\n")


def test_stderr_that_is_full_stops_nothing(tmp_path):
    with open("/dev/full", "w") as full:
        done = octavo("build", QDQ, "-o", tmp_path / "e.octavo", "--verbose", *QUICK, stdout=subprocess.PIPE, stderr=full)
    assert done.returncode == 0 and (tmp_path / "e.octavo").exists()


@pytest.mark.parametrize("option", ["-o", "--exportLayerInfo"])
def test_files_on_a_full_device(option, tmp_path):
    args = {"-o": "/dev/full"} if option == "-o" else {"-o": tmp_path / "e", option: "/dev/full"}
    done = octavo("build", QDQ, *[x for pair in args.items() for x in pair], *QUICK)
    assert done.returncode == 7 and "No space left on device" in done.stderr


def slow_model(path):
    """Half a minute of reference for --max-error: some layers of 64 channels on 32 x 32 pixels."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    rng = np.random.default_rng(0)
    nodes, constants, ranges, last = [], [], {"x": 1.0}, "x"
    for i in range(12):
        w = rng.normal(0, 0.05, (64, 64, 3, 3)).astype(np.float32)
        constants.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"y{i}"], name=f"conv{i}", pads=[1, 1, 1, 1]))
        last = f"y{i}"
        ranges[last] = 3.0
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 64, 64, 64]) for n in ("x", last)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "slow", values[:1], values[1:], constants), opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)
    path.with_suffix(".json").write_text(json.dumps(ranges))
    return path


def test_long_builds_say_so_off_a_terminal(tmp_path):
    model = slow_model(tmp_path / "slow.onnx")
    args = [OCTAVO, "build", model, "-o", tmp_path / "e", "--calib", model.with_suffix(".json"), "--max-error", "1e-9", *QUICK]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as build:
        started = time.monotonic()
        line = build.stderr.readline()
        waited = time.monotonic() - started
        build.kill()
    assert re.fullmatch(r"octavo: max error: evaluation \d+ of at most \d+ .*slow\.onnx \(\d+ s so far\)\n", line), line
    assert 3 < waited < 30


PYTHON_BUILD = """
import sys, threading, time, signal, os, octavo, faulthandler
stop_at = []
def interrupt():
    time.sleep(2)
    stop_at.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
steps = []
try:
    octavo.build(sys.argv[1], calibration=sys.argv[2], max_error=1e-9, effort=0, threads=1, progress=steps.append)
except KeyboardInterrupt:
    assert time.monotonic() - stop_at[0] < 1.5, time.monotonic() - stop_at[0]
    assert steps[:2] == ["import", "plan"] and steps[-1].startswith("max error: evaluation"), steps
    print("stopped")
"""


def test_ctrl_c_in_python(tmp_path):
    pytest.importorskip("octavo")
    model = slow_model(tmp_path / "slow.onnx")
    done = subprocess.run([sys.executable, "-c", PYTHON_BUILD, str(model), str(model.with_suffix(".json"))], capture_output=True, text=True,
                          check=False, timeout=120)
    assert done.stdout == "stopped\n", done.stderr
