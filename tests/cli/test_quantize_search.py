"""octavo quantize --min-sqnr and --max-drop: layers leave int8 until a bound holds."""
import json
import shlex
import subprocess

import pytest
from quantizing import FP32, OCTAVO, PICTURES, RECIPE, bottlenecks, every_form, quantize, run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return every_form(tmp_path_factory.mktemp("quantized"))


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
    for allow, said in (("int8,float8", 'allowed type "float8": known are int8, float32 and bfloat16'), ("int8,float16", "none computes in float16"),
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
