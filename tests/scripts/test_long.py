"""scripts/test_long.sh names every test in C++ that OCTAVO_LONG makes longer, and no other."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGER = re.compile(r'getenv\("OCTAVO_LONG"\)|\brounds\([^(),]+,[^(),]+,[^(),]+\)')
TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", re.M)


def test_the_list_is_that_of_the_sources():
    found = set()
    for file in (ROOT / "tests").rglob("*.cc"):
        text = file.read_text(encoding="utf-8")
        for hit in LONGER.finditer(text):
            before = [m for m in TEST.finditer(text) if m.start() < hit.start()]
            assert before, f"{file}: OCTAVO_LONG outside of a test"
            found.add(f"{before[-1][1]}.{before[-1][2]}")
    listed = re.search(r"^longer=\((.*?)\)", (ROOT / "scripts/test_long.sh").read_text(encoding="utf-8"), re.M | re.S)[1].split()
    assert set(listed) == found and len(listed) == len(found) > 10
