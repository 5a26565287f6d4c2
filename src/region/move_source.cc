#include "region/move_source.h"

#include <fmt/format.h>

#include <string>

namespace octavo::region {
namespace {

using ir::Op;
using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kFill = MoveSource::kFill;

auto mismatch(const Stage& s) {
  return fail(ErrorKind::bad_engine, fmt::format("{} of {} does not give {}", ir::name_of(s.anchor.op),
                                                 ir::to_string(s.anchor.inputs[0].dims), ir::to_string(s.space)));
}

Result<MoveSource> gather_source(const Stage& s) {
  if (s.anchor.inputs.size() < 2) return mismatch(s);
  const TensorRef &x = s.anchor.inputs[0], &indices = s.anchor.inputs[1];
  MoveSource t;
  t.gathered = indices.dims.size();
  t.axis = static_cast<std::size_t>(s.anchor.as<ir::Gather>().axis);
  if (t.axis >= x.dims.size() || s.space.size() != x.dims.size() - 1 + t.gathered)
    return fail(ErrorKind::bad_engine,
                fmt::format("gather along {} of {} does not give {}", t.axis, ir::to_string(x.dims), ir::to_string(s.space)));
  if (indices.dtype != ir::DType::s64 && indices.dtype != ir::DType::s32)
    return fail(ErrorKind::unsupported, fmt::format("gather with {} indices", ir::name_of(indices.dtype)));
  if (x.dims[t.axis] == 0 && ir::count(s.space) != 0) return mismatch(s);
  for (std::size_t k = 0; k < s.space.size(); ++k) {
    t.of.emplace_back();
    if (k >= t.axis && k < t.axis + t.gathered) {
      if (s.space[k] != indices.dims[k - t.axis]) return mismatch(s);
      continue;
    }
    const std::size_t from = k < t.axis ? k : k + 1 - t.gathered;
    if (s.space[k] > x.dims[from]) return mismatch(s);
    for (std::int64_t i = 0; i < s.space[k]; ++i) t.of[k].push_back(i * x.strides[from]);
  }
  return t;
}

Result<MoveSource> block_source(const Stage& s) {
  const TensorRef& x = s.anchor.inputs[0];
  const auto& blocks = s.anchor.as<ir::Blocks>();
  const std::int64_t b = blocks.blocksize;
  if (s.space.size() != 4 || x.dims.size() != 4 || b < 1 || ir::count(s.space) != ir::count(x.dims)) return mismatch(s);
  const bool deep = s.anchor.op == Op::space_to_depth, crd = blocks.mode == ir::BlockOrder::column_row_depth;
  if (s.space[1] * (deep ? 1 : b * b) != x.dims[1] * (deep ? b * b : 1) || s.space[0] != x.dims[0]) return mismatch(s);
  const std::int64_t sc = x.strides[1], sh = x.strides[2], sw = x.strides[3];
  // A channel of the deep tensor stands for (block row, block column, shallow channel).
  const std::int64_t channels = deep ? x.dims[1] : s.space[1];
  const std::int64_t block_row = crd ? b : b * channels, block_col = crd ? 1 : channels, shallow = crd ? b * b : 1;
  MoveSource t;
  t.of.resize(4);
  for (std::int64_t n = 0; n < s.space[0]; ++n) t.of[0].push_back(n * x.strides[0]);
  for (std::int64_t c = 0; c < s.space[1]; ++c)
    t.of[1].push_back(deep ? c % channels * sc + c / channels / b * sh + c / channels % b * sw : c * shallow * sc);
  for (std::int64_t h = 0; h < s.space[2]; ++h) t.of[2].push_back(deep ? h * b * sh : h / b * sh + h % b * block_row * sc);
  for (std::int64_t w = 0; w < s.space[3]; ++w) t.of[3].push_back(deep ? w * b * sw : w / b * sw + w % b * block_col * sc);
  return t;
}

}  // namespace

std::int64_t pad_source(ir::PadMode mode, std::int64_t i, std::int64_t extent) {
  if (i >= 0 && i < extent) return i;
  if (mode == ir::PadMode::edge) return i < 0 ? 0 : extent - 1;
  if (mode == ir::PadMode::constant) return kFill;
  if (extent == 1) return 0;
  const std::int64_t period = 2 * (extent - 1), m = (i % period + period) % period;
  return m < extent ? m : period - m;
}

Result<MoveSource> move_source(const Stage& s) {
  switch (s.anchor.op) {
    case Op::gather: return gather_source(s);
    case Op::depth_to_space:
    case Op::space_to_depth: return block_source(s);
    case Op::pad:
    case Op::tile:
    case Op::slice:
    case Op::resize_nearest:
    case Op::transpose:
    case Op::reshape: break;
    default: return fail(ErrorKind::unsupported, fmt::format("{} does not only move elements", ir::name_of(s.anchor.op)));
  }
  const TensorRef& x = s.anchor.inputs[0];
  const std::size_t rank = s.space.size();
  const auto* pad = std::get_if<ir::Pad>(&s.anchor.facts);
  const auto* slice = std::get_if<ir::Slice>(&s.anchor.facts);
  const auto* transpose = std::get_if<ir::Transpose>(&s.anchor.facts);
  const auto* nearest = std::get_if<ir::ResizeNearest>(&s.anchor.facts);
  if (x.dims.size() != rank || (pad && pad->pads.size() != 2 * rank) ||
      (slice && (slice->starts.size() != rank || slice->steps.size() != rank)) || (transpose && transpose->perm.size() != rank) ||
      (nearest && nearest->index.size() != rank))
    return mismatch(s);
  MoveSource t;
  for (std::size_t k = 0; k < rank; ++k) {
    const Ints index = nearest ? nearest->index[k] : Ints{};
    const std::size_t from = transpose ? static_cast<std::size_t>(transpose->perm[k]) : k;
    const bool whole = transpose || s.anchor.op == Op::reshape;
    if (from >= rank || (whole && x.dims[from] != s.space[k]) ||
        (!index.empty() && static_cast<std::int64_t>(index.size()) != s.space[k]))
      return mismatch(s);
    t.of.emplace_back();
    for (std::int64_t i = 0; i < s.space[k]; ++i) {
      std::int64_t at = i;
      if (pad) at = x.dims[k] == 0 && pad->mode != ir::PadMode::constant ? -2 : pad_source(pad->mode, i - pad->pads[k], x.dims[k]);
      if (s.anchor.op == Op::tile) at = x.dims[k] == 0 ? kFill : i % x.dims[k];
      if (slice) at = slice->starts[k] + i * slice->steps[k];
      if (!index.empty()) at = index[static_cast<std::size_t>(i)];
      const bool fill = at == kFill && (pad || s.anchor.op == Op::tile);
      if (!fill && (at < 0 || at >= x.dims[from])) return mismatch(s);
      t.of[k].push_back(fill ? kFill : at * x.strides[from]);
    }
  }
  return t;
}

}  // namespace octavo::region
