"""MatMuls of three dimensions behind each other, as in transformers: each is divided into a product and moves. Rules, ranges and types are about the ONNX nodes all the same."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, (args, done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture
def chain(tmp_path):
    """x -> fc1 -> h0 -> fc2 -> h1 -> fc3 -> y, all [2, 8, 32]."""
    rng = np.random.default_rng(7)
    names = ["x", "h0", "h1", "y"]
    nodes = [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]], f"fc{k + 1}") for k in range(3)]
    weights = [numpy_helper.from_array(rng.normal(0, 0.1, (32, 32)).astype(np.float32), f"w{k}") for k in range(3)]
    shape = [2, 8, 32]
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], weights)
    path = tmp_path / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def types(model, *args):
    """The types of the regions by the fcN that they stand for, at effort 0; a region of several is listed for each."""
    engine = model.with_suffix(".octavo")
    said = octavo("build", model, "-o", engine, "--effort", 0, "--threads", 1, *args)
    regions = json.loads(octavo("explain", engine, "--json"))["regions"]
    found = {}
    for r in regions:
        if "precision" in r and r["precision"] not in ("move", "float32->int8", "transfer"):
            for node in r["onnx_nodes"]:
                found.setdefault(node, set()).add(r["precision"])
    return found, said


def ranges(folder, names):
    path = folder / "ranges.json"
    path.write_text(json.dumps({name: 4.0 for name in names}))
    return path


def test_ranges_of_the_tensors_between_count(chain, tmp_path):
    found, said = types(chain, "--calibration", ranges(tmp_path, ["x", "h0", "h1"]))
    assert found == {"fc1": {"int8"}, "fc2": {"int8"}, "fc3": {"int8"}}, (found, said)
    assert "without a range" not in said and "names no tensor" not in said, said


@pytest.mark.parametrize("kept", ["fc1", "fc2", "fc3"])
def test_a_rule_is_about_its_layer_and_no_other(chain, tmp_path, kept):
    found, said = types(chain, "--calibration", ranges(tmp_path, ["x", "h0", "h1"]), "--precision", f"{kept}=float32")
    assert found == {f"fc{k}": {"float32" if f"fc{k}" == kept else "int8"} for k in (1, 2, 3)}, (found, said)


def test_rules_find_the_tensors_between(chain, tmp_path):
    found, said = types(chain, "--calibration", ranges(tmp_path, ["x", "h0", "h1"]), "--precision", "h0=float32")
    assert found == {"fc1": {"int8"}, "fc2": {"float32"}, "fc3": {"int8"}}, (found, said)


def test_missing_ranges_are_named(chain, tmp_path):
    found, said = types(chain, "--calibration", ranges(tmp_path, ["x"]))
    assert found["fc1"] == {"int8"} and found["fc2"] == {"float32"}, found
    lines = said.splitlines()
    at = next(i for i, line in enumerate(lines) if "without a range keep a layer float" in line)
    assert {line.strip() for line in lines[at + 1:at + 3]} == {"h0", "h1"} or {"h0", "h1"} <= set(re.findall(r"\w+", lines[at])), said
    assert "without a name" not in said, said


def gpu(model, *args):
    if json.loads(octavo("doctor", "--system", "--json"))["cuda"]["nvrtc"]["version"] is None:
        pytest.skip("no NVRTC here")
    engine = model.with_suffix(".octavo")
    said = octavo("build", model, "-o", engine, "--gpu", "h200", *args)
    return said, json.loads(octavo("explain", engine, "--json"))


def test_tf32_reaches_products_with_constant_weights(chain):
    said, exact = gpu(chain)
    allowed_said, allowed = gpu(chain, "--allow", "int8,float32,tf32")
    plan = r"plan ([0-9a-f]{32})"
    assert re.search(plan, said)[1] != re.search(plan, allowed_said)[1]
    tactics = {r["tactic"] for r in allowed["regions"] if r.get("precision") == "tf32"}
    assert tactics and all(".tf32." in t for t in tactics), tactics
    assert not any(".tf32." in r["tactic"] for r in exact["regions"])
    assert re.search(r"^\d+ regions: 0 int8, [3-9] float, ", allowed_said, re.MULTILINE), allowed_said


def test_an_engine_for_a_gpu_says_its_memory_there(chain):
    said, _ = gpu(chain)
    assert re.search(r"; [1-9][0-9.]* k?B of working memory on the GPU$", said, re.MULTILINE), said


@pytest.mark.parametrize("option", [("--dumpProfile",), ("--exportProfile", "FOLDER/p.json"), ("--exportTimes", "FOLDER/t.json")])
def test_what_runs_the_engine_is_refused_before_it_is_built(chain, tmp_path, option):
    said = octavo("build", chain, "-o", tmp_path / "e.octavo", "--gpu", "h200", *(o.replace("FOLDER", str(tmp_path)) for o in option), code=2)
    assert "need not be in this machine" in said and not (tmp_path / "e.octavo").exists(), said


def test_trtexecs_form_builds_for_a_gpu_by_name_and_measures_nothing(chain, tmp_path):
    engine = tmp_path / "t.octavo"
    said = octavo(f"--onnx={chain}", f"--saveEngine={engine}", "--gpu", "h200", code=0 if json.loads(octavo("doctor", "--system", "--json"))["cuda"]["nvrtc"]["version"] else 4)
    assert "octavo bench" not in said, said
    said = octavo(f"--onnx={chain}", f"--saveEngine={engine}", "--gpu", "h200", "--iterations=5", code=2)
    assert "--gpu builds for a GPU that need not be in this machine, and measures nothing" in said, said


def test_types_that_two_options_allow_are_said(chain, tmp_path):
    said = octavo("build", chain, "-o", tmp_path / "e.octavo", "--effort", 0, "--allow", "int8,float32", "--bf16", "--timing-cache", "none")
    assert "note: --allow int8,float32 beside --fp16, --bf16 or --best: every type is allowed that one of them names" in said, said


def test_an_engine_where_a_model_is_wanted_is_called_one(chain, tmp_path):
    types(chain)
    said = octavo("doctor", chain.with_suffix(".octavo"), code=3)
    assert "it is an engine of Octavo, not an ONNX model" in said, said


@pytest.mark.parametrize("name", ["V100", "sm_70"])
def test_gpus_that_are_too_old_are_told_so(chain, tmp_path, name):
    said = octavo("build", chain, "-o", tmp_path / "e.octavo", "--gpu", name, code=2 if name == "V100" else 4)
    assert "sm_75" in said, said
