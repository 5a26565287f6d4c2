"""octavo.view: the page of a model, of an engine, of two; and what a notebook shows."""
import json
import pathlib
import re

import onnx
import pytest

import octavo

QDQ, FP32 = (pathlib.Path(__file__).resolve().parents[2] / "examples/digits" / f"digits_{form}.onnx" for form in ("qdq", "fp32"))
QUICK = {"effort": 0, "threads": 1, "default_batch": 1}


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


def test_a_model_and_an_engine(tmp_path):
    page = octavo.view(QDQ, tmp_path / "p.html", profile=True, runs=2, **QUICK)
    assert (tmp_path / "p.html").read_text() == page
    (plan,) = data_of(page)
    assert plan["onnx"]["nodes"] and plan["laws"]["applied"] and plan["profile"]["runs"] == 2
    assert data_of(octavo.view(onnx.load(QDQ), **QUICK))[0]["plan_hash"] == plan["plan_hash"]
    engine = octavo.build(QDQ, **QUICK)
    (kept,) = data_of(octavo.view(engine, profile=True, runs=2))
    assert kept["plan_hash"] == plan["plan_hash"] and "onnx" not in kept and len(kept["profile"]["regions"]) == len(kept["regions"])


def test_two(tmp_path):
    first, second = data_of(octavo.view(QDQ, beside=FP32, **QUICK))
    assert first["totals"]["int8_regions"] > 0 and second["totals"]["int8_regions"] == 0
    first, second = data_of(octavo.view(QDQ, beside=octavo.build(QDQ, **QUICK), **QUICK))
    assert first["plan_hash"] == second["plan_hash"]


def test_a_notebook_shows_it():
    page = octavo.view(QDQ, **QUICK)
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<script" not in shown and "&lt;script" in shown
    table = octavo.build(QDQ, **QUICK)._repr_html_()
    assert "<table>" in table and "ms a run" in table


def test_errors(tmp_path):
    engine = octavo.build(QDQ, **QUICK)
    with pytest.raises(octavo.UsageError, match="an engine is built already"):
        octavo.view(engine, effort=0)
    with pytest.raises(octavo.UsageError, match="runs=0"):
        octavo.view(engine, profile=True, runs=0)
    with pytest.raises(octavo.UsageError, match="second model"):
        octavo.view(engine, beside_options={})
    with pytest.raises(octavo.FileError, match="cannot write"):
        octavo.view(engine, tmp_path / "absent" / "p.html")
    with pytest.raises(TypeError, match="no option"):
        octavo.view(QDQ, effrot=0)
    report = tmp_path / "r.json"
    report.write_text('{"layers": [{"node": "elsewhere", "sqnr_db": 3.0}]}')
    with pytest.raises(octavo.InputError, match='about "elsewhere"'):
        octavo.view(engine, accuracy=report)
    with pytest.raises(octavo.FileError, match="cannot read"):
        octavo.view(engine, accuracy=tmp_path / "absent.json")
