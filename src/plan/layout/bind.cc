#include "plan/layout/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "ir/grid.h"
#include "ir/output_sizes.h"

namespace octavo::plan {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::ValueId;

struct Layout {
  bool last = false;          ///< channels last
  std::int64_t multiple = 1;  ///< channels are padded to a multiple
};

std::optional<Layout> layout_of(std::string_view text) {
  Layout l;
  std::string_view rest;
  if (text.starts_with("hwc")) {
    l.last = true;
    rest = text.substr(3);
  } else if (text.starts_with("chw")) {
    rest = text.substr(3);
    if (!rest.empty()) l.last = true;  // one group of channels: channels last, padded
  } else {
    return std::nullopt;
  }
  if (rest.empty()) return l;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), l.multiple);
  if (error != std::errc{} || end != rest.data() + rest.size() || l.multiple < 2 || l.multiple > 64) return std::nullopt;
  return l;
}

Status refuse(const std::string& name, const BindingFormat& f, const std::string& why) {
  return fail(ErrorKind::usage, fmt::format("binding \"{}\" as {}: {}", name, to_string(f), why));
}

std::vector<std::int64_t> perm_to_first(std::size_t rank) {  // [N, spatial..., C] -> [N, C, spatial...]
  std::vector<std::int64_t> p{0, static_cast<std::int64_t>(rank) - 1};
  for (std::size_t i = 1; i + 1 < rank; ++i) p.push_back(static_cast<std::int64_t>(i));
  return p;
}
std::vector<std::int64_t> perm_to_last(std::size_t rank) {
  std::vector<std::int64_t> p{0};
  for (std::size_t i = 2; i < rank; ++i) p.push_back(static_cast<std::int64_t>(i));
  p.push_back(1);
  return p;
}
Shape permuted(const Shape& s, const std::vector<std::int64_t>& perm) {
  Shape out;
  for (const auto p : perm) out.push_back(s[static_cast<std::size_t>(p)]);
  return out;
}

class Binder {
 public:
  Binder(Graph& g, const std::map<std::string, BindingFormat>& formats) : g_(g), formats_(formats) {}

