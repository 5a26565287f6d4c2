#include "region/weight_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace octavo::region {

std::string spelled(const WeightCodes& codes) {
  return fmt::format("codes[{},{},{}]", codes.bits, codes.block, codes.one_zero ? 1 : 0);
}

std::optional<WeightCodes> parse_weight_codes(std::string_view text) {
  constexpr std::string_view kBegin = "codes[";
  if (!text.starts_with(kBegin)) return std::nullopt;
  WeightCodes out;
  int one_zero = 0;
  const char *at = text.data() + kBegin.size(), *const end = text.data() + text.size();
  const auto number = [&](auto& to) {
    const auto [next, error] = std::from_chars(at, end, to);
    if (error != std::errc() || next == end) return false;
    at = next + 1;
    return true;
  };
  if (!number(out.bits) || !number(out.block) || !number(one_zero)) return std::nullopt;
  out.one_zero = one_zero != 0;
  return spelled(out) == text ? std::optional(out) : std::nullopt;
}

Status check_weight_codes(const Anchor& a) {
  const auto bad = [](std::string what) { return fail(ErrorKind::bad_engine, std::move(what)); };
  const auto& [bits, block, one_zero] = *a.weight_codes;
  if (bits != 2 && bits != 4 && bits != 8) return bad(fmt::format("codes of {} bits, needs 2, 4 or 8", bits));
  if (a.op != ir::Op::conv || a.integer || !a.weights || a.weights->dtype != ir::DType::f32 || a.weights->dims.size() != 4 ||
      a.weights->dims[2] != 1 || a.weights->dims[3] != 1)
    return bad("codes of weights that are not f32 [O,C,1,1] of a float convolution");
  if (block < 1 || block > std::max<std::int64_t>(1, a.weights->dims[1]))
    return bad(fmt::format("blocks of {} channels of {}", block, a.weights->dims[1]));
  return {};
}

}  // namespace octavo::region
