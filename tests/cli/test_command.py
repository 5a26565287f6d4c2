"""The octavo command as its user sees it: results, files, exit codes and the text of errors. OCTAVO_BUILD names the build folder."""
import json
import os
import pathlib
import re
import subprocess
import sys

import by_region
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
QDQ, FP32, IMAGES = DIGITS / "digits_qdq.onnx", DIGITS / "digits_fp32.onnx", DIGITS / "images"


def octavo(*args, code=0, cwd=None, both=False):
    """stdout of a run that must end with `code`; stderr when it is not 0; `both`: one after the other."""
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300, cwd=cwd)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr if both else done.stderr if code > 1 else done.stdout


def pictures(count=20):
    paths = sorted(IMAGES.glob("*.png"))[:count]
    return paths, np.stack([np.asarray(Image.open(p)) for p in paths])[:, None].astype(np.float32) / np.float32(255)


@pytest.fixture(scope="session")
def two_inputs(tmp_path_factory):
    """y = a + relu(b), with an open batch."""
    nodes = [helper.make_node("Relu", ["b"], ["r"], name="relu"), helper.make_node("Add", ["a", "r"], ["y"], name="add")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "aby"]
    path = tmp_path_factory.mktemp("models") / "two.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "two", values[:2], values[2:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_version_and_help():
    assert octavo("--version").startswith("octavo 0.1.0 (")
    text = octavo("--help")
    for word in ("build", "run", "bench", "explain", "check", "Exit codes"):
        assert word in text
    for command in ("build", "run", "bench", "explain", "check"):
        assert "Example" in octavo(command, "--help")


def test_predictions_of_pictures():
    paths, _ = pictures()
    inputs = [x for p in paths for x in ("--input", p)]
    lines = octavo("run", QDQ, *inputs, "--scale", "1/255", "--labels", DIGITS / "labels.txt", "--top", 1).splitlines()
    assert [pathlib.Path(line.split()[0]) for line in lines] == paths
    assert sum(line.split()[2] == p.name[0] for line, p in zip(lines, paths)) >= 18
    assert lines[0].split()[3] == "zero"


def test_top_k_of_one_picture():
    lines = octavo("run", FP32, "--input", IMAGES / "3_005.png", "--scale", "1/255", "--top", 3).splitlines()
    assert len(lines) == 4 and lines[0].endswith("3_005.png")
    scores = [float(line.split()[0]) for line in lines[1:]]
    assert scores == sorted(scores, reverse=True) and lines[1].split()[1] == "3"


def test_regions_give_what_onnxruntime_gives(tmp_path):
    """Every quantized tensor of the network, computed from the same inputs as ONNX Runtime's: equal but for rounding ties."""
    _, x = pictures()
    found = by_region.split(onnx.load(QDQ))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(found.whole.SerializeToString(), options, providers=["CPUExecutionProvider"])
    theirs = dict(zip((o.name for o in session.get_outputs()), session.run(None, {"image": x})))
    feeds = {"image": x, **by_region.given(found, theirs)}
    onnx.save(found.parts, tmp_path / "parts.onnx")
    np.savez(tmp_path / "x.npz", **feeds)
    octavo("run", tmp_path / "parts.onnx", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--effort", 0)
    ours = dict(np.load(tmp_path / "y.npz"))
    wrong, ties, count = by_region.differences(found, feeds, theirs, ours)
    assert not wrong, "\n".join(wrong)
    assert len(ours) == len(found.rounded) + 1 and ties <= count / 10000
    name = next(n for n in found.rounded if n in ours)
    ours[name] = ours[name] ^ 1  # what a wrong kernel would do
    assert by_region.differences(found, feeds, theirs, ours)[0]


@pytest.mark.parametrize("model", [FP32, QDQ], ids=["fp32", "qdq"])
def test_arrays_and_pictures_give_the_same(tmp_path, model):
    _, x = pictures()
    np.savez(tmp_path / "x.npz", image=x, something_else=np.arange(3))
    octavo("run", model, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    ours = np.load(tmp_path / "y.npz")["head"]
    assert ours.dtype == np.float32 and ours.shape == (20, 10)
    if model == FP32:
        theirs = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"image": x})[0]
        assert np.abs(ours - theirs).max() < 1e-4
    # A picture through the command's own decoder and a compressed .npz are the same input.
    np.savez_compressed(tmp_path / "x1.npz", image=x[:1])
    octavo("run", model, "--input", tmp_path / "x1.npz", "--output", tmp_path / "y1.npz")
    octavo("run", model, "--input", pictures(1)[0][0], "--std", 255, "--output", tmp_path / "y2.npz")
    assert (np.load(tmp_path / "y1.npz")["head"] == np.load(tmp_path / "y2.npz")["head"]).all()
    if model == QDQ:  # a batch of 20 or of 1: integers do not mind
        assert (np.load(tmp_path / "y1.npz")["head"] == ours[:1]).all()


