"""The exported JSON read by the rules that TensorRT's engine explorer follows; a file that breaks a rule must be refused by the same reader."""
import copy
import json
import os
import pathlib
import re
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
        if re.search(r"\[profile \d+\]$", layer["Name"]):
            raise ValueError("named like another shape profile")
        if "HasBias" in layer:  # convolutions, also with pooling behind them
            if layer["HasBias"] != (layer["Bias"]["Count"] > 0) or layer["HasReLU"] != (layer["Activation"] != "NONE"):
                raise ValueError("bias or activation contradict themselves")
        if layer["ParameterType"] in ("Convolution", "Deconvolution"):
            depthwise = 1 < layer["Groups"] == layer["Inputs"][0]["Dimensions"][1] and layer["Weights"]["Count"] == layer["OutMaps"] * layer["Kernel"][0] * layer["Kernel"][1]
            if layer["ParameterType"] == "Convolution" and (layer["LayerType"] == "CudaDepthwiseConvolution") != depthwise:
                raise ValueError("depthwise convolutions are not told apart")
            for key in ("Kernel", "Stride", "Dilation", "PrePadding", "PostPadding", "OutMaps", "Groups"):
                layer[key]  # KeyError: the explorer's convolution table needs it
            if layer["Activation"] not in ("NONE", "RELU", "CLIPPED_RELU"):
                raise ValueError("unknown activation")
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
        pytest.skip("OCTAVO_TEST_DATA: the test data is not there")
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


def break_kind(graph, profile):
    next(layer for layer in graph["Layers"] if layer["LayerType"] == "CudaDepthwiseConvolution")["LayerType"] = "CaskConvolution"


def break_bias(graph, profile):
    next(layer for layer in graph["Layers"] if layer.get("HasBias"))["Bias"]["Count"] = 0


def break_activation(graph, profile):
    next(layer for layer in graph["Layers"] if layer.get("Activation") == "RELU")["Activation"] = "NONE"


def break_profile(graph, profile):
    graph["Layers"][0]["Name"] = profile[1]["name"] = "conv [profile 1]"


@pytest.mark.parametrize("change", [break_order, break_format, break_names, break_count, break_bindings, break_kind, break_bias, break_activation,
                                    break_profile])
def test_the_reader_notices(change, tmp_path):
    graph, profile = export(QDQ, tmp_path)
    read(graph, profile)
    damaged = copy.deepcopy((graph, profile))
    change(*damaged)
    with pytest.raises(ValueError):
        read(*damaged)


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code > 1 else done.stdout


def test_what_convolutions_end_in(tmp_path):
    """Known layers of the digits: Relu absorbed by the range, SiLU, none; a depthwise one."""
    layers = {layer["Name"].split(" + ")[0]: layer for layer in export(QDQ, tmp_path)[0]["Layers"]}
    assert {name: layers[name]["Activation"] for name in ("dw", "pw", "res1", "down", "head", "up")} == {
        "dw": "RELU", "pw": "RELU", "res1": "RELU", "down": "NONE", "head": "NONE", "up": "RELU"}
    assert layers["dw"]["LayerType"] == "CudaDepthwiseConvolution" and layers["pw"]["LayerType"] == "CaskConvolution"
    assert layers["pw"]["HasBias"] == 1 and layers["pw"]["Bias"]["Count"] == layers["pw"]["OutMaps"]


