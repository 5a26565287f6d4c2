"""Octavo installed and used by other C++ projects: find_package, pkg-config, the static library, add_subdirectory; the README's example as
printed, on a model with an open batch. Needs the library built (target octavo_cpp)."""
import os
import pathlib
import re
import subprocess

import pytest
from rounds import FULL, LONG

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
MODEL = ROOT / "examples/digits/digits_fp32.onnx"  # its batch is open

pytestmark = pytest.mark.skipif(not list((BUILD / "lib").glob("liboctavo.so*")) if (BUILD / "lib").exists() else True,
                                reason="the library is not built (target octavo_cpp)")


def run(*args, timeout=600, **more):
    done = subprocess.run([*map(str, args)], capture_output=True, text=True, check=False, timeout=timeout, **more)
    assert done.returncode == 0, f"{args}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder, "--component", "cpp")
    return folder


def readme_example():
    """The README's C++ block in a program: its variables are those of the digits model."""
    blocks = [b for b in re.findall(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.S) if "octavo::Engine::build" in b]
    assert len(blocks) == 1
    includes = [line for line in blocks[0].splitlines() if line.startswith("#include")]
    body = [line for line in blocks[0].splitlines() if not line.startswith("#include")]
    return "\n".join([*includes, "#include <cstdio>", "int main() {", "  std::vector<float> image(256, 0.5f), logits(10);",
                      *body, '  for (float v : logits) std::printf("%a ", v);', "}"])


MAIN = """
#include "octavo/octavo.h"
#include <cstdio>
int main(int argc, char** argv) {
  const auto engine = octavo::Engine::build(argv[1], {.default_batch = 1, .threads = 2, .effort = 0});
  octavo::Context context(engine);
  std::vector<float> image(256, 0.5f), logits(10);
  context.run({image.data()}, {logits.data()});
  for (float v : logits) std::printf("%a ", v);
  try {
    (void)octavo::Engine::load("absent.octavo");
  } catch (const octavo::Exception& e) {  // crosses the library's border as itself
    if (e.kind() != octavo::Exception::Kind::io) return 2;
    return argc - 2;
  }
  return 3;
}
"""


@pytest.fixture(scope="module")
def want(tmp_path_factory):
    octavo = pytest.importorskip("octavo")
    import numpy as np
    y = octavo.build(MODEL, default_batch=1, threads=2, effort=0).run([np.full((1, 1, 16, 16), 0.5, np.float32)])["head"][0]
    return [float(v) for v in y]


def numbers(text):
    return [float.fromhex(v) for v in text.split()]


@pytest.mark.parametrize("target", ["octavo::octavo", "octavo::static"])
def test_find_package(prefix, tmp_path, target, want):
    (tmp_path / "main.cc").write_text(MAIN)
    (tmp_path / "CMakeLists.txt").write_text(f"""
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES CXX)
find_package(Octavo 0.1 REQUIRED)
add_executable(user main.cc)
target_link_libraries(user PRIVATE {target})
""")
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "b")
    assert numbers(run(tmp_path / "b/user", MODEL)) == want


def test_pkg_config_and_the_readmes_example(prefix, tmp_path, want):
    """From the folder of the model, whose name the example gives as model.onnx."""
    found = [p.parent for p in prefix.rglob("octavo.pc")]
    flags = run("pkg-config", "--cflags", "--libs", "octavo", env={**os.environ, "PKG_CONFIG_PATH": str(found[0])}).split()
    source = tmp_path / "example.cc"
    source.write_text(readme_example())
    (tmp_path / "model.onnx").write_bytes(MODEL.read_bytes())
    run("g++", "-Wall", "-Wextra", "-Werror", source, *flags, "-o", tmp_path / "example")
    library = [p.parent for p in prefix.rglob("liboctavo.so")][0]
    got = numbers(run(tmp_path / "example", cwd=tmp_path, env={**os.environ, "LD_LIBRARY_PATH": str(library)}))
    assert got == pytest.approx(want, rel=1e-4, abs=1e-4)  # a plan of its own: measured, every core


def test_the_library_exports_its_interface_only(prefix):
    library = [p for p in prefix.rglob("liboctavo.so")][0]
    symbols = [line.split()[-1] for line in run("nm", "-DC", "--defined-only", library).splitlines()]
    names = [line.split(maxsplit=2)[2] for line in run("nm", "-DC", "--defined-only", library).splitlines() if len(line.split(maxsplit=2)) == 3]
    foreign = [n for n in names if not re.match(r"(octavo::|typeinfo (name )?for octavo::|vtable for octavo::)", n)]
    assert symbols and not foreign, foreign[:5]
    inner = [n for n in names if re.match(r"(typeinfo (name )?for |vtable for )?octavo::(base|ir|program|region|plan|engine|api|cpu)::", n)]
    assert not inner, inner[:5]


def test_the_program_that_compiles_kernels_is_where_the_library_looks(prefix):
    said = subprocess.run([prefix / "libexec/octavo/octavo-nvrtc"], stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
    assert b"octavo-nvrtc, messages " in said.stdout, "it starts, says what it is, and ends with its input"
    library = [p for p in prefix.rglob("liboctavo.so")][0].resolve()
    assert library.parent.parent / "libexec" == prefix / "libexec" or library.parent.parent.parent / "libexec" == prefix / "libexec"


def test_add_subdirectory(tmp_path):
    """Configures as part of another project, without tests and benchmarks; a file compiles there, with OCTAVO_FULL a module, with OCTAVO_LONG all."""
    (tmp_path / "CMakeLists.txt").write_text(f"""
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
add_subdirectory({ROOT} octavo)
add_executable(user EXCLUDE_FROM_ALL main.cc)
target_link_libraries(user PRIVATE octavo::octavo)
""")
    (tmp_path / "main.cc").write_text(MAIN)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", "-G", "Ninja", f"-DPython3_EXECUTABLE={ROOT}/.venv/bin/python")
    plan = run("ninja", "-C", tmp_path / "b", "-t", "targets", "all")
    assert "user:" in plan and "test_api:" not in plan
    own = [c for c in run("ninja", "-C", tmp_path / "b", "-t", "commands", "user").splitlines() if c.endswith("main.cc")]
    assert len(own) == 1 and "20" in re.search(r"-std=(\S+)", own[0])[1]  # the header's standard, though the project names none
    if LONG:
        run("cmake", "--build", tmp_path / "b", "--target", "user", timeout=7200)
        run(tmp_path / "b/user", MODEL)
    else:
        run("cmake", "--build", tmp_path / "b", "--target", "octavo_base" if FULL else "octavo/src/base/CMakeFiles/octavo_base.dir/hash.cc.o")
