"""Checks that files which comments and pages name exist: check_names.py [ROOT]

Reads the comments of C++ sources (src, include, tests, bench, fuzz, examples), of CMake files and of shell scripts, and the pages README.md, CONTRIBUTING.md
and docs/*.md. The diaries in docs/lab describe older commits and are not read. A name is a path or a file name with an ending of this repository's sources.
It may be shortened from the left, as in device/cubin.h for src/cuda/device/cubin.h. Names in capitals are placeholders (NAME.cc), and a page may define files of its
own in the head of a code block. A source that a CMake file gives a target must be there too: not every configuration configures each of them. Prints each name that is not there; exit status 1 if any.
"""
import pathlib
import re
import sys

NAME = re.compile(r"(?<![\w/.*<{$-])((?:[\w-]+/)*[\w-]+\.(?:cc|h|inc|def|py|sh|md|irt|cmake|pyi))\b(?![\w/-])")
SOURCE = re.compile(r"\$\{(PROJECT_SOURCE_DIR|CMAKE_CURRENT_SOURCE_DIR|src)\}/((?:[\w-]+/)*[\w-]+\.(?:cc|h|py|sh|cmake))\b(?!\.)")
FENCE = re.compile(r"^```\w+ ([\w-]+\.\w+)$", re.M)
# Of other projects: system headers, what CMake finds, files of the test data.
FOREIGN = {"jerror.h", "jpeglib.h", "dnnl-config.cmake", "zoo.py", "placements.py", "largest.py", "example.cc"}
CODE = {".cc": "//", ".h": "//", ".inc": "//", ".def": "//", ".cmake": "#", ".sh": "#"}
FOLDERS = ("src", "include", "tests", "bench", "fuzz", "examples", "scripts", "cmake")


def commented(path, text):
    """(line number, text) of what is written for readers."""
    mark = "#" if path.name in ("CMakeLists.txt", "Makefile") else CODE.get(path.suffix)
    for number, line in enumerate(text.splitlines(), 1):
        if mark is None:
            yield number, line
        elif mark in line:
            yield number, line.split(mark, 1)[1]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1])
    found = [p for folder in FOLDERS for p in sorted((root / folder).rglob("*")) if p.is_file()]
    pages = [p for p in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))] if p.exists()]
    there = {p.name for p in [*found, *pages, *(root / "docs").rglob("*")]} | FOREIGN
    ends = {"/".join(p.relative_to(root).parts[i:]) for p in [*found, *pages, *(root / "docs").rglob("*")] for i in range(len(p.relative_to(root).parts) - 1)}
    problems, read = [], 0
    for path in [*(p for p in found if p.suffix in CODE or p.name == "CMakeLists.txt"), *pages]:
        text, read = path.read_text(encoding="utf-8"), read + 1
        if path.name == "CMakeLists.txt" or path.suffix == ".cmake":
            for number, line in enumerate(text.split("\n"), 1):
                for base, name in SOURCE.findall(line):
                    if not ({"PROJECT_SOURCE_DIR": root, "CMAKE_CURRENT_SOURCE_DIR": path.parent, "src": root / "src"}[base] / name).is_file():
                        problems.append(f"{path.relative_to(root)}:{number}: names {name}, which is not there")
        own = set(FENCE.findall(text)) if path.suffix == ".md" else set()
        for number, line in commented(path, text):
            for name in NAME.findall(line):
                last = name.rsplit("/", 1)[-1]
                if last.split(".")[0].isupper() or last in FOREIGN or name in own:
                    continue
                if name not in ends if "/" in name else last not in there:
                    problems.append(f"{path.relative_to(root)}:{number}: names {name}, which is not there")
    print("\n".join(problems) if problems else f"{read} files: every file that they name is there")
    sys.exit(1 if problems else 0)


main()
