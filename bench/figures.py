"""Figures from the measurement to the page: a record of every round, tables made from records, and a check that pages still say what records say.

A record (docs/lab/records/NAME.json) holds the commit, the digest of the measured binary, the machine, the command and each round of each engine. All rows of a table have
the same rounds: a row is repeated only if all are, and a round is left out for all engines or for none (steady_rounds). A page holds
    <!-- figures: records/NAME.json [records/OTHER.json ...] [| TITLE OF A TABLE] [| rows: A; B] [| brief] [| summary] -->
    ...the table...
    <!-- /figures -->
and records of one table must agree in commit, binary and machine. "rows": these alone. "brief": the note says neither commit nor command; the page says them once, between
<!-- measured --> and <!-- /measured -->, and its brief tables must be of one commit. "summary": the sentence that the script found, in place of the table; brief as well.
<!-- figures pending: ... --> keeps what stands there, which has to name its commit, until the record exists; `figures.py page` then fills it.

The ratio of a row: of each round the fastest other engine's time / Octavo's; its median over rounds. The interval is exact and assumes no distribution: of the sorted
ratios the k-th least and the k-th greatest, with the greatest k for which the median of the distribution lies between them in 95 of 100 cases (order statistics: the number of ratios
below the median is binomial). That takes six rounds; with fewer there is no interval, and nothing is said to be ahead.

How a table looks is its view, which a record may hold ("views", by title; without one: the median of each engine, and the ratio above):
    columns   [[key, head], ...]: a key of the rounds, of the facts or of the ratios
    ratios    {key: {"of": [engines] or nothing for all others, "over": engine, "words": [above 1, between, below 1], "network": the fastest of all rows of the network ("NETWORK, form"),
               "except": [forms]}}
    facts     {row: {key: text}}, what is no time and has no rounds
    digits    {key: decimals}
    note, summary     sentences
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
RECORDS = pathlib.Path(os.environ.get("OCTAVO_RECORDS", ROOT / "docs/lab/records"))
BLOCK = re.compile(r"<!-- figures( pending)?: ([^>]+?) -->\n(.*?)<!-- /figures -->", re.S)
MEASURED = re.compile(r"(<!-- measured -->\n)(.*?)(<!-- /measured -->)", re.S)
SOURCES = ("src", "include", "CMakeLists.txt", "cmake")  # what a binary is made of
SAME = ("commit", "binary", "machine")  # of all records of one table
LEAST_ROUNDS = 6
CAPS = ("OCTAVO_CPU", "ONEDNN_MAX_CPU_ISA")  # variables that hold a runtime to older instructions
OURS = {"before": "Octavo before", "float32": "Octavo in float32"}  # engines of ours that are measured beside "octavo": no peers
HEADS = NAMES | OURS | {"torch": "PyTorch"}
WORDS = ("ahead", "level", "behind")


class Mistake(SystemExit):
    """A record or a page that may not be published, with the reason: uncaught, it ends the script with it."""


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def measured_commit():
    """The last commit that changed what a binary is made of: pages, records and scripts may change behind it. OCTAVO_COMMIT where there is no checkout."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *SOURCES)
    return os.environ.get("OCTAVO_COMMIT") or git("log", "-1", "--abbrev=7", "--format=%h", "--", *SOURCES) + (" with changes" if changed else "")


def machine():
    """The processor, its cores, how many of them this process may use, and the cap of instructions."""
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    allowed, cap = len(os.sched_getaffinity(0)), os.environ.get("OCTAVO_CPU")
    return f"{names[0] if names else 'unknown'}, {len(names)} cores" + (f", {allowed} of them used" if allowed < len(names) else "") + (f", up to {cap}" if cap else "")


def provenance(octavo, command=None, device=None):
    """What a measurement is of: the commit of the sources here, the digest of the binary, the machine (with the GPU, `device`), the command."""
    octavo, said = pathlib.Path(octavo), os.environ.get("OCTAVO_RECORD_COMMAND")  # what bench/everything.py says in place of its folders
    binary = octavo.with_name("octavo") if octavo.name == "run-octavo" else octavo
    return {"commit": measured_commit(), "binary": hashlib.sha256(binary.read_bytes()).hexdigest()[:16], "machine": device or machine(),
            "command": " ".join([f"{k}={os.environ[k]}" for k in CAPS if os.environ.get(k)] + [said or shlex.join(command or [f"bench/{pathlib.Path(sys.argv[0]).name}", *sys.argv[1:]])])}


def claim(results, octavo, device=None):
    """Notes in a file of results what they are of. Mistake if it holds results of another commit, binary or machine: one table never mixes them."""
    new, old = provenance(octavo, device=device), results.get("provenance")
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


