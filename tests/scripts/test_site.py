"""Links of all pages lead somewhere; the pages made for the web site are whole; the site builds where its tools are installed (make site)."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")).resolve()
MKDOCS = ROOT / "build/site-venv/bin/mkdocs"
PAGES = [p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]]


def anchors(text):
    """Of the headings, as GitHub makes them: lower case, without punctuation, spaces as hyphens."""
    found = set()
    for line in re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines():
        heading = re.match(r"#+ (.*)", line)
        if heading:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found | set(re.findall(r'<a id="([^"]+)"', text))


def broken(page, text):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)):
        if re.match(r"\w+:", target):
            continue
        file = (page.parent / target) if target else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"{target}#{anchor}: no such heading"


def test_every_link_of_every_page():
    assert len(PAGES) > 40
    wrong = [f"{page.relative_to(ROOT)}: {b}" for page in PAGES for b in broken(page, page.read_text())]
    assert not wrong, "\n".join(wrong)


def test_a_broken_link_is_found():
    page = ROOT / "docs/index.md"
    assert list(broken(page, "[a](absent.md) [b](install.md#absent) [c](install.md#platforms) [d](../README.md)")) == [
        "absent.md: no such file", "install.md#absent: no such heading"]


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text()
    missing = [p.name for p in ROOT.glob("docs/*.md") if p.name != "index.md" and f"]({p.name}" not in index]
    assert not missing, missing


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    if not (BUILD / "bin/octavo").exists() or not list((BUILD / "python/octavo").glob("_octavo*.so")):
        pytest.skip("the command or the Python package is not built")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, ROOT / "scripts/site.py", BUILD, folder], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def test_references_are_whole(sources):
    """Every command with its options, every public name of the package, every class of the header."""
    commands = (sources / "docs/commands.md").read_text()
    for word in ("build", "run", "serve", "doctor", "cache", "cache prune", "view"):
        assert f"# octavo {word}\n" in commands, word
    assert "--timing-cache" in commands and "--grpc-port" in commands
    python = (sources / "docs/python-api.md").read_text()
    names = re.search(r"__all__ = \[(.*?)\]", (ROOT / "src/python/octavo/__init__.py").read_text(), re.S).group(1)
    for name in re.findall(r'"([a-zA-Z]\w*)"', names):
        assert name == "SCHEMA" or f"## octavo.{name}\n" in python, name
    assert "## octavo.ray.Predictor\n" in python and "octavo.Engine.run" in python
    cpp = (sources / "docs/cpp-api.md").read_text()
    for name in re.findall(r"^(?:class|struct|enum class) (?:OCTAVO_API )?(\w+)(?!.*;$)", (ROOT / "include/octavo/octavo.h").read_text(), re.M):
        assert f"| `{name}` |" in cpp, name


@pytest.mark.skipif(not MKDOCS.exists(), reason="mkdocs is not installed (make site)")
def test_the_site_builds_and_refuses_a_broken_link(sources, tmp_path):
    build = [MKDOCS, "build", "--strict", "--config-file", sources / "mkdocs.yml", "--site-dir", tmp_path / "site"]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "WARNING" in line)
    assert len(list((tmp_path / "site").rglob("*.html"))) > 50
    page = (tmp_path / "site/index.html").read_text()
    assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)', page), "the site must need no other server"
    with open(sources / "docs/advise.md", "a", encoding="utf-8") as file:
        file.write("\n[x](absent.md)\n")
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0 and "absent.md" in done.stderr
