"""octavo advise: a pair that costs time is named, dropping it is priced, and --apply writes a model without it; a pair that is missing likewise."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from set_times import priced

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code > 1 else done.stdout


def network(path, inner, gap=False):
    """conv -> (Q/DQ) -> split -> a conv each; with `inner` one half has a pair of its own scale behind the split; with `gap` a float conv follows."""
    rng = np.random.default_rng(3)
    inits, nodes = [], []

    def pair(x, scale, name):
        inits.extend([numpy_helper.from_array(np.float32(scale), name + "_s"), numpy_helper.from_array(np.int8(0), name + "_z")])
        nodes.extend([helper.make_node("QuantizeLinear", [x, name + "_s", name + "_z"], [name + "_q"], name + "_Q"),
                      helper.make_node("DequantizeLinear", [name + "_q", name + "_s", name + "_z"], [name + "_dq"], name + "_DQ")])
        return name + "_dq"

    def conv(x, c, o, name):
        inits.extend([numpy_helper.from_array(rng.integers(-127, 128, (o, c, 3, 3)).astype(np.int8), name + "_w"),
                      numpy_helper.from_array(np.float32(0.01), name + "_ws"), numpy_helper.from_array(np.int8(0), name + "_wz")])
        nodes.extend([helper.make_node("DequantizeLinear", [name + "_w", name + "_ws", name + "_wz"], [name + "_wd"], name + "_WDQ"),
                      helper.make_node("Conv", [x, name + "_wd"], [name], name, pads=[1, 1, 1, 1])])
        return name

    y = pair(conv(pair("x", 0.02, "x"), 16, 32, "conv1"), 0.05, "conv1")
    inits.append(numpy_helper.from_array(np.array([16, 16], np.int64), "halves"))
    nodes.append(helper.make_node("Split", [y, "halves"], ["a", "b"], "split", axis=1))
    half = pair("b", 0.031, "b") if inner else "b"
    outs = [conv("a", 16, 16, "conv2"), conv(half, 16, 16, "conv3")]
    if gap:
        inits.append(numpy_helper.from_array(rng.normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32), "conv4_w"))
        nodes.extend([helper.make_node("Relu", ["conv2"], ["act"], "act"), helper.make_node("Conv", ["act", "conv4_w"], ["conv4"], "conv4", pads=[1, 1, 1, 1])])
        outs[0] = "conv4"
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 32, 32])],
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def plan_of(model):
    return re.search(r"plan ([0-9a-f]{32})", octavo("build", model, "-o", model.with_suffix(".octavo"), "--effort", 0, "--threads", 1)).group(1)


def advise(model, folder, *rows):
    """The arguments that advise by the times of `rows`, pairs of a pattern in the region's key and of microseconds; all others take 10."""
    return priced(octavo, ["advise", model, "--effort", 1, "--threads", 1], folder / "times.txt", *rows)


def test_names_the_second_pair_and_drops_it(tmp_path):
    model, without, faster = network(tmp_path / "m.onnx", True), network(tmp_path / "n.onnx", False), tmp_path / "f.onnx"
    # As if the second store cost much more than it does, and float convolutions too, so that no other pair is better left out.
    arguments = advise(model, tmp_path, (" w f32", 1000), (r"\btable\b", 500))
    text = octavo(*arguments, "--errors", 1, "--apply", faster)
    assert re.search(r"^drop the pair on .*\(b_DQ, b_Q\): saves [0-9.]+ us", text, re.M), text
    assert "(measured)" in text and "outputs change by at most" in text
    assert not {"b_Q", "b_DQ"} & {n.name for n in onnx.load(faster).graph.node}
    assert plan_of(faster) == plan_of(without) != plan_of(model)
    text = octavo("advise", without, "--effort", 0, "--threads", 1)
    assert "(b_DQ, b_Q)" not in text


def test_less_than_one_percent_does_not_pay(tmp_path):
    """Beside convolutions of half a second the second store is nothing: it is no advice, and --apply changes nothing."""
    model, out = network(tmp_path / "m.onnx", True), tmp_path / "f.onnx"
    text = octavo(*advise(model, tmp_path, (r" w (?:f32|s8)\[16,16,3,3\]", 500000), (r"\btable\b", 100)), "--apply", out)
    assert "; 0 changes save 1 % of that or more" in text and not re.search(r"^(drop|add|move|put) ", text, re.M), text
    assert f"{out}: the model is unchanged" in text and onnx.load(out).graph == onnx.load(model).graph


def test_what_apply_can_do_comes_first(tmp_path):
    """The pair before the float convolution would save more, but has no range. By these times the other pair saves a few percent of a run."""
    arguments = advise(network(tmp_path / "m.onnx", True, gap=True), tmp_path, (" w f32", 100000), (r"\btable\b", 5000))
    lines = re.findall(r"^(drop|add) .*: saves ([0-9.e+]+) us", octavo(*arguments), re.M)
    assert [kind for kind, _ in lines][:2] == ["drop", "add"] and float(lines[0][1]) < float(lines[1][1]), lines