def record(results, tables, steady=None, views=None, left_out=(), kind=None):
    """The record of {title: {row: {engine: [milliseconds]}}}, and how the tables of these titles look. `left_out`: rows for which there was no time. Of another `kind` than
    rounds: of what that has (bench/figures_open.py)."""
    if "provenance" not in results:
        raise Mistake("the results do not say which binary they are of: measure again with this version of the script")
    found = {"format": 1, **results["provenance"], "date": str(datetime.date.today()), "steady": steady, **({"kind": kind} if kind else {}), "tables": tables,
             **({"views": views} if views else {}), **({"left_out": list(left_out)} if left_out else {})}
    validate(found)
    return found


def validate(found):
    for key in (*SAME, "command", "date"):
        if not found.get(key):
            raise Mistake(f'the record has no "{key}"' + ("; outside of a git checkout set OCTAVO_COMMIT" if key == "commit" else ""))
    if found.get("kind") is not None and found["kind"] not in figures_open.KINDS:
        raise Mistake(f'a record of kind "{found["kind"]}"')
    for title, rows in found["tables"].items() if found.get("kind") is None else ():
        counts = {len(v): f"{row}, {engine}" for row, times in rows.items() for engine, v in times.items() if v}
        if len(counts) > 1:
            raise Mistake(f'table "{title}": ' + ", ".join(f"{n} rounds of {who}" for n, who in sorted(counts.items()))
                          + ": a row is repeated only if all rows are; measure the others as often")


def save(found, name):
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def ratios(times, kept, ours="octavo", of=None, rows=None):
    """Of each round that counts: the fastest other engine's time / ours. `of`: of these engines alone; `rows`: the fastest in any of these rows."""
    others = [v for row in (rows or [times]) for engine, v in row.items() if v and (engine in of if of else engine != ours and engine not in OURS)]
    return [min(v[i] for v in others) / times[ours][i] for i in kept] if others and times.get(ours) else []


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


def verdict(values, words=WORDS):
    """"1.24 (1.10 to 1.31), ahead": ahead or behind only where the interval excludes 1."""
    if not values:
        return "–"
    between = interval(values)
    if between is None:
        return f"{statistics.median(values):.2f} ({len(values)} rounds; an interval takes {LEAST_ROUNDS})"
    least, most = between
    said = words[0] if least > 1 else words[2] if most < 1 else words[1]
    return f"{statistics.median(values):.2f} ({least:.2f} to {most:.2f})" + (f", {said}" if said else "")


def plain_view(rows):
    """Every engine's median, and the ratios."""
    engines = list(dict.fromkeys(e for times in rows.values() for e in times))
    found = {"columns": [[e, f"{HEADS.get(e, e)}, ms"] for e in engines], "ratios": {"best": {"over": "octavo"}}}
    if "float32" in engines:
        found["columns"].append(["own", "float32 ÷ Octavo"])
        found["ratios"]["own"] = {"of": ["float32"], "over": "octavo"}
    found["columns"].append(["best", "fastest other ÷ Octavo"])
    return found


def cell(view, rows, row, key):
    """One cell of a row; rows: {row: (times, rounds that count)}."""
    times, kept = rows[row]
    if key in view.get("ratios", {}):
        how = view["ratios"][key]
        if row.rsplit(", ", 1)[-1] in how.get("except", []):
            return "–"
        if how.get("network"):
            others = [r for r in rows if r.rsplit(", ", 1)[0] == row.rsplit(", ", 1)[0]]
            kept = [i for i in kept if all(i in rows[r][1] for r in others)]
            return verdict(ratios(times, kept, how["over"], how.get("of"), [rows[r][0] for r in others]), how.get("words", WORDS))
        return verdict(ratios(times, kept, how["over"], how.get("of")), how.get("words", WORDS))
    if times.get(key) and kept:
        return f"{statistics.median([times[key][i] for i in kept]):.{view.get('digits', {}).get(key, 3)}f}"
    return view.get("facts", {}).get(row, {}).get(key, "–")


def same_origin(records):
    for found in records:
        validate(found)
        for key in (*SAME, "kind"):
            if found.get(key) != records[0].get(key):
                raise Mistake(f'one table mixes {key} "{records[0].get(key)}" and "{found.get(key)}": make two tables, or measure all rows with one binary')


def note_of(first, view, rounds, left_out, brief):
    """The line above a table: what it is of."""
    parts = [first["machine"]] if brief else [f"Commit {first['commit']}, binary {first['binary']}, {first['machine']}, {first['date']}: `{first['command']}`"]
    said = f", {left_out} left out for all engines of their row (over {first['steady']} times an engine's fastest)" if first["steady"] else ""
    if rounds:
        parts.append((f"medians of {rounds} rounds" if rounds > 1 else "one round") + said)
    if rounds and view.get("ratios"):
        parts.append("in brackets the 95 % interval of the median ratio (order statistics)")
    if first.get("left_out"):
        parts.append(f"not measured for want of time: {', '.join(first['left_out'])}")
    return "*" + "; ".join(parts + ([view["note"]] if view.get("note") else [])) + ".*"


