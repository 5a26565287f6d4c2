#!/usr/bin/env python3
"""Writes the table of trtexec's options in docs/from-trtexec.md from src/cli/trtexec.def. --check: only says whether it is up to date."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE, PAGE = ROOT / "src/cli/trtexec.def", ROOT / "docs/from-trtexec.md"
BEGIN, END = "<!-- trtexec:begin -->", "<!-- trtexec:end -->"
ROW = re.compile(r'^TRTEXEC\("(--\w+)",\s*(\w+),\s*(\w+),\s*(\w+),\s*"([^"]*)",\s*"([^"]*)"\)$')


def rows():
    """(name, value, phase, take, becomes, text) of every option."""
    out = []
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if not line.startswith("TRTEXEC("):
            continue
        match = ROW.match(line)
        if not match:
            raise SystemExit(f"{TABLE}:{number}: not a row of the table: {line}")
        out.append(match.groups())
    return out


def table():
    lines = ["| trtexec | here |", "|---|---|"]
    for name, _, _, take, becomes, text in rows():
        here = {"same": "the same", "nothing": f"no effect: {text}", "becomes": f"`{becomes.replace('{}', 'VALUE')}`", "special": text,
                "refused": f"**refused**: {text}"}[take]
        lines.append(f"| `{name}` | {here} |")
    return "\n".join(lines)


def main():
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    new = f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"
    if "--check" in sys.argv[1:]:
        if new != page:
            raise SystemExit(f"{PAGE.relative_to(ROOT)} is not what scripts/trtexec_doc.py writes; run it")
        return
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
