"""Puts the page of `octavo view` together: view_template.py PAGE_FOLDER NETRON_FOLDER OUT

PAGE_FOLDER is src/cli/page; NETRON_FOLDER holds dagre.js and grapher.js of Netron, which lay out and draw graphs. OUT gets the page
without its data, as C++ string literals: src/cli/outputs/view_page.cc includes it. Fails if a file is not what this script knows.
"""
import pathlib
import re
import sys

LIBRARY = ["dagre.js", "grapher.js"]
CODE = ["plan.js", "graph.js", "boxes.js", "details.js", "sheets.js", "main.js"]
PIECE = 8000  # characters a literal: compilers need not take longer ones than 65536 bytes
LICENCE = """/*
dagre.js and grapher.js are part of Netron (https://github.com/lutzroeder/netron), Copyright (c) Lutz Roeder;
dagre.js is made from dagre and graphlib (https://github.com/dagrejs), Copyright (c) 2012-2014 Chris Pettitt. Both under the MIT licence:

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
the following conditions: The above copyright notice and this permission notice shall be included in all copies or substantial portions
of the Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS
BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/"""


def library(path):
    """A module of Netron as part of ours: without its one export."""
    text, exports = re.subn(r"(?m)^export const \{[^}]*\} = \w+;\s*$", "", path.read_text(encoding="utf-8"))
    name = path.stem
    if exports != 1 or f"const {name} = {{}};" not in text or re.search(r"(?m)^import ", text):
        sys.exit(f"error: {path}: not the module that Netron 9 has: needs `const {name} = {{}};`, one export and no import\n"
                 "  install the version that requirements.txt names")
    return text


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    page, netron, out = (pathlib.Path(a) for a in sys.argv[1:])
    parts = {"@@octavo-style@@": (page / "style.css").read_text(encoding="utf-8"),
             "@@octavo-library@@": LICENCE + "\n" + "\n".join(library(netron / f) for f in LIBRARY),
             "@@octavo-code@@": "\n".join((page / f).read_text(encoding="utf-8") for f in CODE)}
    for mark, text in parts.items():
        if "</" + "s" in text.replace("</span", ""):
            sys.exit(f"error: {mark}: holds the end of an element, which would end the page's own")
    html = (page / "page.html").read_text(encoding="utf-8")
    for mark, text in parts.items():
        if html.count(mark) != 1:
            sys.exit(f"error: page.html has {html.count(mark)} times {mark}, needs one")
        html = html.replace(mark, text)
    if html.count("@@octavo-data@@") != 1 or ')octavo"' in html:
        sys.exit("error: page.html: needs one @@octavo-data@@, and no )octavo\"")
    pieces = [html[i:i + PIECE] for i in range(0, len(html), PIECE)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(f'R"octavo({p})octavo"sv,\n' for p in pieces), encoding="utf-8")


if __name__ == "__main__":
    main()