def test_a_long_array_runs_in_parts(tmp_path):
    _, x = pictures()
    np.save(tmp_path / "x.npy", x)
    for shapes, out in (([], "whole"), (["--shapes", "image:4x1x16x16"], "parts")):
        octavo("run", QDQ, "--input", tmp_path / "x.npy", "--output", tmp_path / f"{out}.npz", *shapes)
    assert (np.load(tmp_path / "whole.npz")["head"] == np.load(tmp_path / "parts.npz")["head"]).all()


def test_several_inputs(tmp_path, two_inputs):
    a, b = np.float32([[1, 2, 3]]), np.float32([[-1, 0, 5]])
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.asfortranarray(b.astype(np.float64)))
    octavo("run", two_inputs, "--input", f"a={tmp_path / 'a.npy'}", "--input", f"b={tmp_path / 'b.npy'}", "-o", tmp_path / "y.npz")
    assert (np.load(tmp_path / "y.npz")["y"] == a + np.maximum(b, 0)).all()
    text = octavo("run", two_inputs, "--input", tmp_path / "a.npy", code=2)
    assert f'error: --input {tmp_path / "a.npy"}: the model has 2 inputs; say which: --input NAME=' in text
    text = octavo("run", two_inputs, "--input", f"a={tmp_path / 'a.npy'}", code=2)
    assert text == 'error: nothing for input "b" f32[N,3]; give --input b=FILE\n'


