"""bfloat16 and --max-error as their user sees them. On a processor without bfloat16 the refusals are checked, and what needs it is skipped."""
import json
import sys

import numpy as np
import onnx
import pytest

from test_implicit import COMMON, FP32, ROOT, octavo, plan, ranges

sys.path.insert(0, str(ROOT / "bench"))
import transformers  # noqa: E402

OPTIONS = ("--shapes", "image:1x1x16x16", "--threads", 1)


@pytest.fixture(scope="module")
def computes():
    """True if this build and this processor have a kernel for bfloat16."""
    text = octavo("explain", FP32, *OPTIONS, "--effort", 2, "--allow", "float32,bfloat16", "--all")
    assert "weighed       precision at " in text
    return "bfloat16: measured" in text


def precisions(text):
    """{ONNX node: precision} of `explain --json`."""
    return {node: r["precision"] for r in json.loads(text)["regions"] for node in r["onnx_nodes"]}


def test_a_rule_demands_it(tmp_path, computes):
    engine = tmp_path / "e"
    rule = ("--precision", "*=bfloat16")
    if not computes:
        engine.write_text("here before")
        text = octavo("build", FP32, *COMMON, "-o", engine, *rule, code=4)
        assert "is to compute in bfloat16, and nothing here can" in text and "allow float32 as well" in text
        assert engine.read_text() == "here before"
        pytest.skip("no kernel for bfloat16 here")
    octavo("build", FP32, *COMMON, "-o", engine, *rule)
    assert set(precisions(octavo("explain", engine, "--json")).values()) >= {"bfloat16"}
    assert "asked for by the rule \"*=bfloat16\"; bfloat16: data and weights are rounded to bfloat16, sums are float32" in octavo("explain", engine)
    assert "0 differ" in octavo("check", FP32, *COMMON, *rule)


def test_allowed_it_is_weighed(computes):
    text = octavo("explain", FP32, *OPTIONS, "--effort", 2, "--allow", "float32,bfloat16", "--all")
    assert "float32: measured" in text and ("bfloat16: measured" in text) == computes
    assert computes or "no kernel here computes it in bfloat16" in text


def test_allowed_alone_measures_nothing(tmp_path):
    plain = octavo("build", FP32, *COMMON, "-o", tmp_path / "a")
    assert plan(plain) == plan(octavo("build", FP32, *COMMON, "-o", tmp_path / "b", "--allow", "float32,bfloat16"))


def test_max_error_keeps_layers_float(tmp_path):
    amax = ranges()
    coarse = {name: a * (40 if i % 2 else 1) for i, (name, a) in enumerate(amax.items())}
    (tmp_path / "r.json").write_text(json.dumps(coarse))
    given = ("--calibration", tmp_path / "r.json")
    free = octavo("build", FP32, *COMMON, "-o", tmp_path / "a", *given)
    kept = octavo("build", FP32, *COMMON, "-o", tmp_path / "b", *given, "--max-error", 0.02)
    none = octavo("build", FP32, *COMMON, "-o", tmp_path / "c", *given, "--max-error", 0)
    layers = [int(t.split("ranges: ")[1].split()[0]) for t in (free, kept, none)]
    assert layers[0] > layers[1] >= layers[2] == 0, layers
    text = octavo("explain", tmp_path / "b", "--all")
    assert "kept float32 for --max-error 0.02: in int8 it alone changes the outputs by" in text
    assert "give the tensors around it better ranges, or allow a larger --max-error" in octavo("explain", tmp_path / "b", "--copies") or layers[1] == 0


def test_errors(tmp_path):
    engine = tmp_path / "e"
    for extra, text in [(("--allow", "bf16"), "known are int8, float32 and bfloat16"), (("--allow", "float32,tf32"), 'only GPUs multiply in tf32, and the device is "cpu"'),
                        (("--max-error", "-1"), "--max-error"),
                        (("--precision", "Relu*=bfloat16"), "Relu")]:
        assert text in octavo("build", FP32, *COMMON, "-o", engine, *extra, code=2)
        assert not engine.exists()
    octavo("build", FP32, *COMMON, "-o", engine)
    assert "has no effect: it applies to builds" in octavo("bench", engine, "--max-error", 0.1, code=2)


@pytest.mark.parametrize("network", ["bert_like", "vit_like"])
def test_attention_takes_part(tmp_path, computes, network):
    """Two layers of attention: every product of the network, those of two computed matrices too."""
    if not computes:
        pytest.skip("no kernel for bfloat16 here")
    path = tmp_path / f"{network}.onnx"
    if network == "bert_like":
        transformers.bert(path, tokens=33, n=64, heads=2, layers=2, words=50)
        given = ("ids", np.arange(33, dtype=np.int64)[None] % 50)
    else:
        transformers.vit(path, n=64, heads=2, layers=2, classes=10)
        given = ("image", np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32))
    np.save(tmp_path / "x.npy", given[1])
    options, rule = ("--effort", 0, "--threads", 1), ("--precision", "*=bfloat16")
    regions = json.loads(octavo("explain", path, *options, *rule, "--json"))["regions"]
    assert sum(r["tactic"].startswith("cpu.attention.bf16.queries.") and r["precision"] == "bfloat16" for r in regions) == 2
    assert not any("matmul" in r["tactic"] for r in regions)
    assert "both matrices are rounded to bfloat16, sums are float32" in octavo("explain", path, *options, *rule)
    apart = json.loads(octavo("explain", path, *options, *rule, "--disable", "attention", "--json"))["regions"]
    assert sum(r["tactic"].startswith("cpu.matmul.bf16.rows.") for r in apart) == 4
    for more in ((), ("--disable", "attention")):
        assert " 0 differ" in octavo("check", path, *options, *rule, *more)
    results = []
    for name, extra in (("exact", ()), ("small", rule), ("emulated", ("--precision", "*=bfloat16-emulated"))):
        octavo("run", path, *options, *extra, f"--input={given[0]}={tmp_path / 'x.npy'}", "--output", tmp_path / f"{name}.npy")
        results.append(np.load(tmp_path / f"{name}.npy"))
    exact, small, emulated = results
    assert 1e-4 < np.abs(small - exact).max() / np.abs(exact).max() < 0.03
    assert np.abs(small - emulated).max() / np.abs(exact).max() < 0.01


def test_a_product_is_left_out_by_rule(tmp_path, computes):
    path = tmp_path / "bert_like.onnx"
    transformers.bert(path, tokens=9, n=16, heads=2, layers=1, words=10)
    products = [n.name for n in onnx.load(path).graph.node if n.op_type == "MatMul"][3:5]  # behind the projections
    if not computes:
        pytest.skip("no kernel for bfloat16 here")
    types = precisions(octavo("explain", path, "--effort", 0, "--threads", 1, "--precision", f"{products[0]}=float32", "--precision", "*=bfloat16", "--json"))
    assert [types[p] for p in products] == ["float32", "bfloat16"]
