"""tests/skips.txt and what compares it with a run (scripts/skips.py), over the results that runs on other machines would have."""
import itertools
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import skips  # noqa: E402

LINES, LAST = skips.parse(skips.MANIFEST.read_text(encoding="utf-8"))
ZEN2 = {"avx2", "fma", "f16c"}
CASCADE_LAKE = ZEN2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
SAPPHIRE_RAPIDS = CASCADE_LAKE | {"avx512vbmi", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"}
PROCESSORS = {"none": set(), "avx2": ZEN2, "avx512vnni": CASCADE_LAKE, "amx": SAPPHIRE_RAPIDS}
ALWAYS = {"cores2", "linux6.12", "sklearn", "nvrtc", "uncapped"}
CLASSES = [(p, *rest) for p in PROCESSORS for rest in itertools.product((False, True), repeat=4)]  # serving, gpu with torch, data, sanitizer


def machine_of(processor, serving, gpu, data, sanitizer):
    return (skips.processor(PROCESSORS[processor], "") | ALWAYS | ({"serving"} if serving else set()) | ({"gpu", "torch"} if gpu else set())
            | ({"data"} if data else set()) | ({"asan"} if sanitizer else set()))


def results_on(machine):
    """What the manifest's tests do there: skipped where a need is not met; a module of pytest is skipped whole."""
    out = []
    for line in LINES:
        kind = "skipped" if line.unmet(machine) else "passed"
        if line.pattern.endswith("::*") and kind == "skipped":
            out.append((line.pattern, kind, "not installed"))
        else:
            out += [(line.pattern.replace("*", f"Test{i}"), kind, "needs something") for i in range(line.count)]
    return skips.expand(out, LINES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: "-".join(map(str, c)))
def test_each_class_of_machine_has_its_skips(kind):
    machine = machine_of(*kind)
    results = results_on(machine)
    assert skips.compare(results, LINES, machine, True) == []
    assert sum(line.count for line in LINES) == len(results)  # a module that is skipped counts as its tests


def test_kernels_under_emulation_are_skipped_by_sanitizers():
    """Every test of a class that derives from EmulatedTest has its line: sanitizers do not know the stacks of fibers."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.cc"))]
    found = 0
    for text in sources:
        for name in re.findall(r"class (\w+) : public (?:testing::)?EmulatedTest\b", text):
            for test in re.findall(rf"TEST_F\({name}, (\w+)\)", text):
                found += 1
                assert any(line.matches(f"{name}.{test}") and "no-asan" in str(line) for line in LINES), f"{name}.{test} has no line with no-asan"
    assert found > 150, "few tests of kernels under emulation: are they written in another way now?"


def test_processors():
    assert skips.processor(set(), "") == set()
    assert skips.processor(ZEN2, "") == {"avx2"}
    assert skips.processor(CASCADE_LAKE, "") == {"avx2", "avx512", "avx512vnni"}
    assert skips.processor(SAPPHIRE_RAPIDS, "") == {"avx2", "avx512", "avx512vnni", "amx", "vbmi", "avx512bf16"}
    assert skips.processor(SAPPHIRE_RAPIDS, "avx512") == {"avx2", "avx512"}
    assert skips.processor(SAPPHIRE_RAPIDS, "portable") == set()
    assert skips.processor(SAPPHIRE_RAPIDS, "avx512vnni,-avx512vbmi") == {"avx2", "avx512", "avx512vnni", "avx512bf16"}


def test_a_skip_that_nobody_expects():
    machine = machine_of("amx", True, True, True, False)
    results = [*results_on(machine), ("Engine.Runs", "skipped", "too slow today")]
    assert skips.compare(results, LINES, machine, True) == [
        "Engine.Runs was skipped (too slow today), and no line of tests/skips.txt expects that. Make it run, or add: 1 NEEDS Engine.Runs"]


@pytest.mark.parametrize("name, processor", [('Level/AttentionBf16.Refusals/"amx"', "amx"), ("EmulatedAmx.DigitsGiveTheBitsOfTheReference", "avx512vnni"),
                                             ("EmulatedGpu.DigitsGiveTheBitsOfTheCpu", "avx2"), ("tests.serving.test_serve::test_x", "avx2")])
def test_a_skip_where_nothing_is_missing(name, processor):
    machine = machine_of(processor, True, False, True, False)
    wrong = skips.compare([(name, "skipped", "why")], LINES, machine, False)
    assert len(wrong) == 1 and wrong[0].startswith(f"{name} was skipped (why), though this machine has all that its line asks for")


@pytest.mark.parametrize("pattern", ["EmulatedAmx.*", "EmulatedGpu.*", 'Level/AttentionBf16.*/"amx"', "tests.serving.test_grpc::*"])
@pytest.mark.parametrize("processor", ["avx2", "amx"])
def test_a_test_that_is_missing(pattern, processor):
    """On a machine that would run it, and on one that would skip it."""
    machine = machine_of(processor, True, False, True, False)
    line = next(line for line in LINES if line.pattern == pattern)
    results = results_on(machine)
    results.remove(next(r for r in results if line.matches(r[0])))
    assert skips.compare(results, LINES, machine, True) == [f'1 of the {line.count} tests of the line "{line}" are missing: neither passed nor skipped']
    assert skips.compare(results, LINES, machine, False) == []  # a run of a part of the tests


def test_more_tests_than_the_line_says():
    machine = machine_of("amx", True, False, True, False)
    results = [*results_on(machine), ("EmulatedGpu.Another", "passed", "")]
    count = next(line.count for line in LINES if line.pattern == "EmulatedGpu.*")
    assert skips.compare(results, LINES, machine, True) == [
        f'{count + 1} tests match the line "{count} no-asan+no-tsan EmulatedGpu.*": write {count + 1} no-asan+no-tsan EmulatedGpu.*']


def test_a_test_that_passes_without_what_it_needs():
    """It tested nothing: caps.amx once passed on AVX2, by a test of emulated tiles that left out every case."""
    machine = machine_of("avx2", True, False, True, False)
    assert skips.compare([("caps.amx", "passed", "")], LINES, machine, False) == [
        "caps.amx passed, though this machine does not meet avx512vnni: it tested nothing, or its line in tests/skips.txt is wrong"]


@pytest.mark.parametrize("cap", ["", "portable", "avx2", "amx"])
def test_a_cap_is_known_where_it_takes_something(tmp_path, cap):
    whole, capped = (skips.here(tmp_path, tmp_path, {"OCTAVO_CPU": c}) for c in ("", cap))
    assert "uncapped" in whole
    assert ("uncapped" in capped) == (whole & set(skips.FLAGS) == capped & set(skips.FLAGS))


@pytest.mark.parametrize("text, error", [("1 amx Some.Test\n", 'no line "last amx'), ("1 amd Some.Test\n", 'nothing is known of "amd"'),
                                         ("amx Some.Test\n", 'is not "COUNT NEEDS PATTERN"')])
def test_manifests_that_mean_nothing(text, error):
    with pytest.raises(ValueError, match=error):
        skips.parse(text)


def test_the_list_was_held_against_every_level():
    assert {word for word in LAST if word.startswith("checked ")} == {f"checked {level}" for level in ("portable", *skips.FLAGS)}


@pytest.mark.parametrize("cap", ["portable", "avx2", "native"])
def test_the_summary_fails_and_counts(tmp_path, cap):
    """On every level of vector instructions."""
    (tmp_path / "junit").mkdir()
    (tmp_path / "junit/ctest.xml").write_text(
        '<testsuite><testcase name="pytest_ray" status="run"/><testcase name="A.Passes/0  # GetParam() = 4-byte object" status="run"/>'
        '<testcase name="A.New" status="notrun"><skipped message=""/><system-out>a.cc:1: Skipped\nno time\n</system-out></testcase></testsuite>')
    (tmp_path / "junit/pytest_ray.xml").write_text('<testsuites><testcase classname="" name="tests.ray.test_ray"><skipped message="collection skipped"/>'
                                                   '</testcase></testsuites>')
    done = subprocess.run([sys.executable, ROOT / "scripts/test_summary.py", tmp_path / "junit", tmp_path / "none", tmp_path], capture_output=True, text=True,
                          check=False, env={**os.environ, "OCTAVO_CPU": cap if cap != "native" else ""})
    ray = 0 if "ray" in skips.here(tmp_path, tmp_path) else 4
    assert done.returncode == 1 and "FAILED: A.New was skipped (no time), and no line" in done.stdout
    assert not ray or "skipped 4: needs ray\nskipped 1: no time\n" in done.stdout
    assert not ray or done.stdout.endswith("1 passed, 1 failed, 5 skipped\n"), done.stdout