def table(records, title=None, only=None, brief=False):
    """Markdown of one table of these records, and a line that says what it is of. `only`: these rows."""
    same_origin(records)
    if kind := records[0].get("kind"):
        return table_of_kind(records, kind, title)
    rows, view, left_out, rounds = {}, None, 0, set()
    for found in records:
        title = title or next(iter(found["tables"]))
        here = found.get("views", {}).get(title)
        view = {**here, "facts": {**(view or here).get("facts", {}), **here.get("facts", {})}} if here else view
        for row, times in found["tables"].get(title, {}).items():
            if row in rows:
                raise Mistake(f'row "{row}" stands in two records of one table: a row is repeated only if all rows are')
            rows[row] = (times, steady_rounds(times, found["steady"]))
    if not rows:
        raise Mistake(f'no record has a table "{title}"')
    view = view or plain_view({row: times for row, (times, _) in rows.items()})
    if missing := [row for row in only or [] if row not in rows]:
        raise Mistake(f'table "{title}" has no row "{missing[0]}"; it has {", ".join(rows)}')
    for times, kept in rows.values():
        n = max(map(len, times.values()), default=0)
        left_out, rounds = left_out + n - len(kept), rounds | ({n} if n else set())
    if len(rounds) > 1:
        raise Mistake(f'table "{title}" has rows of {sorted(rounds)} rounds: a row is repeated only if all rows are')
    head = ["", *(text for _, text in view["columns"])]
    lines = ["| " + " | ".join([row, *(cell(view, rows, row, key) for key, _ in view["columns"])]) + " |" for row in only or rows]
    note = note_of(records[0], view, max(rounds, default=0), left_out, brief)
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


def summary_of(records, title):
    """The sentence that a script found, of the one record that has it."""
    found = [view["summary"] for r in records for name, view in r.get("views", {}).items() if title in (None, name) and view.get("summary")]
    if len(found) != 1:
        raise Mistake(f'{len(found)} records have a summary of "{title}", one is needed')
    return found[0] + "\n"


class Block:
    """One mark of a page and what should stand there."""

    def __init__(self, path, match):
        names, *rest = match[2].split(" | ")
        self.match, self.pending, self.names = match, bool(match[1]), names.split()
        summary = "summary" in rest
        self.brief = summary or "brief" in rest
        only = next((r[len("rows: "):].split("; ") for r in rest if r.startswith("rows: ")), None)
        title = next((r for r in rest if r not in ("brief", "summary") and not r.startswith("rows: ")), None)
        files = [RECORDS.parent / name for name in self.names]
        missing = [f.name for f in files if not f.exists()]
        self.waits = self.pending and bool(missing)
        if missing and not self.pending:
            raise Mistake(f"{path.name}: there is no record {missing[0]}")
        self.records = [] if self.waits else [json.loads(f.read_text(encoding="utf-8")) for f in files]
        self.text = match[3] if self.waits else summary_of(self.records, title) if summary else table(self.records, title, only, self.brief)

    def whole(self):
        return f"<!-- figures{' pending' if self.waits else ''}: {self.match[2]} -->\n{self.text}<!-- /figures -->"


def blocks(path):
    """The marks of a page."""
    return [Block(path, match) for match in BLOCK.finditer(path.read_text(encoding="utf-8"))]


def measured(path, found):
    """The sentence that names the commit of a page's brief tables; None while all of them wait."""
    records = [r for b in found if b.brief for r in b.records]
    if commits := sorted({r["commit"] for r in records}):
        if len(commits) > 1:
            raise Mistake(f"{path.name}: its brief tables are of commits {', '.join(commits)}: measure all of them at one (bench/everything.py)")
        dates = sorted({r["date"] for r in records})
        return f"The tables with intervals were measured at commit {commits[0]}, {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}; [docs/lab/figures.md](docs/lab/figures.md) says how.\n"
    return None


def page(path):
    """The page with its tables made again."""
    text, found = path.read_text(encoding="utf-8"), blocks(path)
    made, said = iter([b.whole() for b in found]), measured(path, found)
    text = BLOCK.sub(lambda _: next(made), text)
    return MEASURED.sub(lambda m: m[1] + said + m[3], text) if said else text


def check(paths):
    """What is wrong with pages: a table that is not what its records say, a record that may not be published, one that no page shows."""
    wrong, shown = [], set()
    for path in paths:
        try:
            found = blocks(path)
            for b in found:
                shown |= {pathlib.Path(name).name for name in b.names}
                if b.waits and not re.search(r"[Cc]ommit [0-9a-f]{7}|^Not measured yet\.$", b.text, re.M):
                    wrong.append(f"{path.name}: the table that waits for {' '.join(b.names)} says neither of which commit its figures are nor \"Not measured yet.\"")
                elif b.match[3] != b.text or b.pending != b.waits:
                    wrong.append(f"{path.name}: the table of {' '.join(b.names)} is not what the record says: run bench/figures.py page {path.name}")
            said, mark = measured(path, found), MEASURED.search(path.read_text(encoding="utf-8"))
            if said and (mark is None or mark[2] != said):
                wrong.append(f"{path.name}: between <!-- measured --> and <!-- /measured --> should stand: {said.strip()}: run bench/figures.py page {path.name}")
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
