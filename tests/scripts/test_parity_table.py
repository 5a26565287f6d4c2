"""The cells of bench/parity.py's table say what was measured, also where leaving roundings out gains nothing."""
import argparse
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import figures  # noqa: E402  pylint: disable=wrong-import-position
import parity_table  # noqa: E402  pylint: disable=wrong-import-position


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


def test_the_record(tmp_path, monkeypatch):
    """Every cell is a row with its pairs; what a placement demands stands beside it; the sentence counts; and the words of the run add up."""
    def pairs(ratio):
        return {"rounds": [[ratio * t for t in (1.0, 1.1, 1.0, 1.2, 1.0, 1.1)], [1.0, 1.1, 1.0, 1.2, 1.0, 1.1]]}

    slow, fast = {**SLOW, **pairs(1.06)}, {**FAST, **pairs(1.0)}
    results = {"net/residual/1": SAME, "net/outputs/1": {**slow, "demanded": demanded(3, 2), "without": fast},
               "net/everywhere/1": {**slow, "demanded": demanded(3, 0), "without_all": {**slow, "explicit_ms": 1.05, "counterpart_ms": 1.01}}, "net/conv-act/1": {"error": "no"},
               "net/implicit/1": {**fast, "fastest": "residual"},
               "net/residual/check": {"equal": 5, "within": 0, "unjudged": 0, "differ": 0, "regions": 5, "counterpart_regions": 5, "passes": []},
               "net/outputs/check": {"equal": 4, "within": 0, "unjudged": 0, "differ": 1, "regions": 5, "counterpart_regions": 5, "passes": [{"kind": "copy"}]}}
    monkeypatch.setattr(figures, "RECORDS", tmp_path)
    kept = {"results": results, "provenance": {"commit": "abc1234", "binary": "b", "machine": "a machine", "command": "bench/parity.py"}}
    args = argparse.Namespace(nets=["net"], styles=["residual", "outputs", "conv-act", "everywhere"], threads=[1, 2], record="parity")
    parity_table.record(json.loads(json.dumps(kept)), args)
    found = json.loads((tmp_path / "parity.json").read_text())
    text, sentence = figures.table([found]), figures.summary_of([found], None)
    assert "| net, residual, 1 thread | the same | – | – | – | – | – | – | – |" in text
    assert "| net, outputs, 1 thread | another | 1.113 | 1.050 | 1.06 (1.06 to 1.06), slower | 3 roundings | 1.050 | 1.050 | 1.00 (1.00 to 1.00), level |" in text
    assert "| net, everywhere, 1 thread | another | 1.113 | 1.050 | 1.06 (1.06 to 1.06), slower | 3 roundings | 1.113 | 1.050 | 1.06 (1.06 to 1.06), slower |" in text
    assert "| net, residual (the fastest) beside every range, 1 thread | another |" in text and "conv-act" not in text and "medians of 6 rounds" in text
    assert "In 1 of 3 measured cases a model with Q/DQ nodes runs as fast (within 2 %)" in sentence and ". In 1 cases the Q/DQ nodes demand" in sentence and "too wide" not in sentence
    wide = {"net/outputs/1": timed(1.0, 0.9, 1.1), "net/residual/1": timed(0.9, 0.8, 1.01), "net/conv-act/1": timed(1.1, 1.05, 1.2)}
    assert "In 1 of 3 measured cases" in parity_table.summary(wide, ["net"], args.styles, [1]) and "In 1 cases the intervals are too wide" in parity_table.summary(wide, ["net"], args.styles, [1])
    names = (results, ["net"], args.styles, [1, 2])
    said, asked = parity_table.count(*names), parity_table.roundings_table(*names)
    assert "Of 3 cells, 1 compile to the same plan, and 0 more have an interval" in said and "1 cells reach it when the roundings that cost time are left out" in said
    assert "and 0 when all roundings are left out that the placement demands; 0 of these 1 are then the counterpart's plan. 1 cells do not reach it, and 1 failed." in said
    assert "1 of 1 within 1.02. Builds" in said and "equals the reference: 1 of 2" in said
    assert "| net, outputs, 1 | 3 roundings | 2 | 90.0, 30.0 us | 1.060 ms | 1.000 ms | 1.060 ms | 1.000 ms | – | – | `q0`, `d0`; `q1`, `d1` |" in asked
    assert "| net, everywhere, 1 | 3 roundings | 0 | – | 1.060 ms | 1.000 ms | – | – | 1.050 ms | 1.010 ms | – |" in asked
    assert "| net | outputs | 4 | 0 | 0 | 1 | 5 | 5 | 1 copy |" in parity_table.checks_table(results, ["net"])
    assert "| net | 1 | same plan, 1.00 ms |" in parity_table.main_table(*names)
