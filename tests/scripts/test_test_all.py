"""scripts/test_all.sh over stages that are stubs: what it counts, that it goes on after a failure, what it records, and that docs/releases.md shows the record."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import stage_record  # noqa: E402

PASSES = {"run_tests.sh": "echo 5 passed, 0 failed, 2 skipped", "test_serving.sh": "echo '== 8 passed, 1 skipped in 2.30s =='", "test_ray.sh": "echo '5 passed in 1.00s'",
          "aarch64.sh": "echo 'skipped: no aarch64-linux-gnu-g++'; exit 77"}


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "source").write_text("a")
    (tmp_path / ".gitignore").write_text("/build/\n")
    (tmp_path / "docs/releases.md").write_text("<!-- stages:begin -->\n<!-- stages:end -->\n")
    for name in ("test_all.sh", "stage_record.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    for name, body in PASSES.items():
        stub(tmp_path, name, body)
    for name in ("serving", "ray"):  # what compares the skips of a stage with tests/skips.txt
        (tmp_path / f"build/{name}-venv/bin").mkdir(parents=True)
        stub(tmp_path, f"../build/{name}-venv/bin/python", "exit 0")
    commit(tmp_path)
    return tmp_path


def commit(tree):
    subprocess.run("git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -q -m a", shell=True, cwd=tree, check=True)


def stub(tree, name, body):
    (tree / "scripts" / name).write_text(f"#!/bin/bash\n{body}\n")
    (tree / "scripts" / name).chmod(0o755)


def run(tree, *args, **environment):
    bare = {k: v for k, v in os.environ.items() if k not in stage_record.SHORTER and k not in ("OCTAVO_COMMIT", "OCTAVO_TEST_RECORD", "OCTAVO_TEST_ALL_OUT")}
    return subprocess.run([tree / "scripts/test_all.sh", "--jobs", "1", *args], capture_output=True, text=True, check=False, cwd=tree, env={**bare, **environment})


def recorded(tree):
    file = tree / "tests/test-all.json"
    return {e["stage"]: e for e in json.loads(file.read_text())} if file.exists() else {}


def rows(done):
    return {m[1]: (m[2], m[3]) for m in re.finditer(r"^(\w+) +(passed|before|FAILED|skipped) +\d+  (.*)$", done.stdout, re.M)}


def test_settings_of_the_run_that_these_tests_are_part_of_stay_out(tree, tmp_path_factory, monkeypatch):
    """test_all.sh sets both for a run whose results are carried away; the runs of these tests must not write there."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("OCTAVO_TEST_ALL_OUT", str(elsewhere / "out"))
    monkeypatch.setenv("OCTAVO_TEST_RECORD", str(elsewhere / "record.json"))
    assert run(tree, "--only", "serving").returncode == 0
    assert list(elsewhere.iterdir()) == [] and (tree / "build/test-all").is_dir() and "serving" in recorded(tree)


def test_stages_that_pass(tree):
    done = run(tree, "--only", "tests,serving,ray,aarch64")
    assert rows(done) == {"tests": ("passed", "5 passed, 0 failed, 2 skipped"), "serving": ("passed", "8 passed, 1 skipped"), "ray": ("passed", "5 passed"),
                          "aarch64": ("skipped", "skipped: no aarch64-linux-gnu-g++")}
    assert done.returncode == 0 and "a release needs all of them" in done.stdout
    assert (tree / "build/test-all/summary.txt").read_text().count("passed") > 3 and (tree / "build/test-all/ray.log").read_text() == "5 passed in 1.00s\n"


def test_a_stage_that_fails_does_not_stop_the_next(tree):
    stub(tree, "test_serving.sh", "echo the reason; echo '1 failed, 7 passed in 2.30s'; exit 1")
    done = run(tree, "--only", "serving,ray")
    assert rows(done) == {"serving": ("FAILED", "1 failed, 7 passed; exit code 1, build/test-all/serving.log"), "ray": ("passed", "5 passed")}
    assert done.returncode == 1 and "    the reason\n" in done.stdout and done.stdout.endswith("test-all: failed\n")


