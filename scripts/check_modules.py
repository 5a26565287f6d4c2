"""Checks that modules (folders of src/) depend only on modules to their left: check_modules.py [ROOT]

Reads every #include "module/..." and every octavo_module(...) line. Also checks that what an engine needs at run time includes neither
the importer nor the planner, that only api, cli and python see the public headers, and that no text in a module other than cpu and cuda
spells a tactic or an instruction set: the properties of region::Tactic say what others need to know; and that no module behind the
planner looks up an attribute by its name: ir/facts.h has read them once; that the rooms of cuda (its folders) include only what ROOMS
says; that the folders of the planner keep their order; that levels of effort are compared in plan/effort.h alone; that texts are compared
only in the files of READERS, which read a text from outside or lay one out; and that a file past 400 lines says why in its opening comment, and none is past 600. Prints each violation; exit status 1 if any.
"""
import pathlib
import re
import sys

ORDER = "base ir program region rewrite reference quant onnx passes plan cpu cuda engine tune report quantize api cli python".split()
RUNTIME = {"base", "ir", "program", "region", "reference", "cpu", "cuda", "engine"}
NOT_AT_RUNTIME = {"onnx", "passes", "plan", "tune", "report", "quantize", "api", "cli", "python"}
PUBLIC = {"api", "cli", "python"}
DEVICES = {"cpu", "cuda"}
# What files of a room may include of their own module, beside the room itself. Files of the module's own folder may include all of it.
ROOMS = {"cuda": {"text": [], "families": ["text/", "family.h", "cost_model.h"], "device": ["text/"]}}
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
SPELLING = re.compile(r"(?<!/)\b(?:cpu|cuda)\.[a-z]|avx|amx|vnni|^portable$|\.portable\b|\bsm_\d")
# The compiler's own words, which dispatch nothing that a plan names.
COMPILER = re.compile(r"__builtin_cpu_supports\(|__attribute__\(\(target(?:_clones)?\(")
TYPED = {"region", "reference", "cpu", "cuda", "engine", "tune", "report"}
LOOK_UP = re.compile(r"\bget_(?:int|ints|text|float|floats)\(")
# Folders of plan/, in order. Its files without a folder are what all of them share.
PLAN_ORDER = "regions layout lowering candidates search precision advice".split()
LEVEL = re.compile(r"\beffort\b\s*(?:[<>]=?|[!=]=)|(?:[<!=]=|(?<!-)[<>]=?)\s*(?:\w+(?:\.|->))*effort\b|\[[^\]]*\beffort\b\s*\]")
LEVEL_TABLE = "src/plan/effort.h"
DECIDING = {"rewrite", "region", "reference", "plan", "cpu", "cuda", "engine", "tune", "report"}
# Files that compare texts, each with the reason: they read a text that comes from outside (a file, the caller's words, the system), or lay out a text.
READERS = {
    "src/region/family.cc": "reads the words and ranges of a tactic's parameters",
    "src/region/from_json.cc": "reads plans of engine files",
    "src/region/from_key.cc": "reads keys of regions, which callers give",
    "src/region/reason_json.cc": "reads reasons of engine files",
    "src/plan/decided_json.cc": "reads decisions of engine files",
    "src/plan/advice/advise.cc": "cuts the end off an identity of a region",
    "src/plan/advice/price_roundings.cc": "reads names of choices, which callers give",
    "src/plan/candidates/realize.cc": "reads names of choices, which callers give",
    "src/plan/layout/bind.cc": "reads formats of inputs, which callers give",
    "src/plan/regions/group.cc": "reads names of choices, which callers give",
    "src/plan/regions/narrow_marks.cc": "reads the type that a cast names",
    "src/plan/search/by_image.cc": "asks whether a node has an attribute",
    "src/cpu/jit/code_options.cc": "reads parameters of a tactic",
    "src/cpu/onednn/implementation.h": "reads oneDNN's name of an implementation",
    "src/cuda/device/absent_gpu.cc": "reads names of GPUs, which callers give",
    "src/cuda/unknown_weights.cc": "reads what an engine file says of its texts",
    "src/cuda/device/cubin.cc": "reads names of sections of an ELF file",
    "src/cuda/device/gpu_kernel.cc": "reads launches of engine files",
    "src/cuda/text/kernel_span.h": "finds a kernel in a text, to write lines into it",
    "src/cuda/text/open.cc": "fills in the marks of a text with two forms, and the suffixes of its numbers",
    "src/engine/cores.cc": "reads files of the system",
    "src/engine/file.cc": "reads the head of a file",
    "src/engine/set.cc": "reads engine files",
    "src/engine/signature.cc": "reads files of keys",
    "src/engine/source.cc": "reads engine files",
    "src/tune/timing_cache.cc": "reads lines of the timing cache",
    "src/report/sentences.cc": "fills in the fields of a sentence",
    "src/report/text.cc": "divides the name of a region into those of its nodes",
    "src/report/trex.cc": "changes names to those that another tool accepts",
}
# Of a line whose literals are emptied: "" stands for any text.
COMPARED = re.compile(r'[!=]=\s*(?:std::string(?:_view)?\()?""|(?:std::string(?:_view)?\(""\)|""s?v?)\s*[!=]=|\.(?:find|rfind|starts_with|ends_with|contains|compare)\(""')
USUAL_LINES, MOST_LINES = 400, 600
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def check(module, needs, where):
    if needs == "octavo":
        return None if module in PUBLIC else f'{where}: module "{module}" includes a public header; only {", ".join(sorted(PUBLIC))} may'
    if needs not in ORDER:
        return f'{where}: "{needs}" is not a module'
    if ORDER.index(needs) > ORDER.index(module):
        return f'{where}: module "{module}" uses "{needs}", which lies to its right'
    if module in RUNTIME and needs in NOT_AT_RUNTIME:
        return f'{where}: module "{module}" is needed at run time and must not use "{needs}"'
    return None


