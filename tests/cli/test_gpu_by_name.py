"""--gpu: engines for GPUs that are not in this machine are planned, compiled and saved by name, and say so where they cannot run."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rounds import FULL

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
MODEL = ROOT / "examples/digits/digits_qdq.onnx"


def run(*args):
    return subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)


def test_names_and_efforts_are_checked_before_any_work(tmp_path):
    for args, words in ((("--gpu", "RTX 409"), ('no GPU "RTX 409" is known', "RTX 4090")),
                        (("--gpu", "sm_86", "--effort", "1"), ("effort 1 measures kernels", "sm_86", "effort 0")),
                        (("--gpu", "sm_86", "--device", "cpu"), ('"--gpu sm_86" is for device cuda', "leave --device out"))):
        done = run("build", MODEL, "-o", tmp_path / "x.octavo", *args)
        assert done.returncode == 2, (args, done.stdout, done.stderr)
        assert all(word in done.stderr for word in words), (args, done.stderr)
    assert not list(tmp_path.iterdir())


def build_without(tmp_path, name, architecture):
    facts = json.loads(run("doctor", "--system", "--json").stdout)
    if facts["cuda"]["nvrtc"]["version"] is None:
        pytest.skip("no NVRTC here")
    engine, layers = tmp_path / "x.octavo", tmp_path / "layers.json"
    done = run("build", MODEL, "-o", engine, "--gpu", name, "--exportLayerInfo", layers)
    assert done.returncode == 0, done.stderr
    seconds = r"\d+\.\d"
    times = re.search(rf"^built in ({seconds}) s: reading the model {seconds}, planning {seconds}, waiting for kernels ({seconds}), writing {seconds}$", done.stdout, re.MULTILINE)
    assert times and float(times[2]) <= float(times[1]), done.stdout
    kernels = re.search(rf"^(\d+) kernels compiled beside that: ({seconds}) s summed over threads, ({seconds}) s of processor time; (.*)$", done.stdout, re.MULTILINE)
    assert kernels and int(kernels[1]) > 0 and float(kernels[3]) <= float(kernels[2]) + 0.1, done.stdout
    if len(os.sched_getaffinity(0)) > 1:
        assert re.fullmatch(r"1 process started for it|\d+ processes started for it", kernels[4]), "octavo-nvrtc was not found, or not used: " + done.stdout
    explained = run("explain", engine, "--json")
    assert explained.returncode == 0, explained.stderr
    regions = [r for r in json.loads(explained.stdout)["regions"] if r["tactic"].startswith("cuda.")]
    assert regions and not any(r["tactic"].startswith("cpu.") for r in json.loads(explained.stdout)["regions"])
    assert architecture.encode() in engine.read_bytes()
    current = run("rebuild", engine)  # what only looks opens no GPU
    assert current.returncode == 0 and ": current (" in current.stdout, (current.returncode, current.stdout, current.stderr)
    again = run("rebuild", "--all", engine)  # for the GPU that was named, whatever GPU is here
    assert again.returncode == 0 and "rebuilt" in again.stdout and architecture.encode() in engine.read_bytes(), (again.returncode, again.stdout, again.stderr)
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 16, 16), np.float32))
    if not facts["cuda"]["gpus"]:
        run_here = run("run", engine, "--input", tmp_path / "x.npy")
        assert run_here.returncode == 4 and "opening the GPU" in run_here.stderr, (run_here.returncode, run_here.stderr)
    by_name = run("run", MODEL, "--input", tmp_path / "x.npy", "--device", f"cuda:{name}", "--effort", "0")
    assert by_name.returncode == 4 and "is not in this machine" in by_name.stderr and architecture in by_name.stderr, by_name.stderr


@pytest.mark.parametrize("name,architecture", [("T4", "sm_75"), ("H200", "sm_90a")])
def test_an_engine_is_built_without_the_gpu(tmp_path, name, architecture):
    build_without(tmp_path, name, architecture)


@pytest.mark.skipif(not FULL, reason="seconds of compiling each; with OCTAVO_FULL only")
@pytest.mark.parametrize("name,architecture", [("A100", "sm_80"), ("sm_86", "sm_86"), ("RTX 4090", "sm_89"), ("sm_120", "sm_120")])
def test_an_engine_is_built_without_any_gpu(tmp_path, name, architecture):
    build_without(tmp_path, name, architecture)


def test_what_the_gpu_has_no_kernel_for_runs_on_the_cpu_where_that_is_allowed(tmp_path):
    if json.loads(run("doctor", "--system", "--json").stdout)["cuda"]["nvrtc"]["version"] is None:
        pytest.skip("no NVRTC here")
    model = tmp_path / "det.onnx"  # of more rows than the GPU's kernel takes
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"], "square"), helper.make_node("Det", ["y"], ["d"], "determinant"),
             helper.make_node("Softmax", ["d"], ["z"], "shares", axis=0)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 1025, 1025))],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, (2,))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    refused = run("build", model, "-o", tmp_path / "x.octavo", "--gpu", "sm_86")
    assert refused.returncode == 4, refused.stderr
    assert all(word in refused.stderr for word in ("determinant", "rows of a matrix", "1025", 'device "cuda,cpu"')), refused.stderr
    assert not (tmp_path / "x.octavo").exists()
    both = ("--device", "cuda,cpu", "--gpu", "sm_86")
    built = run("build", model, "-o", tmp_path / "x.octavo", *both)
    assert built.returncode == 0, built.stderr
    for asked in ((tmp_path / "x.octavo",), *([(model, *both)] if FULL else [])):  # of the model it compiles all kernels again
        explained = run("explain", *asked, "--json")
        assert explained.returncode == 0, explained.stderr
        found = {r["name"]: r for r in json.loads(explained.stdout)["regions"]}
        assert found["square"]["tactic"].startswith("cuda.") and not found["determinant"]["tactic"].startswith("cuda."), found
        assert "because no kernel of cuda takes it" in found["determinant"]["reason"], found["determinant"]["reason"]
