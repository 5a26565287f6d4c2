"""Short forms of fuzz/mutated_files.py and forged_files.py: mutated pictures, tables, timing caches and engines give errors only, and so do engine files with right checksums that were changed
section by section."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

import octavo

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "fuzz/mutated_files.py"
COUNT = "10000" if os.environ.get("OCTAVO_LONG") else "150"


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "table", "cache", "engine"])
def test_errors_only(kind):
    pytest.importorskip("PIL")
    more = {**os.environ, "PYTHONPATH": str(pathlib.Path(octavo.__file__).parents[1])}
    done = subprocess.run([sys.executable, SCRIPT, kind, "--count", COUNT], capture_output=True, text=True, check=False, timeout=3600, env=more)
    assert done.returncode == 0 and f" {COUNT} files: " in done.stdout and done.stdout.endswith(" 0 findings\n"), done.stdout + done.stderr


def test_forged_engines():
    """Of every kind of engine file: some are refused, and some run (or would with a GPU)."""
    more = {**os.environ, "PYTHONPATH": str(pathlib.Path(octavo.__file__).parents[1])}
    count = "1000" if os.environ.get("OCTAVO_LONG") else "12"
    done = subprocess.run([sys.executable, SCRIPT.with_name("forged_files.py"), "--count", count], capture_output=True, text=True, check=False, timeout=10800, env=more)
    assert done.returncode == 0 and done.stdout.endswith("\n0 findings\n"), done.stdout + done.stderr
    rows = re.findall(rf"^([\w-]+): {count} files in \d+ s: (.*)$", done.stdout, re.M)
    assert len(rows) == 9 and all("refused" in said for _, said in rows) and all(("absent GPU" if name.startswith("gpu") else "ran") in said for name, said in rows), done.stdout


def test_text_that_is_no_utf8(tmp_path):
    """Names of a table come from a file that may hold any bytes."""
    model = SCRIPT.parents[1] / "examples/digits/digits_fp32.onnx"
    (tmp_path / "t.cache").write_bytes(b"TRT-8601-EntropyCalibration2\nim\xffage: 3c010a14\nhead: 3e20b2c4\n")
    assert any("im\\xffage" in f["text"] for f in octavo.doctor(model, calibration=tmp_path / "t.cache"))
    (tmp_path / "t.cache").write_bytes(b"TRT-8601-EntropyCalibration2\nim\xffage 3c010a14\n")
    with pytest.raises(octavo.Error, match=r"\\xff"):
        octavo.doctor(model, calibration=tmp_path / "t.cache")
