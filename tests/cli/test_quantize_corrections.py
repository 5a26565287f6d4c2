"""What octavo quantize corrects, which layers it leaves float, and where check and doctor see the error enter."""
import json
import os
import shutil

import numpy as np
import onnx
from onnx import helper, numpy_helper
import pytest
from quantizing import FP32, PICTURES, RECIPE, bottlenecks, every_form, quantize, run, unlike_channels


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return every_form(tmp_path_factory.mktemp("quantized"))


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
    said = "  d: when only this layer is rounded"
    assert said in whole and said in one and said not in other and "and the outputs lose" in whole


@pytest.mark.parametrize("file", ["q.onnx", "r.cache"])
def test_a_layer_that_loses_too_much_stays_int8_where_the_outputs_do_not_show_it(tmp_path, file):
    unlike_channels(tmp_path / "m.onnx", drowned=True)
    quantize(tmp_path / file, "--report", tmp_path / "r", model=tmp_path / "m.onnx")
    layers = {layer["node"]: layer for layer in json.loads((tmp_path / "r").read_text())["layers"]}
    assert layers["d"]["sqnr_db"] < 20 and all(layer["int8"] for layer in layers.values()), layers


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
