"""Figures from the measurement to the page: a record of every round, tables made from records, and a check that pages still say what records say.

A record (docs/lab/records/NAME.json) holds the commit, the digest of the measured binary, the machine, the command and each round of each engine. All rows of a table have
the same rounds: a row is repeated only if all are, and a round is left out for all engines or for none (steady_rounds). A page holds
    <!-- figures: records/NAME.json [records/OTHER.json ...] [| TITLE OF A TABLE] -->
    ...the table...
    <!-- /figures -->
and records of one table must agree in commit, binary and machine.

The ratio of a row: of each round the fastest other engine's time / Octavo's; its median over rounds. The interval is exact and assumes no distribution: of the sorted
ratios the k-th least and the k-th greatest, with the greatest k for which the median of the distribution lies between them in 95 of 100 cases (order statistics: the number of ratios
below the median is binomial). That takes six rounds; with fewer there is no interval, and nothing is said to be ahead.

A record may be of another kind ("kind"): its rows are not rounds of engines, and bench/figures_open.py makes its table.

usage: figures.py page FILE.md...     writes the tables of these pages again
       figures.py check [FILE.md...]  exit status 1 if a table is not what its records say (default: all pages)
"""
import argparse
import datetime
import hashlib
import json
import math
import os
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

import figures_open
from peer import NAMES

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDS = ROOT / "docs/lab/records"
BLOCK = re.compile(r"(<!-- figures: ([^|>]+?)(?: \| ([^>]+?))? -->\n)(.*?)(<!-- /figures -->)", re.S)
SAME = ("commit", "binary", "machine")  # of all records of one table
LEAST_ROUNDS = 6
OURS = {"before": "Octavo before", "float32": "Octavo in float32"}  # engines of ours that are measured beside "octavo": no peers


class Mistake(SystemExit):
    """A record or a page that may not be published, with the reason: uncaught, it ends the script with it."""


def provenance(octavo, command=None):
    """What a measurement is of: the commit of the sources here (OCTAVO_COMMIT where there is no checkout), the digest of the binary, the machine, the command."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    octavo = pathlib.Path(octavo)
    binary = octavo.with_name("octavo") if octavo.name == "run-octavo" else octavo
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "include", "CMakeLists.txt", "cmake")
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    commit = os.environ.get("OCTAVO_COMMIT") or git("rev-parse", "--short=7", "HEAD") + (" with changes" if changed else "")
    return {"commit": commit,
            "binary": hashlib.sha256(binary.read_bytes()).hexdigest()[:16], "machine": f"{names[0] if names else 'unknown'}, {len(names)} cores",
            "command": shlex.join(command or [f"bench/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]])}


def claim(results, octavo):
    """Notes in a file of results what they are of. Mistake if it holds results of another commit, binary or machine: one table never mixes them."""
    new, old = provenance(octavo), results.get("provenance")
    if old is None and results.get("times"):
        raise Mistake("the file of results does not say which binary it is of: write to another file (--json), and measure all rows again")
    for key in SAME if old else ():
        if old[key] != new[key]:
            raise Mistake(f'the file of results is of {key} "{old[key]}", this run of "{new[key]}": write to another file (--json), and measure all rows again')
    results["provenance"] = old or new


def steady_rounds(times, limit):
    """The rounds that count, of {engine: [milliseconds of each round]}: those in which no engine took more than `limit` times its own fastest.
    A round counts for all engines or for none."""
    rounds = range(max(map(len, times.values()), default=0))
    if not limit:
        return list(rounds)
    return [i for i in rounds if all(i >= len(v) or v[i] <= limit * min(v) for v in times.values())]


def record(results, tables, steady=None, kind=None):
    """The record of {title: {row: {engine: [milliseconds]}}}; of another kind than rounds: of what that has (bench/figures_open.py)."""
    if "provenance" not in results:
        raise Mistake("the results do not say which binary they are of: measure again with this version of the script")
    found = {"format": 1, **results["provenance"], "date": str(datetime.date.today()), "steady": steady, **({"kind": kind} if kind else {}), "tables": tables}
    validate(found)
    return found


def validate(found):
    for key in (*SAME, "command", "date"):
        if not found.get(key):
            raise Mistake(f'the record has no "{key}"' + ("; outside of a git checkout set OCTAVO_COMMIT" if key == "commit" else ""))
    if found.get("kind") is not None and found["kind"] not in figures_open.KINDS:
        raise Mistake(f'a record of kind "{found["kind"]}"')
    for title, rows in found["tables"].items() if found.get("kind") is None else ():
        counts = {len(v): f"{row}, {engine}" for row, times in rows.items() for engine, v in times.items()}
        if len(counts) > 1:
            raise Mistake(f'table "{title}": ' + ", ".join(f"{n} rounds of {who}" for n, who in sorted(counts.items()))
                          + ": a row is repeated only if all rows are; measure the others as often")


def save(found, name):
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def ratios(times, kept, ours="octavo"):
    """Of each round that counts: the fastest other engine's time / ours."""
    others = [v for engine, v in times.items() if engine != ours and engine not in OURS]
    return [min(v[i] for v in others) / times[ours][i] for i in kept] if others and ours in times else []


def interval(values, level=0.95):
    """(least, greatest) between which the median lies with this probability at least; None: too few values."""
    n, below, k = len(values), 0.0, 0
    while k < n // 2 and 2 * (below + math.comb(n, k) / 2**n) <= 1 - level + 1e-12:
        below += math.comb(n, k) / 2**n
        k += 1
    return (sorted(values)[k - 1], sorted(values)[n - k]) if k else None