  Result<std::map<std::string, BoundTensor>> run() {
    std::set<std::string> unknown;
    for (const auto& [name, f] : formats_) unknown.insert(name);
    const std::vector<ValueId> inputs = g_.inputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = g_.value(inputs[i]).name;
      const auto f = formats_.find(name);
      if (f == formats_.end()) continue;
      unknown.erase(name);
      OCTAVO_CHECK(input(i, name, f->second));
    }
    for (std::size_t i = 0; i < ir::shown_outputs(g_.outputs.size(), g_.sizes); ++i) {
      const auto f = formats_.find(g_.output_names[i]);
      if (f == formats_.end()) continue;
      unknown.erase(f->first);
      OCTAVO_CHECK(output(i, f->first, f->second));
    }
    if (!unknown.empty()) {
      std::string known;
      for (const ValueId v : g_.inputs) known += (known.empty() ? "" : ", ") + g_.value(v).name;
      for (const std::string& n : g_.output_names) known += ", " + n;
      return fail(ErrorKind::usage,
                  fmt::format("binding \"{}\": the model has no such input or output; it has {}", *unknown.begin(), known));
    }
    g_.remove_dead();
    return std::move(bound_);
  }

 private:
  Result<Layout> layout(const std::string& name, const BindingFormat& f, const Shape& shape) const {
    const auto l = layout_of(f.layout);
    if (!l) return tl::unexpected(refuse(name, f, "the layout is not known").error());
    if (l->last && shape.size() < 3)
      return tl::unexpected(refuse(name, f, fmt::format("shape {} has no channels and pixels", ir::to_string(shape))).error());
    if (f.layout.starts_with("chw") && l->last && shape[1] > l->multiple) {
      return tl::unexpected(
          refuse(name, f,
                 fmt::format("{} channels make several groups of {}, which strides cannot express\n  use hwc or hwc{}", shape[1],
                             l->multiple, l->multiple))
              .error());
    }
    return *l;
  }

  /// The quantizer that every reader of the input goes through.
  Result<ir::Quantizer> shared_view(const std::string& name, const BindingFormat& f, ValueId v) const {
    std::optional<ir::Quantizer> q;
    for (const auto& [user, slot] : g_.users(v)) {
      const ir::Node& n = g_.node(user);
      if (n.op != Op::view || !n.quantizer->per_tensor() || !ir::is_int8(n.quantizer->type)) {
        const std::string reader = n.origin.empty() ? std::string(ir::name_of(n.op)) : *n.origin.begin();
        return tl::unexpected(
            refuse(name, f,
                   fmt::format(
                       "\"{}\" reads the input in float, so it is not a matter of codes\n  quantize every use of it, or bind it "
                       "as float16 or float32",
                       reader))
                .error());
      }
      if (q && !(*q == *n.quantizer)) {
        return tl::unexpected(refuse(name, f,
                                     fmt::format("its readers quantize it by {} and by {}\n  give them one quantizer",
                                                 ir::to_string(*q), ir::to_string(*n.quantizer)))
                                  .error());
      }
      q = *n.quantizer;
    }
    if (g_.output_uses(v) > 0) return tl::unexpected(refuse(name, f, "the input is an output of the network as well").error());
    if (!q && g_.value(v).range) q = g_.value(v).range;
    if (!q)
      return tl::unexpected(
          refuse(name, f, "nothing reads it through a quantizer\n  add a Q/DQ pair behind the input, or give it a range").error());
    return *q;
  }

  Status input(std::size_t index, const std::string& name, const BindingFormat& f) {
    const ValueId old = g_.inputs[index];
    const ir::TensorType type = g_.type(old);
    OCTAVO_TRY(const Layout l, layout(name, f, type.shape));
    const DType wanted = f.type.value_or(type.dtype);
    BoundTensor& note = bound_[name];
    note.format = to_string(f);
    const bool codes = ir::is_int8(wanted) && type.dtype == DType::f32;
    if (wanted != type.dtype && !codes && !(ir::is_float(wanted) && ir::is_float(type.dtype)))
      return refuse(name, f, fmt::format("the model declares {}", ir::name_of(type.dtype)));
    std::optional<ir::Quantizer> q;
    if (codes) {
      OCTAVO_TRY(const ir::Quantizer view, shared_view(name, f, old));
      q = wanted == DType::u8 ? ir::as_u8(view) : ir::as_s8(view);
      note.quantizer = q;
    }
    if (wanted == type.dtype && !l.last) return {};

    Shape physical = type.shape;
    if (l.last) {
      physical = permuted(physical, perm_to_last(physical.size()));
      physical.back() = (physical.back() + l.multiple - 1) / l.multiple * l.multiple;
    }
    const std::set<std::string> origin = reader_names(old);
    g_.value(old).name.clear();
    const ValueId fresh = g_.add_input(name, {wanted, physical});
    g_.inputs.pop_back();
    g_.inputs[index] = fresh;
    ValueId v = fresh;
    if (l.last) {
      if (physical.back() != type.shape[1]) {
        Shape ends = physical;
        ends.back() = type.shape[1];
        v = ir::add_inferred(g_, Op::slice, {v},
                             {{"starts", Shape(physical.size(), 0)}, {"ends", ends}, {"steps", Shape(physical.size(), 1)}}, origin);
      }
      v = ir::add_inferred(g_, Op::transpose, {v}, {{"perm", perm_to_first(physical.size())}}, origin);
    }
    if (q) {
      v = g_.add_quantizer(Op::dequantize, v, *q, type, origin);
      for (const auto& [user, slot] : std::vector(g_.users(old))) {
        if (g_.node(user).op == Op::view) g_.replace_uses(g_.node(user).outputs[0], v);
      }
    } else if (wanted != type.dtype) {
      v = g_.add(Op::cast, {v}, type, {{"to", std::string(ir::name_of(type.dtype))}}, origin);
    }
    g_.value(v).range = g_.value(old).range;
    g_.replace_uses(old, v);
    return {};
  }

  /// New nodes stand for what reads the input.
  [[nodiscard]] std::set<std::string> reader_names(ValueId v) const {
    std::set<std::string> out;
    for (const auto& [user, slot] : g_.users(v)) out.insert(g_.node(user).origin.begin(), g_.node(user).origin.end());
    return out;
  }

  Status output(std::size_t index, const std::string& name, const BindingFormat& f) {
    ValueId v = g_.outputs[index];
    const ir::TensorType type = g_.type(v);
    OCTAVO_TRY(const Layout l, layout(name, f, type.shape));
    const DType wanted = f.type.value_or(type.dtype);
    BoundTensor& note = bound_[name];
    note.format = to_string(f);
    const std::set<std::string> origin = g_.producer(v).origin;
    if (ir::is_int8(wanted) && type.dtype == DType::f32) {
      const ir::Grids grids = ir::find_grids(g_);
      const ir::Quantizer* grid = grids.get(v);
      if (grid == nullptr || !grid->per_tensor() || !ir::is_int8(grid->type)) {
        return refuse(
            name, f,
            "the output is not quantized, so it has no codes\n  end the model with a Q/DQ pair, or bind it as float16 or float32");
      }
      const ir::Quantizer q = wanted == DType::u8 ? ir::as_u8(*grid) : ir::as_s8(*grid);
      note.quantizer = q;
      v = g_.add_quantizer(Op::quantize, v, q, {wanted, type.shape}, origin);
    } else if (wanted != type.dtype) {
      if (!ir::is_float(wanted) || !ir::is_float(type.dtype))
        return refuse(name, f, fmt::format("the model declares {}", ir::name_of(type.dtype)));
      v = g_.add(Op::cast, {v}, {wanted, type.shape}, {{"to", std::string(ir::name_of(wanted))}}, origin);
    }
    if (l.last) {
      if (type.shape[1] % l.multiple != 0) {
        return refuse(
            name, f,
            fmt::format("{} channels are no multiple of {}, and outputs are not padded\n  use hwc", type.shape[1], l.multiple));
      }
      v = ir::add_inferred(g_, Op::transpose, {v}, {{"perm", perm_to_last(type.shape.size())}}, origin);
    }
    g_.outputs[index] = v;
    return {};
  }

  Graph& g_;
  const std::map<std::string, BindingFormat>& formats_;
  std::map<std::string, BoundTensor> bound_;
};

}  // namespace