@pytest.mark.parametrize("command", ["build", "bench"])
def test_trtexec_options_of_build_and_bench(command, tmp_path):
    """The options that trtexec users give when they build: the same files as from `profile`, and the table only when it is asked for."""
    graph, profile, times, engine = (tmp_path / n for n in ("g.json", "p.json", "t.json", "m.engine"))
    own = [f"--onnx={QDQ}", f"--saveEngine={engine}"] if command == "build" else [f"--onnx={QDQ}", "--seconds", "0.05"]
    options = ["--effort", "0", "--threads", "1", "--iterations=5", f"--exportLayerInfo={graph}", f"--exportProfile={profile}", f"--exportTimes={times}",
               "--separateProfileRun", "--profilingVerbosity=detailed"]
    quiet = octavo(command, *own, *options)
    assert "GMAC/s" not in quiet
    joined = read(json.loads(graph.read_text()), json.loads(profile.read_text()))
    assert len(joined) > 8 and len(json.loads(times.read_text())) == 5
    assert "GMAC/s" in octavo(command, *own, "--effort", "0", "--threads", "1", "--runs", 5, "--dumpProfile")
    graph.unlink()
    octavo(command, *own, "--effort", "0", "--threads", "1", f"--exportLayerInfo={graph}")
    assert len(json.loads(graph.read_text())["Layers"]) == len(joined), "nothing has to run for the layers alone"


def test_profiling_verbosity(tmp_path):
    text = [octavo("profile", QDQ, "--effort", 0, "--threads", 1, "--runs", 1, "--exportLayerInfo", tmp_path / "g.json", "--profilingVerbosity", level)
            and (tmp_path / "g.json").read_text() for level in ("detailed", "layer_names_only", "none")]
    detailed, names, none = (json.loads(t) for t in text)
    assert names["Layers"] == [layer["Name"] for layer in detailed["Layers"]] and none["Layers"] == []
    assert names["Bindings"] == none["Bindings"] == detailed["Bindings"]
    with pytest.raises(ValueError):
        read(names, [{"count": 1}])
    assert "--profilingVerbosity" in octavo("profile", QDQ, "--profilingVerbosity", "loud", code=2)


def test_build_metadata(tmp_path):
    octavo("build", QDQ, "-o", tmp_path / "m.engine", "--effort", 0, "--threads", 1, "--exportMetadata", tmp_path / "m.build.metadata.json")
    meta = json.loads((tmp_path / "m.build.metadata.json").read_text())
    assert meta["model_options"] == {"Format": "ONNX", "Model": str(QDQ)}
    assert meta["build_options"]["Precision"] == "FP32+INT8" and meta["build_options"]["Builder optimization level"] == 0
    assert meta["build_options"]["Input shapes"] == {"image": "1x1x16x16"} and meta["device_information"]["Selected Device"]


def test_profile_of_real_inputs(tmp_path):
    """--input, as for `run`: the exported outputs are those of `run`; several inputs take turns; what does not fit is refused."""
    import numpy as np

    pictures = sorted((ROOT / "examples/digits/images").glob("*.png"))[:2]
    octavo("run", QDQ, "--input", pictures[0], "--scale", "1/255", "-o", tmp_path / "run.npz")
    wanted = next(iter(np.load(tmp_path / "run.npz").values())).reshape(-1)

    def outputs(*inputs):
        octavo("profile", QDQ, "--effort", 0, "--threads", 1, "--runs", 3, *inputs, "--exportOutput", tmp_path / "o.json")
        return np.float32(json.loads((tmp_path / "o.json").read_text())[0]["values"])

    assert np.array_equal(outputs("--input", pictures[0], "--scale", "1/255"), wanted)
    assert np.array_equal(outputs("--input", pictures[0], "--input", pictures[1], "--scale", "1/255"), wanted), "those of the first"
    assert not np.array_equal(outputs(), wanted), "without --input they are random"
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 16, 16), np.float32))
    assert '"image"' in octavo("profile", QDQ, "--effort", 0, "--input", tmp_path / "x.npy", code=5)


def test_files_survive_what_fails(tmp_path):
    kept = tmp_path / "g.json"
    kept.write_text("kept")
    octavo("bench", tmp_path / "none.onnx", "--exportLayerInfo", kept, code=7)
    assert "take one" in octavo("bench", QDQ, "--json", "--dumpProfile", "--exportLayerInfo", kept, code=2)
    assert "--region-key" in octavo("bench", QDQ, "--region-key", "k", "--exportLayerInfo", kept, code=2)
    assert kept.read_text() == "kept"
