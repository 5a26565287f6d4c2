#include "cuda/families/plain/plain.h"

#include <algorithm>

#include "cuda/cost_model.h"
#include "cuda/text/emit_cuda.h"
#include "ir/small_types.h"
#include "region/store_results.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using region::TensorRef;

constexpr double kChain = 20e-9;  ///< seconds of one thread for an element, which it waits for

/// The type of C that has the bits; empty: no kernel has the type.
std::string_view stored_type(DType t) {
  switch (t) {
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::f16:
    case DType::bf16:
    case DType::u16: return "unsigned short";
    case DType::boolean:
    case DType::u8: return "unsigned char";
    case DType::s8: return "signed char";
    case DType::s16: return "short";
    case DType::s32: return "int";
    case DType::u32: return "unsigned";
    case DType::s64: return "long long";
    case DType::u64: return "unsigned long long";
    default: return ir::is_small_float(t) ? "unsigned char" : "";
  }
}
std::string_view bits_type(DType t) {
  switch (ir::size_of(t)) {
    case 1: return "unsigned char";
    case 2: return "unsigned short";
    case 4: return "unsigned";
    default: return "unsigned long long";
  }
}

/// `long long NAME(long long i)`: the place of element i, in elements.
std::string place_function(const std::string& name, const TensorRef& x) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // extent, stride; innermost first
  for (std::size_t k = x.dims.size(); k-- > 0;) {
    if (x.dims[k] == 1) continue;
    if (!dims.empty() && x.strides[k] == dims.back().second * dims.back().first) {
      dims.back().first *= x.dims[k];
      continue;
    }
    dims.emplace_back(x.dims[k], x.strides[k]);
  }
  std::string text = fmt::format("OCTAVO_DEVICE long long {}(long long i) {{\n", name);
  if (dims.empty()) return text + "  return i * 0;\n}\n";
  if (dims.size() == 1) return text + fmt::format("  return i * {}ll;\n}}\n", dims[0].second);
  const char* type = ir::count(x.dims) < (std::int64_t{1} << 31) ? "unsigned" : "unsigned long long";
  text += fmt::format("  {0} rest = ({0})i;\n  long long at = 0;\n", type);
  for (std::size_t k = 0; k < dims.size(); ++k) {
    const bool last = k + 1 == dims.size();
    text += fmt::format("  at += (long long)(rest{}) * {}ll;\n", last ? "" : fmt::format(" % {}u", dims[k].first), dims[k].second);
    if (!last) text += fmt::format("  rest /= {}u;\n", dims[k].first);
  }
  return text + "  return at;\n}\n";
}

/// A stored element as a float, or as a long long.
std::string value_of(const TensorRef& x, const std::string& v) {
  switch (x.dtype) {
    case DType::f32: return v;
    case DType::f64: return "(float)" + v;
    case DType::f16: return fmt::format("octavo_f16_value({})", v);
    case DType::bf16: return fmt::format("octavo_bf16_value({})", v);
    default: return "(long long)" + v;
  }
}

/// A float, or a long long, as it is stored.
std::string stored(DType t, const std::string& v) {
  switch (t) {
    case DType::f32: return v;
    case DType::f64: return "(double)" + v;
    case DType::f16: return fmt::format("octavo_f16_bits({})", v);
    case DType::bf16: return fmt::format("octavo_bf16_bits({})", v);
    case DType::boolean: return fmt::format("(unsigned char)({} != 0)", v);
    default: return fmt::format("({}){}", stored_type(t), v);
  }
}