def summary(found):
    """One line about the ratios of all rows: each the median of its rounds."""
    return f"geometric mean of {len(found)} ratios {statistics.geometric_mean(found):.2f}, {sum(r < 1 for r in found)} below 1"


def verdict(values):
    """"1.24 (1.10 to 1.31), ahead": ahead or behind only where the interval excludes 1."""
    if not values:
        return "–"
    between = interval(values)
    if between is None:
        return f"{statistics.median(values):.2f} ({len(values)} rounds; an interval takes {LEAST_ROUNDS})"
    least, most = between
    return f"{statistics.median(values):.2f} ({least:.2f} to {most:.2f}), {'ahead' if least > 1 else 'behind' if most < 1 else 'level'}"


def table(records, title=None):
    """Markdown of one table of these records, and a line that says what it is of."""
    for found in records:
        validate(found)
        for key in (*SAME, "kind"):
            if found.get(key) != records[0].get(key):
                raise Mistake(f'one table mixes {key} "{records[0].get(key)}" and "{found.get(key)}": make two tables, or measure all rows with one binary')
    if kind := records[0].get("kind"):
        return table_of_kind(records, kind, title)
    rows, lines, left_out, rounds = {}, [], 0, set()
    for found in records:
        title = title or next(iter(found["tables"]))
        for row, times in found["tables"].get(title, {}).items():
            if row in rows:
                raise Mistake(f'row "{row}" stands in two records of one table: a row is repeated only if all rows are')
            rows[row] = (times, steady_rounds(times, found["steady"]))
    if not rows:
        raise Mistake(f'no record has a table "{title}"')
    engines = list(dict.fromkeys(e for times, _ in rows.values() for e in times))
    for row, (times, kept) in rows.items():
        n = max(map(len, times.values()))
        left_out, rounds = left_out + n - len(kept), rounds | {n}
        cells = [f"{statistics.median([times[e][i] for i in kept]):.3f}" if e in times and kept else "–" for e in engines]
        if "float32" in engines:
            cells.append(verdict([times["float32"][i] / times["octavo"][i] for i in kept] if "float32" in times else []))
        lines.append("| " + " | ".join([row, *cells, verdict(ratios(times, kept))]) + " |")
    if len(rounds) > 1:
        raise Mistake(f'table "{title}" has rows of {sorted(rounds)} rounds: a row is repeated only if all rows are')
    first = records[0]
    said = f", {left_out} left out for all engines of their row (over {first['steady']} times an engine's fastest)" if first["steady"] else ""
    note = (f"*Commit {first['commit']}, binary {first['binary']}, {first['machine']}, {first['date']}: `{first['command']}`; medians of {rounds.pop()} rounds{said}; "
            "in brackets the 95 % interval of the median ratio (order statistics).*")
    head = ["", *(f"{(NAMES | OURS).get(e, e)}, ms" for e in engines), *(["float32 ÷ Octavo"] if "float32" in engines else []), "fastest other ÷ Octavo"]
    return "\n".join([note, "", "| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|", *lines]) + "\n"


def table_of_kind(records, kind, title):
    rows = {}
    for found in records:
        for row, of in found["tables"].get(title or next(iter(found["tables"])), {}).items():
            if row in rows:
                raise Mistake(f'row "{row}" stands in two records of one table')
            rows[row] = of
    if not rows:
        raise Mistake(f'no record has a table "{title}"')
    text, said = figures_open.table(kind, rows)
    first = records[0]
    commands = ", ".join(f"`{c}`" for c in dict.fromkeys(r["command"] for r in records))
    return f"*Commit {first['commit']}, binary {first['binary']}, {first['machine']}, {first['date']}: {commands}; {said}.*\n\n{text}\n"


def blocks(path):
    """[(match, the table that should stand there)] of a page."""
    found = []
    for match in BLOCK.finditer(path.read_text(encoding="utf-8")):
        files = [RECORDS.parent / name for name in match[2].split()]
        for file in files:
            if not file.exists():
                raise Mistake(f"{path.name}: there is no record {file.name}")
        found.append((match, table([json.loads(f.read_text(encoding="utf-8")) for f in files], match[3])))
    return found


def page(path):
    """The page with its tables made again."""
    made = iter([text for _, text in blocks(path)])
    return BLOCK.sub(lambda m: m[1] + next(made) + m[5], path.read_text(encoding="utf-8"))


def check(paths):
    """What is wrong with pages: a table that is not what its records say, a record that may not be published, one that no page shows."""
    wrong, shown = [], set()
    for path in paths:
        try:
            for match, text in blocks(path):
                shown |= {pathlib.Path(name).name for name in match[2].split()}
                if match[4] != text:
                    wrong.append(f"{path.name}: the table of {match[2]} is not what the record says: run bench/figures.py page {path.name}")
        except Mistake as mistake:
            wrong.append(f"{path.name}: {mistake}")
    return wrong, shown


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def add_option(parser):
    parser.add_argument("--record", metavar="NAME", help="write every round to docs/lab/records/NAME.json, from which bench/figures.py makes tables")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("page", "check"))
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    if args.what == "page":
        for file in args.files:
            file.write_text(page(file), encoding="utf-8")
        return
    wrong, _ = check(args.files or pages())
    print("\n".join(wrong) or "every table is what its records say")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
