// move: transpose, slice, pad, tile, resize_nearest, gather, depth_to_space, space_to_depth, and reshapes with a program. The source
// of an element is a sum of one term a dimension of the result: a multiple of the index, or an entry of a table.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "base/half.h"
#include "cuda/families/words.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kFill = -1;

struct Source {
  std::vector<Ints> of;      ///< element offset for each index of each dimension of the space; kFill: the pad value
  std::size_t gathered = 0;  ///< dimensions of the space that the indices have, from `axis` on
  std::size_t axis = 0;
};

std::int64_t pad_source(const std::string& mode, std::int64_t i, std::int64_t extent) {
  if (i >= 0 && i < extent) return i;
  if (mode == "edge") return i < 0 ? 0 : extent - 1;
  if (mode == "wrap") return (i % extent + extent) % extent;
  if (mode != "reflect") return kFill;
  if (extent == 1) return 0;
  const std::int64_t period = 2 * (extent - 1), m = (i % period + period) % period;
  return m < extent ? m : period - m;
}

Result<Source> gather_source(const Stage& s, const region::TensorRef& x) {
  const region::TensorRef& indices = s.anchor.inputs[1];
  Source t;
  t.gathered = indices.dims.size();
  t.axis = static_cast<std::size_t>(ir::get_int(s.anchor.attrs, "axis"));
  if (t.axis >= x.dims.size() || s.space.size() != x.dims.size() - 1 + t.gathered)
    return fail(ErrorKind::bad_engine,
                fmt::format("gather along {} of {} does not give {}", t.axis, ir::to_string(x.dims), ir::to_string(s.space)));
  if (indices.dtype != DType::s64 && indices.dtype != DType::s32)
    return fail(ErrorKind::unsupported, fmt::format("gather with {} indices", ir::name_of(indices.dtype)));
  for (std::size_t k = 0; k < s.space.size(); ++k) {
    t.of.emplace_back();
    if (k >= t.axis && k < t.axis + t.gathered) continue;
    const std::size_t from = k < t.axis ? k : k + 1 - t.gathered;
    for (std::int64_t i = 0; i < s.space[k]; ++i) t.of[k].push_back(i * x.strides[from]);
  }
  return t;
}

Result<Source> block_source(const Stage& s, const region::TensorRef& x) {
  const std::int64_t b = ir::get_int(s.anchor.attrs, "blocksize");
  if (s.space.size() != 4 || x.dims.size() != 4 || b < 1)
    return fail(ErrorKind::bad_engine, fmt::format("blocks of {} in {}", b, ir::to_string(x.dims)));
  const bool deep = s.anchor.op == Op::space_to_depth, crd = ir::get_text(s.anchor.attrs, "mode", "DCR") == "CRD";
  const std::int64_t sc = x.strides[1], sh = x.strides[2], sw = x.strides[3];
  const std::int64_t channels = deep ? x.dims[1] : s.space[1];
  const std::int64_t block_row = crd ? b : b * channels, block_col = crd ? 1 : channels, shallow = crd ? b * b : 1;
  Source t;
  t.of.resize(4);
  for (std::int64_t n = 0; n < s.space[0]; ++n) t.of[0].push_back(n * x.strides[0]);
  for (std::int64_t c = 0; c < s.space[1]; ++c)
    t.of[1].push_back(deep ? c % channels * sc + c / channels / b * sh + c / channels % b * sw : c * shallow * sc);
  for (std::int64_t h = 0; h < s.space[2]; ++h) t.of[2].push_back(deep ? h * b * sh : h / b * sh + h % b * block_row * sc);
  for (std::int64_t w = 0; w < s.space[3]; ++w) t.of[3].push_back(deep ? w * b * sw : w / b * sw + w % b * block_col * sc);
  return t;
}

