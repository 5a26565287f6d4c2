// .npy and .npz: what parses is written so that it parses to the same bytes again.
#include "cli/inputs/npy.h"

#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  if (const auto array = octavo::cli::parse_npy(bytes, "array")) {
    const auto again = octavo::cli::parse_npy(octavo::cli::format_npy(*array), "again");
    if (!again || again->shape() != array->shape()) std::abort();
  }
  if (const auto arrays = octavo::cli::parse_npz(bytes, "archive")) {
    for (const auto& [name, array] : *arrays) {
      if (array.empty() && array.size() != 0) std::abort();
    }
  }
  return 0;
}
