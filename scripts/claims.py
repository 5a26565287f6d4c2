"""Lists the tables that bench/figures.py makes, with the commit of each, and the ratios that pages give without a record: claims.py [--pin]

Exit status 1 where
  - a table is not what its record says, or no page shows a record;
  - a table that still waits for its record ("figures pending") does not say of which commit it is, or its record is there;
  - the picture of the README is of another commit than its record;
  - a record is of a commit that is not in the history, or of sources with changes;
  - a record is of another commit than the figures of the README, and docs/lab/records/others.txt does not name it with that commit and the reason;
  - a page gives more ratios without a record than docs/lab/records/unrecorded.txt allows.
That list only becomes shorter: fewer ratios than it allows fail too, until --pin has
written the smaller numbers (it never writes larger ones).
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import figures  # noqa: E402

# "1.6 times", "**1.24**" and "1.24×", but not "3×3".
PICTURE = ("int8-vnni-2.json", "docs/lab/performance.svg")
RATIO = re.compile(r"\*\*\d+\.\d+\*\*|\b\d+(?:\.\d+)? times\b|\b\d+\.\d+ ?×")


def unrecorded(path):
    """How many ratios a page gives outside of its generated tables."""
    return len(RATIO.findall(figures.BLOCK.sub(lambda m: m[0] if m[1] else "", path.read_text(encoding="utf-8"))))


def stale(found, root):
    """Why a record is of nothing that can be built again; None: it can."""
    commit = found["commit"]
    if " " in commit:
        return f"is of {commit}: commit them, build and measure again"
    done = subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"is of commit {commit}, which is not in the history: measure again"


def other_commits(records):
    """What is wrong with others.txt, lines "COMMIT RECORD: REASON": all records that are not of the commit that the README names."""
    file, first = records / "others.txt", records / PICTURE[0]
    if not first.exists():
        return []
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")] if file.exists() else []
    named = {}
    for line in lines:
        if not (parts := re.fullmatch(r"(\w+) (\S+\.json): (.+)", line)):
            return [f'{file.name}: "{line}" is not "COMMIT RECORD: REASON"']
        named[parts[2]] = parts[1]
    readme = json.loads(first.read_text(encoding="utf-8"))["commit"]
    found = {f.name: json.loads(f.read_text(encoding="utf-8"))["commit"] for f in sorted(records.glob("*.json"))}
    wrong = [f"{name} is of commit {commit}, the README of {readme}: measure again, or name it in {file.name} with the reason"
             for name, commit in found.items() if commit != readme and named.get(name) != commit]
    return wrong + [f"{file.name} names {name}, which is of the README's commit or is not there: remove the line" for name in named if found.get(name, readme) == readme]


def judge(root, pages, records, allowed):
    """(what is wrong, {page: ratios without a record})"""
    wrong, shown = figures.check(pages)
    wrong += other_commits(records)
    for file in sorted(records.glob("*.json")):
        if file.name not in shown:
            wrong.append(f"{file.name}: no page shows this record")
        if why := stale(json.loads(file.read_text(encoding="utf-8")), root):
            wrong.append(f"{file.name} {why}")
    file, picture = records / PICTURE[0], root / PICTURE[1]
    if file.exists() and picture.exists() and f"commit {json.loads(file.read_text(encoding='utf-8'))['commit']}" not in picture.read_text(encoding="utf-8"):
        wrong.append(f"{picture.name} is not of the commit of {file.name}: run bench/everything.py --publish")
    counts = {str(p.relative_to(root)): n for p in pages if (n := unrecorded(p))}
    for page in sorted({*counts, *allowed}):
        n, most = counts.get(page, 0), allowed.get(page, 0)
        if n > most:
            wrong.append(f"{page} gives {n} ratios without a record, {most} are allowed: measure with --record and show the table by bench/figures.py")
        elif n < most:
            wrong.append(f"{page} gives {n} ratios without a record, {most} are allowed: run scripts/claims.py --pin")
    return wrong, counts


def main():
    pages, records, file = figures.pages(), figures.RECORDS, figures.RECORDS / "unrecorded.txt"
    allowed = {page: int(n) for n, page in (line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))}
    if "--pin" in sys.argv[1:]:
        counts = {page: min(n, allowed.get(page, 0)) for page, n in judge(ROOT, pages, records, allowed)[1].items()}
        head = "".join(line + "\n" for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
        file.write_text(head + "".join(f"{n:4} {page}\n" for page, n in sorted(counts.items()) if n), encoding="utf-8")
        allowed = {page: n for page, n in counts.items() if n}
    wrong, counts = judge(ROOT, pages, records, allowed)
    for page in pages:
        for match in figures.BLOCK.finditer(page.read_text(encoding="utf-8")):
            for name in match[2].split(" | ")[0].split():
                if not (records.parent / name).exists():
                    print(f"{page.relative_to(ROOT)}: {name}: not measured yet, an older table stands there")
                    continue
                found = json.loads((records.parent / name).read_text(encoding="utf-8"))
                print(f"{page.relative_to(ROOT)}: {name}: commit {found['commit']}, binary {found['binary']}, {found['date']}, {found['machine']}")
    print(f"{sum(counts.values())} ratios of {len(counts)} pages have no record")
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
