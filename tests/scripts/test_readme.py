"""Every command of the README runs, and what it prints without times is what the README shows."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")).resolve() / "bin/octavo"
BLOCK = re.search(r"<!-- commands:begin -->.*?```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)[1]
COMMANDS = re.findall(r"^\$ (octavo .*)\n((?:(?!\$ ).*\n)*)", BLOCK, re.M)


def form(line):
    """Without numbers and hashes."""
    return re.sub(r"\b[0-9a-f]{32}\b|\d+(\.\d+)?", "#", line)


@pytest.mark.skipif(not OCTAVO.exists(), reason="the command is not built")
def test_commands_run(tmp_path):
    shutil.copytree(ROOT / "examples/digits", tmp_path / "digits")
    assert len(COMMANDS) == 6
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for command, shown in COMMANDS:
        words = shlex.split(command)
        found = subprocess.run([OCTAVO, *words[1:]], cwd=tmp_path / "digits", capture_output=True, text=True, timeout=300, env=env, check=False)
        assert found.returncode == 0, f"{command}\n{found.stdout}{found.stderr}"
        if words[1] == "run":
            assert found.stdout.split() == shown.split(), command
        if words[1] in ("build", "bench", "explain"):  # the form: figures are of a processor and a moment
            printed = [line for line in found.stdout.splitlines() if not line.startswith("warning:")]
            assert [form(line) for line in printed] == [form(line) for line in shown.strip().splitlines()], found.stdout
        if words[1] == "quantize":  # all but the time, with figures that other processors' float sums may move a little
            said, wanted = ([re.split(r"(-?\d+\.\d+(?= dB))", re.sub(r"[\d.]+ s; ", "", line)) for line in text.strip().splitlines()] for text in (found.stdout, shown))
            assert [line[::2] for line in said] == [line[::2] for line in wanted], found.stdout
            decibels = [[float(x) for line in lines for x in line[1::2]] for lines in (said, wanted)]
            assert len(decibels[0]) == 4 and decibels[0] == pytest.approx(decibels[1], abs=0.15), found.stdout
        if words[1] == "check":
            assert found.stdout.startswith("ok ") and " 0 differ" in found.stdout, command
