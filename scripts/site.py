"""The sources of the documentation's web site: site.py BUILD FOLDER

Writes FOLDER/docs (the pages of docs/, README, CONTRIBUTING, and pages made here: the command reference from each command's own --help, the Python
interface from the docstrings of the built package, the C++ interface from the public header) and FOLDER/mkdocs.yml, whose navigation follows the
tables of docs/index.md. `make site` makes the pages of it.
"""
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = """site_name: Octavo
docs_dir: docs
site_dir: {site}
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.indexes, navigation.top, search.highlight, content.code.copy]
plugins: [search, offline]
markdown_extensions: [tables, toc, fenced_code, pymdownx.highlight, pymdownx.superfences]
validation:
  links: {{not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}}
nav: {nav}
"""


def command(octavo, *words):
    done = subprocess.run([octavo, *words, "--help"], capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "120"})
    if done.returncode:
        sys.exit(f"error: site: octavo {' '.join(words)} --help failed:\n{done.stderr}")
    return done.stdout.strip()


def subcommands(text):
    listed = re.search(r"^Subcommands:\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
    return re.findall(r"^  (\w[\w-]*)", listed.group(1), re.M) if listed else []


def commands_page(octavo):
    from octavo._serve_command import parser
    whole = command(octavo)
    out = ["# Commands\n", "What each command says about itself.\n", f"## octavo\n\n```text\n{whole}\n```\n"]
    for name in subcommands(whole):
        text = parser().format_help().strip() if name == "serve" else command(octavo, name)
        out.append(f"## octavo {name}\n\n```text\n{text}\n```\n")
        for below in subcommands(text):
            out.append(f"### octavo {name} {below}\n\n```text\n{command(octavo, name, below)}\n```\n")
    return "\n".join(out)


def entry(name, thing, level):
    """One function or class: signature and docstring as they stand (nanobind's begin with the signature)."""
    doc = inspect.getdoc(thing) or ""
    try:
        signature = f"{name}{inspect.signature(thing)}" if not inspect.isclass(thing) else f"class {name}"
    except (TypeError, ValueError):
        signature = ""
    signature = re.sub(r" at 0x[0-9a-f]+", "", signature)
    text = "\n\n".join(part for part in (signature, doc) if part)
    out = [f"{'#' * level} {name}\n\n```python\n{text}\n```\n"]
    if inspect.isclass(thing) and not issubclass(thing, (BaseException, dict)):
        for member, value in sorted(vars(thing).items()):
            if not member.startswith("_") and inspect.getdoc(value) and not isinstance(value, (int, str)):
                out.append(entry(f"{name}.{member}", getattr(thing, member) if not isinstance(value, property) else value, level + 1))
    return "\n".join(out)


def python_page():
    import octavo
    out = ["# Python interface\n", "Made from the docstrings. `octavo.ray` and `octavo.backend` are imported by name.\n"]
    for name in octavo.__all__:
        thing = getattr(octavo, name)
        if callable(thing):
            out.append(entry(f"octavo.{name}", thing, 2))
    source = (ROOT / "src/python/octavo/ray.py").read_text()  # read and not imported: Ray need not be here
    import ast
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            made = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), node)
            arguments = ast.unparse(made.args).removeprefix("self, ") if isinstance(made, ast.FunctionDef) else ""
            out.append(f"## octavo.ray.{node.name}\n\n```python\n{node.name}({arguments})\n\n{ast.get_docstring(node)}\n```\n")
    return "\n".join(out)


def cpp_page():
    """A table of what the header declares at its top level, and the header, which is written to be read."""
    text = (ROOT / "include/octavo/octavo.h").read_text()
    rows, comment = [], []
    depth = 0
    for line in text.splitlines():
        stripped = line.strip()
        if depth == 0 and stripped.startswith("///"):
            comment.append(stripped[3:].strip())
            continue
        found = re.match(r"(?:\[\[nodiscard\]\] )?(?:OCTAVO_API )?(class|struct|enum class)(?: OCTAVO_API)?(?: \[\[\w+\]\])? (\w+)", stripped) if depth == 0 else None
        called = re.match(r"(?:\[\[nodiscard\]\] |OCTAVO_API |inline |constexpr )*[\w:<>,\s&*]+?[ &*](\w+)\(", stripped) if depth == 0 and not found else None
        name = found.group(2) if found and not stripped.endswith(f"{found.group(2)};") else called.group(1) if called else None
        if name:
            first = re.split(r"(?<=\.) ", " ".join(comment))[0] if comment else ""
            rows.append(f"| `{name}` | {found.group(1) if found else 'function'} | {first.replace('|', ' ')} |")
        comment = []
        if not re.match(r"(inline )?namespace|extern", stripped) and stripped != "}  // namespace octavo":
            depth += line.split("//")[0].count("{") - line.split("//")[0].count("}")
    table = "| name | | what it is |\n|---|---|---|\n" + "\n".join(rows)
    return f"# C++ interface\n\n`octavo/octavo.h` is all of it; [cpp.md](cpp.md) says how to link it.\n\n{table}\n\n## The header\n\n```cpp\n{text}```\n", len(rows)


