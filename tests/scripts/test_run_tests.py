"""scripts/run_tests.sh: the time limit of a test is longer where the environment or a sanitizer makes tests longer."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("environment, sanitizer, seconds", [
    ({}, "", 900), ({"OCTAVO_FULL": "1"}, "", 3600), ({}, "address", 3600), ({"OCTAVO_FULL": "1", "OCTAVO_LONG": "1"}, "", 21600)])
def test_the_limit_of_a_test(tmp_path, environment, sanitizer, seconds):
    for folder in ("scripts", "build", "bin"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "scripts/run_tests.sh", tmp_path / "scripts")
    (tmp_path / "scripts/test_summary.py").write_text("")
    (tmp_path / "build/CMakeCache.txt").write_text(f"OCTAVO_SANITIZE:STRING={sanitizer}\n")
    (tmp_path / "bin/ctest").write_text("#!/bin/sh\necho \"$@\"\n")
    (tmp_path / "bin/ctest").chmod(0o755)
    bare = {k: v for k, v in os.environ.items() if k not in ("OCTAVO_FULL", "OCTAVO_LONG")}
    done = subprocess.run([tmp_path / "scripts/run_tests.sh", "build", "2"], capture_output=True, text=True, check=True,
                          env={**bare, **environment, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert f" --timeout {seconds} " in done.stdout


def test_no_test_has_a_limit_of_its_own():
    """CTest prefers the property TIMEOUT to run_tests.sh's limit, and the property cannot know of OCTAVO_LONG."""
    files = [*(ROOT / "cmake").glob("*.cmake"), *(ROOT / "tests").rglob("CMakeLists.txt")]
    assert len(files) > 3
    assert [f"{f}: {m[0]}" for f in files for m in re.finditer(r"(?<!DISCOVERY_)\bTIMEOUT \d+", f.read_text(encoding="utf-8"))] == []
