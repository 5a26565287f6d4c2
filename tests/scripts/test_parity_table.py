"""The cells of bench/parity.py's table say what was measured, also where leaving roundings out gains nothing."""
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import parity_table  # noqa: E402  pylint: disable=wrong-import-position
import counterparts  # noqa: E402  pylint: disable=wrong-import-position


def timed(ratio, low, high, **more):
    return {"same": False, "explicit_ms": 1.06, "counterpart_ms": 1.0, "ratio": ratio, "low": low, "high": high, **more}


def demanded(count, costly):
    each = [{"kind": "left out" if i % 22 == 21 else "inside", "onnx_nodes": [f"q{i}", f"d{i}"], "costs_time": i < costly, "same_plan": False} for i in range(count)]
    return {"roundings": each, "costly": {"count": costly, "seconds_with": 9e-5, "seconds_without": 3e-5 if costly else 0}}


SLOW, FAST, SAME = timed(1.06, 1.055, 1.065), timed(1.003, 0.999, 1.008), {"same": True, "explicit_ms": 1.0}


@pytest.mark.parametrize("row,text", [
    (SAME, "same plan, 1.00 ms"),
    (timed(1.03, 1.019, 1.04), "1.030 [1.019, 1.040]"),
    ({**SLOW, "demanded": demanded(0, 0)}, "1.060 [1.055, 1.065] **slower**, nothing demanded"),
    ({**SLOW, "demanded": demanded(44, 0), "without_all": FAST}, "1.060 [1.055, 1.065], 42 roundings + 2 float32; without them 1.003 [0.999, 1.008]"),
    ({**SLOW, "demanded": demanded(44, 0), "without_all": SLOW}, "1.060 [1.055, 1.065], 42 roundings + 2 float32; without them 1.060 [1.055, 1.065] **slower**"),
    ({**SLOW, "demanded": demanded(44, 44), "without": FAST}, "1.060 [1.055, 1.065], 42 roundings + 2 float32; without them 1.003 [0.999, 1.008]"),
    ({**SLOW, "demanded": demanded(44, 7), "without": FAST}, "1.060 [1.055, 1.065], 42 roundings + 2 float32; without 7 of them 1.003 [0.999, 1.008]"),
    ({**SLOW, "demanded": demanded(44, 44), "without": SAME}, "1.060 [1.055, 1.065], 42 roundings + 2 float32; without them the counterpart's plan"),
    ({**SLOW, "demanded": demanded(44, 9), "without": timed(1.05, 1.04, 1.06), "without_all": timed(1.03, 1.021, 1.04)},
     "1.060 [1.055, 1.065], 42 roundings + 2 float32; without 9 of them 1.050 [1.040, 1.060]; without all 1.030 [1.021, 1.040] **slower**"),
    ({**SLOW, "demanded": demanded(44, 9), "without": timed(1.05, 1.04, 1.06), "without_all": SAME},
     "1.060 [1.055, 1.065], 42 roundings + 2 float32; without 9 of them 1.050 [1.040, 1.060]; without all the counterpart's plan"),
    ({"error": "no"}, "failed"), (None, ""),
])
def test_cells(row, text):
    assert parity_table.cell(row) == text


def test_the_documents(tmp_path, monkeypatch):
    """Whole files: the counts in words add up, the README changes between its marks only, and every slow cell is in the second table."""
    results = {"net/residual/1": SAME, "net/outputs/1": {**SLOW, "demanded": demanded(3, 2), "without": FAST},
               "net/everywhere/1": {**SLOW, "demanded": demanded(3, 0), "without_all": {**SLOW, "explicit_ms": 1.05, "counterpart_ms": 1.01}}, "net/conv-act/1": {"error": "no"},
               "net/implicit/1": {**FAST, "fastest": "residual"},
               "net/residual/check": {"equal": 5, "within": 0, "unjudged": 0, "differ": 0, "regions": 5, "counterpart_regions": 5, "passes": []},
               "net/outputs/check": {"equal": 4, "within": 0, "unjudged": 0, "differ": 1, "regions": 5, "counterpart_regions": 5, "passes": [{"kind": "copy"}]}}
    (tmp_path / "docs/lab").mkdir(parents=True)
    (tmp_path / "README.md").write_text("before\n<!-- parity:begin -->\nold\n<!-- parity:end -->\nafter\n")
    monkeypatch.setattr(counterparts, "ROOT", tmp_path)
    kept = {"results": results, "machine": "a machine", "effort": 2, "pairs": 30, "jobs": 8}
    parity_table.write(json.loads(json.dumps(kept)), ["net"], ["residual", "outputs", "conv-act", "everywhere"], [1, 2])
    page, readme = (tmp_path / "docs/lab/parity.md").read_text(), (tmp_path / "README.md").read_text()
    assert "Of 3 cells, 1 compile to the same plan, and 0 more have an interval" in page and "1 cells reach it when the roundings that cost time are left out" in page
    assert "and 0 when all roundings are left out that the placement demands; 0 of these 1 are then the counterpart's plan. 1 cells do not reach it, and 1 failed." in page
    assert "1 of 1 within 1.02. Builds" in page and "equals the reference: 1 of 2" in page
    assert "| net, outputs, 1 | 3 roundings | 2 | 90.0, 30.0 us | 1.060 ms | 1.000 ms | 1.060 ms | 1.000 ms | – | – | `q0`, `d0`; `q1`, `d1` |" in page
    assert "| net, everywhere, 1 | 3 roundings | 0 | – | 1.060 ms | 1.000 ms | – | – | 1.050 ms | 1.010 ms | – |" in page
    assert "| net | outputs | 4 | 0 | 0 | 1 | 5 | 5 | 1 copy |" in page
    assert readme.startswith("before\n<!-- parity:begin -->\n") and readme.endswith("<!-- parity:end -->\nafter\n") and "old" not in readme
    assert "In 1 of 3 measured cases a model with Q/DQ nodes runs as fast (within 2 %)" in readme and "In 1 more cases" in readme and "a machine" in readme
    assert "| net | 1 | same plan, 1.00 ms |" in page
