"""The record of the stages of scripts/test_all.sh, tests/test-all.json: for each stage and machine the last run that passed. docs/releases.md shows it.

usage: stage_record.py commit                           the commit that is tested, or what keeps a result from being recorded
       stage_record.py add STAGE SECONDS COUNTS HAS COMMIT   STAGE passed here now, begun at COMMIT
       stage_record.py merge FILE...                    records of other machines (OCTAVO_TEST_RECORD there)
       stage_record.py page                             writes the table of docs/releases.md

The commit is the last that changed anything but this record, docs/releases.md and docs/lab. Without a checkout it is OCTAVO_COMMIT. A tree with changes is tested, and nothing is recorded; the same where variables
make stages shorter (FUZZ_SECONDS and others).
OCTAVO_TEST_RECORD names another file.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/releases.md"
BLOCK = re.compile(r"(<!-- stages:begin -->\n).*?(<!-- stages:end -->)", re.S)
SHORTER = ("FUZZ_SECONDS", "OCTAVO_SERVE_REQUESTS", "OCTAVO_SERVE_MUTATED", "OCTAVO_FUZZ_ROUNDS", "OCTAVO_FUZZ_FILES", "OCTAVO_FUZZ_GRAPHS", "OCTAVO_SEQUENCES")
SOURCES = (".", ":!tests/test-all.json", ":!docs/releases.md", ":!docs/lab")


def record():
    return pathlib.Path(os.environ.get("OCTAVO_TEST_RECORD", ROOT / "tests/test-all.json"))


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    """(the commit, why results of it are not recorded or "")"""
    if shorter := [name for name in SHORTER if os.environ.get(name)]:
        return tested()[0], f"{', '.join(shorter)} may make stages shorter"
    return tested()


def tested():
    if os.environ.get("OCTAVO_COMMIT"):
        return os.environ["OCTAVO_COMMIT"], ""
    found = git("log", "-1", "--abbrev=7", "--format=%h", "--", *SOURCES)
    if not found:
        return "unknown", "there is no checkout, and OCTAVO_COMMIT is not set"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *SOURCES)
    return found, f"changes are not committed ({', '.join(line.split()[-1] for line in changed.splitlines()[:3])})" if changed else ""


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name[^:]*: (.*)$", text, re.M)
    try:
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]
    except OSError:
        gpu = ""
    return f"{model[1] if model else 'unknown processor'}, {len(os.sched_getaffinity(0))} cores, {gpu or 'no GPU'}"


def read(file):
    """[{stage, commit, date, machine, has, seconds, counts}]"""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []


def joined(entries):
    """The last of each stage and machine, in order."""
    last = {(e["stage"], e["machine"]): e for e in sorted(entries, key=lambda e: e["date"])}
    return sorted(last.values(), key=lambda e: (e["stage"], e["machine"]))


def write(entries):
    lines = ",\n".join(json.dumps(e) for e in joined(entries))
    record().write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def add(stage, seconds, counts, has, begun):
    name, why = commit()
    if not why and name != begun:
        why = f"the tree was {begun} when it began, and is {name} now"
    if why:
        return why
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
    write([*read(record()), {"stage": stage, "commit": name, "date": now, "machine": machine(), "has": has, "seconds": int(seconds), "counts": counts}])
    return ""


def table(stages, entries):
    """Of docs/releases.md: every stage, with its runs or without."""
    of = {s: [e for e in entries if e["stage"] == s] for s in stages}
    common = set.intersection(*({e["commit"] for e in es} for es in of.values()))
    lines = [f"Every stage has passed at {', '.join(sorted(common))}." if common else "No commit has passed every stage yet."]
    lines += ["", "| stage | last passed at | date (UTC) | machine | minutes | counts |", "|---|---|---|---|---:|---|"]
    for stage, es in of.items():
        for e in es:
            lines.append(f"| `{stage}` | {e['commit']} | {e['date']} | {e['machine']} | {e['seconds'] / 60:.1f} | {e['counts'].strip()} |")
        if not es:
            lines.append(f"| `{stage}` | never recorded | | | | |")
    return "\n".join(lines) + "\n"


def page(text):
    stages = subprocess.run([ROOT / "scripts/test_all.sh", "--list"], capture_output=True, text=True, check=True).stdout.split()
    return BLOCK.sub(lambda m: m[1] + table(stages, read(record())) + m[2], text)


def main(words):
    what, rest = words[0] if words else "", words[1:]
    if what == "commit" and not rest:
        name, why = commit()
        print(name + (f"; nothing is recorded: {why}" if why else ""))
        return 0
    if what == "add" and len(rest) == 5:
        if why := add(*rest):
            print(f"not recorded: {why}")
        return 0
    if what == "merge" and rest:
        write(read(record()) + [e for name in rest for e in read(pathlib.Path(name))])
        return 0
    if what == "page" and not rest:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
