"""Each row of the tables of kernels (src/cuda/families/families.def; docs/kernels.md, which test_cpu holds against src/cpu/table.def) is named by a test of its module."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# A row whose tactics have other names than the row: that of the cell.
CALLED = {"recurrent.rows": "lstm.rows"}


def code(path):
    return "\n".join(line.split("//")[0] for line in path.read_text(encoding="utf-8").splitlines())


def gpu_rows(root):
    return re.findall(r"^FAMILY\((\w+)\)", (root / "src/cuda/families/families.def").read_text(), re.M)


def gpu_rows_without_a_test(root):
    """A test names a family by its function. Programs of tests/cuda/gpu, which the suite does not run, do not count."""
    text = "\n".join(code(p) for p in (root / "tests/cuda").glob("*") if p.suffix in (".cc", ".h"))
    return [row for row in gpu_rows(root) if not re.search(rf"\b{row}_family\b", text)]


def cpu_rows(root):
    table = (root / "docs/kernels.md").read_text().split("\n## ")[0]
    return [line.split("|")[1].strip() for line in table.splitlines() if re.match(r"\| [a-z]\w*(\.\w+)* \| \d", line)]


def cpu_rows_without_a_test(root):
    """A test names a tactic, "cpu.conv.u8s8.block.avx2", or puts the name together: then one file has all words of it, in texts or as operators."""
    words = []
    for path in (root / "tests/cpu").glob("*_test.cc"):
        text = code(path)
        if "TEST" in text:
            words.append({w for literal in LITERAL.findall(text) for w in re.split(r"\W+", literal)} | set(re.findall(r"\bOp::(\w+)", text)))
    return [row for row in cpu_rows(root) if not any(set(CALLED.get(row, row).split(".")) <= have for have in words)]


def test_each_gpu_family_is_named_by_a_test():
    assert len(gpu_rows(ROOT)) > 60
    assert gpu_rows_without_a_test(ROOT) == [], "no test under tests/cuda names these families (ROW_family)"


def test_each_cpu_tactic_is_named_by_a_test():
    assert len(cpu_rows(ROOT)) > 70
    assert cpu_rows_without_a_test(ROOT) == [], "no test under tests/cpu names these tactics"


@pytest.fixture
def tree(tmp_path):
    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("src/cuda/families/families.def", "FAMILY(pool)\nFAMILY(whole_pool)\n#undef FAMILY\n")
    write("docs/kernels.md", "| name | version |\n|---|---|\n| pool.block | 1 | 1 |\n| move.tile | 2 | 1 |\n\n## Parameters\n\n| rows | 1..2 | of a tile |\n")
    write("tests/cuda/a_test.cc", "TEST(A, B) { run(cuda::pool_family()); }\n")
    write("tests/cuda/gpu/bench.cc", "run(cuda::whole_pool_family());\n")
    write("tests/cpu/a_test.cc", 'TEST(A, B) { run("cpu.pool." + kind); run("block"); }\n')
    write("tests/cpu/b_test.cc", 'TEST(A, B) { run("cpu.move." + name_of(Op::slice)); }  // "tile"\n')
    write("tests/cpu/tile.cc", 'TEST(A, B) { run("cpu.move.tile"); }\n')
    return tmp_path


def test_rows_that_no_test_names_are_found(tree):
    assert gpu_rows_without_a_test(tree) == ["whole_pool"]
    assert cpu_rows_without_a_test(tree) == ["move.tile"]
    (tree / "tests/cuda/a_scene.h").write_text("{cuda::whole_pool_family, 1}\n")
    (tree / "tests/cpu/b_test.cc").write_text('TEST(A, B) { run("cpu.move." + name_of(Op::tile)); }\n')
    assert gpu_rows_without_a_test(tree) == [] and cpu_rows_without_a_test(tree) == []
