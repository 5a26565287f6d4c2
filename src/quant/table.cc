#include "quant/table.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>

namespace octavo::quant {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20) {
      out += fmt::format("\\u{:04x}", u);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::string table_text(const std::map<std::string, float>& scales, const std::string& header) {
  std::string out = fmt::format("TRT-{}\n", header);
  for (const auto& [name, scale] : scales) out += fmt::format("{}: {:x}\n", name, std::bit_cast<std::uint32_t>(scale));
  return out;
}

std::string ranges_json(const ir::Ranges& ranges) {
  std::string out = "{";
  for (const auto& [name, q] : ranges) {
    const ir::Ends ends = ir::ends_of(q);
    const std::string range =
        q == ir::symmetric(q.scale[0]) ? fmt::format("{}", ends.hi) : fmt::format("[{}, {}]", ends.lo, ends.hi);
    out += fmt::format("{}\n {}: {}", out.size() == 1 ? "" : ",", quoted(name), range);
  }
  return out + "\n}\n";
}

}  // namespace octavo::quant
