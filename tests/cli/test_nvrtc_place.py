"""NVRTC by its path, in a folder that the loader does not know: its second library, which it opens by name alone, is found beside it."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
MODEL = ROOT / "examples/digits/digits_qdq.onnx"
# Of a version that no machine has. It compiles nothing, and says whether it can open its second library.
NVRTC = r"""
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
static const char* found() { return dlopen("libnvrtc-builtins.so.13.987", RTLD_NOW) ? "builtins opened" : "builtins missing"; }
extern "C" {
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 987, 0; }
int nvrtcCreateProgram(void** p, const char*, const char*, int, const char* const*, const char* const*) { return *p = p, 0; }
int nvrtcCompileProgram(void*, int, const char* const*) { return 6; }
int nvrtcDestroyProgram(void**) { return 0; }
int nvrtcGetProgramLogSize(void*, std::size_t* n) { return *n = std::strlen(found()) + 1, 0; }
int nvrtcGetProgramLog(void*, char* to) { return std::strcpy(to, found()), 0; }
int nvrtcGetCUBINSize(void*, std::size_t* n) { return *n = 0, 0; }
int nvrtcGetCUBIN(void*, char*) { return 0; }
const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
}
"""


def library(folder, name, text, *options):
    source = folder / "source.cc"
    source.write_text(text)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", folder / name, source, *options], check=True)


@pytest.mark.parametrize("beside", [True, False])
def test_the_second_library_is_found_beside_the_first(tmp_path, beside):
    library(tmp_path, "libnvrtc.so.13", NVRTC, "-ldl")
    if beside:
        library(tmp_path, "libnvrtc-builtins.so.13.987", "", "-Wl,-soname,libnvrtc-builtins.so.13.987")
    done = subprocess.run([OCTAVO, "build", MODEL, "-o", tmp_path / "x.octavo", "--gpu", "H200"], capture_output=True, text=True, check=False, timeout=120,
                          env={**os.environ, "OCTAVO_NVRTC": str(tmp_path / "libnvrtc.so.13"), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert done.returncode != 0 and "compiling CUDA text: NVRTC_ERROR_COMPILATION" in done.stderr, done.stderr
    assert ("builtins opened" if beside else "builtins missing") in done.stderr, done.stderr
    assert not (tmp_path / "x.octavo").exists()
