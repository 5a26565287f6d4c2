"""trtexec's options: every row of src/cli/trtexec.def does what the table says, and calls without a subcommand become octavo's."""
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
FP32 = ROOT / "examples/digits/digits_fp32.onnx"
sys.path.insert(0, str(ROOT / "scripts"))
from trtexec_doc import rows  # noqa: E402

# Values for options that need one; everything else gets "1".
VALUES = {"--shapes": "image:1x1x16x16", "--optShapes": "image:1x1x16x16", "--minShapes": "image:1x1x16x16", "--maxShapes": "image:1x1x16x16",
          "--inputIOFormats": "fp32:chw", "--outputIOFormats": "fp32:chw", "--calib": "TABLE", "--timingCacheFile": "OUT", "--profilingVerbosity": "detailed",
          "--exportTimes": "OUT", "--exportOutput": "OUT", "--exportProfile": "OUT", "--exportLayerInfo": "OUT", "--layerPrecisions": "conv1:fp32,*:fp16",
          "--layerPrecision": "conv1:fp32", "--precisionConstraints": "obey", "--sparsity": "disable", "--memPoolSize": "workspace:64",
          "--workspace": "4096", "--hardwareCompatibilityLevel": "none", "--device": "0", "--idleTime": "0", "--sleepTime": "0", "--duration": "0.02",
          "--warmUp": "200", "--percentile": "90,99", "--loadInputs": "image:INPUT", "--builderOptimizationLevel": "0", "--iterations": "3",
          "--tacticSources": "-CUDNN", "--preview": "+fasterDynamicShapes0805"}
FIRST = {"--onnx", "--saveEngine", "--loadEngine", "--help", "--skipInference", "--buildOnly"}  # tested below
NEEDS = {"--profilingVerbosity": ["--exportLayerInfo=OUT"], "--minShapes": ["--optShapes=image:1x1x16x16"], "--maxShapes": ["--optShapes=image:1x1x16x16"], "--layerPrecisions": ["--calib=TABLE"],
         "--errorOnTimingCacheMiss": ["--effort=0"], "--layerPrecision": ["--calib=TABLE"], "--loadInputs": ["--shapes=image:1x1x16x16"]}


def octavo(*args):
    return subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120)


def filled(text, folder):
    known = {"TABLE": folder / "ranges.json", "OUT": folder / "out.json", "INPUT": folder / "image.bin"}
    for word, path in known.items():
        text = text.replace(word, str(path))
    return text


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ranges.json").write_text('{"image": 1.0}')
    (tmp_path / "image.bin").write_bytes(np.zeros((1, 1, 16, 16), np.float32).tobytes())
    return tmp_path


def test_the_options_tested_apart_are_rows():
    assert FIRST <= {row[0] for row in rows()}


@pytest.mark.parametrize("row", [r for r in rows() if r[0] not in FIRST], ids=lambda r: r[0])
def test_every_option(row, folder):
    name, value, _, take, _, text = row
    option = name if value == "none" else f"{name}={VALUES.get(name, '1')}"
    args = ["bench", FP32, "--seconds", "0.01", "--threads", "1", option, *NEEDS.get(name, [])]
    if not any("ffort" in str(a) or "builderOpt" in str(a) for a in args) and name != "--heuristic":
        args.append("--effort=0")
    if name == "--duration":
        args[2:4] = []
    if name == "--threads":
        args[4:6] = []
    done = octavo(*[filled(str(a), folder) for a in args])
    if take == "refused":
        assert done.returncode == 2 and name in done.stderr and text[:30] in done.stderr
        return
    if name in ("--bf16", "--best") and done.returncode == 4:
        assert "bfloat16" in done.stderr  # a processor without it says so
        return
    assert done.returncode == 0, done.stderr
    assert (f"note: {name}" in done.stderr) == (take in ("nothing", "becomes") or (take == "special" and name != "--threads")), done.stderr
    if take == "nothing":
        assert f"note: {name} has no effect: {text}" in done.stderr


def test_a_call_as_trtexec_is_called(folder):
    engine = folder / "m.engine"
    done = octavo(f"--onnx={FP32}", f"--saveEngine={engine}", "--int8", "--fp16", "--shapes=image:2x1x16x16", "--builderOptimizationLevel=0", "--duration=0.02",
                  "--warmUp=100", "--useCudaGraph", "--noDataTransfers", f"--exportTimes={folder / 'times.json'}")
    assert done.returncode == 0, done.stderr
    assert f"octavo build {FP32} -o {engine}" in done.stderr and f"octavo bench {engine}" in done.stderr
    assert engine.exists() and (folder / "times.json").exists() and "median" in done.stdout and "batch 2" in done.stdout
    again = octavo(f"--loadEngine={engine}", "--duration=0.02")
    assert again.returncode == 0 and "median" in again.stdout
    both = octavo("--onnx", FP32, "--builderOptimizationLevel", "0", "--duration", "0.02", "--verbose")
    assert both.returncode == 0, both.stderr


@pytest.mark.parametrize("skip", ["--skipInference", "--buildOnly"])
def test_only_building(folder, skip):
    engine = folder / "m.engine"
    done = octavo(f"--onnx={FP32}", f"--saveEngine={engine}", skip, "--builderOptimizationLevel=0")
    assert done.returncode == 0 and engine.exists() and "octavo bench" not in done.stderr and "median" not in done.stdout
    assert octavo(f"--onnx={FP32}", skip).returncode == 2


