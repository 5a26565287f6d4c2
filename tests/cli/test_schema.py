"""What tools read: real outputs against docs/explain.schema.json."""
import json
import os
import pathlib
import subprocess

import pytest

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ, FLOAT = (ROOT / "examples/digits" / f"digits_{form}.onnx" for form in ("qdq", "fp32"))
SCHEMA = json.loads((ROOT / "docs/explain.schema.json").read_text())


def octavo(*args):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def valid(document, definition=None):
    """The document; fails with every place that is not as the schema says."""
    schema = SCHEMA if definition is None else {"$ref": f"#/$defs/{definition}", "$defs": SCHEMA["$defs"]}
    wrong = [f"{e.json_path}: {e.message[:300]}" for e in jsonschema.Draft202012Validator(schema).iter_errors(document)]
    assert not wrong, "\n".join(wrong)
    return document


def causes(document):
    """Every cause in a document."""
    if isinstance(document, list):
        return {c for item in document for c in causes(item)}
    if not isinstance(document, dict):
        return set()
    own = {document["cause"]} if "cause" in document else set()
    return own | {c for value in document.values() for c in causes(value)}


@pytest.mark.parametrize("options", [[], ["--effort", "2"], ["--force", "stages,horizontal,stores,concat"], ["--disable", "fuse-epilogue"]])
def test_explain(options, tmp_path):
    effort = [] if "--effort" in options else ["--effort", "0"]
    plan = valid(json.loads(octavo("explain", QDQ, "--json", "--threads", 1, *effort, *options)))
    assert plan["schema"] == 1 and plan["regions"] and plan["laws"]["applied"]
    assert all(r["reasons"] for r in plan["regions"]) and "integer_anchor" in causes(plan)
    engine = tmp_path / "model.octavo"
    octavo("build", QDQ, "-o", engine, "--threads", 1, "--effort", "0")
    kept = valid(json.loads(octavo("explain", engine, "--json")))
    assert "laws" not in kept and causes(kept) >= {"integer_anchor", "epilogue_fused"}, "the engine file keeps the reasons"


def test_a_float_model_says_why(tmp_path):
    ranges = tmp_path / "ranges.json"
    ranges.write_text(json.dumps({"image": 1.0}))
    plan = valid(json.loads(octavo("explain", FLOAT, "--json", "--threads", 1, "--effort", "0", "--calibration", ranges)))
    assert "tensor_without_range" in causes(plan["regions"])


def test_trtexec_files(tmp_path):
    layers, times = tmp_path / "layers.json", tmp_path / "times.json"
    octavo("profile", QDQ, "--threads", 1, "--effort", "0", "--runs", 3, "--exportLayerInfo", layers, "--exportProfile", times)
    assert valid(json.loads(layers.read_text()), "layer_info")["OctavoSchema"] == 1
    valid(json.loads(times.read_text()), "profile")


def test_a_wrong_document_is_found():
    plan = json.loads(octavo("explain", QDQ, "--json", "--threads", 1, "--effort", "0"))
    plan["regions"][0]["reasons"] = [{"cause": "magic"}]
    with pytest.raises(AssertionError, match="magic"):
        valid(plan)
    del plan["regions"]
    with pytest.raises(AssertionError, match="regions"):
        valid(plan)