def test_what_apply_cannot_do_says_the_edit(tmp_path):
    """conv2 reads "act" through an Identity, so that no reader has the name of the table."""
    model = onnx.load(with_gap(tmp_path / "m.onnx", False))
    (conv2,) = [n for n in model.graph.node if n.name == "conv2"]
    model.graph.node.insert(list(model.graph.node).index(conv2), helper.make_node("Identity", ["act"], ["act_again"], "identity"))
    conv2.input[0] = "act_again"
    onnx.save(model, tmp_path / "i.onnx")
    (tmp_path / "ranges.json").write_text(json.dumps({"act": 5.0}))
    arguments = advise(tmp_path / "i.onnx", tmp_path, (" w f32", 1000))
    text = octavo(*arguments, "--ranges", tmp_path / "ranges.json", "--apply", tmp_path / "f.onnx")
    assert ('not applied: the file has no node that reads or makes "act" under this name. To do it by hand, insert QuantizeLinear and DequantizeLinear '
            'with scale 0.03937008 and zero point 0 (int8) between "act_again" and conv2\n') in text, text


def test_takes_the_options_of_every_command(tmp_path):
    """What --disable leaves out of a build is left out of the plans that advice compares."""
    model = network(tmp_path / "m.onnx", True)
    cost = [float(re.search(r"regions cost ([0-9.]+) us", octavo("advise", model, "--effort", 0, "--threads", 1, *more)).group(1))
            for more in ([], ["--disable", "fuse-epilogue"])]
    assert cost[1] > 1.01 * cost[0], "without epilogues every conversion is a pass of its own"
    assert "no rule or choice has this name" in octavo("advise", model, "--effort", 0, "--disable", "no-such-rule", code=2)


def test_apply_without_advice_writes_the_model_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CPU", "portable")  # kernels whose estimates prefer codes to floats: without the instructions for 8 bits that need not be
    out = tmp_path / "out.onnx"
    out.write_bytes(b"old")
    model = network(tmp_path / "n.onnx", False)
    text = octavo("advise", model, "--effort", 0, "--threads", 1)
    assert "drop the pair" not in text, text
    text = octavo("advise", model, "--effort", 0, "--threads", 1, "--apply", out)
    assert f"{out}: the model is unchanged, because no change that advise can make saves time" in text, text
    assert onnx.load(out).graph == onnx.load(model).graph


def test_shares_a_pair_with_a_reader_of_the_floats(tmp_path):
    """Where storing the floats beside the codes is said to cost much, the Add is to read the pair, and --apply lets it."""
    from test_roundings import residual

    model, codes, faster = residual(tmp_path / "m.onnx"), residual(tmp_path / "n.onnx", "mid_dq"), tmp_path / "f.onnx"
    # Two stores cost much, and so do float convolutions: on some processors dropping the pair would pay otherwise.
    arguments = advise(model, tmp_path, (" w f32", 1000), (r" store\(", 500))
    text = octavo(*arguments, "--errors", 1, "--apply", faster)
    assert re.search(r'^put the pair on "conv1" \(mid_DQ, mid_Q\) before add too: saves [0-9.]+ us', text, re.M), text
    assert "outputs change by at most" in text and ": 1 pair put before further readers\n" in text
    (add,) = [n for n in onnx.load(faster).graph.node if n.name == "add"]
    assert list(add.input) == ["conv2", "mid_dq"]
    assert plan_of(faster) == plan_of(codes) != plan_of(model)


def between(path, where):
    """conv1 -> SiLU -> conv2; the pair is on `where`: "conv1", before the activation, or "act", behind it."""
    rng = np.random.default_rng(4)
    inits, nodes = [], []

    def pair(x, name):
        inits.extend([numpy_helper.from_array(np.float32(0.02 if name == "x" else 0.05), name + "_s"), numpy_helper.from_array(np.int8(0), name + "_z")])
        nodes.extend([helper.make_node("QuantizeLinear", [x, name + "_s", name + "_z"], [name + "_q"], name + "_Q"),
                      helper.make_node("DequantizeLinear", [name + "_q", name + "_s", name + "_z"], [name + "_dq"], name + "_DQ")])
        return name + "_dq"

    def conv(x, name):
        inits.extend([numpy_helper.from_array(rng.integers(-127, 128, (32, 32, 3, 3)).astype(np.int8), name + "_w"),
                      numpy_helper.from_array(np.float32(0.004), name + "_ws"), numpy_helper.from_array(np.int8(0), name + "_wz")])
        nodes.extend([helper.make_node("DequantizeLinear", [name + "_w", name + "_ws", name + "_wz"], [name + "_wd"], name + "_WDQ"),
                      helper.make_node("Conv", [x, name + "_wd"], [name], name, pads=[1, 1, 1, 1])])

    conv(pair("x", "x"), "conv1")
    y = pair("conv1", "p") if where == "conv1" else "conv1"
    nodes.append(helper.make_node("Sigmoid", [y], ["sig"], "sig"))
    nodes.append(helper.make_node("Mul", [y, "sig"], ["act"], "act"))
    conv(pair("act", "p") if where == "act" else "act", "conv2")
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 32, 32])],
                              [helper.make_tensor_value_info("conv2", TensorProto.FLOAT, None)], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_moves_a_pair_behind_the_activation(tmp_path):
    """conv2 is float for want of a pair on its input; the one before the activation does there."""
    model, behind, faster = between(tmp_path / "m.onnx", "conv1"), between(tmp_path / "n.onnx", "act"), tmp_path / "f.onnx"
    text = octavo(*advise(model, tmp_path, (" w f32", 1000)), "--errors", 2, "--apply", faster)
    assert re.search(r'^move the pair on "conv1" \(p_DQ, p_Q\) behind "act", before conv2(, conv2_WDQ)?: saves [0-9.]+ us', text, re.M), text
    assert ": 1 pair moved\n" in text and "outputs change by at most" in text
    assert plan_of(faster) == plan_of(behind) != plan_of(model)
    assert "move the pair" not in octavo("advise", behind, "--effort", 0, "--threads", 1)


