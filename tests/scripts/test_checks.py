"""The repository checks must find what they look for: each is run on a small tree with one thing wrong."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULE = """// move-view-x:  q(x) ==> x
//   Why    less.
//   Exact  bit for bit.
//   Needs  nothing,
//          at all.
//   Order  any.
#include "a.h"
struct R : Rule {
  std::string_view name() const override { return "move-view-x"; }
  Outcome apply() { return refuse(because<cause::scale_is_odd>(a, b)); }  // cause::not_this_one
};
"""
SENTENCES = """OCTAVO_SENTENCE(scale_is_odd, "the scale {scale} is odd; see \\"{page}\\" (below)")
OCTAVO_SENTENCE(not_this_one, "not this one")
OCTAVO_SENTENCE(too_many, "there are too many")
"""
REGISTRY = """constexpr ChoiceInfo kChoices[] = {
    {"join", kTimes, kSearched, "", true, {{{"apart", "two steps"}, {"one", ""}}}},
};
"""
EFFORT = """struct Effort {
  /// choices are priced
  bool searches = false;
  /// whole plans run in turn
  bool compares_plans = false;
  /// choices, at most
  int choices = 96;
};
inline constexpr Effort kEfforts[] = {
    {.choices = 1},
    {},
    {.searches = true, .compares_plans = true, .choices = 4e2},
};
"""
BLOCK = """// Joining.
//
// Candidate join:  a; b ==> ab
//   Why    less.
//   Exact  bit for bit.
//   Needs  both.
//   Order  any.
//   Says   why_not
#pragma once
std::optional<Reason> why_not(int a) {
  if (a > 1) return because<cause::too_many>();
  return std::nullopt;
}
"""


def run(script, root):
    return subprocess.run([sys.executable, ROOT / "scripts" / script, root], capture_output=True, text=True, check=False)


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(
    "path, text, complaint",
    [
        ("src/ir/a.h", '#include "plan/b.h"\n', 'src/ir/a.h:1: module "ir" uses "plan", which lies to its right'),
        ("src/engine/a.cc", '\n#include "plan/b.h"\n', 'src/engine/a.cc:2: module "engine" is needed at run time and must not use "plan"'),
        ("src/plan/a.cc", '#include "octavo/octavo.h"\n', 'module "plan" includes a public header'),
        ("src/plan/a.cc", '#include "nowhere/b.h"\n', '"nowhere" is not a module'),
        ("src/shed/a.cc", "", "src/shed: not a module"),
        ("src/plan/a.cc", 'if (name == "cpu.conv.u8s8.block") {}\n', 'src/plan/a.cc:1: module "plan" spells "cpu.conv.u8s8.block"'),
        ("src/tune/a.cc", '\nconst bool fast = t.find("avx512") != 0;\n', 'src/tune/a.cc:2: module "tune" spells "avx512"'),
        ("src/report/a.cc", 'return name.find(".portable");\n', 'module "report" spells ".portable"'),
        ("src/engine/a.cc", 'need("sm_90");\n', 'module "engine" spells "sm_90"'),
        ("src/cuda/a.cc", '\nconst auto axis = ir::get_int(attrs, "axis");\n', 'src/cuda/a.cc:2: module "cuda" looks an attribute up'),
        ("src/cuda/text/a.cc", '#include "cuda/families/b.h"\n', 'src/cuda/text/a.cc:1: room "cuda/text" uses "cuda/families/b.h"'),
        ("src/cuda/families/conv/a.cc", '#include "cuda/device/b.h"\n', 'room "cuda/families" uses "cuda/device/b.h"'),
        ("src/cuda/device/a.cc", '#include "cuda/family.h"\n', 'room "cuda/device" uses "cuda/family.h"'),
        ("src/cuda/shed/a.cc", '#include "cuda/family.h"\n', '"cuda/shed" is not a room'),
        ("src/api/a.cc", "\nif (options.effort >= 2 && open) {}\n", "src/api/a.cc:2: compares a level of effort"),
        ("src/tune/a.cc", "return kByLevel[effort];\n", "src/tune/a.cc:1: compares a level of effort"),
        ("src/cli/a.cc", "if (0 < build.plan->effort) {}\n", "src/cli/a.cc:1: compares a level of effort"),
        ("src/plan/a.cc", 'if (link.kind == "chain") {}\n', "src/plan/a.cc:1: compares a text"),
        ("src/tune/a.cc", 'if (name.find("bf16") != npos) {}\n', "src/tune/a.cc:1: compares a text"),
        ("src/cuda/families/a.cc", 'return target.architecture == "wide";\n', "src/cuda/families/a.cc:1: compares a text"),
        ("src/cuda/text/a.cc", 'const bool given = text.find("int " + name) != npos;\n', "src/cuda/text/a.cc:1: compares a text"),
        ("src/cpu/a.cc", 'if ("blocks" == order) {}\n', "src/cpu/a.cc:1: compares a text"),
        ("src/cpu/a.cc", 'if (order == std::string_view("blocks")) {}\n', "src/cpu/a.cc:1: compares a text"),
        ("src/engine/a.cc", 'if (std::string("blocks") == order) {}\n', "src/engine/a.cc:1: compares a text"),
        ("src/region/a.h", 'return names.contains("wide");\n', "src/region/a.h:1: compares a text"),
        ("src/report/a.cc", 'if (name.rfind("wide") == 0 || name.compare("x")) {}\n', "src/report/a.cc:1: compares a text"),
        # Files are exempted by their paths: these have the names of files that read texts elsewhere.
        ("src/cuda/text.cc", 'if (name == "a") {}\n', "src/cuda/text.cc:1: compares a text"),
        ("src/cpu/families/file.cc", 'if (name == "a") {}\n', "src/cpu/families/file.cc:1: compares a text"),
        ("src/cuda/family.cc", 'if (name == "a") {}\n', "src/cuda/family.cc:1: compares a text"),
        ("src/tune/timing_cache.cc", "return a == b;\n", "src/tune/timing_cache.cc: compares no text; take it off READERS"),
        ("src/region/region.h", "", "src/tune/timing_cache.cc: READERS names it, and it is not there"),
        ("src/plan/layout/a.cc", '#include "plan/search/b.h"\n', "src/plan/layout/a.cc:1: plan/layout uses plan/search, which comes later"),
        ("src/plan/layout/a.cc", '#include "plan/garage/b.h"\n', "plan/garage is not a folder of the planner"),
        ("src/ir/a.cc", "int x;\n" * 401, 'src/ir/a.cc: 401 lines; say in the opening comment why it is "past 400 lines"'),
        ("src/ir/a.cc", "// One class, past 400 lines.\n" * 601, "src/ir/a.cc: 601 lines; split it: 600 is the most"),
        ("src/ir/CMakeLists.txt", "octavo_module(ir base onnx)\n", 'src/ir/CMakeLists.txt: module "ir" uses "onnx"'),
    ],
)
def test_rooms_found(tmp_path, path, text, complaint):
    write(tmp_path, path, text)
    result = run("check_modules.py", tmp_path)
    assert result.returncode == 1
    assert complaint in result.stdout


def test_rooms_clean(tmp_path):
    write(tmp_path, "src/plan/a.cc", '#include "ir/graph.h"\n#include "plan/a.h"\n#include <vector>\n')
    write(tmp_path, "src/cuda/families/conv/a.cc", '#include "cuda/text/b.h"\n#include "cuda/family.h"\n#include "cuda/families/a.h"\n')
    write(tmp_path, "src/cuda/provider.cc", '#include "cuda/device/b.h"\n#include "cuda/families/b.h"\n')
    write(tmp_path, "src/plan/search/a.cc", '#include "plan/layout/b.h"\nplain->effort = 0;  // effort == 0\nconst Effort& effort = effort_at(options.effort);\n')
    write(tmp_path, "src/plan/effort.h", "return level < effort;\n")
    write(tmp_path, "src/ir/a.cc", "// One class, past 400 lines: for a reason.\n" + "int x;\n" * 500)
    write(tmp_path, "src/ir/b.cc", "int x;\n" * 400)
    write(tmp_path, "src/tune/timing_cache.cc", 'if (word == "pin") {}\n')
    write(tmp_path, "src/cuda/text/a.cc", 'case Op::equal: return "==";\nif (get(attrs, "axis") != 1 || c == \'x\') {}  // name == "a"\n')
    assert run("check_modules.py", tmp_path).returncode == 0


@pytest.mark.parametrize(
    "path, text, complaint",
    [
        ("src/cpu/a.cc", "int a;  // see cpu/gone.h\n", "src/cpu/a.cc:1: names cpu/gone.h"),
        ("src/cpu/a.h", "/// gone_code.cc\n", "src/cpu/a.h:1: names gone_code.cc"),
        ("tests/CMakeLists.txt", "\n# scripts/gone.py runs them\n", "tests/CMakeLists.txt:2: names scripts/gone.py"),
        ("fuzz/CMakeLists.txt", "set(src ${PROJECT_SOURCE_DIR}/src)\nx(a SOURCES ${src}/there.cc)\n", "fuzz/CMakeLists.txt:2: names there.cc"),
        ("docs/page.md", "See [x](gone.md).\n", "docs/page.md:1: names gone.md"),
        ("docs/page.md", "`cpu/jit/there.h`\n", "docs/page.md:1: names cpu/jit/there.h"),  # there is a file of this name, elsewhere
    ],
)
def test_names_found(tmp_path, path, text, complaint):
    write(tmp_path, "src/cpu/there.h", "")
    write(tmp_path, path, text)
    result = run("check_names.py", tmp_path)
    assert result.returncode == 1 and complaint in result.stdout


def test_names_clean(tmp_path):
    write(tmp_path, "src/cpu/there.h", '#include "nowhere/b.h"\n// there.h, cpu/there.h, src/cpu/there.h, NAME.cc\n')
    write(tmp_path, "fuzz/CMakeLists.txt", "x(${src}/cpu/there.h ${PROJECT_SOURCE_DIR}/src/cpu/there.h ${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt ${PROJECT_SOURCE_DIR}/made.cmake.in)\n")
    write(tmp_path, "docs/lab/old.md", "gone.cc of an older commit\n")
    write(tmp_path, "docs/page.md", "[there](../src/cpu/there.h), [old](lab/old.md)\n```python own.py\n```\n`python own.py`\n")
    result = run("check_names.py", tmp_path)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "first, second",
    [
        ("struct Access {\n  int a;\n};\n", "enum class Access : int {\n  one,\n};\n"),
        ("class Access final : public Base {\n", "template <class T>\nstruct Access\n    : Base {\n"),
        ("struct Access {};\n", "template <class T> class Access {\n"),
        ("struct alignas(64) Access {\n", "union Access { int a; };\n"),
    ],
)
def test_a_class_name_of_two_headers_is_found(tmp_path, first, second):
    write(tmp_path, "src/cpu/a.h", first)
    write(tmp_path, "src/cuda/b.h", second)
    result = run("check_names.py", tmp_path)
    assert result.returncode == 1 and "Access: src/cpu/a.h and src/cuda/b.h define a class of this name" in result.stdout


def test_class_names_clean(tmp_path):
    """A declaration, a class inside another one, a class of a source, and a name that SHARED lists for these headers."""
    write(tmp_path, "src/cpu/a.h", "struct Access {\n};\n")
    write(tmp_path, "src/cpu/b.h", "struct Access;  // of a.h\nenum class Access : std::\n    uint8_t;\nstruct B {\n  struct Access {\n  };\n};\n")
    write(tmp_path, "src/cpu/c.cc", "struct Access {\n};\n")
    for path in ("src/cpu/family.h", "src/cuda/family.h"):
        write(tmp_path, path, "class Family {\n};\n")
    result = run("check_names.py", tmp_path)
    assert result.returncode == 0, result.stdout


def test_the_list_of_shared_class_names_only_becomes_shorter(tmp_path):
    for path in ("src/cpu/family.h", "src/cuda/family.h", "src/plan/family.h"):
        write(tmp_path, path, "class Family {\n};\n")
    assert "Family: src/cpu/family.h and src/cuda/family.h and src/plan/family.h define" in run("check_names.py", tmp_path).stdout
    (tmp_path / "src/plan/family.h").unlink()
    (tmp_path / "src/cuda/family.h").write_text("")
    write(tmp_path, "src/region/region.h", "")  # a tree with all headers
    assert "Family: SHARED of scripts/check_names.py lists src/cuda/family.h, which no longer define it" in run("check_names.py", tmp_path).stdout


@pytest.fixture
def rules(tmp_path):
    write(tmp_path, "src/quant/rules/move_view_x.cc", RULE)
    write(tmp_path, "tests/quant/rules/move_view_x.irt", "# run: move-view-x\n")
    write(tmp_path, "src/report/sentences.def", SENTENCES)
    write(tmp_path, "src/plan/candidates/registry.cc", REGISTRY)
    write(tmp_path, "src/plan/effort.h", EFFORT)
    write(tmp_path, "src/plan/join.h", BLOCK)
    write(tmp_path, "docs/rules.md", "# By hand: `move-view-x`\n\n")
    assert run("rules_page.py", tmp_path).returncode == 0
    result = run("check_rules.py", tmp_path)
    assert result.returncode == 0, result.stdout
    return tmp_path


def test_rules_page_says_what_the_sources_say(rules):
    page = (rules / "docs/rules.md").read_text()
    assert page.startswith("# By hand")
    for text in ("    q(x) ==> x\n", "**Needs** nothing, at all.", '  - the scale … is odd; see "…" (below)\n', "`--disable=move-view-x`", "    a; b ==> ab\n",
                 "  - there are too many\n", "`--disable=join`, `--force=join`", "`apart` (two steps); `one`", "from effort 2 on"):
        assert text in page
    assert "not this one" not in page
    assert run("rules_page.py", rules).returncode == 0
    assert (rules / "docs/rules.md").read_text() == page


@pytest.mark.parametrize(
    "path, text, complaint",
    [
        ("src/quant/rules/move_view_x.cc", RULE.replace("view-x", "view-y"), "the file should be move_view_y.cc"),
        ("src/quant/rules/move_view_x.cc", RULE.replace("// move-view-x", "// move-view-z"), 'does not start with "// move-view-x:  EQUATION"'),
        ("src/quant/rules/move_view_x.cc", RULE.replace("//   Order  any.\n", ""), 'has no "Order" line'),
        ("src/quant/rules/move_view_x.cc", RULE.replace("bit for bit", "nearly"), "exact() is true"),
        ("src/report/sentences.def", SENTENCES.replace("is odd", "is even"), "is not what the sources say"),
        ("src/quant/rules/move_view_x.cc", RULE.replace("less.", "more."), "is not what the sources say"),
        ("tests/quant/rules/move_view_x.irt", "run: other\n", 'does not name the rule "move-view-x"'),
        ("tests/quant/rules/gone.irt", "run: gone\n", "tests a rule that no file in src/*/rules defines"),
        ("src/plan/candidates/registry.cc", REGISTRY.replace("join", "part"), "--disable=join: registry.cc does not list it"),
        ("src/plan/join.h", BLOCK.replace("Candidate join", "Placing join"), "--disable=join: no comment block in src/plan describes it"),
        ("src/plan/join.h", BLOCK.replace("//   Needs  both.\n", ""), 'Candidate join: the comment has no "Needs" line'),
        ("src/plan/join.h", BLOCK.replace("Says   why_not", "Says   why_so"), "there is no function why_so"),
        ("src/plan/join.h", BLOCK.replace("too_many", "scale_is_odd"), "is not what the sources say"),
        ("docs/rules.md", "", "is not what the sources say"),
    ],
)
def test_rules_found(rules, path, text, complaint):
    write(rules, path, text)
    result = run("check_rules.py", rules)
    assert result.returncode == 1
    assert complaint in result.stdout


@pytest.mark.parametrize("old, new, complaint", [("less.", "fewer.", "is not what the sources say"),
                                                 ("By hand: `move-view-x`", "By hand: `move-view-w`", 'names a rule "move-view-w"')])
def test_edited_rules_page_found(rules, old, new, complaint):
    page = rules / "docs/rules.md"
    page.write_text(page.read_text().replace(old, new))
    result = run("check_rules.py", rules)
    assert result.returncode == 1 and complaint in result.stdout


def test_efforts_are_those_of_the_table(tmp_path):
    page = "before\n<!-- generated by scripts/effort_page.py -->\nold\n<!-- end of the generated part -->\nafter\n"
    write(tmp_path, "src/plan/effort.h", EFFORT)
    write(tmp_path, "docs/planner.md", page)
    assert run("effort_page.py", tmp_path).returncode == 0
    lines = (tmp_path / "docs/planner.md").read_text().splitlines()
    assert lines[0] == "before" and lines[-1] == "after"
    assert "| choices are priced |  |  | yes |" in lines and "| choices, at most | 1 | 96 | 400 |" in lines
    check = [sys.executable, ROOT / "scripts/effort_page.py", "--check", tmp_path]
    assert subprocess.run(check, check=False).returncode == 0
    write(tmp_path, "src/plan/effort.h", EFFORT.replace("96", "95"))
    assert subprocess.run(check, capture_output=True, check=False).returncode == 1


CTEST = """<testsuite>
  <testcase name="a" status="run"><system-out></system-out></testcase>
  <testcase name="b" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>[ RUN ] b