def test_a_stage_of_pytest_is_held_against_the_list_of_skips(tree):
    stub(tree, "../build/ray-venv/bin/python", 'echo "FAILED: tests.ray.a was skipped ($*)"; echo 4 passed, 1 failed, 1 skipped; exit 1')
    done = run(tree, "--only", "serving,ray", OCTAVO_TEST_DATA="/data")
    assert rows(done)["serving"][0] == "passed" and rows(done)["ray"] == ("FAILED", "4 passed, 1 failed, 1 skipped; exit code 1, build/test-all/ray.log")
    assert f"FAILED: tests.ray.a was skipped (scripts/test_summary.py {tree}/build/test-all/junit.ray /data build/release)" in done.stdout


def test_a_stage_whose_tests_are_all_skipped_fails(tree):
    stub(tree, "test_serving.sh", "echo '== 6 skipped in 0.30s =='")
    stub(tree, "run_tests.sh", "echo 0 passed, 0 failed, 3 skipped")
    commit(tree)
    done = run(tree, "--only", "tests,serving,ray")
    assert {name: row[0] for name, row in rows(done).items()} == {"tests": "FAILED", "serving": "FAILED", "ray": "passed"} and done.returncode == 1
    assert "    error: no test of this stage passed: 6 skipped\n" in done.stdout and set(recorded(tree)) == {"ray"}


def test_what_passed_is_recorded_and_not_run_again(tree):
    """In the same folder, until something but the record and its page changes."""
    text = (tree / "scripts/test_all.sh").read_text()
    stub(tree, "test_all.sh", re.sub(r"^stages=\(.*\)$", "stages=(tests ray aarch64)", text, flags=re.M).removeprefix("#!/usr/bin/env bash\n"))
    stub(tree, "test_ray.sh", "exit 3")
    commit(tree)
    assert rows(run(tree))["ray"][0] == "FAILED"
    head = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=tree, capture_output=True, text=True, check=True).stdout.strip()
    assert set(recorded(tree)) == {"tests"} and recorded(tree)["tests"]["commit"] == head and recorded(tree)["tests"]["counts"] == "5 passed, 0 failed, 2 skipped"
    page = (tree / "docs/releases.md").read_text()
    assert f"| `tests` | {head} | " in page and "| `ray` | never recorded |" in page and "No commit has passed every stage yet." in page
    commit(tree)  # the record and the page alone
    stub(tree, "test_ray.sh", "echo '5 passed in 1.00s'")
    commit(tree)
    assert rows(run(tree))["tests"][0] == "passed", "another commit"
    commit(tree)
    stub(tree, "run_tests.sh", "echo not called; exit 9")
    subprocess.run(["git", "update-index", "--assume-unchanged", "scripts/run_tests.sh"], cwd=tree, check=True)
    done = run(tree)
    assert {name: row[0] for name, row in rows(done).items()} == {"tests": "before", "ray": "before", "aarch64": "skipped"}
    assert "all stages passed but aarch64, which this machine cannot run" in done.stdout and done.returncode == 0
    assert rows(run(tree, "--again"))["tests"][0] == "FAILED" and rows(run(tree, "--only", "tests"))["tests"][0] == "FAILED"
    shutil.copytree(tree, tree.parent / "clone", ignore=shutil.ignore_patterns("build"))
    elsewhere = run(tree.parent / "clone")
    assert rows(elsewhere)["tests"][0] == "FAILED" and "before" not in elsewhere.stdout, "the record that a clone has got is no run of its own"