Result<Source> source_of(const Stage& s) {
  const region::TensorRef& x = s.anchor.inputs[0];
  const auto& attrs = s.anchor.attrs;
  if (s.anchor.op == Op::gather) return gather_source(s, x);
  if (s.anchor.op == Op::depth_to_space || s.anchor.op == Op::space_to_depth) return block_source(s, x);
  const std::size_t rank = s.space.size();
  if (x.dims.size() != rank)
    return fail(ErrorKind::bad_engine,
                fmt::format("{} of {} does not give {}", ir::name_of(s.anchor.op), ir::to_string(x.dims), ir::to_string(s.space)));
  const Ints pads = ir::get_ints(attrs, "pads"), starts = ir::get_ints(attrs, "starts"), perm = ir::get_ints(attrs, "perm");
  Ints steps = ir::get_ints(attrs, "steps");
  if (steps.empty()) steps.assign(rank, 1);
  const std::string mode = ir::get_text(attrs, "mode", "constant");
  Source t;
  for (std::size_t k = 0; k < rank; ++k) {
    const Ints index = s.anchor.op == Op::resize_nearest ? ir::get_ints(attrs, "index" + std::to_string(k)) : Ints{};
    const std::size_t from = s.anchor.op == Op::transpose ? static_cast<std::size_t>(perm[k]) : k;
    t.of.emplace_back();
    for (std::int64_t i = 0; i < s.space[k]; ++i) {
      std::int64_t at = i;
      if (s.anchor.op == Op::pad) at = pad_source(mode, i - pads[k], x.dims[k]);
      if (s.anchor.op == Op::tile) at = i % x.dims[k];
      if (s.anchor.op == Op::slice) at = starts[k] + i * steps[k];
      if (!index.empty()) at = index[static_cast<std::size_t>(i)];
      if (at != kFill && (at < 0 || at >= x.dims[from]))
        return fail(ErrorKind::bad_engine,
                    fmt::format("{} reads index {} of {}", ir::name_of(s.anchor.op), at, ir::to_string(x.dims)));
      t.of[k].push_back(at == kFill ? kFill : at * x.strides[from]);
    }
  }
  return t;
}

/// a * i + b, where the entries are that.
std::optional<std::pair<std::int64_t, std::int64_t>> affine(const Ints& v) {
  if (v.empty()) return std::pair<std::int64_t, std::int64_t>{0, 0};
  const std::int64_t step = v.size() > 1 ? v[1] - v[0] : 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (v[i] == kFill || v[i] != v[0] + static_cast<std::int64_t>(i) * step) return std::nullopt;
  }
  return std::pair{step, v[0]};
}

/// The pad value as the register that a program reads, or as the bits of a word.
Result<std::string> fill_text(const Stage& s, DType type, bool raw) {
  const auto value = static_cast<float>(ir::get_float(s.anchor.attrs, "value", 0));
  std::int32_t bits = static_cast<std::int32_t>(value);
  if (s.anchor.integer) bits = static_cast<std::int32_t>(ir::get_int(s.anchor.attrs, "value_code"));
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
    default:
      if (ir::size_of(type) == 8 && bits != 0)
        return fail(ErrorKind::unsupported, fmt::format("padding {} with {}", ir::name_of(type), value));
  }
  return fmt::format("(int)0x{:08x}u", static_cast<std::uint32_t>(bits));
}

class MoveFamily final : public SingleFamily {
 public:
  std::string_view name() const override { return "move"; }
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

