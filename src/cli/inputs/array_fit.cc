#include "cli/inputs/array_fit.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo::cli {

Status convertible(ir::DType from, ir::DType to, const std::string& name) {
  const auto plain = [](ir::DType d) { return d == ir::DType::f32 || d == ir::DType::f16 || d == ir::DType::f64; };
  if (from == to || (plain(from) && (to == ir::DType::f32 || to == ir::DType::f16))) return {};
  return fail(ErrorKind::bad_input, fmt::format("input \"{}\" takes {}, the array holds {}\n  convert it first: array.astype(...)",
                                                name, ir::name_of(to), ir::name_of(from)));
}

bool same_rows(const ir::Shape& given, const ir::Shape& wanted) {
  return !given.empty() && given.size() == wanted.size() && given[0] > 0 && wanted[0] != 0 &&
         std::equal(given.begin() + 1, given.end(), wanted.begin() + 1);
}

std::string layout_hint(const ir::Shape& array, const ir::Shape& wanted) {
  if (array.size() != 4 || wanted.size() != 4 || array == wanted) return "";
  const auto is = [&](std::size_t a, std::size_t b, std::size_t c) {
    return array[a] == wanted[1] && array[b] == wanted[2] && array[c] == wanted[3];
  };
  if (is(3, 1, 2)) return "\n  its channels are last, the model's are first: numpy.transpose(x, (0, 3, 1, 2))";
  if (is(2, 3, 1)) return "\n  its channels are first, the model's are last: numpy.transpose(x, (0, 2, 3, 1))";
  return "";
}

}  // namespace octavo::cli
