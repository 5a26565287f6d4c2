#!/usr/bin/env python3
"""unity_groups.py PREFIX FILE...: writes the source files of one target as few translation units, PREFIX_0.cc and so on (cmake/OctavoModule.cmake, OCTAVO_UNITY).

Most of the time of a build from nothing goes into headers and into templates that every file instantiates anew. Files that are compiled together share
both. They must not declare the same name in their anonymous namespaces, and a name of one must not hide, or be ambiguous with, what another one calls.
This script reads those names with regular expressions: where it sees a clash that is none, a unit is smaller than it could be; where it misses one, the
compiler reports it. A unit is the text of its files. A file's hidden names that would clash are other ones there (`run` of loop.cc becomes `run_in_loop`), and #line
has the compiler name the file itself. A name stays as it is if the text tells it from another thing of that name too little: the file declares a member of that name,
or says the namespace before it, or names a test so. Sources that reach the same heavy headers are put together first. It prints one line a file that is part of a unit,
"UNIT|FILE". A file that is alone is none.
"""

import functools
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
TESTED = re.compile(r"(?:TEST\w*|INSTANTIATE_\w+)\s*\(([^)]*)")  # their names become texts
WORD = re.compile(COMMENT.pattern + r"|^[ \t]*#[ \t]*include[^\n]*|(?<!\w)[A-Za-z_]\w*", re.S | re.M)  # what a text is cut into when names change
BODY = re.compile(r"\b(?:struct|class|union|enum)\b[^;{}()]*\{")
FOUND_BY_ARGUMENTS = {"PrintTo", "begin", "end", "format_as", "from_json", "hash_value", "swap", "to_json"}  # templates call them by these names
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
            body = re.sub(r"^template\s*<[^\n]*>\s*\n", "", body, flags=re.M)
            hidden |= {n for line in re.findall(r"^(?:constexpr|const|static)\b[^\n]*", body, re.M) for n in re.findall(r",\s*[*&]?(\w+)\s*=", line)}
            functions |= {name for name, mark in FUNCTION.findall(body) if mark == "("}
            hidden |= {name for name, mark in FUNCTION.findall(body)} | set(TYPE.findall(body)) | set(ALIAS.findall(body))
        macros = set(MACRO.findall(text)) - set(UNDEF.findall(text))
        self.own = hidden | macros  # what may have another name
        outside = ANONYMOUS.sub("", text)
        hidden |= set(re.findall(r"^(?:static|inline|constexpr|const)\b[^\n;={(]*?[\s&*>](\w+)\s*(?:\(|\[|=|\{|;)", outside, re.M))
        hidden |= macros
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
        self.renamed = {}
        self.text = text

    def rename(self, others, suffix):
        """Gives names that keep this file from another one a suffix, where the text can be changed."""
        others = [o for o in others if o is not self]
        fixed = declared_members(self.text) | FOUND_BY_ARGUMENTS | {n for call in TESTED.findall(self.text) for n in re.findall(r"\w+", call)}
        for name in INCLUDES.findall(Path(self.path).read_text()):  # texts that are compiled where they are included
            if re.search(r"\.(inc|def)$", name) and (SOURCE / name).exists():
                fixed |= set(re.findall(r"\w+", (SOURCE / name).read_text()))
        fixed |= {name for header in reached_of_project(Path(self.path)) for name in functions_of(header)}  # overloads: a call may mean those
        spaces = {part for name in re.findall(r"^namespace\s+([\w:]+)\s*\{", self.text, re.M) for part in name.split("::")}
        fixed |= {name for space, name in re.findall(r"(\w+)\s*::\s*(\w+)", self.text) if space in spaces}
        clash = set().union(*(((self.hidden - self.functions) & o.named) | (self.functions & o.called) for o in others))
        names = (clash & self.own) - fixed
        # An import of a type becomes an alias of another name.
        types = {n for n in self.imports if (n[0].isupper() or n == "json") and not re.search(rf"\b{n}\s*<", self.text)}
        names |= {n for n in types - fixed if any(n in o.named and o.imports.get(n) != self.imports[n] for o in others)}
        self.renamed = {name: f"{name}_in_{suffix}" for name in names}
        for known in (self.hidden, self.functions, self.named, self.called):
            known -= names
        self.imports = {name: full for name, full in self.imports.items() if name not in names}

    def written(self):
        """The text of the file as a part of a unit."""
        text = Path(self.path).read_text()
        for name, other in self.renamed.items():
            text = re.sub(rf"^using\s+([\w:]+::{name})\s*;", rf"using {other} = \1;", text, flags=re.M)

        def word(match):
            name = match.group()
            if name not in self.renamed or re.search(r"(?:(?<!\.)\.|->|::)(?:[ \t]*template)?[ \t]*\Z", text[max(0, match.start() - 40) : match.start()]):
                return name  # also a comment, or a member, or a name of a namespace
            return self.renamed[name]

        return f'#line 1 "{Path(self.path).resolve()}"\n{WORD.sub(word, text)}\n'

    def disturbs(self, other):
        """Would a name that only this file may see change what the other file means?"""
        imported = {name for name, full in self.imports.items() if name in other.named and other.imports.get(name) != full}
        return bool(imported or (self.hidden - self.functions) & other.named or self.functions & other.called)