  Result<KernelText> emit(const Region& r, const Plan&, const Parameters&, const Target&) const override {
    Stage s = only(r);
    const bool raw = s.program.outputs.empty();  // moved as they are, whatever the type
    region::TensorRef x = s.anchor.inputs[0];
    const DType type = x.dtype;
    OCTAVO_TRY(Source source, source_of(s));
    OCTAVO_TRY(const std::string fill, fill_text(s, type, raw));
    if (raw) {
      if (s.stores.size() != 1 || ir::size_of(s.stores[0].dtype) != ir::size_of(type))
        return fail(ErrorKind::unsupported, fmt::format("moving {} to {}", ir::name_of(type), ir::name_of(s.stores[0].dtype)));
      Stage words = words_stage(s, type, false);
      words.anchor = s.anchor;
      s = std::move(words);
      x = as_words(x);
      if (s.space.size() > source.of.size()) {  // two words an element
        for (Ints& of : source.of) {
          for (std::int64_t& at : of) at *= at == kFill ? 1 : 2;
        }
        source.of.push_back({0, 1});
      }
    }
    const bool real = !raw && ir::is_float(type);
    if (!raw && (load_function(type).empty() || program::uses(s.program, real ? program::Op::acc_i : program::Op::acc_f)))
      return fail(ErrorKind::unsupported, fmt::format("{} of {} with a program", ir::name_of(s.anchor.op), ir::name_of(type)));
    AnchorText anchor;
    anchor.inputs = s.anchor.inputs;
    anchor.inputs[0] = x;
    anchor.real = real;
    Access along{x.buffer, x.offset, x.dtype, {}, {}};
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
        along.strides.push_back(s.space[k] == 1 ? 0 : a->first);
        if (a->first != 0) terms += fmt::format("    at += c{} * {}ll;\n", k, a->first);
        continue;
      }
      std::vector<std::int32_t> table;
      std::int64_t common = 0;
      for (const std::int64_t at : of) {
        if (at != static_cast<std::int32_t>(at)) return fail(ErrorKind::unsupported, "a table of offsets beyond 2^31");
        table.push_back(static_cast<std::int32_t>(at));
        common = std::gcd(common, at == kFill ? 0 : at);
      }
      along.strides.push_back(common == 1 ? 2 : common);
      terms += fmt::format("    const int t{0} = ((const int*)k{1})[c{0}];\n    at += t{0};\n", k, anchor.constants.size());
      if (std::find(of.begin(), of.end(), kFill) != of.end()) inside += fmt::format("{}t{} >= 0", inside.empty() ? "" : " && ", k);
      anchor.constants.push_back(ir::Tensor::of<std::int32_t>({static_cast<std::int64_t>(table.size())}, table));
    }
    if (only(r).anchor.op == Op::gather) {  // one index too, which no dimension of the result has
      terms += gathered(r, source, type, raw);
      const std::int64_t row = only(r).anchor.inputs[0].strides[source.axis] * static_cast<std::int64_t>(ir::size_of(x.dtype));
      along.offset = std::gcd(along.offset, row);  // what the beginning of a run is aligned for
    }
    along.offset += base * static_cast<std::int64_t>(ir::size_of(x.dtype));
    anchor.body = fmt::format("  {{\n    long long at = {}ll;\n{}", base, terms);
    const std::string load = fmt::format("{}(acc, x0 + at * {})", load_function(x.dtype), ir::size_of(x.dtype));
    if (inside.empty()) {
      anchor.body += fmt::format("    {};\n  }}\n", load);
    } else {
      anchor.body += fmt::format(
          "    if ({}) {{\n      {};\n    }} else {{\n      for (int v = 0; v < kRun; ++v) acc[v] = {};\n    }}\n  }}\n", inside,
          load, fill);
    }
    OCTAVO_TRY(const Elements elements, Elements::of(s, true, {along}));
    return elements.emit(anchor);
  }

 private:
  /// Adds the row that the indices name. An index outside of the dimension, which is an error of the caller's data, is taken as the
  /// nearest one inside: a kernel must not read elsewhere.
  static std::string gathered(const Region& r, const Source& source, DType type, bool raw) {
    const region::TensorRef &x = only(r).anchor.inputs[0], &indices = only(r).anchor.inputs[1];
    const std::int64_t extent = x.dims[source.axis];
    std::string at;
    for (std::size_t k = 0; k < source.gathered; ++k) at += fmt::format(" + c{} * {}ll", source.axis + k, indices.strides[k]);
    const std::int64_t step = x.strides[source.axis] * (raw && ir::size_of(type) == 8 ? 2 : 1);
    return fmt::format(
        "    long long g = ((const {0}*)x1)[0{1}];\n    g += g < 0 ? {2}ll : 0ll;\n"
        "    at += min(max(g, 0ll), {2}ll - 1) * {3}ll;\n",
        indices.dtype == DType::s64 ? "long long" : "int", at, extent, step);
  }
};

}  // namespace

const Family& move_family() {
  static const MoveFamily family;
  return family;
}

}  // namespace octavo::cuda
