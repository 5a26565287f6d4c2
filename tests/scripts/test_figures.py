"""bench/figures.py and scripts/claims.py: what may be published, what an interval is, and that the pages of this repository say what their records say."""
import json
import pathlib
import statistics
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts")]
import claims  # noqa: E402
import figures  # noqa: E402

OF = {"commit": "abc1234", "binary": "b1", "machine": "a processor, 2 cores", "command": "bench/x.py"}
OURS, THEIRS = [2.0, 2.1, 2.0, 2.2, 2.0, 2.1], [3.0, 3.0, 3.1, 2.9, 3.0, 3.0]


def recorded(rows=None, steady=None, **other):
    return figures.record({"provenance": {**OF, **other}}, {"T": rows or {"net": {"octavo": OURS, "ort": THEIRS}}}, steady)


@pytest.mark.parametrize("n, k", [(5, 0), (6, 1), (8, 1), (9, 2), (20, 6)])  # of tables of the sign test
def test_intervals_of_medians(n, k):
    values = list(range(n, 0, -1))
    assert figures.interval(values) == ((k, n + 1 - k) if k else None)


def test_verdicts():
    assert figures.verdict([1.2, 1.3, 1.1, 1.25, 1.2, 1.15]) == "1.20 (1.10 to 1.30), ahead"
    assert figures.verdict([1.2, 1.3, 0.9, 1.25, 1.2, 1.15]) == "1.20 (0.90 to 1.30), level"
    assert figures.verdict([0.8, 0.9, 0.9, 0.7, 0.8, 0.85]) == "0.82 (0.70 to 0.90), behind"
    assert figures.verdict([2.0, 2.1, 2.2, 2.3, 2.4]) == "2.20 (5 rounds; an interval takes 6)"


def test_a_table_of_a_record():
    text = figures.table([recorded()])
    assert "Commit abc1234, binary b1, a processor, 2 cores" in text and "`bench/x.py`; medians of 6 rounds;" in text
    ratio = statistics.median(t / o for o, t in zip(OURS, THEIRS))
    assert f"| net | 2.050 | 3.000 | {ratio:.2f} (1.32 to 1.55), ahead |" in text


def test_a_round_is_left_out_for_all_engines():
    slow = [*OURS[:5], 20.0]
    text = figures.table([recorded({"net": {"octavo": slow, "ort": THEIRS}}, steady=1.5)])
    assert "1 left out for all engines" in text and "| net | 2.000 | 3.000 |" in text and "5 rounds; an interval takes 6" in text


@pytest.mark.parametrize("key", ["commit", "binary", "machine"])
def test_a_table_that_mixes_is_refused(key):
    other = {**recorded({"other": {"octavo": OURS, "ort": THEIRS}}), key: "another"}
    with pytest.raises(figures.Mistake, match=f'one table mixes {key} "{OF[key]}" and "another"'):
        figures.table([recorded(), other])
    assert "| other |" in figures.table([recorded(), {**other, key: OF[key]}])


def test_a_row_that_was_repeated_alone_is_refused():
    with pytest.raises(figures.Mistake, match="6 rounds of a, octavo, 7 rounds of b, octavo|7 rounds of b, octavo"):
        recorded({"a": {"octavo": OURS}, "b": {"octavo": [*OURS, 1.0]}})
    with pytest.raises(figures.Mistake, match='row "net" stands in two records'):
        figures.table([recorded(), recorded()])
    with pytest.raises(figures.Mistake, match="rows of .5, 6. rounds"):
        figures.table([recorded(), recorded({"b": {"octavo": OURS[:5], "ort": THEIRS[:5]}})])