def declared_members(text):
    """Names of members and enumerators that types of this text declare."""
    found = set()
    for start in BODY.finditer(text):
        depth, body, at = 1, [], start.end()
        while depth and at < len(text):
            if text[at] in "{(":
                body += [text[at]] if depth == 1 else []
                depth += 1
            elif text[at] in "})":
                depth -= 1
                body += [";" if text[at] == "}" else ")"] if depth == 1 else []
            elif depth == 1:
                body.append(text[at])
            at += 1
        members = re.sub(r"<[^<>;]*>", "", re.sub(r"<[^<>;]*>", "", "".join(body)))
        members = re.sub(r"(?<![=!<>])=(?!=)[^;,]*", "=", members)
        found |= set(re.findall(r"(\w+)\s*(?:[(\[={;,]|:(?!:)|$)", members))
    return found


@functools.cache
def headers_of(path):
    """The headers that a file includes: each as it is named, and where it is if it is the project's."""
    found = []
    for name in INCLUDES.findall(path.read_text()):
        found.append((name, next((folder / name for folder in FOLDERS if (folder / name).exists()), None)))
    return found


def reached(path, found):
    """The names of all headers that a file includes, those that its headers include too."""
    for name, header in headers_of(path):
        if name not in found:
            found.add(name)
            if header:
                reached(header, found)
    return found


@functools.cache
def functions_of(header):
    """Functions that a header declares outside of classes."""
    text = re.sub(r"^\[\[\w+\]\]\s*", "", COMMENT.sub(" ", header.read_text()), flags=re.M)
    return {name for name, mark in FUNCTION.findall(text) if mark == "("}


def reached_of_project(path, found=None):
    """The project's headers that a file includes, those that its headers include too."""
    found = set() if found is None else found
    for _, header in headers_of(path):
        if header and header not in found:
            found.add(header)
            reached_of_project(header, found)
    return found


def weight(path):
    """Sorts the sources that reach heavy headers first, those of the same headers side by side."""
    headers = reached(Path(path), set())
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
    prefix, paths = sys.argv[1], sys.argv[2:]
    sources = [Source(path) for path in sorted(paths, key=weight)]
    stems = [Path(path).stem for path in paths]
    for source in sources:
        path = Path(source.path)
        suffix = path.stem if stems.count(path.stem) == 1 else f"{path.parent.name}_{path.stem}"
        source.rename(sources, re.sub(r"\W", "_", suffix))
    for number, group in enumerate(g for g in grouped(sources) if len(g) > 1):
        unit = Path(f"{prefix}_{number}.cc")
        text = "".join(source.written() for source in group)
        if not unit.exists() or unit.read_text() != text:
            unit.parent.mkdir(parents=True, exist_ok=True)
            unit.write_text(text)
        for source in group:
            print(unit, source.path, sep="|")


if __name__ == "__main__":
    main()