def test_sizes_that_data_decide(tmp_path, monkeypatch):
    nodes = [helper.make_node("NonZero", ["x"], ["where"]), helper.make_node("Neg", ["x"], ["y"])]
    values = [helper.make_tensor_value_info(n, t, s) for n, t, s in (("x", TensorProto.FLOAT, [2, 3]), ("where", TensorProto.INT64, None), ("y", TensorProto.FLOAT, None))]
    onnx.save(helper.make_model(helper.make_graph(nodes, "sizes", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    octavo("build", tmp_path / "m.onnx", "-o", tmp_path / "m.octavo", "--effort", 0)
    for x in (np.float32([[0, 1, 0], [2, 0, 3]]), np.zeros((2, 3), np.float32)):
        np.save(tmp_path / "x.npy", x)
        for source in ("m.onnx", "m.octavo"):
            octavo("run", tmp_path / source, "--input", tmp_path / "x.npy", "-o", tmp_path / "y.npz")
            with np.load(tmp_path / "y.npz") as y:
                assert sorted(y) == ["where", "y"]
                np.testing.assert_array_equal(y["where"], np.array(np.nonzero(x)))
        octavo("check", tmp_path / "m.onnx", "--input", tmp_path / "x.npy")
        monkeypatch.setenv("OCTAVO_PYTHON", sys.executable)
        assert "where" in octavo("check", tmp_path / "m.onnx", "--against", "onnxruntime", "--input", tmp_path / "x.npy")


def test_engine_files(tmp_path):
    engine = tmp_path / "d.octavo"
    text = octavo("build", QDQ, "-o", engine, "--threads", 1, "--effort", 0, "--no-model")  # which keeps the options of the build, too
    assert text.startswith(f"{engine}: ") and ", plan " in text
    again = tmp_path / "again.octavo"
    octavo("build", f"--onnx={QDQ}", f"--saveEngine={again}", "--shapes=image:1x1x16x16", "--threads", 1, "--builderOptimizationLevel=0", "--no-model")
    assert engine.read_bytes() == again.read_bytes()
    for source in (QDQ, engine, f"--loadEngine={engine}"):
        octavo("run", source, "--input", IMAGES / "7_019.png", "--scale", "1/255", "-o", tmp_path / "y.npz")
        (tmp_path / f"{len(str(source))}.bin").write_bytes((tmp_path / "y.npz").read_bytes())
    assert len({p.read_bytes() for p in tmp_path.glob("*.bin")}) == 1
    assert json.loads(octavo("explain", engine, "--json"))["plan_hash"] == json.loads(octavo("explain", QDQ, "--threads", 1, "--effort", 0, "--json"))["plan_hash"]
    damaged = bytearray(engine.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    engine.write_bytes(damaged)
    assert octavo("run", engine, "--input", IMAGES / "7_019.png", code=6).startswith("error: ")
    engine.write_bytes(bytes(damaged[:1000]))
    assert octavo("explain", engine, code=6).startswith("error: ")


def test_explain():
    table = octavo("explain", QDQ, "--threads", 1, "--effort", 0).splitlines()  # two builds that measure may differ
    plan = json.loads(octavo("explain", QDQ, "--threads", 1, "--effort", 0, "--json"))
    assert len(table) == 1 + len(plan["regions"]) + 3 and "roundings inside regions" in table[-1]
    assert table[0].split() == ["#", "precision", "tactic", "ONNX", "nodes", "reason"]
    every = {n.name for n in onnx.load(QDQ).graph.node}
    told = {name for region in plan["regions"] for name in region["onnx_nodes"]}
    assert every == told, "every ONNX node belongs to a region"
    for region in plan["regions"]:
        assert region["tactic"] and region["reason"] and region["precision"]
    text = octavo("explain", QDQ, "--node", "res2")
    assert text.startswith("region ") and "\n  alternative   " in text and "\n  reason        " in text
    text = octavo("explain", QDQ, "--node", "res3", code=2)
    assert text.startswith('error: the plan of "digits" has no ONNX node "res3"\n  nearest: "res1", "res2", "')


def test_bench():
    text = octavo("bench", QDQ, "--threads", 1, "--seconds", 0.05, "--batch", 2, "--json")
    result = json.loads(text)
    assert result["batch"] == 2 and result["threads"] == 1 and result["runs"] >= 10
    assert 0 < result["min_ms"] <= result["median_ms"] <= result["p99_ms"]
    assert result["build_ms"] > 0 and result["first_ms"] > 0 and "load_ms" not in result
    lines = octavo("bench", QDQ, "--threads", 1, "--seconds", 0.05, "--regions").splitlines()
    assert "batch 1, 1 thread: median " in lines[0] and len(lines) > 5
    assert re.fullmatch(r"built in [0-9.]+ m?s, first run done [0-9.]+ m?s later", lines[1])


def test_time_to_the_first_run(tmp_path):
    engine = tmp_path / "m.octavo"
    octavo("build", QDQ, "--effort", 0, "--threads", 1, "-o", engine)
    result = json.loads(octavo("bench", engine, "--seconds", 0.01, "--json"))
    assert result["load_ms"] > 0 and result["first_ms"] > 0 and "build_ms" not in result
    said = r"loaded, checked, kernels ready in [0-9.]+ m?s, first run done [0-9.]+ m?s later"
    assert re.fullmatch(said, octavo("bench", engine, "--seconds", 0.01).splitlines()[1])
    assert re.fullmatch(said, octavo("profile", engine, "--runs", 2).splitlines()[-1])


@pytest.mark.parametrize("model", [FP32, QDQ], ids=["fp32", "qdq"])
def test_check(model):
    line = octavo("check", model, "--input", IMAGES / "0_008.png", "--scale", "1/255").splitlines()[-1]
    assert line.startswith("ok (") and ", 0 not judged, 0 differ; " in line
    octavo("check", model, "--seed", 3)


def test_disable_a_rule():
    assert octavo("explain", QDQ, "--disable", "no-such-rule", code=2).startswith("error: ")


def test_force_an_answer():
    text = octavo("explain", QDQ, "--force", "no-such-choice", code=2)
    assert text.startswith("error: --force=no-such-choice: no choice of this name can be forced\n  known: fuse-conv-pool, stages, ")
    text = octavo("explain", QDQ, "--force", "stages", "--disable", "stages", code=2)
    assert text == "error: --force=stages and --disable=stages: give one of them\n"
    apart = octavo("explain", QDQ, "--effort", 0, "--threads", 1)
    forced = octavo("explain", QDQ, "--effort", 0, "--threads", 1, "--force", "fuse-conv-pool,horizontal,stages,stage-operand", "--all")
    assert forced != apart and "(forced)" in forced


@pytest.mark.parametrize(
    "args, code, text",
    [
        ([], 2, "error: no command given, such as build, run or explain\n  see: octavo --help\n"),
        (["biuld", QDQ], 2, None),
        (["run"], 2, "error: no model given; name its file, for example: octavo run model.onnx --input photo.jpg\n"),
        (["run", "absent.onnx"], 7, "error: reading absent.onnx: no such file\n"),
        (["run", QDQ, "--top", "0", "--input", "x"], 2, "error: --top: Value 0 not in range 1 to 1000\n  see: octavo run --help\n"),
        (["run", QDQ], 2, 'error: nothing for input "image" f32[N,1,16,16]; give --input image=FILE\n'),
        (["run", QDQ, "--input", "absent.png"], 7, 'error: cannot read "absent.png": No such file or directory\n'),
        (["run", QDQ, "--input", DIGITS / "labels.txt"], 5, f'error: "{DIGITS / "labels.txt"}" is not a JPEG, PNG, .npy or .npz file\n'),
        (["run", DIGITS / "labels.txt"], 3, None),
        (["run", QDQ, "--input", IMAGES / "0_008.png", "--scale", "1/0"], 2, 'error: --scale 1/0: "1/0" is not a number such as 0.5 or 1/255\n'),
        (["run", QDQ, "--input", IMAGES / "0_008.png", "--preset", "keras"], 2, "error: --preset keras: not one of torch, tf, caffe, cifar, yolox\n"),
        (["run", QDQ, "--input", IMAGES / "0_008.png", "--resize", "8x8"], 2,
         "error: the picture is 8x8 after --resize and --crop; the input is 16x16 (height x width)\n"),
        (["build", QDQ, "-o", "/nonexistent/e.octavo"], 7, None),
        (["bench", FP32, "--optShapes=image:1x1x16x16", "--minShapes=image:2x1x16x16", "--maxShapes=image:8x1x16x16"], 2,
         "error: --minShapes image:2x1x16x16, --optShapes image:1x1x16x16, --maxShapes image:8x1x16x16: they need the same inputs and ranks, and "
         "min <= opt <= max in every dimension\n"),
        ([QDQ], 2, f'error: "{QDQ}" is a file, and a command must come first, as in: octavo bench {QDQ}\n  see: octavo --help\n'),
        (["build", QDQ], 2, "error: --output is required, as in: octavo build model.onnx -o model.octavo\n  see: octavo build --help\n"),
        (["convert", QDQ, "--batch", "8"], 2, 'error: "--batch" is not an option of octavo convert; it is one of octavo build, octavo run, octavo bench, octavo profile, octavo explain, '
         "octavo view, octavo check, octavo doctor, octavo advise, octavo quantize, octavo eval\n"
         "  the batch of an engine is part of its shapes, as in: --shapes image:8x3x224x224\n  see: octavo convert --help\n"),
        (["run", QDQ, "--imput=x.png"], 2, 'error: "--imput" is not an option of octavo run; nearest: "--input", "--cpu", "--output"\n  see: octavo run --help\n'),
        (["bench", QDQ, "more"], 2, 'error: octavo bench takes no argument "more" here\n  see: octavo bench --help\n'),
        (["cache", "list"], 2, "error: octavo cache takes one of show, diff, merge, pin, unpin, prune\n  see: octavo cache --help\n"),
        (["bench", FP32, "--shapes", "image"], 2, 'error: --shapes image: "image" is not NAME:DIMxDIMx..., as in image:1x3x224x224\n'),
        (["bench", FP32, "--shapes", "image:1x1x16x16", "--batch", "2"], 2, f'error: --batch 2: the batch of "{FP32}" is fixed at 1\n  leave --batch out, or build for that batch where the model leaves it open: octavo build MODEL.onnx -o ENGINE --batch 2\n'),
    ],
)
def test_errors(args, code, text):
    got = octavo(*args, code=code)
    assert got.startswith("error: ")
    if text is not None:
        assert got == text


@pytest.mark.parametrize("args", [["-m", "x"], ["-niter", "10"], ["-hint", "latency"], ["-op", "f16"], ["-ol=NHWC"], ["-d", "CPU"]])
def test_options_of_benchmark_app_are_named(args, tmp_path):
    """-hint would otherwise be -h, and -op f16 an output file p."""
    for command in ("bench", "build"):
        text = octavo(command, QDQ, *args, code=2, cwd=tmp_path)
        assert text.startswith(f'error: "{args[0].partition("=")[0]}') and f"is not an option of octavo {command}" in text
        assert "docs/from-openvino.md lists the options of benchmark_app" in text
    assert not list(tmp_path.iterdir())


def test_an_option_of_trtexec_with_a_slip():
    assert '"--warmup" is not an option of octavo bench; nearest: "--warmUp"' in octavo("bench", QDQ, "--warmup", "5", code=2)


def test_pictures_without_preprocessing_are_pointed_out_where_data_are_read(tmp_path):
    for args in (["eval", FP32, QDQ], ["quantize", FP32, "-o", tmp_path / "x.onnx"]):
        plain = octavo(*args, "--data", IMAGES, both=True)
        assert 'warning: no preprocessing is given: pixels go into "image" as 0 to 255' in plain
        assert "no preprocessing" not in octavo(*args, "--data", IMAGES, "--scale", "1/255", both=True)


def test_array_that_does_not_fit(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 16, 16), np.float32))
    text = octavo("run", QDQ, "--input", tmp_path / "x.npy", code=5)
    assert '"image"' in text and "[1,3,16,16]" in text
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 16, 16), np.uint8))
    text = octavo("run", QDQ, "--input", tmp_path / "x.npy", code=5)
    assert text == 'error: input "image" takes f32, the array holds u8\n  convert it first: array.astype(...)\n'


