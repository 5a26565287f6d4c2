"""octavo explain: the page that says how to read it shows what it prints, every tensor name of a model is answered, and what costs says its cause and way out."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rounds import rounds

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code > 1 else done.stdout


def shown(document):
    """[(command, lines of output)] of the indented blocks that begin with "$ "."""
    blocks = []
    for block in re.findall(r"(?:^(?:    .*)?\n)+", document, re.M):
        for part in re.split(r"^    \$ ", block, flags=re.M)[1:]:
            command, *lines = part.splitlines()
            blocks.append((command, [line[4:] for line in lines if line]))
    return blocks


def plain(lines):
    """Without what another machine or build may say: numbers of estimates, the widths of columns, how a processor that divides slowly divides."""
    lines = [re.sub(r"\{division=multiply\}|division=multiply,", "", line) for line in lines if "division=multiply:" not in line]
    return [re.sub(r"(estimated?) [\d.e-]+ us|[\d.e-]+ us, an estimate", r"\1 N us", re.sub(r" +", " ", line)) for line in lines if line]


def printed(command, folder):
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=300, check=True,
                          env={**os.environ, "PATH": f"{OCTAVO.parent}:{os.environ['PATH']}"}).stdout.splitlines()


def test_the_page_shows_what_is_printed(tmp_path):
    processor = pathlib.Path("/proc/cpuinfo").read_text()
    if "avx512_vnni" not in processor or "avx512_vbmi" not in processor or "amx_int8" in processor:
        pytest.skip("the page shows the plan for AVX-512 VNNI and VBMI without AMX")
    shutil.copy(QDQ, tmp_path / "model.onnx")
    blocks = shown((ROOT / "docs/explain.md").read_text())
    assert len(blocks) == 6 and all(command.startswith("octavo explain model.onnx ") for command, _ in blocks)
    for command, lines in blocks:
        assert plain(printed(command, tmp_path)) == plain(lines), f"docs/explain.md is old; python tests/cli/test_explain.py writes it again: {command}"


def test_the_page_names_what_is_printed():
    """Each line label that the tables explain appears in some output, and none is printed that they leave out."""
    text = (ROOT / "docs/explain.md").read_text()
    explained = {"region"} | {name for row in re.findall(r"^\| (`.*`) \| ", text, re.M) for name in re.findall(r"`([^`]+)`", row)}
    printed = set(re.findall(r"^  ([a-z][A-Za-z ]*?)  +\S", octavo("explain", QDQ, "--effort", 0, "--threads", 1, "--all"), re.M))
    printed -= {"precision", "tactic", "reason", "ONNX nodes", "anchor"}  # the columns of the table above
    assert printed <= explained, printed - explained
    assert {"time", "key", "work", "reads", "weights", "operand", "program", "stores", "alternative"} <= printed


def test_every_tensor_name_is_answered():
    graph = onnx.load(QDQ).graph
    names = {o for n in graph.node for o in n.output} | {i.name for i in graph.initializer} | {i.name for i in graph.input}
    assert len(names) > 140
    asked = set(sorted(names)[::rounds(3, 1)]) | {"act3_q", "act5", "concat_scale", "act5_dq"}  # those below are always asked about
    built = {name: octavo("explain", QDQ, "--effort", 0, "--threads", 1, "--tensor", name) for name in sorted(asked)}
    for name, text in built.items():
        assert text.startswith(f'tensor "{name}"') and ("region" in text or "read by nothing" in text), text
    assert "removed by pair-quantize-dequantize: dequantize_q(quantize_q(x)) ==> view_q(x)\n  went into \"act3_dq\" (view)" in built["act3_q"]
    assert "removed by move-view-relu" in built["act5"] and "inside region" in built["act5"]
    assert 'read by QuantizeLinear "concat_q" as input 1' in built["concat_scale"]
    assert "removed by" not in built["act5_dq"] and "made by region" in built["act5_dq"]
    wrong = octavo("explain", QDQ, "--effort", 0, "--threads", 1, "--tensor", "act3_dqq", code=2)
    assert 'has no tensor "act3_dqq"' in wrong and '"act3_dq"' in wrong


def test_tensors_of_nodes_without_effect(tmp_path):
    """Identity is another name; a constant folded by import says so."""
    nodes = [helper.make_node("Identity", ["x"], ["same"], "identity"), helper.make_node("Add", ["two", "two"], ["four"], "sum"),
             helper.make_node("Mul", ["same", "four"], ["y"], "mul")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(np.full((1, 8), 2, np.float32), "two")])
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    assert '"same" is another name of "x": the node between them has no effect at inference' in octavo("explain", model, "--tensor", "same")
    assert "four" in octavo("explain", model, "--tensor", "four")
    assert 'tensor "two": an initializer of the model' in octavo("explain", model, "--tensor", "two")


def test_laws_of_a_model_and_of_a_node():
    every = octavo("explain", QDQ, "--effort", 0, "--threads", 1, "--laws")
    count = int(re.search(r"laws and rules, (\d+) applied", every).group(1))
    steps = re.findall(r"^ +(\d+)  ([a-z0-9-]+)  ", every, re.M)
    assert [int(n) for n, _ in steps] == list(range(1, count + 1)) and count > 10
    where = every.split("  where\n", 1)[1]
    assert all(re.search(rf"^ +{rule} +\S.*==>", where, re.M) for _, rule in steps), "each with its equation"
    one = octavo("explain", QDQ, "--effort", 0, "--threads", 1, "--node", "act3")
    few = re.findall(r"^ +\d+  ([a-z0-9-]+)  ", one, re.M)
    assert few == ["move-view-relu", "drop-relu"]
    off = octavo("explain", QDQ, "--effort", 0, "--threads", 1, "--disable", "drop-relu", "--node", "act3")
    assert re.findall(r"^ +\d+  ([a-z0-9-]+)  ", off, re.M) == ["move-view-relu"], "a law that is off is not listed"


def two_grids(path):
    """Concat of two int8 convolutions of different scales, then a convolution without a pair between; output in NCHW."""
    rng = np.random.default_rng(0)
    nodes, inits = [], []

    def pair(x, scale, zero):
        inits.extend([numpy_helper.from_array(np.float32(scale), x + "_s"), numpy_helper.from_array(np.uint8(zero), x + "_z")])
        nodes.extend([helper.make_node("QuantizeLinear", [x, x + "_s", x + "_z"], [x + "_q"], x + "_Q"),
                      helper.make_node("DequantizeLinear", [x + "_q", x + "_s", x + "_z"], [x + "_d"], x + "_DQ")])
        return x + "_d"

    def conv(x, name, channels, of):
        inits.extend([numpy_helper.from_array(rng.integers(-127, 128, (channels, of, 3, 3)).astype(np.int8), name + "_w"),
                      numpy_helper.from_array(np.float32(0.01), name + "_ws"), numpy_helper.from_array(np.int8(0), name + "_wz")])
        nodes.extend([helper.make_node("DequantizeLinear", [name + "_w", name + "_ws", name + "_wz"], [name + "_wd"], name + "_WDQ"),
                      helper.make_node("Conv", [x, name + "_wd"], [name], name, pads=[1, 1, 1, 1])])
        return name

    x = pair("x", 0.02, 128)
    parts = [pair(conv(x, "left", 32, 16), 0.05, 100), pair(conv(x, "right", 32, 16), 0.3, 120)]
    nodes.append(helper.make_node("Concat", parts, ["cat"], "concat", axis=1))
    nodes.append(helper.make_node("Relu", [conv("cat", "head", 32, 64)], ["y"], "relu"))
    graph = helper.make_graph(nodes, "two grids", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 20, 20])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_parts_on_two_grids(tmp_path):
    """C13: without a search the convolution is float, and says which parts on which scales are why, and that a search prices another way."""
    model = two_grids(tmp_path / "m.onnx")
    text = octavo("explain", model, "--effort", 0, "--threads", 1, "--node", "head")
    assert 'parts of the data input "cat" have different quantizers: "left_d" has u8(0.05,100), "right_d" has u8(0.3,120)' in text
    assert "to change it  give both parts the same scale, the larger one, or build with --effort 2 or more, which also tries int8 part by part" in text
    searched = octavo("explain", model, "--effort", 2, "--threads", 1, "--node", "head")
    assert re.search(r"weighed +segments at head: .*part by part: measured [\d.]+ us", searched)


def test_a_softmax_needs_no_scale_of_its_input(tmp_path):
    """Its input and its result mean different things: nobody is told to give both one scale. Pooling by the largest keeps the scale and is."""
    def pair(x, scale, zero):
        inits.extend([numpy_helper.from_array(np.float32(scale), x + "_s"), numpy_helper.from_array(np.uint8(zero), x + "_z")])
        nodes.extend([helper.make_node("QuantizeLinear", [x, x + "_s", x + "_z"], [x + "_q"], x + "_Q"),
                      helper.make_node("DequantizeLinear", [x + "_q", x + "_s", x + "_z"], [x + "_d"], x + "_DQ")])
        return x + "_d"

    said = {}
    for op, attributes in (("Softmax", {"axis": 1}), ("MaxPool", {"kernel_shape": [2, 2]})):
        inits, nodes = [], []
        nodes.append(helper.make_node(op, [pair("x", 0.1, 128)], ["y"], "it", **attributes))
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 6, 6])],
                                  [helper.make_tensor_value_info(pair("y", 0.004, 0), TensorProto.FLOAT, None)], inits)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
        said[op] = octavo("explain", tmp_path / "m.onnx", "--effort", 0, "--threads", 1, "--node", "it")
        page = tmp_path / "page.html"
        octavo("view", tmp_path / "m.onnx", "-o", page, "--effort", 0, "--threads", 1)
        assert ("same QuantizeLinear" in page.read_text()) == ("same QuantizeLinear" in said[op])
    assert "softmax cannot be computed in integers" in said["Softmax"] and "no Q/DQ pair changes this" in said["Softmax"], said["Softmax"]
    assert "scale" not in re.findall(r"to change it .*", said["Softmax"])[0]


@pytest.mark.parametrize("name", ["digits", "two grids", "mobilenetv2_qdq_perchannel_s8", "tinycnn_cifar_qoperator"])
def test_what_costs_says_why(name, tmp_path):
    """Every copy, requantizing pass and float region: a reason, the nodes of the file that cause it, and a way out."""
    model = QDQ if name == "digits" else two_grids(tmp_path / "m.onnx") if name == "two grids" else DATA / f"models/{name}.onnx"
    if not model.exists():
        pytest.skip("OCTAVO_TEST_DATA: the test data is not there")
    nodes = {n.name or f"{n.op_type}_{i}" for i, n in enumerate(onnx.load(model).graph.node)}
    text = octavo("explain", model, "--effort", 0, "--threads", 1, "--copies")
    if text.startswith("no copies"):
        return
    *blocks, end = re.split(r"^(?=\S)", text, flags=re.M)[1:]
    assert end.startswith(f"{len(blocks)} in all, ") and blocks
    for block in blocks:
        assert re.match(r"(copy|requantize|float) \d+: ", block), block
        assert re.search(r"^  because   \S", block, re.M) and re.search(r"^  change it \S", block, re.M), block
        causes = re.search(r"^  caused by (.*)$", block, re.M).group(1).split(", ")
        assert set(causes) <= nodes, set(causes) - nodes


def test_json_of_a_model_has_the_laws_that_the_text_lists(tmp_path):
    """Rule by rule and in order; of one node, only what concerns it. An engine file does not keep them."""
    more = ["--effort", 0, "--threads", 1]
    text = octavo("explain", QDQ, "--laws", *more)
    laws = json.loads(octavo("explain", QDQ, "--json", *more))["laws"]
    listed = re.findall(r"^ +\d+  (\S+) +(.*) \[", text, re.M)
    assert listed and listed == [(a["rule"], a["reason"]) for a in laws["applied"]]
    refused = text.split("refused:\n")[1].splitlines() if "refused:\n" in text else []
    assert refused == [f"  {r['rule']} at \"{r['node']}\": {r['reason']}" for r in laws["refused"]]
    node = laws["applied"][0]["onnx_nodes"][0]
    few = json.loads(octavo("explain", QDQ, "--json", "--node", node, *more))["laws"]["applied"]
    assert few == [a for a in laws["applied"] if node in a["onnx_nodes"]] and 0 < len(few) < len(laws["applied"])
    octavo("build", QDQ, "-o", tmp_path / "e.octavo", *more)
    assert "laws" not in json.loads(octavo("explain", tmp_path / "e.octavo", "--json"))


if __name__ == "__main__":  # writes the outputs in docs/explain.md again
    import tempfile
    page = ROOT / "docs/explain.md"
    text = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(QDQ, pathlib.Path(folder) / "model.onnx")
        for command, _ in shown(text):
            output = "".join(f"    {line}\n" if line else "\n" for line in printed(command, folder))
            text = re.sub(rf"^    \$ {re.escape(command)}\n(?:    .*\n|\n(?=    ))*", lambda _, c=command, o=output: f"    $ {c}\n{o}", text, flags=re.M)
    page.write_text(text)
