"""Checks that each rewrite rule has one name everywhere: check_rules.py [ROOT]

For every src/<module>/rules/<file>.cc: the text that Rule::name() returns (the switch --disable=<name>) is the file name with dashes, its opening
comment names the rule, and tests/<module>/rules/<file>.irt exists and runs it; nothing is tested that is not there; and docs/rules.md, docs/schema.md and the efforts
of docs/planner.md are what scripts/rules_page.py, scripts/schema_page.py and scripts/effort_page.py write from the sources.
"""
import pathlib
import re
import sys

import effort_page
import rules_page
import schema_page

NAME = re.compile(r'std::string_view\s+name\(\)\s+const\s+(?:override|final)\s*\{\s*return\s+"([^"]+)"')


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    problems, names = [], set()
    for path in sorted((root / "src").glob("*/rules/*.cc")):
        where, text, module = path.relative_to(root), path.read_text(), path.parts[-3]
        found = NAME.findall(text)
        if len(found) != 1:
            problems.append(f"{where}: {len(found)} rules with a literal name; a file has one")
            continue
        name = found[0]
        names.add(name)
        if name.replace("-", "_") != path.stem:
            problems.append(f'{where}: the rule is named "{name}"; the file should be {name.replace("-", "_")}.cc')
        if not text.startswith(f"// {name}:  "):
            problems.append(f'{where}: the opening comment does not start with "// {name}:  EQUATION"')
        test = root / "tests" / module / "rules" / f"{path.stem}.irt"
        if not test.exists():
            problems.append(f"{where}: no test {test.relative_to(root)}")
        elif name not in test.read_text():
            problems.append(f'{test.relative_to(root)}: does not name the rule "{name}"')
    stems = {n.replace("-", "_") for n in names}
    for path in sorted((root / "tests").glob("*/rules/*.irt")):
        if path.stem not in stems:
            problems.append(f"{path.relative_to(root)}: tests a rule that no file in src/*/rules defines")
    if problem := rules_page.problem_with(root):
        problems.append(problem)
    if (root / "src/base/causes").exists() and (problem := schema_page.problem_with(root)):
        problems.append(problem)
    if (root / "docs/planner.md").exists() and (problem := effort_page.problem_with(root)):
        problems.append(problem)
    print("\n".join(problems) if problems else f"{len(names)} rules: file, name, test and documentation agree")
    sys.exit(1 if problems else 0)


main()
