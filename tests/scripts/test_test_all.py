"""scripts/test_all.sh over stages that are stubs: what it counts, that it goes on after a failure, and when it prints the row for docs/releases.md."""
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSES = {"run_tests.sh": "echo 5 passed, 0 failed, 2 skipped", "test_serving.sh": "echo '== 8 passed, 1 skipped in 2.30s =='", "test_ray.sh": "echo '5 passed in 1.00s'",
          "aarch64.sh": "echo 'skipped: no aarch64-linux-gnu-g++'; exit 77"}


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/test_all.sh", tmp_path / "scripts")
    for name, body in PASSES.items():
        stub(tmp_path, name, body)
    subprocess.run("git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a", shell=True, cwd=tmp_path, check=True)
    return tmp_path


def stub(tree, name, body):
    (tree / "scripts" / name).write_text(f"#!/bin/bash\n{body}\n")
    (tree / "scripts" / name).chmod(0o755)


def run(tree, *args):
    return subprocess.run([tree / "scripts/test_all.sh", "--jobs", "1", *args], capture_output=True, text=True, check=False, cwd=tree)


def rows(done):
    return {m[1]: (m[2], m[3]) for m in re.finditer(r"^(\w+) +(passed|FAILED|skipped) +\d+  (.*)$", done.stdout, re.M)}


def test_stages_that_pass(tree):
    done = run(tree, "--only", "tests,serving,ray,aarch64")
    assert rows(done) == {"tests": ("passed", "5 passed, 0 failed, 2 skipped"), "serving": ("passed", "8 passed, 1 skipped"), "ray": ("passed", "5 passed"),
                          "aarch64": ("skipped", "skipped: no aarch64-linux-gnu-g++")}
    assert done.returncode == 0 and "for docs/releases.md" not in done.stdout  # not all stages
    assert (tree / "build/test-all/summary.txt").read_text().count("passed") > 3 and (tree / "build/test-all/ray.log").read_text() == "5 passed in 1.00s\n"


def test_a_stage_that_fails_does_not_stop_the_next(tree):
    stub(tree, "test_serving.sh", "echo the reason; echo '1 failed, 7 passed in 2.30s'; exit 1")
    done = run(tree, "--only", "serving,ray")
    assert rows(done) == {"serving": ("FAILED", "1 failed, 7 passed; exit code 1, build/test-all/serving.log"), "ray": ("passed", "5 passed")}
    assert done.returncode == 1 and "    the reason\n" in done.stdout and done.stdout.endswith("test-all: failed\n")


def test_a_row_for_the_release_page(tree):
    """With every stage and none that failed; the row names the commit and what was skipped."""
    text = (tree / "scripts/test_all.sh").read_text()
    stub(tree, "test_all.sh", re.sub(r"^stages=\(.*\)$", "stages=(tests aarch64)", text, flags=re.M).removeprefix("#!/usr/bin/env bash\n"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True, check=True).stdout.strip()
    done = run(tree)
    assert done.returncode == 0 and re.search(rf"^for docs/releases.md: \| {commit} \| .* \| all but aarch64 \|$", done.stdout, re.M)
    stub(tree, "run_tests.sh", "exit 3")
    done = run(tree)
    assert done.returncode == 1 and "for docs/releases.md" not in done.stdout


def test_unknown_stages(tree):
    done = run(tree, "--only", "tests,rays")
    assert done.returncode == 2 and '"rays" is no stage; known are tests serving ray' in done.stderr
    assert run(tree, "--onyl", "ray").returncode == 2


def test_every_stage_is_described():
    stages = subprocess.run([ROOT / "scripts/test_all.sh", "--list"], capture_output=True, text=True, check=True).stdout.split()
    page = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    assert [s for s in stages if f"`{s}`" not in page] == []
