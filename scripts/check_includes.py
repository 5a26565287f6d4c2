"""Checks that every source includes what declares the classes that it names: check_includes.py [ROOT]

Most builds compile several sources as one unit (OCTAVO_UNITY). There a class is known to a source because one before it included the header. A build without units
fails then, as that of a project that adds Octavo by add_subdirectory. Reads the headers and sources of src, include, tests, bench and fuzz. A class, an enumeration, a
type alias or a macro that a header of src or include defines, outside of other classes, must be known in each file that names it: through the headers that it includes
and those that they include, or by a declaration in one of these. A file that gives the name a meaning of its own is not judged. Functions and constants are not looked
for. Prints each name that is missing; exit status 1 if any.
"""
import pathlib
import re
import sys

FOLDERS = ("src", "include", "tests", "bench", "fuzz")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.|\n)*?\)\1"|"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])\'(?:[^\'\\\n]|\\.)+\'', re.S)
# At the beginning of a line, so of a namespace.
DEFINED = re.compile(r"^(?:template ?<.*>\s*)?(?:(?:struct|class|enum class|enum|union)\s+(?:OCTAVO_\w+\s+|alignas\(\w+\)\s+|\[\[\w+\]\]\s+)?(\w+)\b[^;{]*\{|using (\w+) =)", re.M)
# Names of tests, a macro's text (which gets its meaning where it is used), and what another library's namespace holds.
OTHER = re.compile(r"^(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\((\w+), *\w+|^[ ]*#[ ]*define(?:[^\n]*\\\n)*[^\n]*|\b(?:testing|std|fmt)::\w+", re.M)
# Anywhere: what gives a name a meaning in the file itself.
OWN = re.compile(r"\b(?:struct|class|enum class|enum|union|typename(?:\.\.\.)?|class\.\.\.|using|namespace)\s+(?:OCTAVO_\w+\s+|(?:\w+::)+|\[\[\w+\]\]\s+)?(\w+)\b")
# Classes of other projects that have such names, and what declares them.
FOREIGN = {"Label": "xbyak/xbyak.h", "Address": "xbyak/xbyak.h"}
MACRO = re.compile(r"^[ ]*#[ ]*define (\w+)", re.M)
WORD = re.compile(r"(?<!\.)(?<!->)\b[A-Z]\w*\b")


def read(root):
    """Of each file: its code without comments and texts, what it includes, and its macros."""
    files = {}
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in (".h", ".cc", ".inc")):
        text = path.read_text(encoding="utf-8")
        code = COMMENT.sub(lambda m: '""' if m[0][0] != "/" else " ", text)
        files[path] = (OTHER.sub("", code), INCLUDE.findall(text), set(MACRO.findall(code)))
    return files


def resolve(root, path, name):
    for at in (root / "src" / name, root / "include" / name, root / "tests" / name, root / "bench" / name, root / name, path.parent / name):
        if at.exists():
            return at.resolve()
    return None


def reached(root, files):
    """Of each file: the files of FOLDERS that it includes, and those that these include."""
    direct = {path: {r for name in names if (r := resolve(root, path, name)) in files} for path, (_, names, _) in files.items()}
    whole = {}
    for path in files:
        seen, todo = {path}, [path]
        while todo:
            for n in direct[todo.pop()] - seen:
                seen.add(n)
                todo.append(n)
        whole[path] = seen
    return whole


def missing(root):
    files = read(root)
    headers = {}
    for path, (code, _, macros) in files.items():
        if path.suffix == ".h" and path.relative_to(root).parts[0] in ("src", "include"):
            for name in {m[1] or m[2] for m in DEFINED.finditer(code)} | macros:
                headers.setdefault(name, set()).add(path)
    own = {path: set(OWN.findall(code)) | macros | {name for name, header in FOREIGN.items() if header in names} for path, (code, names, macros) in files.items()}
    for path, around in reached(root, files).items():
        if path.suffix == ".inc":  # read inside another file
            continue
        for name in sorted(set(WORD.findall(files[path][0])) & headers.keys()):
            if not headers[name] & around and not any(name in own[a] for a in around):
                yield f'{path.relative_to(root)}: names {name}, which {" or ".join(sorted(str(h.relative_to(root)) for h in headers[name]))} defines and no include of it reaches'


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]).resolve()
    found = list(missing(root))
    print("\n".join(found) or "every class that a source names is reached by its includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
