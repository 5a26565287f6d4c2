"""The signatures, checked by a type checker: the package itself, a program that uses it, and programs that misuse it."""
import pathlib
import subprocess
import sys

import pytest

import octavo

pytest.importorskip("mypy")
PACKAGE = pathlib.Path(octavo.__file__).parent

GOOD = """
import numpy as np
import octavo

def main(path: str) -> None:
    engine = octavo.build(path, shapes={"x": (1, 3, 8, 8)}, threads=1, effort=0, allowed={"int8"}, progress=print)
    with octavo.load(engine.tobytes()) as loaded:
        x = np.zeros((1, 3, 8, 8), np.float32)
        loaded.run({"x": x}, outputs={"y": x}, stream=0)
        result = loaded.run({"x": x})["y"].argmax() + loaded.run([x])["y"].argmax() + loaded.run(x)["y"].argmax()
    for layer in engine.layers:
        name: str = layer["name"]
        for alternative in layer["alternatives"]:
            print(name, alternative["seconds"] or 0.0, result)
    shares = [layer["share"] for layer in octavo.profile(engine)["layers"]]
    print(sum(shares), octavo.bench(engine)["median_ms"] * 2.0, octavo.check(path)["regions"][0]["ok"])
    session = octavo.InferenceSession(path, octavo.SessionOptions(), providers=["CPUExecutionProvider"])
    print(session.run(None, {"x": x})[0], [f["text"].upper() for f in octavo.doctor(path)])
"""

BAD = {
    "build('m.onnx', threads='four')": "incompatible type",
    "build('m.onnx', fast=True)": "Unexpected keyword",
    "load('e').run(3)": "incompatible type",
    "load('e').layers[0]['nmae']": "no key",
    "bench('e')": "incompatible type",
    "profile(load('e'))['layers'][0]['share'].upper()": "no attribute",
    "load('e').plan_hsh": "no attribute",
}


def mypy(folder, *arguments):
    # An installed package is found by itself; mypy refuses site-packages in MYPYPATH.
    path = {} if PACKAGE.parent.name == "site-packages" else {"MYPYPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), *arguments], capture_output=True, text=True,
                          check=False, timeout=300, cwd=folder, env={"PATH": "/usr/bin:/bin", **path})
    return done.returncode, done.stdout


def test_a_program(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    code, said = mypy(tmp_path, "good.py")
    assert code == 0, said


def test_mistakes_are_found(tmp_path):
    lines = ["import octavo"] + [f"octavo.{call}" for call in BAD]
    (tmp_path / "bad.py").write_text("\n".join(lines) + "\n")
    _, said = mypy(tmp_path, "bad.py")
    for number, (call, text) in enumerate(BAD.items(), 2):
        found = [line for line in said.splitlines() if line.startswith(f"bad.py:{number}:")]
        assert found and text in " ".join(found), f"{call}: {found}"


def test_the_stub_names_what_is_there():
    import ast
    tree = ast.parse((PACKAGE / "_octavo.pyi").read_text())
    module = octavo._octavo
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert hasattr(module, node.name), node.name
        if isinstance(node, ast.ClassDef):
            declared = {n.name for n in node.body if isinstance(n, ast.FunctionDef)} - {"__init__"}
            there = set(dir(getattr(module, node.name)))
            present = {n for n in there if not n.startswith("__")} | ({"__enter__", "__exit__"} & there)
            assert declared == present, declared ^ present
