#!/usr/bin/env python3
"""unity_groups.py [--names HEADER ROOT] FILE...: which source files of one target may be compiled as one translation unit (cmake/OctavoModule.cmake, OCTAVO_UNITY).

Most of the time of a build from nothing goes into headers and into templates that every file instantiates anew. Files that are compiled together share
both. They must not declare the same name in their anonymous namespaces, and a name of one must not hide, or be ambiguous with, what another one calls.
This script reads those names with regular expressions: where it sees a clash that is none, a group is smaller than it could be; where it misses one, the
compiler reports it. With --names, a file's hidden names that would clash get a macro each (`run` becomes `run_in_17`): HEADER, which is included before and
after each file of a unit, defines and removes them. It first includes what the file includes, so that no header sees the macros. A name stays as it is if a header
of the project or the file itself uses it for something else: a member, a name of a namespace, a test. ROOT is the source folder of CMake. Sources that reach the same heavy headers are put together first. It prints one line a file, "GROUP PATH"; files that share a GROUP are compiled together.
"""

import hashlib
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
FOLDERS = (SOURCE, SOURCE.parent / "include", SOURCE.parent / "tests", SOURCE.parent)  # where includes are looked for
MAX_FILES = 48
MAX_LINES = 4500  # a group is also the unit that an edit compiles anew, and the unit that cores share
# Headers that take longest, longest first. Sources that reach the same ones are compiled together.
HEAVY = ("CLI/CLI.hpp", "dnnl.hpp", "xbyak/xbyak.h", "octavo_onnx.pb.h", "nlohmann/json.hpp")

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
# A declaration at the margin: bodies, parameters and members are indented (clang-format).
FUNCTION = re.compile(r"^(?!return|using|namespace|struct|class|enum|#|\}|else|if)[A-Za-z_][\w:<>,&*\s\[\]]*?[\s&*>](\w+)\s*(\(|\[|=|\{|;)", re.M)
TYPE = re.compile(r"^(?:template\s*<[^\n]*>\s*)?(?:struct|class|enum(?:\s+class)?|union)\s+(?:alignas\([^)]*\)\s*)?(\w+)", re.M)
ALIAS = re.compile(r"^using\s+(\w+)\s*=", re.M)
MACRO = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)
UNDEF = re.compile(r"^\s*#\s*undef\s+(\w+)", re.M)
INCLUDES = re.compile(r"^\s*#\s*include\s+[\"<]([^\"<>]+)[\">]", re.M)
INCLUDED = re.compile(r"^\s*#\s*include\s+[\"<]([^\"<>]+\.inc)[\">]", re.M)
NESTED = re.compile(r"^namespace\s+(\w+)\s*\{", re.M)
IMPORT = re.compile(r"^using\s+(?:namespace\s+)?([\w:]+)\s*;", re.M)
NAME = re.compile(r"(?<![\w.:>])([A-Za-z_]\w*)\b")
CALL = re.compile(r"(?<![\w.:>])([A-Za-z_]\w*)\s*[(<{]")
END = re.compile(r"^\}\s*// namespace\s*$", re.M)  # of an anonymous namespace, as clang-format marks it
MEMBER = re.compile(r"(?:\.|->|::|~)\s*(?:template\s+)?([A-Za-z_]\w*)")  # or a designated initializer, or a qualified name
TESTED = re.compile(r"(?:TEST\w*|INSTANTIATE_\w+)\s*\(([^)]*)")  # their names become texts
ANONYMOUS = re.compile(r"^namespace\s*\{$(.*?)(?:^@END|\Z)", re.M | re.S)


