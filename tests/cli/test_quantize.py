"""octavo quantize and octavo eval: from a float model and data to ranges, Q/DQ models and engines; what bad data is answered."""
import json
import os
import pathlib
import shlex
import shutil
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pytest
from ort_exact import LEVELS, exact_session
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
FP32, QDQ, PICTURES = DIGITS / "digits_fp32.onnx", DIGITS / "digits_qdq.onnx", DIGITS / "images"
RECIPE = ("--scale", "1/255", "--effort", 0)


def run(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=600)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def pictures(data):
    """Are there any among the data? A recipe for them is refused where there are none."""
    data = pathlib.Path(data)
    files = [data] if data.is_file() else list(data.iterdir()) if data.is_dir() else []
    return not data.exists() or any(f.suffix.lower() in (".png", ".jpg", ".jpeg") for f in files)


def quantize(output, *args, data=PICTURES, model=FP32, code=0):
    threads = () if "--threads" in args else ("--threads", 2)
    recipe = (RECIPE[:2] if pictures(data) else ()) + (RECIPE[2:] if str(output).endswith(".octavo") else ())
    return run("quantize", model, "--data", data, *recipe, *threads, *args, "-o", output, code=code)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every form of output, once."""
    folder = tmp_path_factory.mktemp("quantized")
    for name in ("model.q.onnx", "ranges.cache", "ranges.json", "model.octavo"):
        (folder / f"{name}.txt").write_text(quantize(folder / name, "--report", folder / f"{name}.report").stdout)
    return folder


def test_the_model_with_pairs_runs_in_onnx_runtime_with_the_same_results(made, tmp_path):
    model = onnx.load(made / "model.q.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert any(n.op_type == "QuantizeLinear" for n in model.graph.node)
    batch = np.random.default_rng(0).random((1, 1, 16, 16), np.float32)
    theirs = exact_session(made / "model.q.onnx", LEVELS.ORT_DISABLE_ALL).run(None, {"image": batch})[0]
    np.save(tmp_path / "x.npy", batch)
    run("run", made / "model.q.onnx", "--input", tmp_path / "x.npy", "-o", tmp_path / "y.npz", "--effort", 0)
    ours = next(iter(np.load(tmp_path / "y.npz").values()))
    # Float sums of the two engines differ in order, so that a value next to a tie may become the neighbouring code.
    assert np.abs(ours - theirs).max() <= 0.02 * np.abs(theirs).max()
    assert "0 differ" in run("check", made / "model.q.onnx", "--input", tmp_path / "x.npy", "--effort", 0).stdout


def test_eval_puts_all_forms_side_by_side(made, tmp_path):
    run("eval", FP32, made / "model.q.onnx", made / "model.octavo", "--calibration", made / "ranges.cache", "--data", PICTURES, *RECIPE[:2],
        "--json", tmp_path / "e.json", "--save", tmp_path / "outputs")
    result = json.loads((tmp_path / "e.json").read_text())
    float_, implicit, explicit, engine = result["models"]
    assert float_["sqnr_db"] is None and float_["same_top"] == 1
    assert implicit["sqnr_db"] > 20 and explicit["sqnr_db"] > 25
    assert explicit["sqnr_db"] == pytest.approx(engine["sqnr_db"], abs=0.5)  # built for several threads: float sums may differ
    saved = np.load(tmp_path / "outputs/00000.npz")
    assert sorted(k.split(".")[0] for k in saved) == ["0", "1", "2", "3"]
    report = json.loads((made / "model.q.onnx.report").read_text())
    assert report["sqnr_db"] == pytest.approx(explicit["sqnr_db"], abs=0.5)  # the same pictures


def test_corrections_gain_and_can_be_switched_off(made, tmp_path):
    model = tmp_path / "b.onnx"
    bottlenecks(model)
    quantize(tmp_path / "f.onnx", "--report", tmp_path / "f.report", model=model)
    quantize(tmp_path / "n.onnx", "--no-equalization", "--rounding", "nearest", "--no-bias-correction", "--report", tmp_path / "n.report", model=model)
    fitted, plain = (json.loads((tmp_path / f"{k}.report").read_text()) for k in "fn")
    assert fitted["sqnr_db"] > plain["sqnr_db"] + 2
    assert any("_corrected" in t.name for t in onnx.load(tmp_path / "f.onnx").graph.initializer)
    names = {t.name for t in onnx.load(tmp_path / "n.onnx").graph.initializer}
    assert not any("_corrected" in n for n in names)
    text = (made / "model.q.onnx.txt").read_text()
    assert "signal to noise at the outputs without corrections" in text and "layers int8" in text


@pytest.mark.parametrize("name", ["model.q.onnx", "ranges.cache", "ranges.json"])
def test_the_same_bytes_on_any_number_of_threads(made, tmp_path, name):
    for threads in (1, 3):
        quantize(tmp_path / name, "--threads", threads)
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes(), threads


def test_engines_are_the_same_bytes_for_any_number_of_threads_that_quantize(made, tmp_path):
    """`--threads` also says what the engine is for, so that it is built from models that different numbers of threads quantized."""
    for threads in (1, 3):
        quantize(tmp_path / f"{threads}.q.onnx", "--threads", threads)
        run("build", tmp_path / f"{threads}.q.onnx", "--effort", 0, "--threads", 1, "-o", tmp_path / f"{threads}.octavo")
    assert (tmp_path / "1.octavo").read_bytes() == (tmp_path / "3.octavo").read_bytes()


def test_a_table_read_back_keeps_every_scale(made, tmp_path):
    """Written as TensorRT writes it, read, and written again as pairs: the float32 scales are the same to the last bit."""
    scales = {line.rsplit(": ", 1)[0]: int(line.rsplit(": ", 1)[1], 16) for line in (made / "ranges.cache").read_text().splitlines()[1:]}
    run("convert", FP32, "--from-table", made / "ranges.cache", "--qdq-model", tmp_path / "pairs.onnx")
    run("convert", tmp_path / "pairs.onnx", "--to-table", tmp_path / "back.cache", "--float-model", tmp_path / "f.onnx")
    back = {line.rsplit(": ", 1)[0]: int(line.rsplit(": ", 1)[1], 16) for line in (tmp_path / "back.cache").read_text().splitlines()[1:]}
    assert back and all(scales[name] == bits for name, bits in back.items())


def test_tables_are_what_build_takes(made, tmp_path):
    lines = (made / "ranges.cache").read_text().splitlines()
    assert lines[0] == "TRT-100700-EntropyCalibration2"
    quantize(tmp_path / "symmetric.json", "--activations", "symmetric")
    for table in (made / "ranges.cache", made / "ranges.json", tmp_path / "symmetric.json"):
        out = run("build", FP32, "--shapes", "image:1x1x16x16", "--effort", 0, "--threads", 1, "--calibration", table, "-o",
                  tmp_path / f"{table.stem}{table.suffix}.octavo").stdout
        assert "name no tensor" not in out and " 0 float" in out, out
    engines = {name: (tmp_path / f"{name}.octavo").read_bytes() for name in ("ranges.cache", "ranges.json", "symmetric.json")}
    assert engines["ranges.cache"] == engines["symmetric.json"] != engines["ranges.json"]


def test_ranges_with_zero_points_are_the_explicit_models(made, tmp_path):
    """Pairs made from them, taken as permissions, give the plan of the ranges; and they keep more of the signal than symmetric ones."""
    run("convert", FP32, "--from-table", made / "ranges.json", "--qdq-model", tmp_path / "pairs.onnx")
    pairs = {n.input[0] for n in onnx.load(tmp_path / "pairs.onnx").graph.node if n.op_type == "QuantizeLinear"}
    ranges = {tensor: ends for tensor, ends in json.loads((made / "ranges.json").read_text()).items() if tensor in pairs}
    assert ranges and all(len(ends) == 2 for ends in ranges.values()) and any(ends[0] == 0 < ends[1] for ends in ranges.values())
    (tmp_path / "used.json").write_text(json.dumps(ranges))
    options = ["--shapes", "image:1x1x16x16", "--effort", 0, "--threads", 1, "-o", tmp_path / "m.octavo"]
    plans = [run("build", *model, *options).stdout.split("plan ")[1].split()[0]
             for model in ((tmp_path / "pairs.onnx", "--qdq", "permit"), (FP32, "--calibration", tmp_path / "used.json"))]
    assert plans[0] == plans[1]
    sqnr = {kind: json.loads((made / f"ranges.{kind}.report").read_text())["sqnr_db"] for kind in ("json", "cache")}
    assert sqnr["json"] > sqnr["cache"] + 2, sqnr


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_methods(tmp_path, method):
    quantize(tmp_path / "r.json", "--method", method, "--no-measure", "--report", tmp_path / "r.report")
    report = json.loads((tmp_path / "r.report").read_text())
    assert {t["method"] for t in report["tensors"]} == {method} and report["sqnr_db"] is None
    for t in report["tensors"]:
        amax = max(-t["min"], t["max"])
        assert 0 < max(-t["low"], t["high"]) <= amax * 1.0001 and (method != "minmax" or (t["low"], t["high"]) == (min(t["min"], 0), max(t["max"], 0)))


def test_a_text_file_in_the_folder_is_named_and_left_out(made, tmp_path):
    shutil.copytree(PICTURES, tmp_path / "data")
    (tmp_path / "data/labels.csv").write_text("file,class_index\n")  # the folder's own labels: no word of them
    (tmp_path / "data/notes.txt").write_text("taken in June\n")
    done = quantize(tmp_path / "ranges.cache", data=tmp_path / "data")
    assert "notes.txt is left out: not a JPEG, PNG, .npy or .npz file" in done.stderr and "labels.csv" not in done.stderr
    assert (tmp_path / "ranges.cache").read_bytes() == (made / "ranges.cache").read_bytes()


def test_black_pictures_and_single_ones_are_named(tmp_path):
    Image.new("L", (16, 16)).save(tmp_path / "black.png")
    done = quantize(tmp_path / "r.cache", data=tmp_path / "black.png", code=0)
    assert "black.png is 0 everywhere" in done.stderr and "there is only one sample" in done.stderr


@pytest.mark.parametrize(("make", "code", "text"), [
    (lambda p: None, 7, "no such file or folder"),
    (lambda p: p.mkdir(), 5, "0 files, and no JPEG, PNG, .npy or .npz among them"),
    (lambda p: p.write_text("hello"), 5, "not a folder, JPEG, PNG, .npy or .npz file"),
    (lambda p: np.save(p.open("wb"), np.full((2, 1, 16, 16), np.nan, np.float32)), 5, "is nan"),
    (lambda p: np.save(p.open("wb"), np.zeros((1, 1, 8, 8), np.float32)), 5, "takes f32[1,1,16,16], the array is f32[1,1,8,8]"),
    (lambda p: np.save(p.open("wb"), np.zeros((1, 16, 16, 1), np.float32)), 5, "its channels are last, the model's are first: numpy.transpose(x, (0, 3, 1, 2))"),
    (lambda p: np.save(p.open("wb"), np.zeros((0, 1, 16, 16), np.float32)), 5, "the array is f32[0,1,16,16]"),
    (lambda p: np.save(p.open("wb"), np.full((2, 1, 16, 16), np.inf, np.float32)), 5, "is inf"),
    (lambda p: np.save(p.open("wb"), np.zeros((1, 1, 16, 16), np.int64)), 5, "takes f32, the array holds s64"),
    (lambda p: p.write_bytes((PICTURES / sorted(os.listdir(PICTURES))[0]).read_bytes()[:60]), 5, "data"),
])
def test_bad_data_is_an_error_that_names_it(tmp_path, make, code, text):
    path = tmp_path / "data"
    make(path)
    done = quantize(tmp_path / "r.cache", data=path, code=code)
    assert text in done.stderr and str(path) in done.stderr and not (tmp_path / "r.cache").exists(), done.stderr


def test_what_cannot_be_is_refused(tmp_path):
    assert "no data: give --data" in run("quantize", FP32, "-o", tmp_path / "r", code=2).stderr
    assert "has quantized tensors already" in quantize(tmp_path / "r", model=QDQ, code=2).stderr
    assert "holds one scale for each tensor and no zero point" in quantize(tmp_path / "r", "--activations", "asymmetric", code=2).stderr
    assert "known are best, minmax" in quantize(tmp_path / "r", "--method", "magic", code=2).stderr


def test_labels(tmp_path):
    names = sorted(os.listdir(PICTURES))[:4]
    data = tmp_path / "data"
    data.mkdir()
    for n in names:
        shutil.copy(PICTURES / n, data / n)
    common = ("eval", FP32, "--data", data, *RECIPE[:2])
    (tmp_path / "l.csv").write_text("file,class_index\n" + "".join(f"{n},{i % 10}\n" for i, n in enumerate(names)))
    (tmp_path / "l.txt").write_text("0\n1\n2\n3\n")
    run(*common, "--labels", tmp_path / "l.txt", "--json", tmp_path / "a.json")
    run(*common, "--labels", tmp_path / "l.csv", "--json", tmp_path / "b.json")
    a, b = (json.loads((tmp_path / f"{k}.json").read_text())["models"][0] for k in "ab")
    assert a["top1"] == b["top1"] and a["top5"] == b["top5"]
    assert "nothing.csv" in run(*common, "--labels", tmp_path / "nothing.csv", code=7).stderr
    (tmp_path / "word.txt").write_text("0\n1\ncat\n3\n")
    assert "cat" in run(*common, "--labels", tmp_path / "word.txt", code=5).stderr
    (tmp_path / "short.txt").write_text("0\n")
    assert "1 lines for 4 samples" in run(*common, "--labels", tmp_path / "short.txt", code=5).stderr
    (tmp_path / "far.txt").write_text("0\n1\n2\n77\n")
    assert "has class 77, the network knows 0 to 9" in run(*common, "--labels", tmp_path / "far.txt", code=5).stderr
    (tmp_path / "less.csv").write_text(f"file,class_index\n{names[0]},1\n")
    assert "no line for" in run(*common, "--labels", tmp_path / "less.csv", code=5).stderr


def test_biases_fit_into_int32_in_what_it_writes(tmp_path):
    """A channel without weights, as pruning and weight decay leave them, keeps its bias: its scale is large enough for it, and doctor finds nothing."""
    rng = np.random.default_rng(8)
    weights = rng.normal(0, 0.1, (4, 3, 3, 3)).astype(np.float32)
    weights[1], weights[2] = 0, weights[2] * np.float32(1e-12)
    bias = np.float32([0.1, 5, -3, 0.2])
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    value = lambda name, channels: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 8, 8])
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", pads=[1, 1, 1, 1])], "g", [value("x", 3)], [value("y", 4)], constants)
    model, quantized, data = tmp_path / "m.onnx", tmp_path / "q.onnx", tmp_path / "x.npz"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    np.savez(data, x=rng.uniform(-1, 1, (10, 3, 8, 8)).astype(np.float32))
    ranges = tmp_path / "ranges.json"
    run("quantize", model, "--data", data, "-o", quantized)
    run("quantize", model, "--data", data, "-o", ranges)
    run("convert", model, "--from-table", ranges, "--qdq-model", tmp_path / "c.onnx")
    for written in (quantized, tmp_path / "c.onnx"):
        assert any(n.op_type == "QuantizeLinear" for n in onnx.load(written).graph.node), "the test has its subject"
        findings = json.loads(run("doctor", written, "--json").stdout)["findings"]
        assert not [f for f in findings if f["rule"] == "bias-overflow"], findings
    run("run", quantized, "--input", data, "--output", tmp_path / "y.npz", "--effort", 0)
    y = np.load(tmp_path / "y.npz")["y"]
    assert np.allclose(y[:, 1], 5, atol=0.05) and np.allclose(y[:, 2], -3, atol=0.05), (y[:, 1], y[:, 2])


def bottlenecks(path, rng=np.random.default_rng(5)):
    """Two inverted bottlenecks with an addition, as in MobileNetV2, whose channels are up to 40 times as wide as others."""
    nodes, values = [], []

    def conv(x, y, outs, ins, kernel=1, group=1):
        unlike = 40.0 ** (rng.random(outs) - 1)
        w = (rng.standard_normal((outs, ins // group, kernel, kernel)) * unlike[:, None, None, None]).astype(np.float32)
        values.extend([onnx.numpy_helper.from_array(w, f"{y}.w"), onnx.numpy_helper.from_array((rng.standard_normal(outs) * unlike).astype(np.float32), f"{y}.b")])
        nodes.append(onnx.helper.make_node("Conv", [x, f"{y}.w", f"{y}.b"], [y], y, group=group, pads=[kernel // 2] * 4))

    def activation(op, x, y):
        nodes.append(onnx.helper.make_node(op, [x, *(["zero", "six"] if op == "Clip" else [])], [y], y))

    values.extend([onnx.numpy_helper.from_array(np.float32(v), name) for v, name in ((0, "zero"), (6, "six"))])
    conv("image", "first", 8, 1)
    for block, (op, x) in enumerate((("Relu", "first"), ("Clip", "sum0"))):
        conv(x, f"e{block}", 16, 8)
        activation(op, f"e{block}", f"ea{block}")
        conv(f"ea{block}", f"d{block}", 16, 16, 3, 16)
        activation(op, f"d{block}", f"da{block}")
        conv(f"da{block}", f"p{block}", 8, 16)
        nodes.append(onnx.helper.make_node("Add", [x, f"p{block}"], [f"sum{block}"], f"sum{block}"))
    conv("sum1", "scores", 4, 8)
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("image", 1, [1, 1, 16, 16])],
                                   [onnx.helper.make_tensor_value_info("scores", 1, [1, 4, 16, 16])], values)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def test_equalization_changes_nothing_in_float_and_gains_in_int8(tmp_path):
    model = tmp_path / "b.onnx"
    bottlenecks(model)
    sqnr = {}
    for name, options in {"with": (), "without": ("--no-equalization",)}.items():
        quantize(tmp_path / f"{name}.onnx", *options, "--report", tmp_path / "r", model=model)
        sqnr[name] = json.loads((tmp_path / "r").read_text())["sqnr_db"]
        assert bool(json.loads((tmp_path / "r").read_text())["equalized"]) == (name == "with")
    assert sqnr["with"] > sqnr["without"] + 2, sqnr
    quantize(tmp_path / "r.cache", "--float-model", tmp_path / "f.onnx", model=model)
    run("eval", model, tmp_path / "f.onnx", "--data", PICTURES, *RECIPE[:2], "--json", tmp_path / "e.json")
    run("eval", tmp_path / "f.onnx", "--calibration", tmp_path / "r.cache", "--data", PICTURES, *RECIPE[:2], "--json", tmp_path / "t.json")
    assert json.loads((tmp_path / "e.json").read_text())["models"][1]["sqnr_db"] > 30  # its weights lie on codes: no more than that
    assert json.loads((tmp_path / "t.json").read_text())["models"][1]["sqnr_db"] > 20


def test_a_channel_that_one_sample_excites_gets_no_factor(tmp_path):
    """Two channels reach a tenth of the widest: one in every sample, one in a single sample, which says little about others."""
    make = onnx.helper.make_node
    nodes = [make("Conv", ["x", "w"], ["y"], "c"), make("Relu", ["y"], ["a"], "r"), make("Conv", ["a", "d"], ["z"], "dw", group=3)]
    values = [onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1), "w"),
              onnx.numpy_helper.from_array(np.ones((3, 1, 1, 1), np.float32), "d")]
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", 1, [1, 3, 8, 8])],
                                   [onnx.helper.make_tensor_value_info("z", 1, [1, 3, 8, 8])], values)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    x = np.tile(np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8), (16, 3, 1, 1))
    x[:, 1:] *= 0.1
    x[:, 2] *= np.where(np.arange(16) == 5, 1, 0.01).astype(np.float32)[:, None, None]
    np.save(tmp_path / "x.npy", x)
    quantize(tmp_path / "r.json", "--float-model", tmp_path / "f.onnx", "--rounding", "nearest", "--no-bias-correction", "--min-layer-sqnr", 0,
             data=tmp_path / "x.npy", model=tmp_path / "m.onnx")
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "f.onnx").graph.initializer}
    filters = next(w for w in weights.values() if w.shape == (3, 3, 1, 1)).reshape(3, 3)
    assert np.diag(filters) == pytest.approx([1, 10, 1], rel=0.02), filters


def test_layers_seen_in_few_rows_are_not_fitted(tmp_path):
    few, many = tmp_path / "few", tmp_path / "many"
    for folder, count in ((few, 3), (many, 20)):
        folder.mkdir()
        for name in sorted(os.listdir(PICTURES))[:count]:
            shutil.copy(PICTURES / name, folder / name)
        for k in range(20 if folder == many else 0):
            np.save(folder / f"{k}.npy", np.random.default_rng(k).random((1, 1, 16, 16), np.float32))
        done = quantize(tmp_path / "q.onnx", "--no-equalization", "--no-measure", "--report", tmp_path / f"{folder.name}.json", data=folder)
        assert ("3 samples: biases are not corrected, because the shift that fewer than 8 samples show" in done.stderr) == (folder == few)
        assert ("3 samples: ranges are those with the least squared error (mse)" in done.stderr) == (folder == few)
        methods = {tensor["method"] for tensor in json.loads((tmp_path / f"{folder.name}.json").read_text())["tensors"]}
        assert (methods == {"mse"}) == (folder == few), methods
        corrected = any("_corrected" in t.name for t in onnx.load(tmp_path / "q.onnx").graph.initializer)
        assert corrected == (folder == many)
    gemm = [[layer for layer in json.loads((tmp_path / f"{n}.json").read_text())["layers"] if layer["op"] in ("Gemm", "MatMul")] for n in ("few", "many")]
    assert gemm[0] and all(layer["not_fitted"] == "only 3 rows of its data were seen" for layer in gemm[0])
    assert all("seen" not in layer.get("not_fitted", "") for layer in gemm[1])


def test_the_gain_of_each_correction(tmp_path):
    model = tmp_path / "b.onnx"
    bottlenecks(model)
    out = quantize(tmp_path / "q.onnx", "--gains", "--report", tmp_path / "r", model=model).stdout
    report = json.loads((tmp_path / "r").read_text())
    names = [g["correction"] for g in report["gains"]]
    assert names == ["no correction", "equalized channels", "scales of weights by least error", "learned rounding", "corrected biases",
                     "layers that lose too much in float"]
    assert report["gains"][-1]["sqnr_db"] == pytest.approx(report["sqnr_db"]) and report["gains"][1]["sqnr_db"] > report["gains"][0]["sqnr_db"] + 2
    assert all(f"+ {n}" in out for n in names[1:])
    quantize(tmp_path / "n.onnx", "--no-equalization", "--rounding", "nearest", "--weights", "minmax", "--no-bias-correction", "--min-layer-sqnr", 0,
             "--report", tmp_path / "n", model=model)
    assert json.loads((tmp_path / "n").read_text())["sqnr_db"] == pytest.approx(report["gains"][0]["sqnr_db"])
    quantize(tmp_path / "s.onnx", "--gains", "--no-equalization", "--report", tmp_path / "s", model=model)
    assert "equalized channels" not in {g["correction"] for g in json.loads((tmp_path / "s").read_text())["gains"]}


def test_search_of_precision_keeps_its_bound(made, tmp_path):
    model = tmp_path / "b.onnx"
    bottlenecks(model)
    quantize(tmp_path / "all.onnx", "--report", tmp_path / "all", model=model)
    bound = json.loads((tmp_path / "all").read_text())["sqnr_db"] + 2
    done = quantize(tmp_path / "q.onnx", "--min-sqnr", bound, "--curve", tmp_path / "c.svg", "--report", tmp_path / "r", model=model)
    report = json.loads((tmp_path / "r").read_text())
    chosen = [p for p in report["search"]["curve"] if p["chosen"]]
    assert len(chosen) == 1 and chosen[0]["float_layers"] and report["sqnr_db"] >= bound and "chosen" in done.stdout
    assert sorted(chosen[0]["float_layers"]) == sorted(layer["node"] for layer in report["layers"] if not layer["int8"])
    picture = (tmp_path / "c.svg").read_text()
    assert picture.startswith("<svg") and picture.count("<circle") == len(report["search"]["curve"]) and picture.count(" float</text>") >= 1


def test_search_with_bfloat16_and_what_the_build_is_told(tmp_path):
    """Layers go to bfloat16 first; the curve, the report, the picture and the command that builds the model name them; emulated, the model has the
    accuracy that was searched on any processor."""
    q, types = tmp_path / "q.onnx", ("--allow", "int8,bfloat16,float32")
    done = quantize(q, "--min-sqnr", 40, *types, "--report", tmp_path / "r", "--curve", tmp_path / "c.svg")
    report = json.loads((tmp_path / "r").read_text())
    layers = {layer["node"]: layer["type"] for layer in report["layers"]}
    small = sorted(node for node, type_ in layers.items() if type_ == "bfloat16")
    assert small and "int8" in layers.values() and report["sqnr_db"] >= 40
    assert layers == {layer["node"]: layer["type"] for layer in report["search"]["layers"]}
    chosen, = (p for p in report["search"]["curve"] if p["chosen"])
    assert chosen["bfloat16_layers"] == small and chosen["sqnr_db"] == pytest.approx(report["sqnr_db"])
    assert chosen["float_layers"] == sorted(node for node, type_ in layers.items() if type_ == "float32")
    for layer in report["search"]["layers"]:
        assert layer["type"] != "bfloat16" or layer["sqnr_db_alone_bfloat16"] > layer["sqnr_db_alone"], layer
    assert f"{len(small)} bfloat16, {len(chosen['float_layers'])} float</text>" in (tmp_path / "c.svg").read_text()
    assert f" layers int8, {len(small)} bfloat16, " in done.stdout and f"{small[0]} (" in done.stdout
    command = next(line for line in done.stdout.splitlines() if line.startswith("  octavo build "))
    assert command == f"  octavo build {q} --precision '{','.join(f'{node}=bfloat16' for node in small)}'"
    rules = shlex.split(command)[-1]
    emulated = rules.replace("=bfloat16", "=bfloat16-emulated")
    run("build", q, "--precision", emulated, "--effort", 0, "-o", tmp_path / "emulated.octavo")
    run("eval", FP32, tmp_path / "emulated.octavo", q, "--data", PICTURES, *RECIPE, "--json", tmp_path / "e.json")
    found, wide = (m["sqnr_db"] for m in json.loads((tmp_path / "e.json").read_text())["models"][1:])
    assert found == pytest.approx(report["sqnr_db"], abs=1e-3) and wide != found, "without the rules the layers are float32"
    assert "0 differ" in run("check", q, "--precision", emulated, "--effort", 0).stdout
    built = subprocess.run([OCTAVO, "build", q, "--precision", rules, "--effort", "0", "-o", tmp_path / "e.octavo"], capture_output=True, text=True, check=False)
    engine = subprocess.run([OCTAVO, "quantize", FP32, "--data", PICTURES, *map(str, RECIPE), "--min-sqnr", "40", *types, "-o", tmp_path / "d.octavo"],
                            capture_output=True, text=True, check=False)
    if built.returncode == 0:  # this processor computes in bfloat16
        assert engine.returncode == 0 and "bfloat16" in run("explain", tmp_path / "d.octavo").stdout
        assert "priced_as_float32" not in chosen
    else:
        assert built.returncode == 4 and "nothing here can" in built.stderr
        assert chosen["priced_as_float32"] == small and f"({len(small)} of bfloat16 as float32)  chosen" in done.stdout
        assert "in estimated times they count as float32" in done.stderr and any("count as float32" in w for w in report["warnings"])
        assert engine.returncode == 4 and "no layer can compute in it on this processor" in engine.stderr and "-o model.q.onnx" in engine.stderr
    # Without bfloat16, and with the default types, nothing of it is said.
    plain, same = (quantize(tmp_path / "p.onnx", "--min-sqnr", 40, *more).stdout.split(";", 1)[1] for more in ((), ("--allow", "int8,float32")))
    assert plain == same and "bfloat16" not in plain


def test_types_that_no_search_can_give_are_refused(tmp_path):
    q = tmp_path / "q.onnx"
    for allow, said in (("int8,float8", "--allow float8: not a type that the search"), ("int8,float16", "layers do not compute in it"),
                        ("int8,tf32", "--allow tf32: not a type"), ("int8", "no other type to go to"), ("bfloat16,float32", "layers start in int8")):
        assert said in quantize(q, "--min-sqnr", 20, "--allow", allow, code=2).stderr
    assert "until a bound holds, and no bound is given" in quantize(q, "--allow", "int8,bfloat16", code=2).stderr
    assert "allow float32 as well" in quantize(q, "--min-sqnr", 60, "--allow", "int8,bfloat16", code=2).stderr
    assert not q.exists()


def test_a_search_that_cannot_be_is_refused(tmp_path):
    assert "needs the right classes" in quantize(tmp_path / "q.onnx", "--max-drop", "1%", code=2).stderr
    assert "a table cannot express that a layer stays float" in quantize(tmp_path / "r.cache", "--min-sqnr", 20, code=2).stderr
    assert "give a share" in quantize(tmp_path / "q.onnx", "--max-drop", "lots", code=2).stderr
    assert "the curve comes from the search" in quantize(tmp_path / "q.onnx", "--curve", tmp_path / "c.svg", code=2).stderr
    assert "belongs to a table" in quantize(tmp_path / "q.onnx", "--float-model", tmp_path / "f.onnx", code=2).stderr


def unlike_channels(path, listed_as_inputs=False, drowned=False):
    """Channels that differ by a factor of 10,000 behind an activation that no factor passes, and a depthwise layer that makes them alike.
    `drowned`: what comes of it is added to something much larger."""
    h, rng = onnx.helper, np.random.default_rng(3)
    wide = np.logspace(-2, 2, 8).astype(np.float32)
    values = {"a.w": rng.standard_normal((8, 1, 3, 3)) * wide[:, None, None, None], "d.w": rng.standard_normal((8, 1, 3, 3)) / wide[:, None, None, None],
              "e.w": rng.standard_normal((4, 8, 1, 1))}
    nodes = [h.make_node("Conv", ["image", "a.w"], ["a"], "a", pads=[1] * 4), h.make_node("Sigmoid", ["a"], ["s"]), h.make_node("Mul", ["a", "s"], ["m"]),
             h.make_node("Conv", ["m", "d.w"], ["d"], "d", group=8, pads=[1] * 4), h.make_node("Conv", ["d", "e.w"], ["scores"], "e")]
    if drowned:
        nodes[-1].output[0] = "small"
        values["f.w"] = 1e4 * rng.standard_normal((4, 1, 3, 3))
        nodes += [h.make_node("Conv", ["image", "f.w"], ["f"], "f", pads=[1] * 4), h.make_node("Add", ["small", "f"], ["scores"])]
    infos = {name: h.make_tensor_value_info(name, 1, v.shape) for name, v in values.items()}
    inputs = [h.make_tensor_value_info("image", 1, [1, 1, 16, 16]), *(infos.values() if listed_as_inputs else ())]
    graph = h.make_graph(nodes, "g", inputs, [h.make_tensor_value_info("scores", 1, [1, 4, 16, 16])],
                         [onnx.numpy_helper.from_array(v.astype(np.float32), name) for name, v in values.items()])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=3 if listed_as_inputs else 8), path)


@pytest.mark.parametrize("form", ["q.onnx", "r.cache", "r.cache and float model"])
def test_a_layer_that_loses_too_much_stays_float_and_is_named(tmp_path, form):
    model, sqnr = tmp_path / "m.onnx", {}
    unlike_channels(model)
    file, *more = form.split(" and ")
    more = ("--float-model", tmp_path / "f.onnx") if more else ()
    for least in (15, 0):
        out = quantize(tmp_path / file, "--min-layer-sqnr", least, "--report", tmp_path / "r", *more, model=model).stdout
        report = json.loads((tmp_path / "r").read_text())
        sqnr[least] = report["sqnr_db"]
        in_float = [layer["node"] for layer in report["layers"] if not layer["int8"]]
        assert in_float == (["d"] if least else []), report["layers"]
        assert ("below 15 dB (--min-layer-sqnr), and the outputs lose" in out) == bool(least) and f"{3 - len(in_float)} layers int8, {len(in_float)} float" in out
        assert ("m" in {t["name"] for t in report["tensors"]}) == (not least or file == "q.onnx")
    assert sqnr[15] > sqnr[0] + 15, sqnr


@pytest.mark.parametrize("way", ["quantize", "quantize to an engine", "build", "build --data"])
def test_plans_say_what_int8_would_have_cost_a_float_layer(tmp_path, way):
    unlike_channels(tmp_path / "m.onnx")
    if way == "build --data":
        run("build", tmp_path / "m.onnx", "--data", PICTURES, *RECIPE, "--threads", 1, "-o", tmp_path / "m.octavo")
    else:
        quantize(tmp_path / ("m.octavo" if way == "quantize to an engine" else "q.onnx"), model=tmp_path / "m.onnx")
    if way == "build":
        run("build", tmp_path / "q.onnx", "--effort", 0, "--threads", 1, "-o", tmp_path / "m.octavo")
    file = tmp_path / ("q.onnx" if way == "quantize" else "m.octavo")
    effort = () if file.suffix == ".octavo" else ("--effort", 0)
    whole, one, other = (run("explain", file, *effort, *node).stdout for node in ((), ("--node", "d"), ("--node", "e")))
    said = "  d: when only this layer is rounded, its results have"
    assert said in whole and said in one and said not in other and "and the outputs lose" in whole


@pytest.mark.parametrize("file", ["q.onnx", "r.cache"])
def test_a_layer_that_loses_too_much_stays_int8_where_the_outputs_do_not_show_it(tmp_path, file):
    unlike_channels(tmp_path / "m.onnx", drowned=True)
    quantize(tmp_path / file, "--report", tmp_path / "r", model=tmp_path / "m.onnx")
    layers = {layer["node"]: layer for layer in json.loads((tmp_path / "r").read_text())["layers"]}
    assert layers["d"]["sqnr_db"] < 20 and all(layer["int8"] for layer in layers.values()), layers


def test_initializers_that_are_listed_as_inputs_do_not_become_inputs(tmp_path):
    unlike_channels(tmp_path / "m.onnx", listed_as_inputs=True)
    quantize(tmp_path / "q.onnx", model=tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "q.onnx").graph
    assert {i.name for i in made.input} - {t.name for t in made.initializer} == {"image"}
    run("eval", tmp_path / "m.onnx", tmp_path / "q.onnx", "--data", PICTURES, *RECIPE[:2])


def test_a_float_model_without_ranges_says_what_to_do(tmp_path):
    out = run("build", FP32, "--shapes", "image:1x1x16x16", "--effort", 0, "--threads", 1, "-o", tmp_path / "m.octavo").stdout
    assert "nothing is int8" in out and "octavo quantize" in out


def test_build_on_data_quantizes_in_one_command(made, tmp_path):
    common = ("--shapes", "image:1x1x16x16", "--data", PICTURES, *RECIPE, "--threads", 1)
    done = run("build", FP32, *common, "-o", tmp_path / "m.octavo")
    report = json.loads((made / "model.q.onnx.report").read_text())
    assert "nothing is int8" not in done.stdout and f"{len(report['layers'])} layers int8, 0 float" in done.stdout
    assert f"signal to noise at the outputs: {report['sqnr_db']:.1f} dB" in done.stdout
    run("build", made / "model.q.onnx", *common[:2], *RECIPE, "--threads", 1, "-o", tmp_path / "same.octavo")
    run("build", FP32, *common, "-o", tmp_path / "again.octavo")
    assert (tmp_path / "m.octavo").read_bytes() == (tmp_path / "again.octavo").read_bytes()
    np.save(tmp_path / "x.npy", np.random.default_rng(1).random((1, 1, 16, 16), np.float32))
    results = []
    for engine in ("m", "same"):
        run("run", tmp_path / f"{engine}.octavo", "--input", tmp_path / "x.npy", "-o", tmp_path / f"{engine}.npz")
        results.append(next(iter(np.load(tmp_path / f"{engine}.npz").values())))
    assert np.array_equal(*results)  # the model that octavo quantize writes, compiled


@pytest.mark.parametrize("form", ["table", "pairs"])
def test_build_on_data_says_what_ranges_and_pairs_cost(made, tmp_path, form):
    model, more = (FP32, ("--calibration", made / "ranges.cache")) if form == "table" else (made / "model.q.onnx", ())
    build = ("build", model, *more, "--shapes", "image:1x1x16x16", *RECIPE, "--threads", 1, "-o", tmp_path / "m.octavo")
    without, measured = run(*build).stdout, run(*build, "--data", PICTURES).stdout
    unknown, known = "unknown: no data", "signal to noise at the outputs by the rounding of activations, on "
    assert (unknown in without) == (form == "table") and unknown not in measured
    assert known in measured and known not in without
    assert float(measured.split(known)[1].split(": ")[1].split(" dB")[0]) > 20


def test_check_on_data_says_where_the_error_enters(made, tmp_path):
    common = ("--shapes", "image:1x1x16x16", "--data", PICTURES, *RECIPE, "--threads", 1)
    done = run("check", made / "model.q.onnx", *common, "--samples", 2, "--picture", tmp_path / "p.svg")
    assert done.stdout.count("ok (") == 2 and "rounded tensors on" in done.stdout and "most is lost where" in done.stdout
    found = json.loads(run("check", made / "model.q.onnx", *common, "--json").stdout)
    assert [c["ok"] for c in found["checked"]] == [True] and all(r["different"] == 0 for r in found["checked"][0]["regions"])
    doctor = json.loads(run("doctor", made / "model.q.onnx", *common, "--json").stdout)
    assert {k: found[k] for k in ("tensors", "layers", "outputs")} == {k: doctor[k] for k in ("tensors", "layers", "outputs")}
    assert (tmp_path / "p.svg").read_text().count("<circle") == 2 * len(found["tensors"]) + len(found["layers"])
    assert found["outputs"][0]["sqnr_db"] > 20 and all(0 < t["codes_used"] <= 256 and 0 <= t["saturated"] <= 1 for t in found["tensors"])
    assert "nothing is rounded" in run("check", FP32, *common).stdout
    table = run("check", FP32, "--calibration", made / "ranges.cache", *common).stdout
    assert "rounded tensors on" in table and "signal to noise at the outputs" in table


def test_check_on_data_refuses_what_says_nothing(made, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 16, 16), np.float32))
    both = ("check", FP32, "--input", tmp_path / "x.npy", "--data", PICTURES)
    assert "--input and --data" in run(*both, code=2).stderr
    assert "--picture shows the error of tensors" in run("check", FP32, "--picture", tmp_path / "p.svg", code=2).stderr
    assert "no such file or folder" in run("check", FP32, "--data", tmp_path / "none", "--effort", 0, code=7).stderr
    assert "no such file or folder" in run("build", FP32, "--data", tmp_path / "none", "--effort", 0, "-o", tmp_path / "m.octavo", code=7).stderr
    assert not (tmp_path / "m.octavo").exists() and not (tmp_path / "p.svg").exists()


def test_doctor_says_where_the_error_enters(made, tmp_path):
    model = onnx.load(made / "model.q.onnx")
    scales = {t.name: t for t in model.graph.initializer}
    quantizers = [n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in scales]
    victim = quantizers[len(quantizers) // 2]
    scale = onnx.numpy_helper.to_array(scales[victim.input[1]])
    scales[victim.input[1]].CopyFrom(onnx.numpy_helper.from_array(np.float32(scale / 8), victim.input[1]))  # clips what is large
    onnx.save(model, tmp_path / "bad.onnx")
    common = ("--shapes", "image:1x1x16x16", "--data", PICTURES, *RECIPE, "--threads", 2)
    out = run("doctor", tmp_path / "bad.onnx", *common, "--picture", tmp_path / "p.svg").stdout
    assert f'most is lost where "{victim.input[0]}" is rounded' in out and "a wider range" in out
    tensors = {t["name"]: t for t in json.loads(run("doctor", tmp_path / "bad.onnx", *common, "--json").stdout)["tensors"]}
    healthy = {t["name"]: t for t in json.loads(run("doctor", made / "model.q.onnx", *common, "--json").stdout)["tensors"]}
    assert tensors[victim.input[0]]["saturated"] > 0.01 > healthy[victim.input[0]]["saturated"]
    assert tensors[victim.input[0]]["sqnr_db_of_this_rounding"] < healthy[victim.input[0]]["sqnr_db_of_this_rounding"] - 10
    layers = json.loads(run("doctor", tmp_path / "bad.onnx", *common, "--json").stdout)["layers"]
    worst = min(layers, key=lambda layer: layer["sqnr_db_alone"])
    assert worst["reads"] == victim.input[0] and f"{worst['node']} (reads {worst['reads']})" in out
    assert (tmp_path / "p.svg").read_text().count("<circle") == 2 * len(tensors) + len(layers)


def test_doctor_says_which_layer_of_an_implicit_model_to_keep_float(tmp_path):
    model, table = tmp_path / "m.onnx", tmp_path / "r.cache"
    unlike_channels(model)
    quantize(table, "--min-layer-sqnr", 0, "--method", "minmax", model=model)
    common = ("--calibration", table, "--data", PICTURES, *RECIPE)
    by_threads = [run("doctor", model, *common, "--threads", n, "--json").stdout for n in (1, 2)]
    assert by_threads[0] == by_threads[1]
    found = json.loads(by_threads[0])
    layers = {layer["node"]: layer["sqnr_db_alone"] for layer in found["layers"]}
    assert set(layers) == {"a", "d", "e"} and layers["d"] < 15 < 25 < min(layers["a"], layers["e"])
    assert {t["name"] for t in found["tensors"]} >= {"m", "d"}
    advice = "d (reads m)  <- keep it float: --precision d=float32"
    assert advice in run("doctor", model, *common).stdout
    assert advice not in run("doctor", model, *common, "--precision", "d=float32").stdout
    sqnr = []
    for rule in ((), ("--precision", "d=float32")):
        run("eval", model, "--calibration", table, "--data", PICTURES, *RECIPE, *rule, "--json", tmp_path / "e.json")
        sqnr.append(json.loads((tmp_path / "e.json").read_text())["models"][1]["sqnr_db"])
    assert sqnr[1] > sqnr[0] + 15, sqnr
    assert "there is nothing to measure on data" in run("doctor", model, "--data", PICTURES, *RECIPE, code=2).stderr


def test_unlike_parts_of_an_output_keep_their_own_ranges(tmp_path):
    """Boxes beside scores, concatenated at the output: one range for both would leave nothing of the scores."""
    h, rng = onnx.helper, np.random.default_rng(7)
    values = {"a.w": rng.standard_normal((4, 1, 3, 3)), "box.w": 1000 * rng.standard_normal((4, 4, 1, 1)), "score.w": rng.standard_normal((2, 4, 1, 1))}
    nodes = [h.make_node("Conv", ["image", "a.w"], ["a"], "a", pads=[1] * 4), h.make_node("Relu", ["a"], ["r"]), h.make_node("Conv", ["r", "box.w"], ["box"], "box"),
             h.make_node("Conv", ["r", "score.w"], ["s"], "score"), h.make_node("Sigmoid", ["s"], ["score"]), h.make_node("Concat", ["box", "score"], ["y"], axis=1)]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("image", 1, [1, 1, 16, 16])], [h.make_tensor_value_info("y", 1, [1, 6, 16, 16])],
                         [onnx.numpy_helper.from_array(v.astype(np.float32), name) for name, v in values.items()])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    quantize(tmp_path / "r.cache", "--method", "minmax", model=tmp_path / "m.onnx")
    assert any(line.startswith("y: ") for line in (tmp_path / "r.cache").read_text().splitlines())  # the whole has a range, too
    np.save(tmp_path / "x.npy", rng.random((1, 1, 16, 16), np.float32))
    results = []
    for form, options in {"float": (), "int8": ("--calibration", tmp_path / "r.cache")}.items():
        run("run", tmp_path / "m.onnx", "--input", tmp_path / "x.npy", *options, "--effort", 0, "-o", tmp_path / f"{form}.npz")
        results.append(next(iter(np.load(tmp_path / f"{form}.npz").values())))
    exact, rounded = (r[:, 4:] for r in results)
    assert np.abs(results[0][:, :4]).max() > 100 > 1 >= exact.max()
    error = np.mean((exact - rounded) ** 2)
    assert 0 < error < 1e-3 * np.mean(exact ** 2)  # layers are int8; by one range for both each score would be 0 or at least 0.8


def test_a_model_of_opset_11_is_carried_over(tmp_path):
    """Split, Squeeze and Clip, whose attributes became inputs, a Resize whose empty scales opset 13 forbids beside sizes, and a Softmax over
    one dimension and over two."""
    def model(path, axis):
        h, f32 = onnx.helper, np.float32
        nodes = [h.make_node("Conv", ["image", "w"], ["c"]), h.make_node("Clip", ["c", "zero", "six"], ["d"]),
                 h.make_node("Split", ["d"], ["a", "b"], axis=1, split=[1, 3]), h.make_node("Conv", ["b", "v"], ["e"]),
                 h.make_node("Squeeze", ["e"], ["s"], axes=[1]), h.make_node("Softmax", ["s"], ["p"], axis=axis),
                 h.make_node("Resize", ["a", "none", "none", "sizes"], ["r"], mode="nearest")]
        values = [onnx.numpy_helper.from_array(np.array([1, 1, 32, 32]), "sizes"), onnx.numpy_helper.from_array(np.zeros(0, f32), "none")]
        values += [onnx.numpy_helper.from_array(v.astype(f32), n) for n, v in (
            ("w", np.linspace(-1, 2, 4).reshape(4, 1, 1, 1)), ("v", np.linspace(1, 2, 3).reshape(1, 3, 1, 1)), ("zero", np.array(0)),
            ("six", np.array(6)))]
        graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("image", 1, [1, 1, 16, 16]), h.make_tensor_value_info("none", 1, [0])],
                             [h.make_tensor_value_info("p", 1, [1, 16, 16]), h.make_tensor_value_info("a", 1, [1, 1, 16, 16]),
                              h.make_tensor_value_info("r", 1, [1, 1, 32, 32])], values)
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 11)], ir_version=7), path)

    model(tmp_path / "m.onnx", -1)
    quantize(tmp_path / "q.onnx", "--report", tmp_path / "r", model=tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    exact_session(tmp_path / "q.onnx", LEVELS.ORT_DISABLE_ALL)  # ONNX Runtime takes it, too
    assert made.opset_import[0].version == 13 and json.loads((tmp_path / "r").read_text())["sqnr_db"] > 30
    model(tmp_path / "old.onnx", 1)  # over two dimensions
    assert "opset 11 became 13" in quantize(tmp_path / "old.q.onnx", "--report", tmp_path / "r", model=tmp_path / "old.onnx").stdout
    onnx.checker.check_model(onnx.load(tmp_path / "old.q.onnx"), full_check=True)
    assert json.loads((tmp_path / "r").read_text())["sqnr_db"] > 30


def older(opset, tail, path):
    """A convolution, which is quantized, and `tail` behind it in a file of this opset."""
    h = onnx.helper
    w = np.linspace(-1, 1, 4 * 9).reshape(4, 1, 3, 3).astype(np.float32)
    values = [onnx.numpy_helper.from_array(w, "w"), *(onnx.numpy_helper.from_array(v, n) for n, v in tail[1].items())]
    graph = h.make_graph([h.make_node("Conv", ["image", "w"], ["c"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]), *tail[0]], "g",
                         [h.make_tensor_value_info("image", 1, [1, 1, 16, 16])], [h.make_tensor_value_info("y", 1, [None] * (3 if tail[0][-1].op_type == "Squeeze" else 4))], values)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=4), path)


NODE = onnx.helper.make_node
OLDER = {
    "softmax of one dimension": (9, [NODE("Softmax", ["c"], ["y"], axis=3)], {}),
    "softmax of three": (12, [NODE("Softmax", ["c"], ["y"])], {}),
    "log_softmax of two": (11, [NODE("LogSoftmax", ["c"], ["y"], axis=2)], {}),
    "hardmax, negative axis": (11, [NODE("Hardmax", ["c"], ["y"], axis=-2)], {}),
    "upsample 7": (7, [NODE("Upsample", ["c"], ["y"], mode="nearest", scales=[1.0, 1.0, 2.0, 3.0])], {}),
    "upsample 9 linear": (9, [NODE("Upsample", ["c", "s"], ["y"], mode="linear")], {"s": np.array([1, 1, 2, 2], np.float32)}),
    "resize 10 up": (10, [NODE("Resize", ["c", "s"], ["y"], mode="nearest")], {"s": np.array([1, 1, 1.5, 2], np.float32)}),
    "resize 10 down": (10, [NODE("Resize", ["c", "s"], ["y"], mode="nearest")], {"s": np.array([1, 1, 0.6, 0.5], np.float32)}),
    "resize 10 linear": (10, [NODE("Resize", ["c", "s"], ["y"], mode="linear")], {"s": np.array([1, 1, 2, 2], np.float32)}),
    "batch norm, clip, pad and slice 7": (7, [
        NODE("BatchNormalization", ["c", "a", "b", "b", "a"], ["n"], spatial=1), NODE("Clip", ["n"], ["l"], min=-0.5, max=0.7),
        NODE("Pad", ["l"], ["p"], pads=[0, 0, 1, 1, 0, 0, 0, 1], value=0.25), NODE("Slice", ["p"], ["y"], axes=[2, 3], starts=[0, 1], ends=[7, 9])],
        {"a": np.linspace(0.5, 2, 4).astype(np.float32), "b": np.linspace(-1, 1, 4).astype(np.float32)}),
    "top_k 9": (9, [NODE("TopK", ["c"], ["y", "i"], k=3, axis=3)], {}),
    "scatter 10": (10, [NODE("Scatter", ["c", "at", "new"], ["y"], axis=1)],
                   {"at": np.array([[[[2]]]]), "new": np.array([[[[9]]]], np.float32)}),
    "reduce_sum and squeeze 11": (11, [NODE("ReduceSum", ["c"], ["r"], axes=[2], keepdims=1), NODE("Squeeze", ["r"], ["y"], axes=[2])], {}),
}


@pytest.mark.parametrize("name", OLDER)
def test_models_of_older_opsets_compute_what_they_did(name, tmp_path):
    """Without its pairs the quantized model is the float model in opset 13: ONNX Runtime gives both the same outputs."""
    opset, nodes, values = OLDER[name]
    older(opset, (nodes, values), tmp_path / "m.onnx")
    quantize(tmp_path / "q.onnx", "--no-equalization", "--no-bias-correction", "--rounding", "nearest", model=tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "q.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert made.opset_import[0].version == 13
    # out with the pairs: what is left is the float model in opset 13
    dequantized = {n.output[0]: n for n in made.graph.node if n.op_type == "DequantizeLinear"}
    rounded = {n.output[0]: n for n in made.graph.node if n.op_type == "QuantizeLinear"}
    plain = [n for n in made.graph.node if n.op_type not in ("QuantizeLinear", "DequantizeLinear")]
    original = {t.name: t for t in onnx.load(tmp_path / "m.onnx").graph.initializer}
    for node in plain:
        for i, read in enumerate(node.input):
            if read in dequantized and dequantized[read].input[0] in rounded:
                node.input[i] = rounded[dequantized[read].input[0]].input[0]
            elif read in dequantized:
                node.input[i] = "w"
    del made.graph.node[:]
    made.graph.node.extend(plain)
    if "w" not in {t.name for t in made.graph.initializer}:
        made.graph.initializer.append(original["w"])
    x = np.random.default_rng(1).random((1, 1, 16, 16), np.float32)
    ort = pytest.importorskip("onnxruntime")
    theirs, ours = (ort.InferenceSession(m).run(None, {"image": x})[0] for m in (str(tmp_path / "m.onnx"), made.SerializeToString()))
    np.testing.assert_array_equal(ours, theirs)


def test_what_later_opsets_cannot_say_is_refused_by_name(tmp_path):
    older(10, ([NODE("Resize", ["c", "s"], ["y"], "both_ways", mode="nearest")], {"s": np.array([1, 1, 2, 0.5], np.float32)}), tmp_path / "m.onnx")
    assert 'node "both_ways" cannot be carried over' in quantize(tmp_path / "q.onnx", model=tmp_path / "m.onnx", code=4).stderr
    older(6, ([NODE("Relu", ["c"], ["y"])], {}), tmp_path / "six.onnx")
    assert "version_converter" in quantize(tmp_path / "q.onnx", model=tmp_path / "six.onnx", code=4).stderr


def entropy_threshold(values):
    """NVIDIA's calibration as it is published (GTC 2017, pytorch-quantization): 2048 bins of magnitudes, 128 levels."""
    bins = np.histogram(np.abs(values), 2048, (0, np.abs(values).max()))[0].astype(np.float64)
    bins[0] = bins[1]
    divergences = []
    for i in range(128, 2049):
        p = bins[:i].copy()
        p[-1] += bins[i:].sum()
        level = np.minimum(np.digitize(np.arange(i), np.linspace(0, i, 129)) - 1, 127)
        mass, filled = np.bincount(level, bins[:i], 128), np.bincount(level, bins[:i] > 0, 128)
        q = np.where(bins[:i] > 0, (mass / np.maximum(filled, 1))[level], 0)
        used = p > 0
        divergences.append(np.sum(p[used] / p.sum() * np.log(p[used] / p.sum() / np.maximum(q[used] / q.sum(), 1e-12))))
    return (128 + int(np.argmin(divergences)) + 0.5) * np.abs(values).max() / 2048


