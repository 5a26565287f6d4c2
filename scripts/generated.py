"""What the scripts that write documents from the sources share: NAME.py [--check] [ROOT]. With --check nothing is written, and a document that is
not what the sources say ends the script with an error."""
import pathlib
import sys


class Problem(Exception):
    """The sources do not say what a document needs; the text says where and what."""


def main(problem_with, texts_of):
    """problem_with(root): what is wrong with the documents, or "". texts_of(root): {file below root: its text}."""
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent)
    if "--check" in sys.argv:
        problem = problem_with(root)
        sys.exit(f"error: {problem}" if problem else 0)
    try:
        texts = texts_of(root)
    except Problem as problem:
        sys.exit(f"error: {problem}")
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