def test_what_is_not_recorded(tree):
    """A tree with changes, and stages that variables made shorter."""
    done = run(tree, "--only", "ray", FUZZ_SECONDS="5")
    assert rows(done)["ray"][0] == "passed" and "not recorded: FUZZ_SECONDS may make stages shorter" in done.stdout and recorded(tree) == {}
    (tree / "source").write_text("b")
    done = run(tree, "--only", "ray")
    assert rows(done)["ray"][0] == "passed" and "not recorded: changes are not committed (source)" in done.stdout and recorded(tree) == {}
    stub(tree, "test_ray.sh", "echo c >source; git -c user.name=a -c user.email=a@b commit -qam meanwhile; echo '5 passed in 1.00s'")
    commit(tree)
    done = run(tree, "--only", "ray")
    assert rows(done)["ray"][0] == "passed" and re.search(r"not recorded: the tree was \w+ when it began, and is \w+ now", done.stdout) and recorded(tree) == {}
    stub(tree, "test_ray.sh", PASSES["test_ray.sh"])
    assert run(tree, "--only", "ray", OCTAVO_COMMIT="0123456").returncode == 0 and recorded(tree)["ray"]["commit"] == "0123456"  # as where there is no checkout


def test_records_of_other_machines(tree):
    """The last of each stage and machine stay; a commit that has every stage is named."""
    def entry(stage, commit_, date, machine="a"):
        return {"stage": stage, "commit": commit_, "date": date, "machine": machine, "has": "", "seconds": 90, "counts": "5 passed"}
    (tree / "tests/test-all.json").write_text(json.dumps([entry("asan", "1111111", "2026-01-01 10:00"), entry("ray", "2222222", "2026-01-02 10:00")]))
    (tree / "other.json").write_text(json.dumps([entry("asan", "2222222", "2026-01-02 09:00"), entry("asan", "1111111", "2026-01-01 11:00", "b")]))
    subprocess.run([sys.executable, tree / "scripts/stage_record.py", "merge", "other.json"], cwd=tree, check=True, env={k: v for k, v in os.environ.items() if k != "OCTAVO_TEST_RECORD"})
    found = json.loads((tree / "tests/test-all.json").read_text())
    assert [(e["stage"], e["machine"], e["commit"]) for e in found] == [("asan", "a", "2222222"), ("asan", "b", "1111111"), ("ray", "a", "2222222")]
    assert stage_record.table(["asan", "ray"], found).startswith("Every stage has passed at 2222222.\n") and "| 1.5 | 5 passed |" in stage_record.table(["ray"], found)
    assert stage_record.table(["asan", "fuzz"], found).startswith("No commit has passed every stage yet.\n")


def test_the_release_page_shows_the_record(monkeypatch):
    monkeypatch.delenv("OCTAVO_TEST_RECORD", raising=False)  # the tree's own, also while another one is written
    text = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    assert stage_record.page(text) == text, "run scripts/stage_record.py page"


def test_unknown_stages(tree):
    done = run(tree, "--only", "tests,rays")
    assert done.returncode == 2 and '"rays" is no stage; known are tests serving ray' in done.stderr
    assert run(tree, "--onyl", "ray").returncode == 2


def test_the_stages_that_run_away_are_stages():
    text = (ROOT / "scripts/stages_away.sh").read_text(encoding="utf-8")
    away = re.search(r"OCTAVO_AWAY_STAGES:-([a-z_ ]+)}", text)[1].split()
    stages = subprocess.run([ROOT / "scripts/test_all.sh", "--list"], capture_output=True, text=True, check=True).stdout.split()
    assert len(away) >= 8 and set(away) <= set(stages)
    done = subprocess.run([ROOT / "scripts/stages_away.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "stages_away.sh pack" in done.stdout and "set -euo" not in done.stdout


def test_every_stage_is_described():
    stages = subprocess.run([ROOT / "scripts/test_all.sh", "--list"], capture_output=True, text=True, check=True).stdout.split()
    page = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    assert [s for s in stages if f"`{s}`" not in page] == []
