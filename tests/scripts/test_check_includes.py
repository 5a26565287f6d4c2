"""scripts/check_includes.py must find a class whose header nothing includes, as a build without unity finds it, and nothing else."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFINED = {
    "struct": "struct Access {\n};\n",
    "class": "class Access final : public Base {\n};\n",
    "attribute": "struct alignas(64) Access {\n};\n",
    "enumeration": "enum class Access : int { one };\n",
    "template": "template <class T>\nclass Access {\n};\n",
    "alias": "using Access = int;\n",
    "macro": "#define Access 1\n",
}


def check(root, **files):
    """Files by their paths, with "__" for "/" and "_h", "_cc" for the ending."""
    for name, text in files.items():
        path = root / "src" / name.replace("__", "/").replace("_h", ".h").replace("_cc", ".cc")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run([sys.executable, ROOT / "scripts/check_includes.py", root], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("defined", DEFINED.values(), ids=DEFINED)
def test_a_header_that_nothing_includes_is_found(tmp_path, defined):
    result = check(tmp_path, cuda__a_h=defined, cuda__b_h="int open(Access how);\n", cuda__c_cc='#include "cuda/b.h"\nAccess how;\n')
    assert result.returncode == 1
    assert result.stdout.splitlines() == [f"src/cuda/{name}: names Access, which src/cuda/a.h defines and no include of it reaches" for name in ("b.h", "c.cc")]


@pytest.mark.parametrize("defined", DEFINED.values(), ids=DEFINED)
def test_a_header_that_a_header_includes_is_reached(tmp_path, defined):
    result = check(tmp_path, cuda__a_h=defined, cuda__b_h='#include "cuda/a.h"\n', cuda__c_cc='#include "cuda/b.h"\nAccess how;\n')
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("text", [
    "struct Access;\nint open(Access& how);\n",
    "// An Access of files.\n",
    'const char* text = "Access";\n',
    "int n = table.Access;\nint m = table->Access;\n",
    "template <class... Access>\nvoid all(Access... how);\n",
    "TEST(Access, Works) {}\nTEST_P(Files, Access) {}\n",
    "#define OPEN(how) \\\n  Access how\n",
    "const auto how = ::testing::Access(1);\n",
    "using files::Access;\nAccess how;\n",
])
def test_what_names_no_class_of_another_header_is_left(tmp_path, text):
    result = check(tmp_path, cuda__a_h="struct Access {\n};\n", cuda__c_cc=text)
    assert result.returncode == 0, result.stdout


def test_one_of_two_headers_is_enough(tmp_path):
    files = {"cpu__a_h": "struct Access {\n};\n", "cuda__a_h": "struct Access {\n};\n"}
    assert check(tmp_path, **files, cuda__c_cc='#include "cuda/a.h"\nAccess how;\n').returncode == 0
    assert "which src/cpu/a.h or src/cuda/a.h defines" in check(tmp_path, **files, cuda__c_cc="Access how;\n").stdout
