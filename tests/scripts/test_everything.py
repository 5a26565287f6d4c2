"""bench/everything.py: which rows a machine has, that every script of them has the options it is called with, what is measured again, what an interrupted round leaves, and what is refused."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
pytest.importorskip("numpy")
pytest.importorskip("onnx")
import everything  # noqa: E402
import everything_rows as rows  # noqa: E402
import figures  # noqa: E402

AMX = rows.cpu_steps("amx-16", 16, range(16), False) + rows.cpu_steps("amx-2", 2, [0, 1], True) + rows.capped_steps([0, 1]) + rows.gpu_steps("h100") + rows.gpu_steps("h200") + rows.other_steps([0, 1])
VNNI = rows.cpu_steps("vnni-2", 2, [0, 1], False)


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "octavo").write_bytes(b"one")
    monkeypatch.setattr(figures, "RECORDS", tmp_path / "records")
    figures.RECORDS.mkdir()
    monkeypatch.setenv("OCTAVO_COMMIT", "abc1234")
    return everything.Run(argparse.Namespace(octavo=tmp_path / "octavo", budget=1.0, work=tmp_path / "work", rounds=6, seconds=0.1))


def test_records_have_names_of_their_own():
    names = [s.record for s in AMX]
    assert len(set(names)) == len(names) and {"int8-amx-16", "int8-threads-amx-2", "float-avx2-2", "gpu-networks-h100"} <= set(names)
    assert all(s.environment == rows.CAP for s in AMX if "avx2" in s.record)


@pytest.mark.parametrize("script", sorted({s.script for s in AMX + VNNI}))
def test_scripts_have_the_options(script):
    """--help of each names every option that a row gives it, and --record."""
    words = ["measure"] if script == "build_times.py" else []
    text = subprocess.run([sys.executable, ROOT / "bench" / script, *words, "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))
    given = {w for s in AMX + VNNI if s.script == script for w in s.words if re.match(r"--?[a-z]", w)} | {"--record"} | ({"--json", "--rounds"} if any(s.by_round for s in AMX + VNNI if s.script == script) else set())
    assert given <= known, given - known


def test_pages_wait_for_rows_that_exist():
    """Each pending mark is of a record that some machine makes."""
    known = {s.record + ".json" for s in AMX + VNNI}
    for page in figures.pages():
        for block in figures.blocks(page):
            for name in block.names if block.waits else []:
                assert pathlib.Path(name).name in known, f"{page}: {name}"


def test_every_table_of_the_readme_is_measured_again():
    """Its tables must be of one commit: all of their records are rows of some machine."""
    known = {s.record + ".json" for s in AMX + VNNI}
    names = [pathlib.Path(name).name for block in figures.blocks(ROOT / "README.md") for name in block.names]
    assert len(names) >= 3 and set(names) <= known, set(names) - known
    least = {s.record + ".json": s.importance for s in AMX + VNNI}
    assert all(least[name] <= 2 for name in names), "what README shows comes first"


def test_the_commands_of_records_have_no_folders(run):
    for step in AMX + VNNI:
        fill = {"seconds": 0.25, "rounds": 6}
        said = rows.command_of(step, fill, 6)
        assert said.startswith(f"bench/{step.script}") and "{" not in said and "/work" not in said and "--models" not in said and "--json" not in said, said
    one = next(s for s in AMX if s.record == "int8-amx-16")
    assert rows.command_of(one, fill, 6).endswith("--configs 1x1 --forms residual,outputs,inputs,uint8,float,bfloat16 --no-agree --rounds 6")


def test_without_bfloat16_instructions_its_rows_are_left_out():
    without = rows.cpu_steps("vnni-2", 2, [0, 1], False, bf16=False)
    assert {s.record for s in VNNI} - {s.record for s in without} == {"bfloat16-vnni-2"}
    assert not any("bfloat16" in w for s in without if s.script == "peers.py" for w in s.words)


def test_what_is_recorded_at_this_commit_is_not_measured_again(run):
    step = AMX[0]
    for found, recorded in (({"commit": "abc1234"}, True), ({"commit": "0123456"}, False), ({"commit": "abc1234", "left_out": ["a row"]}, False)):
        (figures.RECORDS / f"{step.record}.json").write_text(json.dumps(found))
        assert run.recorded(step) is recorded


def test_an_interrupted_round_is_dropped_for_all_rows(run):
    step = next(s for s in AMX if s.by_round)
    file = run.json(step)
    file.write_text(json.dumps({"provenance": {}, "times": {"a": {"octavo": [1, 2, 3], "ort": [1, 2]}, "b": {"octavo": [1, 2], "ort": [1, 2]}}}))
    file.with_suffix(".rounds").write_text("2")
    assert run.kept(step) == 2 and json.loads(file.read_text())["times"] == {r: {"octavo": [1, 2], "ort": [1, 2]} for r in "ab"}
    file.with_suffix(".rounds").unlink()
    assert run.kept(step) == 0 and json.loads(file.read_text())["times"] == {}


def test_rounds_go_on_where_they_stopped_and_nothing_is_begun_that_does_not_fit(run, monkeypatch):
    step, calls = next(s for s in AMX if s.by_round), []
    monkeypatch.setattr(run, "call", lambda step, *words, said=None: calls.append(words) or len(calls) != 3)
    assert not run.measure(step) and run.kept(step) == 2  # the third call failed
    run.json(step).write_text(json.dumps({"times": {}}))
    assert run.measure(step) and len(calls) == 3 + 4 + 1 and calls[-1][-2:] == ("--record", step.record) and "--record" not in calls[-2]
    monkeypatch.setattr(run, "measure", lambda step: pytest.fail("begun"))
    monkeypatch.setattr(everything, "missing", lambda step: [])
    assert not run.all([step._replace(minutes=30)])


def test_networks_beside_each_other(run, monkeypatch):
    """Each on two cores of its own; all rounds come together in one file, which must be of one binary; with two cores, one after the other."""
    step, calls = next(s for s in AMX if s.record == "int8-amx-16"), []

    def call(step, *words, said=None):
        calls.append((step.record, tuple(step.cpus), step.words[-1], said, words))
        if "1" in map(str, words):
            file = run.json(step)
            found = json.loads(file.read_text()) if file.exists() else {"provenance": dict.fromkeys(figures.SAME, "x"), "times": {}}
            found["times"].setdefault(step.words[-1], {}).setdefault("octavo", []).append(1.0)
            file.write_text(json.dumps(found))
        return True

    monkeypatch.setattr(run, "call", call)
    monkeypatch.setattr(everything, "prepare", lambda *_: None)
    monkeypatch.setattr(everything.parity, "quiet_cores", lambda n: list(range(n)))
    assert run.measure(step) and len(calls) == 4 * 6 + 1 and {c[1] for c in calls[:-1]} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert calls[-1][4][-2:] == ("--record", "int8-amx-16") and calls[0][3].endswith("--rounds 6, 4 networks at a time on two cores each")
    assert json.loads(run.json(step).read_text())["times"] == {net: {"octavo": [1.0] * 6} for net in rows.NETS}
    one = run.json(step._replace(record="int8-amx-16~1"))
    one.write_text(json.dumps({**json.loads(one.read_text()), "provenance": {**dict.fromkeys(figures.SAME, "x"), "binary": "y"}}))
    with pytest.raises(figures.Mistake, match="different binary"):
        run.measure(step)
    calls.clear()
    two = step._replace(record="int8-vnni-2", cpus=[0, 1])
    assert run.measure(two) and {c[0] for c in calls} == {"int8-vnni-2"} and len(calls) == 7


def test_what_may_not_be_measured(tmp_path, monkeypatch):
    args = argparse.Namespace(octavo=tmp_path / "octavo")
    assert "no octavo command" in everything.refuse(args)
    args.octavo.write_bytes(b"one")
    monkeypatch.delenv("OCTAVO_COMMIT", raising=False)
    monkeypatch.setattr(figures, "git", lambda *words: "")
    assert "set OCTAVO_COMMIT" in everything.refuse(args)
    monkeypatch.setattr(figures, "git", lambda *words: "abc1234" if words[0] == "log" else "")
    assert everything.refuse(args) is None
    monkeypatch.setattr(figures, "git", lambda *words: "abc1234" if words[0] == "log" else " M bench/peers.py" if "bench" in words else "")
    assert "the tree has changes (bench/peers.py)" in everything.refuse(args)


def test_a_package_that_is_missing_is_named():
    step = AMX[0]._replace(needs=("onnx", "no_such_package"))
    assert rows.missing(step) == ["no_such_package"]