/// The structure and the functions of all tensors; `programmed`: result 0 is floats in front of the scratch memory.
std::string tensor_functions(const PlainKernel& k, bool programmed) {
  std::string fields, out;
  for (std::size_t i = 0; i < k.inputs.size(); ++i) {
    const TensorRef& x = k.inputs[i];
    fields += fmt::format("  const unsigned char* x{};\n", i);
    out += place_function(fmt::format("octavo_at_x{}", i), x);
    out += fmt::format(
        "OCTAVO_DEVICE {} octavo_x{}(const OctavoTensors& t, long long i) {{\n  const {} v = ((const "
        "{}*)t.x{})[octavo_at_x{}(i)];\n"
        "  return {};\n}}\n",
        reads_floats(x) ? "float" : "long long", i, stored_type(x.dtype), stored_type(x.dtype), i, i, value_of(x, "v"));
    out += fmt::format(
        "OCTAVO_DEVICE unsigned long long octavo_bits{}(const OctavoTensors& t, long long i) {{ return ((const {}*)t.x{})"
        "[octavo_at_x{}(i)]; }}\n",
        i, bits_type(x.dtype), i, i);
  }
  std::size_t most = 0;
  for (const std::size_t r : k.results) most = std::max(most, r);
  std::vector<std::string> puts(most + 3), bits(most + 3);
  std::vector<std::string> types(most + 3, "float");
  if (programmed) puts[0] = bits[0] = "  ((float*)t.y0)[i] = v;\n";
  if (programmed) fields += "  unsigned char* y0;\n";
  for (std::size_t j = 0; !programmed && j < k.stores.size(); ++j) {
    const TensorRef& y = k.stores[j];
    const std::size_t r = k.results[j];
    fields += fmt::format("  unsigned char* y{};\n", j);
    out += place_function(fmt::format("octavo_at_y{}", j), y);
    types[r] = ir::is_float(y.dtype) ? "float" : "long long";
    puts[r] += fmt::format("  (({}*)t.y{})[octavo_at_y{}(i)] = {};\n", stored_type(y.dtype), j, j, stored(y.dtype, "v"));
    bits[r] += fmt::format("  (({0}*)t.y{1})[octavo_at_y{1}(i)] = ({0})v;\n", bits_type(y.dtype), j);
  }
  for (std::size_t r = 0; r < puts.size(); ++r) {
    out += fmt::format(
        "OCTAVO_DEVICE void octavo_put{}(const OctavoTensors& t, long long i, {} v) {{\n  (void)t, (void)i, (void)v;\n{}}}\n", r,
        types[r], puts[r]);
    if (programmed) continue;
    out += fmt::format(
        "OCTAVO_DEVICE void octavo_put_bits{}(const OctavoTensors& t, long long i, unsigned long long v) {{\n  (void)t, (void)i, "
        "(void)v;\n{}}}\n",
        r, bits[r]);
  }
  return fmt::format("struct OctavoTensors {{\n{}  unsigned char* w;\n}};\n{}", fields, out);
}

std::int64_t result_bytes(const PlainKernel& k) {
  return k.elements ? up(ir::count(k.space) * 4, 256) : 0;
}

}  // namespace

Result<Line> line_of(const ir::Shape& shape, std::int64_t axis) {
  if (axis < 0 || axis >= static_cast<std::int64_t>(shape.size()))
    return fail(ErrorKind::bad_engine, fmt::format("axis {} of {}", axis, ir::to_string(shape)));
  Line l;
  const auto a = static_cast<std::size_t>(axis);
  l.extent = shape[a];
  for (std::size_t k = a + 1; k < shape.size(); ++k) l.inner *= shape[k];
  l.lines = l.inner;
  for (std::size_t k = 0; k < a; ++k) l.lines *= shape[k];
  return l;
}

std::string scan_text(std::string_view type, int threads, std::string_view join) {
  return fmt::format(R"(OCTAVO_DEVICE {0} octavo_scanned({0}* held, {0} v) {{
  const int mine = octavo_thread();
  octavo_barrier();
  held[mine] = v;
  for (int step = 1; step < {1}; step *= 2) {{
    octavo_barrier();
    const {0} a = held[mine >= step ? mine - step : 0], b = v;
    octavo_barrier();
    if (mine >= step) held[mine] = v = {2};
  }}
  octavo_barrier();
  return v;
}}
)",
                     type, threads, join);
}

bool PlainFamily::about(const Region& region) const {
  if (!is_single(region)) return false;
  const region::Anchor& a = only(region).anchor;
  return std::find(ops_.begin(), ops_.end(), a.op) != ops_.end() && (inputs_ == 0 || a.inputs.size() == inputs_) &&
         !a.inputs.empty() && !a.weights;
}