def with_gap(path, pair_there):
    """conv1, int8, -> Relu -> conv2, whose data and weights are float32; with `pair_there` both have the pair that a range of 5 gives."""
    rng = np.random.default_rng(5)
    codes = rng.integers(-127, 128, (2, 32, 32, 3, 3)).astype(np.int8)
    codes[:, :, 0, 0, 0] = 127
    inits, nodes = [], []

    def constants(name, scale):
        inits.extend([numpy_helper.from_array(np.float32(scale), name + "_s"), numpy_helper.from_array(np.int8(0), name + "_z")])
        return [name + "_s", name + "_z"]

    def pair(x, scale):
        q = constants(x, scale)
        nodes.extend([helper.make_node("QuantizeLinear", [x, *q], [x + "_q"], x + "_Q"), helper.make_node("DequantizeLinear", [x + "_q", *q], [x + "_dq"], x + "_DQ")])
        return x + "_dq"

    def weights(name, values, scale):
        inits.append(numpy_helper.from_array(values, name))
        nodes.append(helper.make_node("DequantizeLinear", [name, *constants(name, scale)], [name + "_d"], name + "_DQ"))
        return name + "_d"

    nodes.append(helper.make_node("Conv", [pair("x", 0.02), weights("w1", codes[0], 0.004)], ["conv1"], "conv1", pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("Relu", ["conv1"], ["act"], "act"))
    if pair_there:
        data, w = pair("act", np.float32(5 / 127)), weights("w2", codes[1], 2.0**-8)
    else:
        data, w = "act", "w2"
        inits.append(numpy_helper.from_array(codes[1] * np.float32(2.0**-8), "w2"))
    nodes.append(helper.make_node("Conv", [data, w], ["conv2"], "conv2", pads=[1, 1, 1, 1]))
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 32, 32])],
                              [helper.make_tensor_value_info("conv2", TensorProto.FLOAT, None)], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_adds_a_pair_where_a_range_is_known(tmp_path):
    model, there, faster, ranges = with_gap(tmp_path / "m.onnx", False), with_gap(tmp_path / "n.onnx", True), tmp_path / "f.onnx", tmp_path / "ranges.json"
    ranges.write_text(json.dumps({"act": 5.0}))
    arguments = advise(model, tmp_path, (" w f32", 1000))

    text = octavo(*arguments)
    assert 'add a pair on "act" before conv2: saves ' in text and 'give a range for "act" with --ranges' in text, text
    assert "Adding a pair needs a range of its tensor" in octavo(*arguments, "--apply", faster)
    assert onnx.load(faster).graph == onnx.load(model).graph

    text = octavo(*arguments, "--ranges", ranges, "--errors", 2, "--apply", faster)
    assert 'add a pair on "act" before conv2: saves ' in text and ": 1 pair added\n" in text and "outputs change by at most" in text, text
    nodes = {n.name: n for n in onnx.load(faster).graph.node}
    quantized = [n for n in nodes.values() if n.op_type == "QuantizeLinear" and n.input[0] == "act"]
    assert len(quantized) == 1
    (scale,) = [numpy_helper.to_array(t) for t in onnx.load(faster).graph.initializer if t.name == quantized[0].input[1]]
    assert scale == np.float32(5 / 127)
    assert plan_of(faster) == plan_of(there) != plan_of(model)
    assert octavo("check", faster, "--threads", 1, "--effort", 0).startswith("ok ")
    feed = tmp_path / "x.npz"
    np.savez(feed, x=np.random.default_rng(0).standard_normal((1, 32, 32, 32)).astype(np.float32))
    results = []
    for m in (faster, there):
        octavo("run", m, "--input", feed, "--output", tmp_path / "y.npz", "--effort", 0, "--threads", 1)
        results.append(np.load(tmp_path / "y.npz")["conv2"].tobytes())
    assert results[0] == results[1]
    assert "add a pair" not in octavo(*arguments[:1], faster, "--effort", 0, "--threads", 1, "--ranges", ranges)
