"""The exported JSON read by the rules that TensorRT's engine explorer follows; a file that breaks a rule must be refused by the same reader."""
import copy
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))

SIZES = {"Row major linear FP32": 4, "Float": 4, "Row major linear FP16 format": 2, "Half": 2, "Channel major FP16 format where channel % 8 == 0": 2,
         "Row major Int8 format": 1, "Channel major Int8 format": 1, "Int8": 1, "Row major linear UInt8 format": 1, "UInt8": 1, "Int32": 4, "Bool": 1,
         "Row major linear BFloat16 format": 2, "BFloat16": 2}


def read(graph, profile):
    """Layers joined with their times; raises ValueError where the explorer would fail or drop something."""
    layers = graph["Layers"]
    if not layers or not isinstance(layers[0], dict):
        raise ValueError("layers are not detailed")
    if not [b for b in graph["Bindings"] if "profile" not in b]:
        raise ValueError("no bindings remain")
    if len({layer["Name"] for layer in layers}) != len(layers):
        raise ValueError("layer names are not unique")
    records = [r for r in profile if len(r) in (4, 5)]
    if "count" not in profile[0] or len(records) != len(layers):
        raise ValueError("the profile cannot be joined by position")
    for layer, record in zip(layers, records):
        if record["name"] != layer["Name"]:
            raise ValueError("another order")
        for tensor in layer["Inputs"] + layer["Outputs"]:
            if tensor["Format/Datatype"].replace(".", "") not in SIZES:
                raise ValueError(f"unknown format {tensor['Format/Datatype']}")
        if not layer["TacticValue"].startswith("0x") or len(layer["TacticValue"]) != 18:
            raise ValueError("tactic value")
        if layer["ParameterType"] == "Convolution":
            for key in ("Kernel", "Stride", "Dilation", "PrePadding", "PostPadding", "OutMaps", "Groups"):
                layer[key]  # KeyError: the explorer's convolution table needs it
            if layer["Weights"]["Type"] not in ("Int8", "Half", "Float", "Int32"):
                raise ValueError("weights of size 0")
    return list(zip(layers, records))


def export(model, folder):
    graph, profile = folder / "g.json", folder / "p.json"
    subprocess.run([OCTAVO, "profile", model, "--effort", "0", "--threads", "1", "--runs", "5", "--exportLayerInfo", graph, "--exportProfile", profile,
                    "--exportTimes", folder / "t.json", "--exportMetadata", folder / "m.json", "--separateProfileRun", "--dumpProfile",
                    "--profilingVerbosity", "detailed"], check=True, capture_output=True, timeout=300)
    return json.loads(graph.read_text()), json.loads(profile.read_text())


@pytest.mark.parametrize("model", [QDQ, DATA / "models/mobilenetv2_qdq_perchannel_s8.onnx"], ids=["digits", "mobilenet"])
def test_layers_and_profile_join(model, tmp_path):
    if not model.exists():
        pytest.skip("needs the test data")
    graph, profile = export(model, tmp_path)
    joined = read(graph, profile)
    convolutions = [(layer, r) for layer, r in joined if layer["ParameterType"] == "Convolution"]
    assert convolutions and all(layer["Inputs"][0]["Format/Datatype"].endswith("Int8 format") for layer, _ in convolutions)
    assert all("[ONNX Layer: " in layer["Metadata"] for layer, _ in joined)
    assert abs(sum(r["percentage"] for _, r in joined) - 100) < 1e-6
    assert all(r["averageMs"] > 0 and r["timeMs"] == pytest.approx(r["averageMs"] * profile[0]["count"]) for _, r in joined)
    assert {b["Name"] for b in graph["I/O Tensors"]} == set(graph["Bindings"])
    times = json.loads((tmp_path / "t.json").read_text())
    assert len(times) == 5 and all(t["latencyMs"] > 0 for t in times)
    assert json.loads((tmp_path / "m.json").read_text())["performance_summary"]["Throughput"] > 0


def break_order(graph, profile):
    graph["Layers"].reverse()


def break_format(graph, profile):
    graph["Layers"][0]["Inputs"][0]["Format/Datatype"] = "NHWC"


def break_names(graph, profile):
    graph["Layers"][1]["Name"] = profile[2]["name"] = graph["Layers"][0]["Name"]


def break_count(graph, profile):
    profile.pop()


def break_bindings(graph, profile):
    graph["Bindings"] = []


@pytest.mark.parametrize("change", [break_order, break_format, break_names, break_count, break_bindings])
def test_the_reader_notices(change, tmp_path):
    graph, profile = export(QDQ, tmp_path)
    read(graph, profile)
    damaged = copy.deepcopy((graph, profile))
    change(*damaged)
    with pytest.raises(ValueError):
        read(*damaged)