@pytest.mark.parametrize("seed", range(3))
def test_entropy_is_the_published_calibration(tmp_path, seed):
    rng = np.random.default_rng(seed)
    shape = (2000, 1, 16, 16)
    values = (rng.standard_normal(shape) * rng.choice([1, 2], shape, p=[0.97, 0.03])).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    quantize(tmp_path / "r.json", "--method", "entropy", "--no-measure", "--min-layer-sqnr", 0, data=tmp_path / "x.npy")
    ours, theirs = max(np.abs(json.loads((tmp_path / "r.json").read_text())["image"])), entropy_threshold(values)
    assert ours == pytest.approx(theirs, rel=0.02) and ours < 0.99 * np.abs(values).max()


def test_entropy_thresholds_have_the_form_of_a_real_table():
    """TensorRT 8.5.1 clipped pictures of BGR minus (104, 117, 123), whose largest magnitude is 151, behind bin 1967 of 2048, at its middle."""
    table = SHARED / "caches/retina_lp.trt8501.entropy2.cache"
    if not table.exists():
        pytest.skip("the shared test data are not here")
    bits = dict(line.rsplit(": ", 1) for line in table.read_text().splitlines()[1:])["input"]
    threshold = 127.0 * float(np.array(int(bits, 16), np.uint32).view(np.float32))
    assert threshold == pytest.approx((1967 + 0.5) * 151 / 2048, rel=1e-6)
