"""Checks that files which comments and pages name exist, and that a class name has one meaning: check_names.py [ROOT]

Reads the comments of C++ sources (src, include, tests, bench, fuzz, examples), of CMake files and of shell scripts, and the pages README.md, CONTRIBUTING.md
and docs/*.md. The diaries in docs/lab describe older commits and are not read. A name is a path or a file name with an ending of this repository's sources.
It may be shortened from the left, as in device/cubin.h for src/cuda/device/cubin.h. Names in capitals are placeholders (NAME.cc), and a page may define files of its
own in the head of a code block. A source that a CMake file gives a target must be there too: not every configuration configures each of them. Prints each name that is not there; exit status 1 if any.

A class of a namespace (not one inside another class, which is read with its name) is defined in one header of src and include. SHARED lists the names that several headers define all
the same. It only becomes shorter: an entry that no longer describes the headers is refused too.
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
# At the beginning of a line, so no class inside another; what has a ";" before its "{" is only declared.
CLASS = re.compile(r"^(?:template ?<.*> )?(?:struct|class|enum class|union) (?:alignas\(\w+\) |\[\[\w+\]\] )?(\w+)\b[^;{]*\{", re.M)
SHARED = {
    "Block": "src/cpu/jit/conv_plan.h src/plan/candidates/blocks.h",
    "BuildOptions": "include/octavo/octavo.h src/report/trex.h",
    "Choice": "src/cuda/family.h src/plan/candidates/choices.h",
    "Code": "src/cpu/code.h src/cpu/jit/emitter.h",
    "Combine": "src/ir/facts.h src/plan/effort.h",
    "ConvSetting": "src/cpu/jit/conv_plan.h src/cuda/families/conv/conv_shape.h",
    "ConvTile": "src/cpu/block/block.h src/cuda/families/conv/conv_mma.h",
    "Costs": "src/plan/cost.h src/report/costs.h",
    "DType": "include/octavo/octavo.h src/ir/tensor.h",
    "DepthwiseTile": "src/cpu/block/block.h src/cpu/jit/depthwise.h",
    "Extent": "src/cuda/text/open.h src/plan/layout/needs.h",
    "Family": "src/cpu/family.h src/cuda/family.h",
    "FamilyOf": "src/cpu/family.h src/cuda/family.h",
    "Field": "src/base/reason.h src/ir/fact_fields.h",
    "Finding": "include/octavo/octavo.h src/onnx/diagnosis/diagnose.h",
    "Form": "src/cpu/jit/forms.h src/plan/precision/precision.h",
    "Group": "src/passes/shape_groups.h src/plan/regions/group.h",
    "Image": "src/cli/inputs/image.h src/cpu/window.h",
    "Instr": "src/cpu/jit/lower.h src/program/program.h",
    "Interval": "src/program/interval.h src/quantize/ranges/ranges.h",
    "Line": "src/cpu/jit/requant.h src/cuda/families/plain/plain.h",
    "Made": "src/python/arrays.h src/quantize/run.h",
    "Matched": "src/cpu/family.h src/cuda/family.h",
    "Memory": "include/octavo/octavo.h src/region/provider.h",
    "Op": "src/ir/graph.h src/program/program.h",
    "OpInfo": "src/ir/graph.h src/program/program.h",
    "Outcome": "src/quantize/quantize.h src/rewrite/rule.h",
    "Part": "src/engine/source.h src/quantize/data/data.h src/tune/part.h",
    "Profile": "include/octavo/octavo.h src/engine/engine.h",
    "Range": "src/cli/arguments.h src/quant/range.h",
    "RowTile": "src/cpu/onednn/conv_setting.h src/cuda/families/rows/rows.h",
    "Rows": "src/cpu/stages/schedule.h src/cuda/families/rows/rows.h src/quantize/data/patches.h",
    "RunTime": "src/quantize/search/run_time.h src/report/trex.h",
    "Searched": "src/plan/search/search.h src/quantize/search/laboratory.h",
    "Source": "src/cli/inputs/sources.h src/region/provider.h src/report/flow.h",
    "Step": "src/cpu/block/block.h src/program/span.h",
    "Stream": "src/cpu/block/block.h src/cpu/jit/lower.h",
    "Tile": "src/cpu/jit/emitter.h src/ir/facts.h",
    "Window": "src/ir/facts.h src/onnx/import/window.h",
}
FOLDERS = ("src", "include", "tests", "bench", "fuzz", "examples", "scripts", "cmake")


def commented(path, text):
    """(line number, text) of what is written for readers."""
    mark = "#" if path.name in ("CMakeLists.txt", "Makefile") else CODE.get(path.suffix)
    for number, line in enumerate(text.splitlines(), 1):
        if mark is None:
            yield number, line
        elif mark in line:
            yield number, line.split(mark, 1)[1]


def classes(root):
    """Class names that several headers define, beside SHARED; entries of SHARED that headers no longer agree with."""
    headers = {}
    for path in (p for folder in ("src", "include") for p in sorted((root / folder).rglob("*.h"))):
        for found in CLASS.finditer(path.read_text(encoding="utf-8")):
            headers.setdefault(found.group(1), set()).add(path.relative_to(root).as_posix())
    whole = (root / "src/region/region.h").exists()  # else a test's tree, which has few of the headers
    for name in sorted(headers.keys() | (SHARED.keys() if whole else set())):
        have, may = headers.get(name, set()), set(SHARED.get(name, "").split())
        if len(have) > 1 and not have <= may:
            yield f"{name}: {' and '.join(sorted(have))} define a class of this name; call one of them something that says what it is"
        elif whole and have != may and may:
            yield f"{name}: SHARED of scripts/check_names.py lists {' and '.join(sorted(may - have))}, which no longer define it; take it off"


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
    problems += classes(root)
    print("\n".join(problems) if problems else f"{read} files: every file that they name is there, and no class name but {len(SHARED)} has two meanings")
    sys.exit(1 if problems else 0)


main()
