// move: transpose, slice, pad, tile, resize_nearest, gather, depth_to_space, space_to_depth, and reshapes with a program. The source
// of an element is a sum of one term a dimension of the result: a multiple of the index, or an entry of a table.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "base/half.h"
#include "cuda/families/words.h"
#include "region/move_source.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kFill = region::MoveSource::kFill;

/// a * i + b, where the entries are that.
std::optional<std::pair<std::int64_t, std::int64_t>> affine(const Ints& v) {
  if (v.empty()) return std::pair<std::int64_t, std::int64_t>{0, 0};
  const std::int64_t step = v.size() > 1 ? v[1] - v[0] : 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (v[i] == kFill || v[i] != v[0] + static_cast<std::int64_t>(i) * step) return std::nullopt;
  }
  return std::pair{step, v[0]};
}

/// The pad value of an element of two words, which the dimension behind those of the result tells apart; `apart`: they differ.
std::string fill_of_pairs(const Stage& s, DType type, bool& apart) {
  const auto* pad = std::get_if<ir::Pad>(&s.anchor.facts);
  const double value = pad == nullptr ? 0 : pad->value;
  const std::uint64_t bits = type == DType::f64   ? std::bit_cast<std::uint64_t>(value)
                             : type == DType::u64 ? static_cast<std::uint64_t>(value)
                                                  : static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  const auto low = static_cast<std::uint32_t>(bits), high = static_cast<std::uint32_t>(bits >> 32);
  apart = low != high;
  if (!apart) return fmt::format("(int)0x{:08x}u", low);
  return fmt::format("(int)(c{} == 0 ? 0x{:08x}u : 0x{:08x}u)", s.space.size(), low, high);
}

/// The pad value as the register that a program reads, or as the bits of a word.
std::string fill_text(const Stage& s, DType type, bool raw) {
  const auto* pad = std::get_if<ir::Pad>(&s.anchor.facts);
  const auto value = static_cast<float>(pad == nullptr ? 0 : pad->value);
  std::int32_t bits = static_cast<std::int32_t>(value);
  if (s.anchor.integer) bits = static_cast<std::int32_t>(pad == nullptr ? 0 : pad->value_code.value_or(0));
  switch (type) {
    case DType::f32:
      if (!raw) return float_text(value);
      bits = std::bit_cast<std::int32_t>(value);
      break;
    case DType::f16:
      if (!raw) return float_text(f16_to_f32(f32_to_f16(value)));
      bits = f32_to_f16(value);
      break;
    case DType::bf16:
      if (!raw) return float_text(bf16_to_f32(f32_to_bf16(value)));
      bits = f32_to_bf16(value);
      break;
    default: break;
  }
  return fmt::format("(int)0x{:08x}u", static_cast<std::uint32_t>(bits));
}

class MoveFamily final : public ElementFamily {
 public:
  MoveFamily() : ElementFamily("move") {}
  bool about(const Region& r) const override {
    if (!is_single(r) || only(r).anchor.inputs.empty()) return false;
    switch (only(r).anchor.op) {
      case Op::reshape: return !only(r).program.outputs.empty();
      case Op::gather: return only(r).anchor.inputs.size() == 2;
      case Op::transpose:
      case Op::slice:
      case Op::pad:
      case Op::tile:
      case Op::resize_nearest:
      case Op::depth_to_space:
      case Op::space_to_depth: return true;
      default: return false;
    }
  }

