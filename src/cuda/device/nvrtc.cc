#include "cuda/device/nvrtc.h"

#include <fmt/format.h>

#include <cstdlib>

#include "cuda/device/library.h"

namespace octavo::cuda {
namespace {

// The part of NVRTC's C interface that is used here (stable since CUDA 11.1); 0 is success.
struct Nvrtc {
  using Handle = void*;
  int (*version)(int*, int*) = nullptr;
  int (*create)(Handle*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Handle, int, const char* const*) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*log_size)(Handle, std::size_t*) = nullptr;
  int (*log)(Handle, char*) = nullptr;
  int (*cubin_size)(Handle, std::size_t*) = nullptr;
  int (*cubin)(Handle, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;
};

const Library& nvrtc_library() {
  const char* named = std::getenv("OCTAVO_NVRTC");
  static const Library library(
      {named ? named : "", "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"});
  return library;
}

/// NVRTC opens a second library when it compiles, by name alone. The loader does not find it beside the first where that was opened by its
/// path, from a folder that the loader does not know. It is found if it is open already. If it is not there, NVRTC says so itself.
void open_builtins(const Library& library, const Nvrtc& n) {
  static const Library builtins = [&] {
    int major = 0, minor = 0;
    const std::string path = library.path();
    const std::size_t folder = path.rfind('/');
    if (folder == std::string::npos || n.version(&major, &minor) != 0) return Library({});
    return Library({fmt::format("{}/libnvrtc-builtins.so.{}.{}", path.substr(0, folder), major, minor)});
  }();
}

Result<Nvrtc> open() {
  const Library& library = nvrtc_library();
  if (!library.found()) {
    return fail(ErrorKind::unsupported,
                "opening NVRTC: none of " + library.tried() + " can be loaded; install it, or set OCTAVO_NVRTC to its path");
  }
  Nvrtc n;
  const bool complete = library.get("nvrtcVersion", n.version) && library.get("nvrtcCreateProgram", n.create) &&
                        library.get("nvrtcCompileProgram", n.compile) && library.get("nvrtcDestroyProgram", n.destroy) &&
                        library.get("nvrtcGetProgramLogSize", n.log_size) && library.get("nvrtcGetProgramLog", n.log) &&
                        library.get("nvrtcGetCUBINSize", n.cubin_size) && library.get("nvrtcGetCUBIN", n.cubin) &&
                        library.get("nvrtcGetErrorString", n.error_text);
  if (!complete) return fail(ErrorKind::unsupported, "opening NVRTC: a function is missing; version 11.1 or later is needed");
  open_builtins(library, n);
  return n;
}

}  // namespace

Result<Compiled> compile(std::string_view text, const std::vector<std::string>& options) {
  OCTAVO_TRY(const Nvrtc n, open());
  const std::string source(text);
  Nvrtc::Handle program = nullptr;
  if (const int e = n.create(&program, source.c_str(), "octavo.cu", 0, nullptr, nullptr)) {
    return fail(ErrorKind::internal, fmt::format("compiling CUDA text: {}", n.error_text(e)));
  }
  std::vector<const char*> arguments;
  for (const std::string& o : options) arguments.push_back(o.c_str());
  const int status = n.compile(program, static_cast<int>(arguments.size()), arguments.data());
  Compiled out;
  std::size_t size = 0;
  if (n.log_size(program, &size) == 0 && size > 1) {
    out.log.resize(size);
    n.log(program, out.log.data());
    out.log.resize(size - 1);
  }
  if (status == 0 && n.cubin_size(program, &size) == 0 && size > 0) {
    out.cubin.resize(size);
    n.cubin(program, out.cubin.data());
  }
  n.destroy(&program);
  if (status != 0 || out.cubin.empty()) {
    return fail(ErrorKind::internal, fmt::format("compiling CUDA text: {}\n{}", n.error_text(status), out.log));
  }
  return out;
}

Result<std::string> compiler_version() {
  OCTAVO_TRY(const Nvrtc n, open());
  int major = 0, minor = 0;
  n.version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

Result<std::string> compiler_path() {
  OCTAVO_CHECK(open());
  return nvrtc_library().path();
}

}  // namespace octavo::cuda
