#include "cuda/device/driver_api.h"

#include <fmt/format.h>

#include "cuda/device/library.h"

namespace octavo::cuda {
namespace {

constexpr int kOutOfMemory = 2;

const Library& driver_library() {
  static const Library library({"libcuda.so.1", "libcuda.so"});
  return library;
}

Result<DriverApi> open() {
  const Library& library = driver_library();
  if (!library.found()) return fail(ErrorKind::unsupported, "opening the GPU: no CUDA driver (" + library.tried() + ")");
  DriverApi api;
#define OCTAVO_FIND(member, symbol, parameters) \
  if (!library.get(symbol, api.member))         \
    return fail(ErrorKind::unsupported, "opening the GPU: the CUDA driver lacks " symbol "; version 12 or later is needed");
  OCTAVO_CUDA_FUNCTIONS(OCTAVO_FIND)
#undef OCTAVO_FIND
  OCTAVO_CHECK(api.check(api.init(0), "starting the CUDA driver"));
  return api;
}

}  // namespace

Status DriverApi::check(int code, std::string_view doing) const {
  if (code == 0) return {};
  const char* text = nullptr;
  error_text(code, &text);
  return fail(code == kOutOfMemory ? ErrorKind::io : ErrorKind::unsupported,
              fmt::format("{}: the CUDA driver says {} ({})", doing, text != nullptr ? text : "nothing", code));
}

Result<const DriverApi*> driver_api() {
  static const Result<DriverApi> api = open();
  if (!api) return tl::unexpected(api.error());
  return &*api;
}

Result<std::string> driver_path() {
  const Library& library = driver_library();
  if (!library.found()) return fail(ErrorKind::unsupported, "no CUDA driver (" + library.tried() + ")");
  return library.path();
}

}  // namespace octavo::cuda