def test_resizing_is_pillows(tmp_path):
    """A model that hands its input through: --resize and --crop against Pillow's bilinear, within one grey level."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 20, 24])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 20, 24])
    one = numpy_helper.from_array(np.float32(1), "one")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "one"], ["y"], name="mul")], "same", [x], [y], [one])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "same.onnx")
    picture = Image.fromarray(np.random.default_rng(4).integers(0, 256, (61, 83, 3), np.uint8).astype(np.uint8))
    picture.save(tmp_path / "p.png")
    octavo("run", tmp_path / "same.onnx", "--input", tmp_path / "p.png", "--resize", "30x40", "--crop", "20x24", "-o", tmp_path / "y.npz")
    expected = np.asarray(picture.resize((40, 30), Image.BILINEAR).crop((8, 5, 32, 25)), np.float32).transpose(2, 0, 1)
    assert np.abs(np.load(tmp_path / "y.npz")["y"][0] - expected).max() <= 1


def test_force_a_tactic(tmp_path):
    """The commands of docs/timing-cache.md."""
    times, engine = tmp_path / "times.txt", tmp_path / "model.octavo"
    log = subprocess.run([OCTAVO, "build", QDQ, "-o", engine, "--threads", "1", "--effort", "1", "--timing-cache", times, "--verbose"], capture_output=True, text=True,
                         check=True, timeout=300).stderr
    used = [line for line in log.splitlines() if line.startswith("timing: ")]
    text = times.read_text()
    assert used and all(line.split(" | ")[1] in text for line in used), "the log's keys are the file's keys"
    first = engine.read_bytes()
    octavo("build", QDQ, "-o", engine, "--threads", 1, "--effort", 1, "--timing-cache", times, "--strict-timing")
    assert engine.read_bytes() == first
    layers = json.loads(octavo("explain", engine, "--json"))["regions"]
    layer = next(r for r in layers if r["tactic"].startswith("cpu.conv."))
    other = next(a["tactic"] for a in layer["alternatives"] if a["tactic"] != layer["tactic"] and "refused" not in a["reason"])
    octavo("cache", "pin", times, "--key", layer["key"], "--tactic", other)
    octavo("build", QDQ, "-o", engine, "--threads", 1, "--effort", 1, "--timing-cache", times)
    again = json.loads(octavo("explain", engine, "--json"))["regions"]
    pinned = next(r for r in again if r["key"] == layer["key"])
    assert pinned["tactic"] == other and any("pinned" in a["reason"] for a in pinned["alternatives"])
    assert engine.read_bytes() != first
    assert other in octavo("bench", engine, "--region-key", layer["key"], "--seconds", 0.05)
    octavo("cache", "unpin", times, "--key", layer["key"])
    octavo("build", QDQ, "-o", engine, "--threads", 1, "--effort", 1, "--timing-cache", times)
    assert json.loads(octavo("explain", engine, "--json"))["regions"][layers.index(layer)]["tactic"] == layer["tactic"]


def test_cache_command(tmp_path):
    a, b, both = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "both.txt"
    octavo("build", QDQ, "-o", tmp_path / "e.octavo", "--threads", 1, "--timing-cache", a)
    octavo("build", QDQ, "-o", tmp_path / "e.octavo", "--threads", 2, "--timing-cache", b)
    assert "entries differ" in octavo("cache", "diff", a, b, code=1)
    octavo("cache", "merge", both, a, b)
    count = lambda path: sum(" | " in line for line in path.read_text().splitlines())
    assert count(both) == count(a) + count(b) > 0
    octavo("cache", "diff", both, both)
    octavo("cache", "prune", both, "--keep-keys-of", tmp_path / "e.octavo")
    assert 0 < count(both) <= count(a) + count(b)
    assert f"{count(both)} of {count(both)} times" in octavo("cache", "show", both)
    both.write_text(both.read_text().replace(" us ", " s ", 1))
    assert "line 3" in octavo("cache", "show", both, code=5)
    strict = octavo("build", QDQ, "-o", tmp_path / "never.octavo", "--timing-cache", tmp_path / "empty.txt", "--strict-timing", code=2)
    assert "key: " in strict and not (tmp_path / "never.octavo").exists()