def test_results_of_another_binary_are_refused(tmp_path):
    binary = tmp_path / "octavo"
    binary.write_bytes(b"one")
    results = {}
    figures.claim(results, binary)
    results["times"] = {"net": {}}
    figures.claim(results, binary)
    binary.write_bytes(b"two")
    with pytest.raises(figures.Mistake, match='the file of results is of binary ".*", this run of ".*": write to another file'):
        figures.claim(results, binary)
    with pytest.raises(figures.Mistake, match="does not say which binary"):
        figures.claim({"times": {"net": {}}}, binary)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with one page and its record."""
    records = tmp_path / "docs/lab/records"
    records.mkdir(parents=True)
    monkeypatch.setattr(figures, "RECORDS", records)
    subprocess.run("git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a", shell=True, cwd=tmp_path, check=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    (records / "x.json").write_text(json.dumps(recorded(commit=commit)))
    page = tmp_path / "page.md"
    page.write_text("# P\n\nIt is 1.5 times as fast.\n\n<!-- figures: records/x.json | T -->\n<!-- /figures -->\n\nEnd.\n")
    page.write_text(figures.page(page))
    return tmp_path, page, records


def judged(tree, allowed=1):
    root, page, records = tree
    return claims.judge(root, [page], records, {"page.md": allowed})[0]


def test_a_page_that_says_what_its_record_says(tree):
    assert judged(tree) == [] and tree[1].read_text().endswith("ahead |\n<!-- /figures -->\n\nEnd.\n")


def test_a_table_edited_by_hand(tree):
    tree[1].write_text(tree[1].read_text().replace("| 2.050 |", "| 1.950 |"))
    assert judged(tree) == ["page.md: the table of records/x.json is not what the record says: run bench/figures.py page page.md"]


def test_a_record_that_changed(tree):
    file = tree[2] / "x.json"
    file.write_text(file.read_text().replace("2.2", "2.9"))
    assert len(judged(tree)) == 1


def test_stale_records(tree):
    _, page, records = tree
    found = json.loads((records / "x.json").read_text())
    for commit, says in (("0123456", "which is not in the history"), (found["commit"] + " with changes", "commit them, build and measure again")):
        (records / "x.json").write_text(json.dumps({**found, "commit": commit}))
        page.write_text(figures.page(page))
        wrong = judged(tree)
        assert len(wrong) == 1 and says in wrong[0]


def test_a_record_that_no_page_shows(tree):
    (tree[2] / "y.json").write_text((tree[2] / "x.json").read_text())
    assert judged(tree) == ["y.json: no page shows this record"]


def test_the_list_only_becomes_shorter(tree):
    assert judged(tree, 0) == ["page.md gives 1 ratios without a record, 0 are allowed: measure with --record and show the table by bench/figures.py"]
    assert judged(tree, 2) == ["page.md gives 1 ratios without a record, 2 are allowed: run scripts/claims.py --pin"]


VIEW = {"columns": [["octavo", "ours, ms"], ["best", "best"], ["any", "any form"], ["layers", "layers"]], "digits": {"octavo": 1},
        "ratios": {"best": {"over": "octavo"}, "any": {"over": "octavo", "network": True, "except": ["float"]}}, "facts": {"a, residual": {"layers": "50 int8"}}, "note": "two threads",
        "summary": "In 3 cases."}
FORMS = {"a, residual": {"octavo": OURS, "ort": THEIRS}, "a, uint8": {"octavo": OURS, "ort": [t / 2 for t in THEIRS]}, "a, float": {"ort": THEIRS}, "b, facts": {}}


def viewed(**other):
    return figures.record({"provenance": {**OF, **other}}, {"T": FORMS}, views={"T": VIEW})


def test_a_view():
    """Columns in the view's order: medians, ratios (the second over all forms of a network), facts, and rows that have no rounds."""
    text = figures.table([viewed()])
    assert "| | ours, ms | best | any form | layers |" in text.replace("|  |", "| |") and "(order statistics); two threads.*" in text
    assert "| a, residual | 2.0 | 1.46 (1.32 to 1.55), ahead | 0.73 (0.66 to 0.78), behind | 50 int8 |" in text
    assert "| a, float | – | – | – | – |" in text and "| b, facts | – | – | – | – |" in text
    some = figures.table([viewed()], only=["a, uint8"], brief=True)
    assert "| a, uint8 |" in some and "| a, float |" not in some and "0.73 (0.66 to 0.78), behind" in some and "abc1234" not in some and "bench/x.py" not in some
    with pytest.raises(figures.Mistake, match='has no row "c"; it has a, residual'):
        figures.table([viewed()], only=["c"])


def test_what_there_was_no_time_for_is_said():
    found = figures.record({"provenance": OF}, {"T": {"net": {"octavo": OURS}}}, left_out=["one", "two"])
    assert "not measured for want of time: one, two.*" in figures.table([found])


def test_a_table_that_waits(tree):
    """It keeps what stands there, counts as unrecorded, must name a commit, and is filled as soon as there is a record."""
    root, page, records = tree
    whole = page.read_text()
    page.write_text(whole + "<!-- figures pending: records/y.json | T -->\nOf commit 0123456: 1.5 times.\n<!-- /figures -->\n")
    assert judged(tree, 2) == [] and figures.page(page) == page.read_text()
    page.write_text(page.read_text().replace("Of commit 0123456: ", ""))
    assert judged(tree, 2) == ['page.md: the table that waits for records/y.json says neither of which commit its figures are nor "Not measured yet."']
    (records / "y.json").write_text((records / "x.json").read_text())
    assert judged(tree, 2) == ["page.md: the table of records/y.json is not what the record says: run bench/figures.py page page.md"]
    page.write_text(figures.page(page))
    assert "pending" not in page.read_text() and page.read_text().count("1.46 (1.32 to 1.55), ahead") == 2 and judged(tree, 1) == []