x.cc:3: Skipped
{reason}
</system-out></testcase>
  <testcase name="pytest_p" status="run"/>
  {more}
</testsuite>"""
PYTEST = '<testsuites><testsuite><testcase name="p1"/><testcase name="p2"/></testsuite></testsuites>'


def summary(tmp_path, reason="no AMX here", more="", models=True):
    write(tmp_path, "junit/ctest.xml", CTEST.format(reason=reason, more=more))
    write(tmp_path, "junit/pytest_p.xml", PYTEST)
    if models:
        (tmp_path / "data/models").mkdir(parents=True)
    result = subprocess.run(
        [sys.executable, ROOT / "scripts/test_summary.py", tmp_path / "junit", tmp_path / "data"], capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout.splitlines()


def test_summary_counts_cases_and_shows_reasons(tmp_path):
    assert summary(tmp_path) == (0, ["skipped 1: no AMX here", "3 passed, 0 failed, 1 skipped"])


def test_summary_fails_when_data_is_there_but_tests_skip(tmp_path):
    code, lines = summary(tmp_path, reason="OCTAVO_TEST_DATA is not there")
    assert code == 1 and lines[-1] == "3 passed, 1 failed, 0 skipped"


def test_summary_reads_why_a_script_was_skipped(tmp_path):
    """A script that ends with SKIP_RETURN_CODE says why in a line "skipped: ..."; for want of data it counts as failed as well."""
    case = '<testcase name="s" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped: {}\n</system-out></testcase>'
    code, lines = summary(tmp_path / "a", more=case.format("onnx is missing"))
    assert code == 0 and "skipped 1: onnx is missing" in lines
    code, lines = summary(tmp_path / "b", more=case.format("OCTAVO_TEST_DATA: no models"))
    assert code == 1 and lines[-1] == "3 passed, 1 failed, 1 skipped"


def test_summary_accepts_skips_without_data(tmp_path):
    code, lines = summary(tmp_path, reason="OCTAVO_TEST_DATA is not there", models=False)
    assert code == 0 and lines[-1] == "3 passed, 0 failed, 1 skipped"


def test_summary_reports_failures(tmp_path):
    code, lines = summary(tmp_path, more='<testcase name="c" status="fail"><failure message="x"/></testcase>')
    assert code == 1 and lines[-2:] == ["FAILED c", "3 passed, 1 failed, 1 skipped"]
