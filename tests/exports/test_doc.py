"""docs/from-pytorch.md, executed as it stands: its files written, its commands run, their output compared word by word. Numbers, plan hashes
and tactics may differ (other weights on other machines); accuracies are compared with those of ONNX Runtime on the same files."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS = ("torch", "onnxscript", "torchao", "nncf", "sklearn")
missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")

ANY = re.compile(r"cpu\.\S+|\b[0-9a-f]{32}\b|-?\d[\d.]*(?:[eE][-+]\d+)?")


def blocks():
    """[("python", file name, text) or ("console", "", text)], files first: the page shows some behind their first use."""
    text = (ROOT / "docs/from-pytorch.md").read_text(encoding="utf-8")
    found = re.findall(r"^```(python|console) ?(\S*)\n(.*?)^```$", text, re.M | re.S)
    return sorted(found, key=lambda block: block[0] == "console")


def commands(text):
    """[(command, lines that it prints)]"""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def shape(line):
    """The words of a line: numbers and tactics are one sign each, spaces do not count."""
    return ANY.sub("#", line).split()


def same(printed, expected, cut):
    """Whether two lines have the same words. Where both were cut at a column, a longer tactic leaves less of the names:
    the shorter line, three words at least, begins the other one."""
    a, b = sorted((shape(printed), shape(expected)), key=len)
    if not cut or len(b) < 3:
        return a == b
    return len(a) >= 3 and a[:-1] == b[: len(a) - 1] and (b[len(a) - 1].startswith(a[-1]) or a[-1].startswith(b[len(a) - 1]))


def agrees(printed, expected, cut=False):
    """"..." stands for any lines."""
    if expected == ["..."]:
        return True
    whole = "..." not in expected
    expected = expected[: expected.index("...")] if not whole else expected
    printed = printed if whole else printed[: len(expected)]
    return len(printed) == len(expected) and all(same(p, e, cut) for p, e in zip(printed, expected))


def test_the_comparison_can_say_no():
    assert agrees(["a 1 b", "c"], ["a 2.5e-07 b", "..."])
    assert not agrees(["a 1 b", "c"], ["a 1 b"])
    assert not agrees(["a 1 b"], ["a one b"])
    assert not agrees([], ["a"])
    assert agrees(["0 int8 cpu.much.longer{x=y} node_"], ["0 int8 cpu.short node_Conv_1 (+3"], cut=True)
    assert not agrees(["0 int8 cpu.much.longer{x=y} node_"], ["0 int8 cpu.short node_Conv_1 (+3"])
    assert not agrees(["0 float32 cpu.much.longer{x=y} node_"], ["0 int8 cpu.short node_Conv_1 (+3"], cut=True)
    assert not agrees(["0 int8 cpu.much.longer{x=y} mode_"], ["0 int8 cpu.short node_Conv_1 (+3"], cut=True)
    assert not agrees(["0 int8"], ["0 int8 cpu.short node_Conv_1 (+3"], cut=True)


def onnx_runtime(folder, name):
    """How many of the pictures it classifies right."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
    images, labels = np.load(folder / "images.npy"), np.load(folder / "labels.npy")
    return sum(int(session.run(None, {"image": x[None]})[0].argmax()) == y for x, y in zip(images, labels))


def test_the_page_is_true(tmp_path):
    build = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
    path = os.pathsep.join([str(build / "bin"), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(build / "python"), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    right, ran = {}, 0
    for kind, name, text in blocks():
        if kind == "python":
            assert name.endswith(".py")
            (tmp_path / name).write_text(text, encoding="utf-8")
            continue
        for command, expected in commands(text):
            done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, check=False, timeout=600)
            assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
            assert agrees(done.stdout.splitlines(), expected, cut="| cut -c" in command), f"$ {command}\n{done.stdout}\ninstead of\n" + "\n".join(expected)
            if m := re.match(r"(\S+): (\d+) of (\d+) right, (\d+) of", done.stdout):
                right[m[1]] = int(m[2]), int(m[3]), int(m[4])
            ran += 1
    assert ran == 20
    assert set(right) == {"net.onnx", "octavo.onnx", "ort.onnx", "nncf.onnx", "pt2e.onnx", "qat.onnx", "digits.octavo"}
    # Training differs between machines, so that a form may be better or worse than the float model: ONNX Runtime on the same file says by how much.
    # It does not optimize: its QLinearAdd refuses what torch.ao exports.
    count = right["net.onnx"][1]
    for form, (n, of, int8) in right.items():
        judge = onnx_runtime(tmp_path, "ort.onnx" if form == "digits.octavo" else form)
        assert of == count and abs(n - judge) <= 0.01 * count, f"{form}: {n} of {of} right, in ONNX Runtime {judge}"
        assert n >= 0.8 * count, f"{form}: {n} of {of} right"
        assert int8 >= 5 or form == "net.onnx", f"{form}: only {int8} regions int8"
