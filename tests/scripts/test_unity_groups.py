"""scripts/unity_groups.py: which files may be compiled as one translation unit."""
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "unity_groups.py"


def units(tmp_path, **files):
    """Files of each unit; a file that is alone is a unit of its own name."""
    for name, text in files.items():
        (tmp_path / f"{name}.cc").write_text(text)
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "units" / "all", *(tmp_path / f"{n}.cc" for n in files)], capture_output=True, text=True, check=True)
    of = {pathlib.Path(path).stem: pathlib.Path(unit) for unit, path in (line.split("|") for line in done.stdout.splitlines())}
    return [of.get(name, name) for name in files]


def run(tmp_path, unit, main):
    """What a program of this unit returns."""
    (tmp_path / "program.cc").write_text(f'#include "{unit}"\n{main}')
    subprocess.run(["g++", "-std=c++20", "-I", tmp_path, tmp_path / "program.cc", "-o", tmp_path / "program"], check=True)
    return subprocess.run([tmp_path / "program"]).returncode


def anonymous(body):
    return f"namespace n {{\nnamespace {{\n\n{body}\n\n}}  // namespace\n}}  // namespace n\n"


def test_files_without_common_names_are_together(tmp_path):
    a, b = units(tmp_path, a=anonymous("int first() {\n  return 1;\n}"), b=anonymous("int second() {\n  return 2;\n}"))
    assert a == b


def test_names_that_only_one_file_may_see_are_other_ones_in_a_unit(tmp_path):
    own = anonymous("struct Parts {\n  int x;\n};\nint parts_of() {\n  return Parts{.x = %d}.x;\n}") + "int n::%s() {\n  return parts_of();\n}\n"
    head = "namespace n {\nint a();\nint b();\n}\n"
    a, b = units(tmp_path, a=head + own % (1, "a"), b=own % (2, "b"))
    assert a == b
    assert run(tmp_path, a, "int main() {\n  return n::a() * 10 + n::b();\n}\n") == 12


def test_a_name_that_cannot_change_keeps_others_away_that_use_it(tmp_path):
    a, b = units(tmp_path, a="static int hidden() {\n  return 1;\n}\n", b="int hidden();\nint f() {\n  return hidden();\n}\n")
    assert a != b
    own = anonymous("int run() {\n  return 1;\n}\n%s")
    for other in ("struct Case {\n  int run = 0;\n};", "enum class Kind { walk, run };", "TEST(Suite, run) {\n}", "int twice() {\n  return n::run();\n}"):
        a, b, c = units(tmp_path, a=own % other, b=own % other, c=own % "")
        assert a != b, other
    inside = "struct Case {\n  int x = 0;\n  int all(Other o) {\n    return run() + o.run + o->run() + Other::run;\n  }\n};"
    a, b = units(tmp_path, a=own % inside, b=own % inside)
    assert a == b and a.read_text().count("run_in_a() + o.run + o->run() + Other::run") == 1


def test_members_comments_and_texts_keep_their_names(tmp_path):
    own = anonymous('int run(Engine& e) {  // run\n  e.run("run");\n  return 1\'000 + e->run(R"(run)", {.run = 1});\n}')
    a, b = units(tmp_path, a=own, b=own)
    assert a == b
    text = a.read_text()
    assert text.count('run_in_a(Engine& e) {  // run\n  e.run("run");\n  return 1\'000 + e->run(R"(run)", {.run = 1});') == 1
    assert text.count("run_in_") == 1  # one of two is enough


def test_the_compiler_names_the_file_and_its_line(tmp_path):
    a, b = units(tmp_path, a=anonymous("int one() {\n  return 1;\n}"), b=anonymous("int one() {\n  return nothing;\n}"))
    assert a == b
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", a], capture_output=True, text=True)
    assert f"{tmp_path / 'b.cc'}:5:" in done.stderr and str(a) not in done.stderr


def test_a_unit_that_stays_the_same_is_not_written(tmp_path):
    files = {"a": anonymous("int one() {\n  return 1;\n}"), "b": anonymous("int two() {\n  return 1;\n}")}
    unit = units(tmp_path, **files)[0]
    before = unit.stat().st_mtime_ns
    assert units(tmp_path, **files)[0].stat().st_mtime_ns == before


def test_names_in_comments_and_texts_are_none(tmp_path):
    a, b = units(tmp_path, a=anonymous("int first() {\n  return 1;\n}"), b='// as first() does\nconst char* n::text() {\n  return "first()";\n}\n')
    assert a == b


def test_an_import_that_another_file_has_too_stays_and_another_one_is_an_alias(tmp_path):
    types = "namespace ir {\nenum class Op { add = 1 };\n}\nnamespace program {\nenum class Op { add = 2 };\n}\n"
    a, b, c = units(
        tmp_path,
        a=types + anonymous("using ir::Op;\nint one(Op op) {\n  return int(op) + int(Op::add);\n}\n"),
        b=anonymous("using ir::Op;\nint two(ir::Op op) {\n  return int(op);\n}\n"),
        c=anonymous("using program::Op;\nint three() {\n  return int(Op::add) + int(program::Op::add) + int(ir::Op::add);\n}\n"),
    )
    assert a == b == c
    assert run(tmp_path, a, "int main() {\n  return n::one(ir::Op::add) * 100 + n::two(ir::Op::add) * 10 + n::three();\n}\n") == 215


def test_who_imports_a_namespace_is_with_its_like_alone(tmp_path):
    a, b, c, d = units(tmp_path, a="using namespace jit;\nint f();\n", b="int g();\n", c="int h();\n", d="using namespace jit;\nint i();\n")
    assert a != b and b == c and a == d


def test_a_variable_of_another_file_may_have_a_functions_name(tmp_path):
    own = anonymous("int shape(int x) {\n  return x;\n}\nstruct Fixed {\n  int shape;\n};")
    a, b, c = units(tmp_path, a=own, b="int n::f(int shape) {\n  return shape + 1;\n}\n", c="int n::g() {\n  return shape(2);\n}\n")
    assert a == b != c


def test_files_of_the_same_heavy_headers_are_together(tmp_path):
    heavy = "#include <nlohmann/json.hpp>\n"
    light = {f"f{i}": f"int f{i}();\n" for i in range(47)}
    first, last = units(tmp_path, a=heavy + "int a();\n", **light, z=heavy + "int z();\n")[:: len(light) + 1]
    assert first == last


def test_groups_are_bounded(tmp_path):
    assert len(set(units(tmp_path, **{f"f{i}": f"int f{i}();\n" for i in range(100)}))) == 3
    long = "int x;\n" * 2400
    a, b = units(tmp_path, a=long, b=long.replace("x", "y"))
    assert a != b