class Source:
    def __init__(self, path):
        text = COMMENT.sub(" ", END.sub("@END", Path(path).read_text()))
        self.path = path
        self.lines = text.count("\n")
        self.opened = set(re.findall(r"^using\s+namespace\s+(?!.*literals)([\w:]+)", text, re.M))  # names of these reach what follows
        hidden = set()  # names that only this file may see
        functions = set()  # those of them that are functions: a variable of another file may have the same name
        for body in ANONYMOUS.findall(text):
            functions |= {name for name, mark in FUNCTION.findall(body) if mark == "("}
            hidden |= {name for name, mark in FUNCTION.findall(body)} | set(TYPE.findall(body)) | set(ALIAS.findall(body))
        self.anonymous = set(hidden)
        outside = ANONYMOUS.sub("", text)
        hidden |= set(re.findall(r"^(?:static|inline|constexpr|const)\b[^\n;={(]*?[\s&*>](\w+)\s*(?:\(|\[|=|\{|;)", outside, re.M))
        hidden |= set(MACRO.findall(text)) - set(UNDEF.findall(text))
        for name in INCLUDED.findall(Path(path).read_text()):
            hidden.add(name)
            included = SOURCE / name
            if included.exists():
                hidden |= set(NESTED.findall(included.read_text()))
        self.imports = {name.split("::")[-1]: name for name in IMPORT.findall(text)}
        self.hidden = hidden
        self.functions = functions
        # Everything that is named without a qualifier: a hidden name of another file could be found instead.
        self.named = set(NAME.findall(text)) | hidden
        self.called = set(CALL.findall(text)) | hidden
        self.renamed = set()
        self.text = text

    def rename(self, others):
        """Takes the names out of what this file hides that a macro can rename and that keep it from another file."""
        source = Path(self.path).read_text()
        headers = [line for line in source.splitlines() if re.match(r"\s*#", line)]
        if any(re.match(r"\s*#\s*(if|else|elif|define)", line) for line in headers):
            return
        elsewhere = MEMBER.findall(self.text) + [n for call in TESTED.findall(self.text) for n in re.findall(r"\w+", call)]
        for name in INCLUDES.findall(source):  # texts that are compiled where they are included
            if re.search(r"\.(inc|def)$", name) and (SOURCE / name).exists():
                elsewhere += re.findall(r"\w+", (SOURCE / name).read_text())
        clash = set().union(*(((self.hidden - self.functions) & o.named) | (self.functions & o.called) for o in others if o is not self))
        self.renamed = {n for n in clash - set(elsewhere) if n in self.anonymous}
        self.hidden -= self.renamed
        self.functions -= self.renamed
        self.named -= self.renamed
        self.called -= self.renamed

    def disturbs(self, other):
        """Would a name that only this file may see change what the other file means?"""
        imported = {name for name, full in self.imports.items() if name in other.named and other.imports.get(name) != full}
        return bool(imported or (self.hidden - self.functions) & other.named or self.functions & other.called)


def reached(path, found):
    """The names of all headers that a file includes, those that its headers include too."""
    for name in INCLUDES.findall(Path(path).read_text()):
        if name not in found:
            found.add(name)
            for folder in FOLDERS:
                if (folder / name).exists():
                    reached(folder / name, found)
                    break
    return found


def names_header(sources, root):
    """Text of the header of --names. CMake defines OCTAVO_UNIT as a hash of a file's path before it includes the file in a unit."""
    lines = ["// Written by scripts/unity_groups.py: names that a file of a unit has for itself."]
    for number, source in enumerate(sources):
        path = hashlib.md5(f"SRC_{Path(source.path).resolve().relative_to(root)}".encode()).hexdigest()
        lines.append(f"#undef unity_{path}\n#define unity_{path} {number + 1}")
    for number, source in enumerate(sources):
        if not source.renamed:
            continue
        includes = [line for line in Path(source.path).read_text().splitlines() if INCLUDES.match(line) and not re.search(r"\.(inc|def)[\">]", line)]
        lines += [f"#if OCTAVO_UNIT == {number + 1}", "#ifndef OCTAVO_OWN_NAMES", *includes, "#define OCTAVO_OWN_NAMES"]
        lines += [f"#define {name} {name}_in_{number + 1}" for name in sorted(source.renamed)]
        lines += ["#else", "#undef OCTAVO_OWN_NAMES", *(f"#undef {name}" for name in sorted(source.renamed)), "#endif", "#endif"]
    return "\n".join(lines) + "\n"


def weight(path):
    """Sorts the sources that reach heavy headers first, those of the same headers side by side."""
    headers = reached(path, set())
    return [name not in headers for name in HEAVY]


def grouped(sources):
    """Groups in the order of the sources: each goes into the first group that it fits."""
    groups = []
    for source in sources:
        for group in groups:
            fits = source.opened == group[0].opened and len(group) < MAX_FILES and sum(s.lines for s in group) + source.lines <= MAX_LINES
            if fits and all(not source.disturbs(other) and not other.disturbs(source) for other in group):
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def main():
    arguments, header = sys.argv[1:], None
    if arguments[:1] == ["--names"]:
        header, root, arguments = Path(arguments[1]), Path(arguments[2]).resolve(), arguments[3:]
    sources = [Source(path) for path in sorted(arguments, key=weight)]
    if header:
        for source in sources:
            source.rename([s for s in sources])
        text = names_header(sources, root)
        if not header.exists() or header.read_text() != text:
            header.write_text(text)
    for number, group in enumerate(grouped(sources)):
        for source in group:
            print(number, source.path)


if __name__ == "__main__":
    main()