Result<PlainKernel> PlainFamily::match(const Region& region, const Plan&, const Target&) const {
  const Stage& s = only(region);
  PlainKernel k;
  k.stores = s.stores, k.space = s.space;
  const auto can_hold = [&](DType t) { return !stored_type(t).empty() && (small_floats_ || !ir::is_small_float(t)); };
  OCTAVO_TRY(k.inputs, inputs(s));
  for (const TensorRef& x : k.inputs) {
    if (x.quantizer) return refuse("an input", "codes", "values");
    if (!can_hold(x.dtype))
      return refuse("type of an input", ir::name_of(x.dtype), "integers of 8 to 64 bits, bool, or floats of 16 to 64");
  }
  OCTAVO_TRY(const std::vector<ir::Shape> shapes, this->shapes(s));
  const auto misfit = [&](const ir::Shape& has, const ir::Shape& needs) {
    return fail(ErrorKind::bad_engine, fmt::format("{} of {} gives {}, not {}", ir::name_of(s.anchor.op),
                                                   ir::to_string(k.inputs[0].dims), ir::to_string(needs), ir::to_string(has)));
  };
  if (!s.program.outputs.empty()) {
    if (program::uses(s.program, program::Op::acc_i)) return refuse("program", "one that reads integers", "one of floats");
    if (s.space != shapes[0]) return misfit(s.space, shapes[0]);
    OCTAVO_TRY(k.elements, Elements::of(s, true, {}, 1));
    k.results.assign(1, 0);
  } else {
    for (std::size_t i = 0; i < k.stores.size(); ++i) {
      const std::size_t r = region::result_of_store(s.anchor, i);
      if (r >= shapes.size()) return fail(ErrorKind::bad_engine, fmt::format("result {} of {}", r, ir::name_of(s.anchor.op)));
      if (k.stores[i].dims != shapes[r]) return misfit(k.stores[i].dims, shapes[r]);
      if (k.stores[i].quantizer || !can_hold(k.stores[i].dtype))
        return refuse("type of a result", ir::name_of(k.stores[i].dtype), "integers of 8 to 64 bits, bool, or floats of 16 to 64");
      k.results.push_back(r);
    }
  }
  OCTAVO_TRY(k.text, text(s));
  for (const PlainPass& p : k.text.passes) {
    if (parts(p.threads, p.block) >= (std::int64_t{1} << 31)) return refuse("threads", p.threads, "blocks less than 2^31");
  }
  int launches = 0;
  for (const PlainPass& p : k.text.passes) launches += p.turns;
  k.seconds = seconds_of_a_pass(region) + cost::kLaunch * static_cast<double>(launches) + k.text.work / cost::kProductsOfElements +
              k.text.chain * kChain;
  return k;
}

Result<KernelText> PlainFamily::emit(const PlainKernel& k, const NoTile&, const Target&) const {
  const bool programmed = k.elements.has_value();
  std::string text = tensor_functions(k, programmed) + k.text.functions, parameters, fields;
  std::vector<Argument> arguments;
  const auto parameter = [&](const std::string& name, bool written, Argument what) {
    parameters += fmt::format("{}{}unsigned char* {}", parameters.empty() ? "" : ", ", written ? "" : "const ", name);
    fields += (fields.empty() ? "" : ", ") + name;
    arguments.push_back(what);
  };
  for (std::size_t i = 0; i < k.inputs.size(); ++i)
    parameter(fmt::format("x{}", i), false, {Argument::Kind::buffer, k.inputs[i].buffer, k.inputs[i].offset});
  if (programmed) parameter("y0", true, {Argument::Kind::workspace, 0, 0});
  for (std::size_t j = 0; !programmed && j < k.stores.size(); ++j)
    parameter(fmt::format("y{}", j), true, {Argument::Kind::buffer, k.stores[j].buffer, k.stores[j].offset});
  const std::int64_t bytes = result_bytes(k) + k.text.scratch_bytes;
  if (k.text.scratch_bytes > 0)
    parameter("w", true, {Argument::Kind::workspace, 0, result_bytes(k)});
  else
    fields += ", nullptr";
  std::vector<Launch> launches;
  for (std::size_t p = 0; p < k.text.passes.size(); ++p) {
    const PlainPass& pass = k.text.passes[p];
    const std::string name = fmt::format("octavo_pass{}", p);
    text += fmt::format("OCTAVO_KERNEL({}, 1) {}({}{}) {{\n  octavo_wait_for_previous();\n  const OctavoTensors t{{{}}};\n",
                        pass.block, name, parameters, pass.turns > 1 ? ", int turn" : "", fields);
    if (!pass.whole_blocks)
      text += fmt::format("  const long long i = (long long)octavo_block() * {} + octavo_thread();\n  if (i >= {}ll) return;\n",
                          pass.block, pass.threads);
    text += pass.body + "}\n";
    for (int turn = 0; turn < pass.turns; ++turn) {
      launches.push_back(launch_of(name, parts(pass.threads, pass.block), pass.block));
      launches.back().arguments = arguments;
      if (pass.in_order) {
        launches.back().counted = {pass.threads};
        if (!pass.whole_blocks)
          launches.back().counted.item = fmt::format("(long long)octavo_block() * {} + octavo_thread()", pass.block);
        else
          launches.back().counted.unit = pass.block;
      }
      if (pass.turns > 1) launches.back().arguments.push_back({Argument::Kind::number, 0, turn});
    }
  }
  if (!programmed) return KernelText{std::move(text), std::move(launches), {}, bytes};
  AnchorText anchor;
  anchor.functions = std::move(text);
  anchor.before = std::move(launches);
  anchor.workspace_bytes = bytes;
  anchor.real = true;
  std::string at = "0ll";
  const ir::Shape dense = ir::dense_strides(k.space);
  for (std::size_t d = 0; d < k.space.size(); ++d) at += fmt::format(" + c{} * {}ll", d, dense[d]);
  anchor.body = fmt::format("  acc[0] = ((const float*)w)[{}];\n", at);
  return k.elements->emit(anchor);
}

}  // namespace octavo::cuda