Result<std::map<std::string, BoundTensor>> bind(Graph& g, const std::map<std::string, BindingFormat>& formats) {
  return Binder(g, formats).run();
}

Result<BindingFormat> parse_format(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  BindingFormat f;
  if (colon != std::string_view::npos) f.layout = text.substr(colon + 1);
  const std::pair<std::string_view, DType> types[] = {{"float32", DType::f32}, {"fp32", DType::f32},      {"float16", DType::f16},
                                                      {"fp16", DType::f16},    {"bfloat16", DType::bf16}, {"bf16", DType::bf16},
                                                      {"int8", DType::s8},     {"uint8", DType::u8}};
  for (const auto& [name, t] : types) {
    if (type == name) f.type = t;
  }
  if (!f.type && layout_of(type) && colon == std::string_view::npos)
    f.layout = type;
  else if (!f.type && type != "") {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "format \"{}\": the type \"{}\" is not known; known are float32 (fp32), float16 (fp16), bfloat16 (bf16), int8, uint8",
            text, type));
  }
  if (!layout_of(f.layout))
    return fail(ErrorKind::usage,
                fmt::format("format \"{}\": the layout \"{}\" is not known; known are chw, hwc, hwcN and chwN, as in hwc8", text,
                            f.layout));
  return f;
}

std::string to_string(const BindingFormat& f) {
  const std::string type = !f.type                  ? ""
                           : *f.type == DType::f32  ? "float32"
                           : *f.type == DType::f16  ? "float16"
                           : *f.type == DType::bf16 ? "bfloat16"
                           : *f.type == DType::s8   ? "int8"
                                                    : "uint8";
  return type.empty() ? f.layout : type + ":" + f.layout;
}

}  // namespace octavo::plan