def pages_of_index():
    """[(group, [(title, page)])] from the tables of docs/index.md."""
    groups = []
    for line in (ROOT / "docs/index.md").read_text().splitlines():
        group = re.match(r"\| \*\*(.+)\*\* \| \|", line)
        if group:
            groups.append((group.group(1), []))
        for title, target in re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)", line) if groups else []:
            if not target.startswith("../") and target not in [p for _, g in groups for _, p in g]:
                groups[-1][1].append((title, target))
    return groups


def main():
    build, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    sys.path.insert(0, str(build / "python"))
    docs = folder / "docs"
    shutil.rmtree(docs, ignore_errors=True)
    shutil.copytree(ROOT / "docs", docs)
    (docs / "commands.md").write_text(commands_page(build / "bin/octavo"))
    (docs / "python-api.md").write_text(python_page())
    text, count = cpp_page()
    (docs / "cpp-api.md").write_text(text)
    if count < 10:
        sys.exit(f"error: site: only {count} declarations found in octavo.h")
    for source, page in (("README.md", "readme.md"), ("CONTRIBUTING.md", "contributing.md"), ("examples/digits/README.md", "digits.md")):
        (docs / page).write_text((ROOT / source).read_text().replace("](docs/", "](").replace('src="docs/', 'src="'))
    names = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "examples/digits/README.md": "digits.md"}
    for page in docs.rglob("*.md"):
        text = page.read_text()

        def local(match):
            target, anchor = match.group(1), match.group(2) or ""
            if re.match(r"\w+:", target):
                return match.group(0)
            inside = os.path.relpath((page.parent / target).resolve(), docs)
            at = os.path.normpath(os.path.join("docs", inside)) if page.name not in names.values() else os.path.normpath(target)
            if not (page.parent / target).exists() and at in names:
                return f"]({os.path.relpath(docs / names[at], page.parent)}{anchor})"
            if not (page.parent / target).exists() and (ROOT / at).exists():  # a file of the repository that is no page: its name stays
                return f"](repository.md#{re.sub(r'[^a-z0-9]+', '-', at.lower())})"
            return match.group(0)

        page.write_text(re.sub(r"\]\(([^)#\s]+)(#[^)\s]*)?\)", local, text))
    wanted = sorted({m for page in docs.rglob("*.md") for m in re.findall(r"repository\.md#([a-z0-9-]+)", page.read_text())})
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    folders = {str(parent) for f in files for parent in pathlib.PurePath(f).parents if str(parent) != "."}
    named = {re.sub(r"[^a-z0-9]+", "-", f.lower()): f for f in [*files, *folders]}
    listed = "\n\n".join(f'<a id="{w}"></a>`{named.get(w, w)}`' for w in wanted)
    (docs / "repository.md").write_text(f"# Files of the repository\n\nPages name these; they are in the sources.\n\n{listed}\n")
    nav = [{"What do you want to do?": "index.md"}, {"Read me": "readme.md"}]
    for group, pages in pages_of_index():
        extra = {"look up": ["commands.md", "python-api.md", "cpp-api.md"], "work on it": ["contributing.md", "repository.md"], "start": ["digits.md"]}.get(group, [])
        nav.append({group[0].upper() + group[1:]: [page for _, page in pages] + extra})
    lab = sorted(str(p.relative_to(docs)) for p in (docs / "lab").glob("*.md") if p.name != "README.md")
    nav.append({"Lab notes": lab})
    (folder / "mkdocs.yml").write_text(SETTINGS.format(site=json.dumps(str(folder / "site")), nav=json.dumps(nav)))
    print(f"{len(list(docs.rglob('*.md')))} pages in {docs}")


main()
