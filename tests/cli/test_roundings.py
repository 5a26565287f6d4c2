"""octavo explain --roundings: pairs that round inside a region are named with the time without them; others are not."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from set_times import priced

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


def network(path, act="silu", inner=0.04, again=None):
    """conv1 -> (pair "mid") -> activation -> (pair "again" -> tanh) -> pair -> conv2; `inner`, `again`: scales, or None for no pair."""
    rng = np.random.default_rng(5)
    inits, nodes = [], []

    def pair(x, scale, name):
        inits.extend([numpy_helper.from_array(np.float32(scale), name + "_s"), numpy_helper.from_array(np.int8(0), name + "_z")])
        nodes.extend([helper.make_node("QuantizeLinear", [x, name + "_s", name + "_z"], [name + "_q"], name + "_Q"),
                      helper.make_node("DequantizeLinear", [name + "_q", name + "_s", name + "_z"], [name + "_dq"], name + "_DQ")])
        return name + "_dq"

    def conv(x, name):
        inits.extend([numpy_helper.from_array(rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8), name + "_w"),
                      numpy_helper.from_array(np.float32(0.004), name + "_ws"), numpy_helper.from_array(np.int8(0), name + "_wz")])
        nodes.extend([helper.make_node("DequantizeLinear", [name + "_w", name + "_ws", name + "_wz"], [name + "_wd"], name + "_WDQ"),
                      helper.make_node("Conv", [x, name + "_wd"], [name], name, pads=[1, 1, 1, 1])])
        return name

    y = conv(pair("x", 0.02, "x"), "conv1")
    y = pair(y, inner, "mid") if inner else y
    if act == "silu":
        nodes.append(helper.make_node("Sigmoid", [y], ["sig"], "sig"))
        nodes.append(helper.make_node("Mul", [y, "sig"], ["act"], "act"))
    else:
        nodes.append(helper.make_node(act, [y], ["act"], "act"))
    y = "act"
    if again:
        nodes.append(helper.make_node("Tanh", [pair(y, again, "again")], ["tanh"], "tanh"))
        y = "tanh"
    conv(pair(y, 0.03, "end"), "conv2")
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 32, 32])],
                              [helper.make_tensor_value_info("conv2", TensorProto.FLOAT, None)], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def roundings(model, *more):
    return json.loads(octavo("explain", model, "--roundings", "--json", "--threads", 1, *more))


def test_the_pair_before_the_activation_is_named_with_both_times(tmp_path):
    model, cache = network(tmp_path / "m.onnx"), tmp_path / "times.txt"
    found = roundings(model, "--effort", 1, "--timing-cache", cache)
    assert found["cost_source"] == "measured"
    (r,) = found["roundings"]
    assert r["onnx_nodes"] == ["mid_DQ", "mid_Q"] and r["tensor"] == "conv1" and r["source"] == "conv"
    assert r["readers"] == ["mul", "sigmoid"] and "conv1" in r["region"] and "0.04" in r["quantizer"]
    assert r["seconds_with"] > 0 and r["seconds_without"] > 0 and r["seconds_with"] != r["seconds_without"]
    assert found["seconds_with"] == r["seconds_with"] and found["seconds_without"] == r["seconds_without"]
    text = octavo("explain", model, "--roundings", "--threads", 1, "--effort", 1, "--timing-cache", cache, "--strict-timing")
    assert re.search(r'rounding of "conv1" to .*0\.04.*\n  required by mid_DQ, mid_Q\n  measured [0-9.]+ us with it, [0-9.]+ us without it', text), text


def slow_tables(model, cache, *more):
    """The options of times by which regions with a table take a millisecond, those with more operations a little longer, and all others 10 us."""
    command = ["explain", model, "--threads", 1, "--effort", 1, *more]
    return ["--effort", 1, *priced(octavo, command, cache, (r" table\b", lambda key: 1000 + len(key)))[len(command):]]


def test_the_engine_without_what_costs_time_is_the_one_that_never_had_it(tmp_path):
    """Times are set by hand: with a slow table the rounding costs time, with a fast one none does."""
    model, without, cache, out = network(tmp_path / "m.onnx"), network(tmp_path / "n.onnx", inner=None), tmp_path / "times.txt", tmp_path / "w.octavo"
    slow_tables(without, cache)  # the times of the regions around it
    more = slow_tables(model, cache, "--roundings")
    found = roundings(model, *more, "--build-without", out)
    assert found["costly"]["count"] == 1 and found["costly"]["seconds_without"] < found["costly"]["seconds_with"]
    assert json.loads(octavo("explain", out, "--json"))["plan_hash"] == json.loads(octavo("explain", without, "--json", "--threads", 1, *more))["plan_hash"]
    assert "1 costs time; if it is left out, the regions that change take measured" in octavo("explain", model, "--roundings", "--threads", 1, *more)


def test_roundings_that_cost_time_only_together_are_found(tmp_path):
    """Two behind each other: with either, the rest is a table; the times say that only the region without both is faster."""
    model, without, cache = network(tmp_path / "m.onnx", again=0.008), tmp_path / "n.onnx", tmp_path / "times.txt"
    found = roundings(model, *slow_tables(model, cache, "--roundings"))
    assert all(r["same_plan"] or r["seconds_without"] >= 0.995 * r["seconds_with"] for r in found["roundings"])
    assert [r["costs_time"] for r in found["roundings"]] == [True, True] and found["costly"]["count"] == 2
    assert found["costly"]["seconds_without"] < found["costly"]["seconds_with"]


def test_the_engine_without_any_is_the_one_that_never_had_one(tmp_path):
    """Also where the times say that none costs time; both engines from one call."""
    model, without, out, some = network(tmp_path / "m.onnx"), network(tmp_path / "n.onnx", inner=None), tmp_path / "all.octavo", tmp_path / "some.octavo"
    more = ["--threads", 1, "--effort", 0]
    assert roundings(model, "--effort", 0, "--build-without-all", out)["costly"]["count"] == 0
    hashes = [json.loads(octavo("explain", m, "--json", *o))["plan_hash"] for m, o in ((out, []), (without, more), (model, more))]
    assert hashes[0] == hashes[1] != hashes[2]
    cache = tmp_path / "times.txt"
    times = slow_tables(model, cache, "--roundings", "--build-without-all", out)
    roundings(model, *times, "--build-without", some, "--build-without-all", out)
    assert len({json.loads(octavo("explain", m, "--json"))["plan_hash"] for m in (some, out)}) == 1
    assert "there are no roundings inside regions" in octavo("explain", without, "--roundings", *more, "--build-without-all", some, code=2)


def test_whole_runs_are_told_from_effort_2_on(tmp_path):
    model, cache = network(tmp_path / "m.onnx"), tmp_path / "times.txt"
    found = roundings(model, "--effort", 2, "--timing-cache", cache)
    assert found["whole_seconds_with"] > 0 and found["whole_seconds_without"] > 0
    assert all("costs_time_seen" in r or not r["costs_time"] for r in found["roundings"])
    assert roundings(model, "--effort", 2, "--timing-cache", cache, "--strict-timing") == found
    assert "; whole runs in turn: measured" in octavo("explain", model, "--roundings", "--threads", 1, "--timing-cache", cache)
    assert "whole_seconds_with" not in roundings(model, "--effort", 1, "--timing-cache", cache)


def test_where_nothing_is_gained_it_says_so_and_writes_nothing(tmp_path):
    """The table behind the rounding is faster than the exponential without it."""
    model, out = network(tmp_path / "m.onnx"), tmp_path / "w.octavo"
    out.write_text("kept")
    assert roundings(model, "--effort", 0)["costly"]["count"] == 0
    text = octavo("explain", model, "--roundings", "--effort", 0, "--threads", 1)
    assert "none costs time" in text and re.search(r"us with it, [0-9.]+ us without it \(\+", text), text
    assert "none of the 1 roundings that the placement of Q/DQ demands costs time" in octavo("explain", model, "--roundings", "--effort", 0, "--build-without", out, code=2)
    assert out.read_text() == "kept"
    assert "--build-without requires --roundings" in octavo("explain", model, "--build-without", out, code=2)


def test_the_summary_and_the_prices_name_the_same(tmp_path):
    for act, inner in (("silu", 0.04), ("Relu", 0.04), ("Relu", 0.03), ("Sigmoid", None)):
        model = network(tmp_path / "m.onnx", act, inner, again=0.008)
        count = len(roundings(model, "--effort", 0)["roundings"])
        first = octavo("explain", model, "--effort", 0, "--threads", 1).split("roundings inside regions")[0].split("rounding inside")[0].split()[-1]
        assert first == (str(count) if count else "no")


def test_time_without_is_the_time_of_the_network_without(tmp_path):
    """One cache: the region without the pair has the key, hence the time, of the region in a network that never had it."""
    model, without, cache = network(tmp_path / "m.onnx"), network(tmp_path / "n.onnx", inner=None), tmp_path / "times.txt"
    found = roundings(model, "--effort", 1, "--timing-cache", cache)
    plan = json.loads(octavo("explain", without, "--json", "--threads", 1, "--effort", 1, "--timing-cache", cache))
    (region,) = [r for r in plan["regions"] if "conv1" in r["onnx_nodes"]]
    assert region["seconds"] == pytest.approx(found["seconds_without"], rel=1e-3)


def test_without_a_pair_there_nothing_is_named(tmp_path):
    model = network(tmp_path / "n.onnx", inner=None)
    assert roundings(model, "--effort", 0)["roundings"] == []
    text = octavo("explain", model, "--roundings", "--threads", 1, "--effort", 0)
    assert "no Q/DQ pair costs a rounding inside a region" in text and "mid" not in text


@pytest.mark.parametrize("scale,count", [(0.03, 0), (0.04, 1)])
def test_a_pair_that_is_the_rounding_of_the_store_is_no_inner_one(tmp_path, scale, count):
    """Relu stays on the grid: with the scale of the pair behind it both pairs are one rounding, with another they are two."""
    assert len(roundings(network(tmp_path / "m.onnx", "Relu", scale), "--effort", 0)["roundings"]) == count


def test_a_step_of_a_table_costs_nothing(tmp_path):
    """Behind the first rounding all is one table: the second is named, and its region has one key with it and without it."""
    found = roundings(network(tmp_path / "m.onnx", "Sigmoid", 0.04, again=0.008), "--effort", 0)
    times = {r["tensor"]: (r["seconds_with"], r["seconds_without"]) for r in found["roundings"]}
    assert set(times) == {"conv1", "act"}
    assert times["act"][0] == times["act"][1] > 0
    assert [r["same_plan"] for r in found["roundings"] if r["tensor"] == "act"] == [True]


def residual(path, read="mid", relu=False):
    """conv1 -> (Relu ->) pair -> conv2 -> Add with `read`: "mid", what the pair rounds, or "mid_dq", what it gives."""
    rng = np.random.default_rng(6)
    inits, nodes = [], []
    for name, scale in (("x", 0.02), ("mid", 0.05), ("w1", 0.004), ("w2", 0.004)):
        inits.append(numpy_helper.from_array(np.float32(scale), name + "_s"))
        inits.append(numpy_helper.from_array(np.int8(0), name + "_z"))

    def pair(x, name):
        nodes.extend([helper.make_node("QuantizeLinear", [x, name + "_s", name + "_z"], [name + "_q"], name + "_Q"),
                      helper.make_node("DequantizeLinear", [name + "_q", name + "_s", name + "_z"], [name + "_dq"], name + "_DQ")])

    def conv(x, weights, name):
        inits.append(numpy_helper.from_array(rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8), weights))
        nodes.extend([helper.make_node("DequantizeLinear", [weights, weights + "_s", weights + "_z"], [weights + "_dq"], weights + "_DQ"),
                      helper.make_node("Conv", [x, weights + "_dq"], [name], name, pads=[1, 1, 1, 1])])

    pair("x", "x")
    conv("x_dq", "w1", "conv1")
    nodes.append(helper.make_node("Relu" if relu else "Identity", ["conv1"], ["mid"], "act"))
    pair("mid", "mid")
    conv("mid_dq", "w2", "conv2")
    nodes.append(helper.make_node("Add", ["conv2", read], ["sum"], "add"))
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 32, 32])],
                              [helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("relu", [False, True])
def test_floats_read_where_codes_are_stored_are_named(tmp_path, relu):
    """The engine without is that of the model whose Add reads the pair; that model has nothing to name. A Relu before the pair is computed on its codes."""
    model, codes = residual(tmp_path / "m.onnx", relu=relu), residual(tmp_path / "n.onnx", "mid_dq", relu)
    out, more = tmp_path / "w.octavo", ["--effort", 0, "--threads", 1]
    (r,) = roundings(model, "--effort", 0, "--build-without-all", out)["roundings"]
    assert (r["kind"], r["tensor"], r["onnx_nodes"], r["pair"]) == ("left out", "conv1", ["add"], ["mid_DQ", "mid_Q"])
    assert "add" in r["region"] and not r["same_plan"]
    hashes = [json.loads(octavo("explain", m, "--json", *o))["plan_hash"] for m, o in ((out, []), (codes, more), (model, more))]
    assert hashes[0] == hashes[1] != hashes[2]
    text = octavo("explain", model, "--roundings", *more)
    assert re.search(r'"conv1" is stored as .*0\.05.* and in float32, because add reads it without a pair in region ".*add"\n  required by add; the 8-bit codes are those of mid_DQ, mid_Q\n', text), text
    assert "the placement of Q/DQ requires 1 tensor stored in float32 as well as in 8 bits: \"conv1\" (add)" in octavo("explain", model, *more)
    assert roundings(codes, "--effort", 0)["roundings"] == []


def test_the_summary_names_it(tmp_path):
    model, engine = network(tmp_path / "m.onnx"), tmp_path / "m.octavo"
    assert "the placement of Q/DQ requires 1 rounding inside regions: \"conv1\" (mid_DQ, mid_Q)" in octavo("explain", model, "--effort", 0)
    octavo("build", model, "-o", engine, "--effort", 0)
    assert "rounding" not in octavo("explain", engine)
    assert "give the ONNX model" in octavo("explain", engine, "--roundings", code=2)
