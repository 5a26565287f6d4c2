"""Lines of the output that were hard to read, or said less than was known."""
import os
import pathlib
import re
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
QDQ = ROOT / "examples/digits/digits_qdq.onnx"


def octavo(*args, code=0, **more):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300, **more)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory):
    """An LSTM with weights that a run computes, for which there is no vector kernel, and a product."""
    rng = np.random.default_rng(0)
    constants = {"r": rng.normal(0, 0.1, (1, 256, 64)), "b": rng.normal(0, 0.1, (1, 512)), "v": rng.normal(0, 0.1, (64, 8))}
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["", "h"], name="lstm", hidden_size=64), helper.make_node("Squeeze", ["h", "axis"], ["s"], name="squeeze"),
             helper.make_node("MatMul", ["s", "v"], ["y"], name="product")]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [20, 1, 32]), helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 256, 32]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])]
    tensors = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items()] + [numpy_helper.from_array(np.int64([0]), "axis")]
    path = tmp_path_factory.mktemp("slow") / "lstm.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "slow", values[:2], values[2:], tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_time_without_vector_kernels_is_told(slow_model, tmp_path):
    line = r"(\d+\.\d) % of the time is spent in (one region|\d+ regions) without vector kernels: .*lstm"
    for args in (["explain", slow_model], ["build", slow_model, "-o", tmp_path / "e"], ["explain", tmp_path / "e"]):
        said = octavo(*args, *([] if args[1] == tmp_path / "e" else ["--effort", "0"]), "--threads", "1")
        match = re.search(line, said)
        assert match and float(match.group(1)) > 50, said
    assert "without vector kernels" not in octavo("explain", QDQ, "--effort", "0", "--threads", "1")


def test_pins_that_no_build_could_take_are_refused(tmp_path):
    times = tmp_path / "times.txt"
    octavo("build", QDQ, "-o", tmp_path / "e", "--effort", "1", "--threads", "1", "--timing-cache", times)
    before = times.read_bytes()
    common = ["cache", "pin", times, "--match", "w s8[10,32,1,1]", "--tactic"]
    octavo(*common, "foo", code=2)
    for other in ("foo.bar", "cpu.lstm.f32.block.avx512"):
        said = octavo(*common, other, code=2)
        assert f'"{other}"' in said and ("cpu.conv.u8s8" in said or "octavo cache show" in said)  # what it could be, or where that is said
    assert times.read_bytes() == before
    octavo(*common, "cpu.conv.u8s8.block.portable")


def test_counts_agree_with_their_nouns():
    first = octavo("doctor", QDQ, "--effort", "0").splitlines()[0]
    for number, noun in re.findall(r"(\d+) (nodes?|errors?|warnings?)\b", first):
        assert noun.endswith("s") == (number != "1"), first


# What a trial of one hour quoted because nobody could read it.
QUOTED = ["fastest peer on any form", "start so many processes", "no earlier region can do it", "demanded by the placement", "regions that differ without",
          "off by one behind a float sum"]


@pytest.mark.parametrize("sentence", QUOTED)
def test_sentences_that_nobody_could_read_are_gone(sentence):
    words = sentence.split()
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(p for p in (ROOT / "src").rglob("*") if p.suffix in (".cc", ".h", ".def", ".py", ".inc"))]:
        text = " ".join(path.read_text(encoding="utf-8").replace('"', " ").split())
        assert " ".join(words).replace('"', " ") not in text, path