def test_a_page_names_its_commit_once(tree):
    root, page, records = tree
    commit = json.loads((records / "x.json").read_text())["commit"]
    (records / "x.json").write_text(json.dumps(viewed(commit=commit)))
    page.write_text("<!-- measured -->\n<!-- /measured -->\n<!-- figures: records/x.json | T | rows: a, residual; a, uint8 | brief -->\n<!-- /figures -->\n"
                    "<!-- figures: records/x.json | T | summary -->\n<!-- /figures -->\n")
    assert len(judged(tree, 0)) == 3
    page.write_text(figures.page(page))
    assert judged(tree, 0) == [] and page.read_text().count(commit) == 1 and f"measured at commit {commit}," in page.read_text() and "-->\nIn 3 cases.\n<!--" in page.read_text()
    (records / "y.json").write_text(json.dumps(viewed(commit="0123456")))
    page.write_text(page.read_text() + "<!-- figures: records/y.json | T | brief -->\n<!-- /figures -->\n")
    with pytest.raises(figures.Mistake, match="brief tables are of commits 0123456, "):
        figures.page(page)


def test_a_picture_of_another_commit(tree):
    root, page, records = tree
    (records / claims.PICTURE[0]).write_text((records / "x.json").read_text())
    page.write_text(page.read_text() + f"<!-- figures: records/{claims.PICTURE[0]} | T -->\n<!-- /figures -->\n")
    page.write_text(figures.page(page))
    assert judged(tree) == []
    (root / claims.PICTURE[1]).write_text("<svg>commit 0123456</svg>")
    assert judged(tree) == ["performance.svg is not of the commit of int8-vnni-2.json: run bench/everything.py --publish"]


def test_records_of_another_commit_than_the_readmes_are_named(tree):
    root, page, records = tree
    one = json.loads((records / "x.json").read_text())
    (records / claims.PICTURE[0]).write_text(json.dumps({**one, "commit": "HEAD"}))  # in the history too
    page.write_text(page.read_text() + f"<!-- figures: records/{claims.PICTURE[0]} | T -->\n<!-- /figures -->\n")
    page.write_text(figures.page(page))
    (line,) = judged(tree)
    assert line == f"x.json is of commit {one['commit']}, the README of HEAD: measure again, or name it in others.txt with the reason"
    (records / "others.txt").write_text(f"# A head.\n{one['commit']} x.json: the machine was there once\n")
    assert judged(tree) == []
    (records / "others.txt").write_text("0123456 x.json: the machine was there once\n")
    assert judged(tree) == [line]
    (records / "others.txt").write_text(f"{one['commit']} x.json: once\nHEAD {claims.PICTURE[0]}: why\n{one['commit']} gone.json: why\n")
    assert [w.split(",")[0] for w in judged(tree)] == ["others.txt names int8-vnni-2.json", "others.txt names gone.json"]
    (records / "others.txt").write_text(f"{one['commit']} x.json\n")
    assert judged(tree) == [f'others.txt: "{one["commit"]} x.json" is not "COMMIT RECORD: REASON"']


def test_the_cap_of_instructions_is_part_of_the_machine(tmp_path, monkeypatch):
    binary = tmp_path / "octavo"
    binary.write_bytes(b"one")
    results = {}
    figures.claim(results, binary)
    monkeypatch.setenv("OCTAVO_CPU", "avx2")
    assert figures.provenance(binary)["machine"].endswith(", up to avx2") and figures.provenance(binary)["command"].startswith("OCTAVO_CPU=avx2 bench/")
    with pytest.raises(figures.Mistake, match='is of machine'):
        figures.claim(results, binary)


def test_the_pages_of_this_repository():
    done = subprocess.run([sys.executable, ROOT / "scripts/claims.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def of_kind(kind, rows):
    return figures.record({"provenance": OF}, {"T": rows}, kind=kind)


def test_a_table_of_first_runs():
    row = {"shapes": ["1 × 7", "2 × 9", "3 × 3"], "first": [5.0, 9.0, 4.0], "later": [1.0, 2.0, 2.5], "first_processors": [6.0, 9.0, 3.0], "later_processors": [1.0, 1.0, 1.0],
           "beside": {"1 × 7": [1.0, 1.1, 1.05], "2 × 9": [1.0, 0.9, 0.95]}, "equal": 2}
    text = figures.table([of_kind("first runs", {"net, empty": row})])
    assert "| net, empty | 4.0 (1 × 7) | 2 | 4.2 | 7.0 (2 × 9) | 5.0, 8.0 | 0.999, 1.050 (2 shapes) | 2 of 2 |" in text and "Commit abc1234" in text


def test_a_table_of_requests():
    records = [of_kind("requests", {"octavo": {"1 to 64": [1.0, 2.0, 5.0], "65 to 128": [3.0]}}), of_kind("requests", {"ort": {"65 to 128": [4.0, 4.0]}})]
    text = figures.table(records)
    assert "| 1 to 64 | 3, 2.0, 5.0, 2.50 | – |" in text and "| 65 to 128 | 1, 3.0, 3.0, 1.00 | 2, 4.0, 4.0, 1.00 |" in text
    with pytest.raises(figures.Mistake, match="mixes kind"):
        figures.table([records[0], recorded()])
    with pytest.raises(figures.Mistake, match='kind "other"'):
        of_kind("other", {})
    with pytest.raises(figures.Mistake, match='row "octavo" stands in two records'):
        figures.table([records[0], records[0]])