  Result<ElementKernel> kernel(const Stage& whole, const Plan&) const override {
    region::TensorRef x = whole.anchor.inputs[0];
    OCTAVO_TRY(region::MoveSource source, region::move_source(whole));
    OCTAVO_TRY(const MovedStage moved, moved_stage(whole, x.dtype));
    bool apart = false;
    const std::string fill = moved.pairs ? fill_of_pairs(whole, x.dtype, apart) : fill_text(whole, x.dtype, moved.raw);
    const Stage& s = moved.stage;
    if (moved.raw) x = as_words(x);
    if (moved.pairs) {
      for (Ints& of : source.of) {
        for (std::int64_t& at : of) at *= at == kFill ? 1 : 2;
      }
      source.of.push_back({0, 1});
    }
    AnchorText anchor;
    anchor.inputs = s.anchor.inputs;
    anchor.inputs[0] = x;
    anchor.real = moved.real;
    ElementAccess along{x.buffer, x.offset, x.dtype, {}, {}};
    std::int64_t base = 0;
    std::string terms, inside;
    for (std::size_t k = 0; k < s.space.size(); ++k) {
      along.div.push_back(1);
      if (source.gathered > 0 && k >= source.axis && k < source.axis + source.gathered) {
        along.strides.push_back(2);  // neighbours of the result are not neighbours of the source
        continue;
      }
      const Ints& of = source.of[k];
      if (const auto a = affine(of)) {
        base += a->second;
        const std::int64_t step = step_of(s, x, k, *a);
        const bool open = s.open != 0 && open_step(x, step);
        along.strides.push_back(s.space[k] == 1 && (s.open >> k & 1) == 0 ? 0 : step);
        if (step != 0) terms += fmt::format("    at += c{} * {};\n", k, anchor.numbers.put({step, open}, "ll"));
        continue;
      }
      std::vector<std::int32_t> table;
      std::int64_t common = 0;
      for (const std::int64_t at : of) {
        if (at != static_cast<std::int32_t>(at)) return refuse("offsets of the table", at, "less than 2^31");
        table.push_back(static_cast<std::int32_t>(at));
        common = std::gcd(common, at == kFill ? 0 : at);
      }
      along.strides.push_back(common == 1 ? 2 : common);
      terms += fmt::format("    const int t{0} = ((const int*)k{1})[c{0}];\n    at += t{0};\n", k, anchor.constants.size());
      if (std::find(of.begin(), of.end(), kFill) != of.end()) inside += fmt::format("{}t{} >= 0", inside.empty() ? "" : " && ", k);
      anchor.constants.push_back(ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(table.size())}, table));
    }
    if (whole.anchor.op == Op::gather) {  // one index too, which no dimension of the result has
      terms += gathered(whole.anchor, source, moved.pairs, anchor.numbers);
      const std::int64_t row = whole.anchor.inputs[0].strides[source.axis] * element_bytes(x);
      along.offset = std::gcd(along.offset, row);  // what the beginning of a run is aligned for
    }
    along.offset += base * element_bytes(x);
    anchor.body = fmt::format("  {{\n    long long at = {}ll;\n{}", base, terms);
    const std::string load = fmt::format("{}(acc, x0 + at * {})", load_function(x.dtype), ir::size_of(x.dtype));
    if (inside.empty()) {
      anchor.body += fmt::format("    {};\n  }}\n", load);
    } else {
      anchor.body += fmt::format(
          "    if ({}) {{\n      {};\n    }} else {{\n      for (int v = 0; v < kRun; ++v) acc[v] = {};\n    }}\n  }}\n", inside,
          load, fill);
    }
    return element_kernel(s, std::move(anchor), {along}, apart && !inside.empty() ? 1 : 16);
  }

 private:
  /// The source's step along a dimension. One open element here says nothing of it, and any step is right: it is likely that of the same dimension.
  static std::int64_t step_of(const Stage& s, const region::TensorRef& x, std::size_t k,
                              std::pair<std::int64_t, std::int64_t> affine) {
    if (s.space[k] != 1 || (s.open >> k & 1) == 0 || k >= x.strides.size() || (x.open.dims >> k & 1) == 0) return affine.first;
    return x.strides[k];
  }
  static bool open_step(const region::TensorRef& x, std::int64_t step) {
    for (std::size_t d = 0; d < x.strides.size(); ++d) {
      if (x.strides[d] == step && (x.open.strides >> d & 1) != 0) return true;
    }
    return false;
  }

  /// Adds the row that the indices name.
  static std::string gathered(const region::Anchor& a, const region::MoveSource& source, bool pairs, OpenNumbers& numbers) {
    const region::TensorRef &x = a.inputs[0], &indices = a.inputs[1];
    std::string at = "0";
    for (std::size_t k = 0; k < source.gathered; ++k)
      at += fmt::format(" + c{} * {}", source.axis + k,
                        numbers.put({indices.strides[k], (indices.open.strides >> k & 1) != 0}, "ll"));
    return "    long long g;\n" + add_indexed_row(indices, at, x.dims[source.axis], x.strides[source.axis] * (pairs ? 2 : 1));
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(move, MoveFamily)

}  // namespace octavo::cuda
