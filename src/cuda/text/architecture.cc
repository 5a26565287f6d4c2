#include "cuda/text/architecture.h"

#include <fmt/format.h>

namespace octavo::cuda {

std::string Architecture::text() const {
  return sm == 0 ? std::string() : fmt::format("sm_{}{}", sm, specific ? "a" : "");
}

}  // namespace octavo::cuda
