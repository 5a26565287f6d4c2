#include "ir/block_codes.h"

#include <algorithm>

namespace octavo::ir {

bool BlockCodes::one_zero() const {
  const auto all = zeros.data<float>();
  return std::all_of(all.begin(), all.end(), [&](float z) { return z == all[0]; });
}

Tensor values_of(std::shared_ptr<const BlockCodes> codes) {
  const std::int64_t rows = codes->rows(), columns = codes->columns(), blocks = codes->blocks();
  const std::uint8_t* code = codes->codes.data<std::uint8_t>().data();
  const float *scale = codes->scales.data<float>().data(), *zero = codes->zeros.data<float>().data();
  Tensor out(DType::f32, {rows, columns});
  float* to = out.mutable_data<float>().data();
  constexpr std::int64_t kTogether = 16;  // columns: a line of the cache in each row that is written
  for (std::int64_t first = 0; first < columns; first += kTogether) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t b = i / codes->block;
      for (std::int64_t j = first; j < std::min(columns, first + kTogether); ++j)
        to[i * columns + j] = (static_cast<float>(code[j * rows + i]) - zero[j * blocks + b]) * scale[j * blocks + b];
    }
  }
  out.set_codes(std::move(codes));
  return out;
}

}  // namespace octavo::ir
