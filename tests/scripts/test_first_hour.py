"""bench/first_hour.py: every action gives what it must with this build, and an action that does not is told."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "bench"))
import first_hour  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hour")
    first_hour.prepare(path, BUILD / "bin/octavo")
    return path


@pytest.mark.parametrize("action", first_hour.ACTIONS, ids=lambda a: f"{a.topic}: {a.what}")
def test_action(action, folder):
    assert first_hour.judge(action, BUILD, folder) == ""


def test_failures_are_told(folder):
    action = first_hour.Action("none", "fails", "octavo run absent.onnx --input x.npy", (), 0)
    assert "absent.onnx" in first_hour.judge(action, BUILD, folder)
    assert "lacks 'nosuch'" in first_hour.judge(first_hour.Action("none", "lacks", "octavo --version", ("nosuch",)), BUILD, folder)


def test_a_folder_without_a_build(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "bench/first_hour.py", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "holds no bin/octavo" in done.stderr
