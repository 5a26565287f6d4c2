#include "plan/lowering/weights.h"

#include <algorithm>
#include <memory>

#include "base/half_arrays.h"
#include "ir/block_codes.h"
#include "plan/regions/epilogue.h"

namespace octavo::plan {
namespace {

using ir::Node;

// 8-bit weights as s8 codes with their zero points (u8 weights are shifted by 128).
ir::Tensor weight_codes(const Node& c) {
  const ir::Quantizer q = ir::as_s8(*c.quantizer);
  const std::int32_t shift = q.zero_point[0] - c.quantizer->zero_point[0];
  if (shift == 0 && c.payload.dtype() == ir::DType::s8) return c.payload;
  ir::Tensor out(ir::DType::s8, c.payload.shape());
  const auto to = out.mutable_data<std::int8_t>();
  const auto shifted = [&](const auto& from) {
    std::transform(from.begin(), from.end(), to.begin(), [&](auto code) { return static_cast<std::int8_t>(code + shift); });
  };
  if (c.payload.dtype() == ir::DType::u8) {
    shifted(c.payload.data<std::uint8_t>());
  } else {
    shifted(c.payload.data<std::int8_t>());
  }
  return out;
}

// gemm weights [K,N] as convolution weights [N,K,1,1].
template <class T>
ir::Tensor transposed_weights(const ir::Tensor& w) {
  const std::int64_t k = w.shape()[0], n = w.shape()[1];
  ir::Tensor out(w.dtype(), {n, k, 1, 1});
  const T* from = w.data<T>().data();
  T* to = out.mutable_data<T>().data();
  constexpr std::int64_t kTile = 64;  // rows of either side that stay in the cache
  for (std::int64_t row = 0; row < k; row += kTile) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = row; i < std::min(row + kTile, k); ++i) to[j * k + i] = from[i * n + j];
    }
  }
  return out;
}

// Weights that `narrow` rounded, in their own type.
ir::Tensor narrow_of(const ir::Tensor& w, ir::DType type) {
  ir::Tensor out(type, w.shape());
  const auto from = w.data<float>();
  (type == ir::DType::f16 ? f32_to_f16_all : f32_to_bf16_all)(from, out.mutable_data<std::uint16_t>());
  return out;
}

/// The codes of a matrix that is read as floats: those that the model's operator had, or those of a coded constant, with one block of all rows.
std::shared_ptr<const ir::BlockCodes> block_codes(const Node& w) {
  if (!w.quantizer) return w.payload.codes();
  const ir::Quantizer& q = *w.quantizer;
  if (!ir::is_int8(q.type) || q.arith != ir::DType::f32 || (!q.per_tensor() && q.axis != 1)) return nullptr;
  const std::int64_t rows = w.payload.shape()[0], columns = w.payload.shape()[1];
  const ir::Quantizer u8 = ir::as_u8(q);
  const std::int32_t shift = u8.zero_point[0] - q.zero_point[0];
  ir::BlockCodes out{8, std::max<std::int64_t>(rows, 1), ir::Tensor(ir::DType::u8, {columns, rows}),
                     ir::Tensor(ir::DType::f32, {columns, 1}), ir::Tensor(ir::DType::f32, {columns, 1})};
  std::uint8_t* code = out.codes.mutable_data<std::uint8_t>().data();
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j)
      code[j * rows + i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(w.payload.at(i * columns + j)) + shift);
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    out.scales.mutable_data<float>()[static_cast<std::size_t>(j)] = u8.scale_at(j);
    out.zeros.mutable_data<float>()[static_cast<std::size_t>(j)] = static_cast<float>(u8.zero_at(j));
  }
  return std::make_shared<const ir::BlockCodes>(std::move(out));
}

}  // namespace

std::vector<std::int32_t> weight_zeros(const Node& c) {
  std::vector<std::int32_t> zero = ir::as_s8(*c.quantizer).zero_point;
  if (std::all_of(zero.begin(), zero.end(), [](std::int32_t z) { return z == 0; })) zero.clear();
  return zero;
}

ir::Tensor lowered_weights(const Node& w, const WeightForm& form) {
  ir::Tensor out = form.codes ? weight_codes(w) : w.quantizer ? decoded(w) : w.payload.to_f32();
  if (form.narrow) out = narrow_of(out, *form.narrow);
  if (!form.transposed) return out;
  if (form.narrow) return transposed_weights<std::uint16_t>(out);
  if (form.codes) return transposed_weights<std::int8_t>(out);
  ir::Tensor turned = transposed_weights<float>(out);
  turned.set_codes(block_codes(w));
  return turned;
}

}  // namespace octavo::plan
