"""Adds up what ran: test_summary.py JUNIT_DIR TEST_DATA_DIR [BUILD_DIR [whole]]

Reads ctest.xml; a CTest test named pytest_X stands for the cases in pytest_X.xml. Without ctest.xml: all files there, of pytest. Lists what was skipped and why, and ends
with "N passed, N failed, N skipped". Exit status 1 if a test failed, or if TEST_DATA_DIR exists and a test skipped for want of it.
With BUILD_DIR also if a test was skipped that tests/skips.txt does not expect to be skipped on this machine; with `whole`, if a test of it is missing.
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree as ET

import skips as manifest


def outcome(case):
    """'passed' | 'failed' | 'skipped', and the reason of a skip."""
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed", ""
    skipped = case.find("skipped")
    if skipped is None and case.get("status") not in ("notrun", "disabled"):
        return "passed", ""
    text = case.findtext("system-out") or ""
    lines = [line.strip() for line in text.splitlines()]
    for i, line in enumerate(lines):  # GoogleTest: "file.cc:12: Skipped", the reason on the next line
        if line.endswith(": Skipped") and i + 1 < len(lines):
            return "skipped", lines[i + 1]
        if line.startswith("skipped: "):  # a script that ended with SKIP_RETURN_CODE
            return "skipped", line.removeprefix("skipped: ")
    return "skipped", (skipped.get("message", "") if skipped is not None else "not run")


def name_of(case):
    """GoogleTest's name without the parameter's bytes, which differ from build to build; MODULE::TEST of pytest, MODULE::* of a module that it skipped whole."""
    name, module = case.get("name", "").split("  # GetParam()")[0], case.get("classname")
    if case.get("status"):  # CTest's
        return name
    return f"{module}::{name}" if module else f"{name}::*" if "." in name else name


def results_of(junit):
    """[(name, "passed" | "failed" | "skipped", reason)]"""
    whole = junit / "ctest.xml"
    results, files = [], [whole] if whole.exists() else sorted(junit.glob("*.xml"))
    while files:
        root = ET.parse(files.pop(0)).getroot()
        for case in root.iter("testcase"):
            name = case.get("name", "")
            detail = junit / f"{name}.xml"
            if name.startswith("pytest_") and detail.exists():
                files.append(detail)
                continue
            results.append((name_of(case), *outcome(case)))
    return results


def main():
    junit, data = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    build, whole = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None, sys.argv[4:] == ["whole"]
    lines, last = manifest.parse(manifest.MANIFEST.read_text(encoding="utf-8")) if build else ([], {})
    results = manifest.expand(results_of(junit), lines)
    counts = collections.Counter(kind for _, kind, _ in results)
    skips, failed = [(name, reason) for name, kind, reason in results if kind == "skipped"], [name for name, kind, _ in results if kind == "failed"]
    machine = manifest.here(build, data) if build else set()
    why = collections.Counter(manifest.missing(name, lines, machine) or reason.split("\n")[0] for name, reason in skips)
    for reason, n in why.most_common():
        print(f"skipped {n}: {reason}")
    for name in failed:
        print(f"FAILED {name}")
    starved = [name for name, reason in skips if "OCTAVO_TEST_DATA" in reason]
    if starved and (data / "models").is_dir():
        print(f"FAILED: the test data is present ({len(starved)} tests skipped for want of it all the same): {', '.join(starved[:5])}")
        counts["failed"] += len(starved)
        counts["skipped"] -= len(starved)
    if build:
        for note in manifest.notes(results, lines, last, machine):
            print(note)
        wrong = manifest.compare(results, lines, machine, whole)
        for line in wrong:
            print(f"FAILED: {line}")
        counts["failed"] += len(wrong)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


main()