def test_errors_name_the_command(folder):
    done = octavo("--int8", "--best")
    assert done.returncode == 2 and "--onnx=FILE" in done.stderr and "octavo build MODEL.onnx" in done.stderr
    done = octavo("build", FP32, "-o", folder / "e", "--plugins=libmine.so")
    assert done.returncode == 2 and "there are no plugins" in done.stderr
    done = octavo("build", FP32, "-o", folder / "e", "--layerPrecisions=conv1:fp12")
    assert done.returncode == 2 and "--precision NAME=float32" in done.stderr
    done = octavo("bench", FP32, "--infStreams=4")
    assert done.returncode == 2 and "one Context in each thread" in done.stderr


@pytest.mark.parametrize(("given", "words"), [
    (["--noTF32", "--device", "cuda", "--allow", "int8,float32,tf32"], ["--noTF32 beside --allow int8,float32,tf32", "leave out one of the two"]),
    (["--allow=tf32,float32", "--noTF32"], ["--noTF32 beside --allow tf32,float32"]),
    (["--cpuOnly", "--device", "cuda"], ["--cpuOnly beside --device cuda", "--gpu NAME"]),
    (["--device=cuda:1", "--cpuOnly"], ["--cpuOnly beside --device cuda", "--gpu NAME"]),
    (["--layerDeviceTypes=conv1:GPU"], ["--layerDeviceTypes is an option of trtexec", "--device cuda,cpu"]),
    (["--hardwareCompatibilityLevel=ampere+"], ["--cpu LEVEL", "--gpu NAME"])])
def test_what_contradicts_another_option_is_refused(given, words, folder):
    done = octavo("build", FP32, "-o", folder / "e", "--effort=0", *given)
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr
    assert not (folder / "e").exists() and "note:" not in done.stderr


@pytest.mark.parametrize(("given", "without_effect"), [
    (["--noTF32"], {"--noTF32"}), (["--noTF32", "--allow", "int8,float32"], {"--noTF32"}), (["--cpuOnly"], {"--cpuOnly"}),
    (["--cpuOnly", "--gpu", "sm_86"], {"--cpuOnly"}), (["--fp16"], {"--fp16"}), (["--fp16", "--bf16"], {"--fp16"}), (["--fp16", "--best"], {"--fp16"}),
    (["--best", "--bf16"], set()), (["--fp16", "--best", "--gpu", "sm_86"], set()), (["--fp16", "--bf16", "--gpu=sm_86"], set())], ids=" ".join)
def test_each_option_without_effect_has_a_note(given, without_effect):
    """The notes come before the model is read: that a processor or a compiler lacks something is no matter here."""
    done = octavo("explain", FP32, "--effort=0", "--threads=1", *given)
    texts = {row[0]: row[5] for row in rows()}
    assert set(re.findall(r"^note: (--\w+) has no effect: ", done.stderr, re.MULTILINE)) == without_effect, done.stderr
    assert all(f"note: {name} has no effect: {texts[name]}\n" in done.stderr for name in without_effect), done.stderr


def test_layer_precisions_are_obeyed(folder):
    """The rule for everything else comes last, wherever trtexec's users write it."""
    done = octavo("explain", FP32, f"--calib={folder / 'ranges.json'}", "--layerPrecisions=*:fp16,conv1:fp32", "--effort=0", "--threads=1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"--layerPrecisions=\*:fp16,conv1:fp32 is taken as --precision=conv1=float32 --precision=\*=float32", done.stderr)


@pytest.mark.parametrize("spec", ["*:fp32,pw:int8", "pw:int8,*:fp32"])
def test_one_layer_int8_and_everything_else_float(folder, spec):
    """The layer reads a tensor that the rule for everything else is about too: the rule for the layer comes first."""
    ranges = folder / "pw.json"
    ranges.write_text(json.dumps({"act2": 6.0}))
    done = octavo("explain", FP32, f"--calib={ranges}", f"--layerPrecisions={spec}", "--effort=0", "--threads=1", "--json")
    assert done.returncode == 0, done.stderr
    int8 = {n for r in json.loads(done.stdout)["regions"] if r["precision"] == "int8" for n in r["onnx_nodes"]}
    assert "pw" in int8 and not int8 & {"conv1", "dw", "res1", "res2", "down"}


def test_raw_inputs_have_exactly_the_bytes(folder):
    (folder / "image.bin").write_bytes(b"\0" * 1000)
    done = octavo("profile", FP32, f"--loadInputs=image:{folder / 'image.bin'}", "--shapes=image:1x1x16x16", "--effort=0", "--runs=1")
    assert done.returncode == 5 and "1000 bytes" in done.stderr


def test_options_that_octavo_has_itself_keep_their_meaning():
    """No row takes an option away from the commands: those that both have are the same or look at their value."""
    own = set()
    for command in ("build", "run", "bench", "profile", "explain", "check", "doctor", "advise"):
        own |= set(re.findall(r"--[A-Za-z-]+", "\n".join(line[:30] for line in octavo(command, "--help").stdout.splitlines() if line.startswith("  -"))))
    assert "--std" in own and "--seconds" in own
    # --separateProfileRun is accepted by both, and a note says that it is always so.
    assert {name for name, _, _, take, _, _ in rows() if take not in ("same", "special")} & own == {"--separateProfileRun"}


def test_the_page_is_up_to_date():
    subprocess.run([sys.executable, ROOT / "scripts/trtexec_doc.py", "--check"], check=True)
