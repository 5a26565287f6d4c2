"""octavo quantize and octavo eval: from a float model and data to ranges, Q/DQ models and engines; what bad data is answered."""
import json
import os
import shutil

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pytest
from ort_exact import LEVELS, exact_session
from PIL import Image
from quantizing import FP32, PICTURES, QDQ, RECIPE, SHARED, bottlenecks, every_form, pictures, quantize, run, unlike_channels


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return every_form(tmp_path_factory.mktemp("quantized"))


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
