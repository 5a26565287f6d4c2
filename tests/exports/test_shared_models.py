"""Every file of the test data's models: built at effort 0, run on pictures, and compared with ONNX Runtime by the rules of docs/lab/real-models.md."""
import os
import pathlib
import sys
import types

import numpy as np
import onnx
import pytest

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))
sys.path.insert(0, str(ROOT / "bench"))
import real_data  # noqa: E402
import real_models  # noqa: E402

PICTURES = 4
REFUSED = {"faststyle_candy.onnx": ("ImageScaler", "Crop", "Affine")}
KNOWN = {m.file: m for m in real_data.MODELS}
FILES = sorted(p.name for p in (DATA / "models").glob("*.onnx*")) if (DATA / "models").is_dir() else sorted({*KNOWN, *REFUSED})
needs_data = pytest.mark.skipif(not (DATA / "models").is_dir(), reason=f"OCTAVO_TEST_DATA: no {DATA / 'models'}")


@needs_data
def test_the_table_is_whole():
    assert set(FILES) == {*KNOWN, *REFUSED}, "a model without a row in bench/real_data.py, or a row without a file"


@needs_data
@pytest.mark.parametrize("file", [f for f in FILES if f not in REFUSED])
def test_runs_as_onnxruntime_does(file, tmp_path):
    known, path = KNOWN[file], real_data.unpacked(KNOWN[file], tmp_path)
    feeds, _ = real_data.feed(known, PICTURES)
    args = types.SimpleNamespace(work=tmp_path)
    plain = real_models.run_ort(path, known, feeds, False)
    spread, _ = real_models.spread_of(args, known, path.stem, path, feeds, plain)
    engine = octavo.build(path, shapes={known.input: (1, *feeds.shape[1:])}, effort=0)
    runs = [engine.run({known.input: feeds[i : i + 1]}) for i in range(len(feeds))]
    ours = {name: np.concatenate([r[name] for r in runs]).astype(np.float64) for name in runs[0]}
    assert set(ours) == set(plain)
    difference = real_models.difference(ours, plain)
    assert difference <= real_models.CHANCE * max(spread, real_models.FLOOR) or real_models.one_code_apart(ours, plain)
    quantized = any("QuantizeLinear" in n.op_type for n in onnx.load(path).graph.node)
    anchors = [l for l in engine.layers if not l["kind"].startswith(("pointwise", "move", "copy"))]
    assert len(anchors) > 5
    if quantized:
        assert [l["name"] for l in anchors if l["precision"] != "int8"] == []


@needs_data
@pytest.mark.parametrize("file", REFUSED)
def test_is_refused_by_name_with_what_to_do(file):
    with pytest.raises(octavo.UnsupportedError) as raised:
        octavo.build(DATA / "models" / file, default_batch=1)
    message = str(raised.value)
    found = {n.op_type for n in onnx.load(DATA / "models" / file).graph.node}
    for operator in REFUSED[file]:
        assert operator in found and f"{operator} x" in message.rpartition("by operator:")[2]
        assert f'{operator} (opset 7), node "' in message
    assert "write it as Slice" in message and "write it as Mul and Add" in message and "export again" in message
