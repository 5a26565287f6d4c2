"""scripts/unity_groups.py: which files may be compiled as one translation unit."""
import hashlib
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "unity_groups.py"


def groups(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.cc").write_text(text)
    done = subprocess.run([sys.executable, SCRIPT, *(tmp_path / f"{n}.cc" for n in files)], capture_output=True, text=True, check=True)
    of = {pathlib.Path(path).stem: number for number, path in (line.split(" ", 1) for line in done.stdout.splitlines())}
    return [of[name] for name in files]


def anonymous(body):
    return f"namespace n {{\nnamespace {{\n\n{body}\n\n}}  // namespace\n}}  // namespace n\n"


def test_files_without_common_names_are_together(tmp_path):
    a, b = groups(tmp_path, a=anonymous("int first() {\n  return 1;\n}"), b=anonymous("int second() {\n  return 2;\n}"))
    assert a == b


def test_names_that_only_one_file_may_see_keep_others_away_that_use_them(tmp_path):
    own = anonymous("struct Parts {\n  int x;\n};\nint parts_of() {\n  return 1;\n}")
    a, b, c, d = groups(tmp_path, a=own, b=own, c="int n::f() {\n  return parts_of();\n}\n", d="int n::g() {\n  return m::h();\n}\n")
    assert a != b and a != c and b != c and a == d
    a, b = groups(tmp_path, a="static int hidden() {\n  return 1;\n}\n", b="int hidden();\nint f() {\n  return hidden();\n}\n")
    assert a != b


def test_names_in_comments_and_texts_are_none(tmp_path):
    a, b = groups(tmp_path, a=anonymous("int first() {\n  return 1;\n}"), b='// as first() does\nconst char* n::text() {\n  return "first()";\n}\n')
    assert a == b


def test_the_same_import_is_no_clash_and_another_one_is(tmp_path):
    a, b, c = groups(tmp_path, a=anonymous("using ir::Op;\nOp one(Op);"), b=anonymous("using ir::Op;\nOp two(Op);"), c=anonymous("using program::Op;\nOp three(Op);"))
    assert a == b != c


def test_who_imports_a_namespace_is_with_its_like_alone(tmp_path):
    a, b, c, d = groups(tmp_path, a="using namespace jit;\nint f();\n", b="int g();\n", c="int h();\n", d="using namespace jit;\nint i();\n")
    assert a != b and b == c and a == d


def test_a_variable_of_another_file_may_have_a_functions_name(tmp_path):
    own = anonymous("int shape(int x) {\n  return x;\n}")
    a, b, c = groups(tmp_path, a=own, b="int n::f(int shape) {\n  return shape + 1;\n}\n", c="int n::g() {\n  return shape(2);\n}\n")
    assert a == b != c


def test_files_of_the_same_heavy_headers_are_together(tmp_path):
    heavy = "#include <nlohmann/json.hpp>\n"
    light = {f"f{i}": f"int f{i}();\n" for i in range(47)}
    first, last = groups(tmp_path, a=heavy + "int a();\n", **light, z=heavy + "int z();\n")[:: len(light) + 1]
    assert first == last


def test_groups_are_bounded(tmp_path):
    assert len(set(groups(tmp_path, **{f"f{i}": f"int f{i}();\n" for i in range(100)}))) == 3
    long = "int x;\n" * 2400
    a, b = groups(tmp_path, a=long, b=long.replace("x", "y"))
    assert a != b


def test_names_of_its_own_let_files_be_together(tmp_path):
    """With --names both files are one unit that compiles, and each function is that of its file."""
    own = "#include <string>\n" + anonymous("int value() {\n  return %d;\n}\nstruct Case {\n  int run = 0;\n};\n%s")
    files = {"a": own % (1, "") + "int of_a() {\n  return n::value();\n}\n", "b": own % (2, "") + "int of_b() {\n  return 0;\n}\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.cc").write_text(text)
    paths = [tmp_path / "a.cc", tmp_path / "b.cc"]
    done = subprocess.run([sys.executable, SCRIPT, "--names", tmp_path / "names.h", tmp_path, *paths], capture_output=True, text=True, check=True)
    first, second = (tmp_path / "names.h").read_text().split("OCTAVO_UNIT == 2")
    assert "#define Case Case_in_1" in first and "#define value" not in first and "#define value value_in_2" in second  # of_a() says n::value
    for path in paths:
        path.write_text(path.read_text().replace("n::value()", "3"))
    done = subprocess.run([sys.executable, SCRIPT, "--names", tmp_path / "names.h", tmp_path, *paths], capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"0"}
    header = (tmp_path / "names.h").read_text()
    assert "#define value value_in_1" in header and header.count("#define value") == header.count("#undef value\n") == 1  # one of two is enough
    assert "#define run" not in header
    unit = ""
    for path in paths:
        identity = hashlib.md5(f"SRC_{path.name}".encode()).hexdigest()  # as CMake does
        unit += f'#undef OCTAVO_UNIT\n#define OCTAVO_UNIT unity_{identity}\n#include "names.h"\n#include "{path.name}"\n#include "names.h"\n'
    (tmp_path / "unit.cc").write_text(unit)
    subprocess.run(["g++", "-std=c++20", "-fsyntax-only", tmp_path / "unit.cc"], check=True)