def check_room(module, path, needs, where):
    """`path`, `needs`: of the file and of what it includes, from the module's folder on."""
    room, inside, _ = path.partition("/")
    if not inside or module not in ROOMS or needs is None:
        return None
    if room not in ROOMS[module]:
        return f'{where}: "{module}/{room}" is not a room; the rooms are in scripts/check_modules.py'
    if needs.startswith((room + "/", *ROOMS[module][room])):
        return None
    return f'{where}: room "{module}/{room}" uses "{module}/{needs}", which only {", ".join([room + "/", *ROOMS[module][room]])} may be'


def spellings(module, text, where):
    """Texts of code that name a tactic or an instruction set."""
    if module in DEVICES:
        return
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0] if line.count('"', 0, line.find("//")) % 2 == 0 else line
        if INCLUDE.match(code) or COMPILER.search(code):
            continue
        for m in LITERAL.finditer(code):
            if SPELLING.search(m.group(1)):
                yield f'{where}:{number}: module "{module}" spells "{m.group(1)}", which only cpu and cuda may: ask the tactic\'s properties'


def decisions(module, text, where):
    """Decisions that compare levels of effort, or texts."""
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0]
        if where.as_posix() != LEVEL_TABLE and LEVEL.search(LITERAL.sub('""', code)):
            yield f"{where}:{number}: compares a level of effort; ask a column of {LEVEL_TABLE}"
        if module in DECIDING and where.as_posix() not in READERS and compares(line):
            yield f"{where}:{number}: compares a text; decide by typed data, or list the file among READERS if it reads a text from outside"


def compares(line):
    return COMPARED.search(LITERAL.sub('""', line).split("//")[0])


def readers(root):
    """Entries of READERS that nothing needs."""
    for name in READERS:
        path = root / name
        if path.exists() and not any(map(compares, path.read_text().splitlines())):
            yield f"{name}: compares no text; take it off READERS"
        elif not path.exists() and (root / "src/region/region.h").exists():
            yield f"{name}: READERS names it, and it is not there"


def check_plan(folder, needs, where):
    """Of an include of plan/ in plan/."""
    parts = pathlib.PurePath(needs).parts
    if folder in PLAN_ORDER and len(parts) == 3 and parts[0] == "plan":
        if parts[1] not in PLAN_ORDER:
            return f"{where}: plan/{parts[1]} is not a folder of the planner"
        if PLAN_ORDER.index(parts[1]) > PLAN_ORDER.index(folder):
            return f"{where}: plan/{folder} uses plan/{parts[1]}, which comes later"
    return None


def length(text, where):
    lines = text.count("\n")
    if lines > MOST_LINES:
        return f"{where}: {lines} lines; split it: {MOST_LINES} is the most"
    if lines > USUAL_LINES and f"{USUAL_LINES} lines" not in "\n".join(text.split("\n")[:12]):
        return f'{where}: {lines} lines; say in the opening comment why it is "past {USUAL_LINES} lines", or split it'
    return None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    problems, files = [], 0
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        module = folder.name
        if module not in ORDER:
            problems.append(f'src/{module}: not a module; the order is in scripts/check_modules.py')
            continue
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc", ".inc", ".def")):
            files += 1
            text = path.read_text()
            problems += spellings(module, text, path.relative_to(root))
            problems.append(length(text, path.relative_to(root)))
            for m in LOOK_UP.finditer(text) if module in TYPED else ():
                problems.append(f"{path.relative_to(root)}:{text.count(chr(10), 0, m.start()) + 1}: module \"{module}\" looks an attribute up; "
                                "read the facts of the anchor or node (ir/facts.h)")
            problems += decisions(module, text, path.relative_to(root))
            for m in INCLUDE.finditer(text):
                where = f"{path.relative_to(root)}:{text.count(chr(10), 0, m.start(1)) + 1}"
                first = m.group(1).split("/")[0]
                if "/" not in m.group(1):
                    # Generated headers (onnx-ml.pb.h) and headers of libraries come without a folder.
                    if (folder / m.group(1)).exists():
                        problems.append(f'{where}: include "{module}/{m.group(1)}": paths start at src/')
                    continue
                problems.append(check(module, first, where))
                within = m.group(1).partition("/")[2] if first == module else None
                problems.append(check_room(module, path.relative_to(folder).as_posix(), within, where))
                if module == "plan":
                    problems.append(check_plan(path.relative_to(folder).parts[0], m.group(1), where))
        lists = folder / "CMakeLists.txt"
        if lists.exists():
            for m in re.finditer(r"octavo_module\(\s*(\w+)([^)]*)\)", lists.read_text()):
                if m.group(1) != module:
                    problems.append(f"src/{module}/CMakeLists.txt: names module {m.group(1)}")
                for needs in m.group(2).split():
                    problems.append(check(module, needs, f"src/{module}/CMakeLists.txt"))
    problems += readers(root)
    problems = [p for p in problems if p]
    print("\n".join(problems) if problems else f"{files} files in {len(ORDER)} modules: each includes only modules to its left, none but cpu and cuda spells tactics, none behind the planner looks up attributes; none from rewrite on decides by texts but {len(READERS)} files that read or lay them out")
    sys.exit(1 if problems else 0)


main()
