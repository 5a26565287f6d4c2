"""Checks that each rewrite rule has one name everywhere: check_rules.py [ROOT]

For every src/<room>/rules/<file>.cc: the text that Rule::name() returns (the switch --disable=<name>) is the file name with dashes,
tests/<room>/rules/<file>.irt exists and runs it, and docs/rules.md has one row for it; and nothing is tested or documented that is not there.
"""
import pathlib
import re
import sys

NAME = re.compile(r'std::string_view\s+name\(\)\s+const\s+(?:override|final)\s*\{\s*return\s+"([^"]+)"')
HEADER = ("Why", "Exact", "Needs", "Order")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    problems, names = [], set()
    doc = root / "docs/rules.md"
    rows = re.findall(r"^\|\s*`([a-z0-9-]+)`\s*\|", doc.read_text(), re.M) if doc.exists() else []
    for path in sorted((root / "src").glob("*/rules/*.cc")):
        where, text, room = path.relative_to(root), path.read_text(), path.parts[-3]
        found = NAME.findall(text)
        if len(found) != 1:
            problems.append(f"{where}: {len(found)} rules with a literal name; a file has one")
            continue
        name = found[0]
        names.add(name)
        if name.replace("-", "_") != path.stem:
            problems.append(f'{where}: the rule is named "{name}"; the file should be {name.replace("-", "_")}.cc')
        for word in HEADER:
            if not re.search(rf"^//\s+{word}\b", text, re.M):
                problems.append(f'{where}: the opening comment has no "{word}" line')
        test = root / "tests" / room / "rules" / f"{path.stem}.irt"
        if not test.exists():
            problems.append(f"{where}: no test {test.relative_to(root)}")
        elif name not in test.read_text():
            problems.append(f'{test.relative_to(root)}: does not name the rule "{name}"')
        if rows.count(name) != 1:
            problems.append(f'docs/rules.md: {rows.count(name)} rows for "{name}" ({where}); needs 1')
    for name in sorted(set(rows) - names):
        problems.append(f'docs/rules.md: a row for "{name}", which no file in src/*/rules defines')
    stems = {n.replace("-", "_") for n in names}
    for path in sorted((root / "tests").glob("*/rules/*.irt")):
        if path.stem not in stems:
            problems.append(f"{path.relative_to(root)}: tests a rule that no file in src/*/rules defines")
    print("\n".join(problems) if problems else f"{len(names)} rules: file, name, test and documentation agree")
    sys.exit(1 if problems else 0)


main()
