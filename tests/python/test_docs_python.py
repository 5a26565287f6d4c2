"""Python in the documents: blocks of README and docs/doctor.md run, and calls of octavo name functions and options that exist. Blocks of other pages run in tests/exports (from-pytorch.md) and
tests/serving (serving.md); those of running.md and ray.md need a GPU and a cluster."""
import pathlib
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CALL = re.compile(r"\boctavo\.([a-z_.]+)\(([^()]*(?:\([^()]*\)[^()]*)*)\)")


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)


def test_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weights = onnx.numpy_helper.from_array(np.full((8, 3, 16, 16), 1e-3, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["input", "w"], ["output"], name="stem", strides=[16, 16])], "g",
                              [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3, 224, 224])], [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "model.onnx")
    (block,) = blocks("README.md")
    names = {"image": np.ones((1, 3, 224, 224), np.float32)}
    exec(block, names)
    assert names["logits"].shape == (1, 8, 14, 14) and (tmp_path / "model.octavo").exists() and "stem" in capsys.readouterr().out


def test_doctor(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes((ROOT / "examples/digits/digits_qdq.onnx").read_bytes())
    for block in blocks("docs/doctor.md"):
        exec(block, {"octavo": octavo})
    capsys.readouterr()


def calls():
    for page in PAGES:
        for text in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")) + re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            for name, arguments in CALL.findall(text):
                yield page.name, name, re.findall(r"(?:^|[,(]\s*)([a-z_]+)=", arguments)


def unknown(name, keywords):
    """What of a call octavo does not have."""
    if name.startswith("ray."):
        return None  # imports Ray; tests/ray
    found = octavo
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return f"octavo.{name}"
    head = (found.__doc__ or "") if not hasattr(found, "__code__") else " ".join(found.__code__.co_varnames[:found.__code__.co_argcount + found.__code__.co_kwonlyargcount])
    absent = [k for k in keywords if not re.search(rf"\b{k}\b", head)]
    return f"octavo.{name}: {', '.join(absent)}" if absent else None


def test_calls_exist():
    found = list(calls())
    assert len(found) > 20
    assert [(page, why) for page, name, keywords in found if (why := unknown(name, keywords))] == []


@pytest.mark.parametrize("name, keywords, why", [("bild", [], "octavo.bild"), ("load", ["veryfy"], "octavo.load: veryfy"), ("load", ["verify", "code"], None)])
def test_what_is_absent_is_found(name, keywords, why):
    assert unknown(name, keywords) == why
