"""Adds up what ran: test_summary.py JUNIT_DIR TEST_DATA_DIR

Reads ctest.xml; a CTest test named pytest_X stands for the cases in pytest_X.xml. Lists what was skipped and why, and ends
with "N passed, N failed, N skipped". Exit status 1 if a test failed, or if TEST_DATA_DIR exists and a test skipped for want of it.
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree as ET


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


def main():
    junit, data = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    counts, skips, failed = collections.Counter(), [], []
    files = [junit / "ctest.xml"]
    while files:
        root = ET.parse(files.pop(0)).getroot()
        for case in root.iter("testcase"):
            name = case.get("name", "")
            detail = junit / f"{name}.xml"
            if name.startswith("pytest_") and detail.exists():
                files.append(detail)
                continue
            kind, reason = outcome(case)
            counts[kind] += 1
            if kind == "skipped":
                skips.append((name, reason))
            elif kind == "failed":
                failed.append(name)
    for reason, n in collections.Counter(reason for _, reason in skips).most_common():
        print(f"skipped {n}: {reason}")
    for name in failed:
        print(f"FAILED {name}")
    starved = [name for name, reason in skips if "OCTAVO_TEST_DATA" in reason]
    if starved and (data / "models").is_dir():
        print(f"FAILED: the test data is present ({len(starved)} tests skipped for want of it all the same): {', '.join(starved[:5])}")
        counts["failed"] += len(starved)
        counts["skipped"] -= len(starved)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


main()
