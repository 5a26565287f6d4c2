"""Every file that the documents for developers name is there."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["docs/architecture.md", "CONTRIBUTING.md", "docs/glossary.md", "README.md", "docs/threads.md", "docs/index.md", "docs/install.md", "docs/troubleshooting.md", "docs/serving.md"]
NAMED = re.compile(r"`((?:src|tests|scripts|docs|bench|examples|include|cmake)/[\w./-]+?)`|\]\((?!http|#)([\w./-]+?)(?:#[\w-]+)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {a or str((ROOT / page).parent.joinpath(b).resolve().relative_to(ROOT)) for a, b in NAMED.findall(text)}
    examples = {"src/passes/rules/NAME.cc"}
    missing = sorted(n for n in named - examples if not (ROOT / n).exists() and not list(ROOT.glob(n)))
    assert named and not missing, f"{page} names files that are not there: {missing}"


def test_the_page_answers_twelve_questions_and_more():
    table = re.search(r"## Where is it decided\?\n(.*?)\n## ", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.S)[1]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "?" in line]
    assert len(rows) >= 12 and all("`" in row.split("|")[2] for row in rows)


def test_the_index_has_every_page():
    """docs/index.md leads to every page of docs/ (those of docs/lab are listed there)."""
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", text))
    pages = {p.name for p in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages == linked, f"not in the index: {sorted(pages - linked)}; not there: {sorted(linked - pages)}"
