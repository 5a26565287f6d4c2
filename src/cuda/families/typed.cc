// typed: element-wise operators that no program holds, by their types: integers of 8 to 64 bits and bool, with ONNX's broadcasting, casts between all of
// these and floats, and operators on 16-bit floats. Integers are computed in 64 bits and wrap into their type, as the reference evaluator does it. A thread
// computes a run of elements along memory and reads neighbours of up to 16 bytes at once.
#include <cmath>
#include <optional>

#include "cuda/families/words.h"
#include "cuda/text/emit_cuda.h"
#include "program/math.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;
using region::TensorRef;

bool is_real(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16;
}
bool is_whole(DType t) {
  switch (t) {
    case DType::boolean:
    case DType::u8:
    case DType::s8:
    case DType::u16:
    case DType::s16:
    case DType::u32:
    case DType::s32:
    case DType::u64:
    case DType::s64: return true;
    default: return false;
  }
}
bool is_unary(Op op) {
  return op >= Op::relu && op <= Op::logical_not;
}
bool is_binary(Op op) {
  return op == Op::add || op == Op::sub || op == Op::mul || op == Op::div || op == Op::pow || op == Op::mod || op == Op::max ||
         op == Op::min || op == Op::prelu;
}

/// Functions of long long that several operators need. Divisors that are 0, which are an error of the caller's data, give 0.
constexpr const char* kWhole = R"(
OCTAVO_DEVICE long long octavo_quotient(long long a, long long b) {
  return b == 0 ? 0 : b == -1 ? (long long)(0ull - (unsigned long long)a) : a / b;
}
OCTAVO_DEVICE long long octavo_remainder(long long a, long long b, bool of_divisor) {
  const long long r = b == 0 || b == -1 ? 0 : a % b;
  return of_divisor && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
OCTAVO_DEVICE long long octavo_power(long long base, long long exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 != 0 ? -1 : 1) : 0;
  unsigned long long result = 1, b = (unsigned long long)base;
  for (; exponent != 0; exponent >>= 1, b *= b) {
    if ((exponent & 1) != 0) result *= b;
  }
  return (long long)result;
}
// Towards zero, within the bounds; NaN is 0.
OCTAVO_DEVICE long long octavo_whole(float v, long long low, long long high, bool unsigned64) {
  if (octavo_eq(v, v, 1.0f, 0.0f) == 0.0f) return 0;
  if (unsigned64) {
    if (octavo_lt(v, 0.0f, 1.0f, 0.0f) != 0.0f) return 0;
    if (octavo_lt(v, 18446744073709551616.0f, 1.0f, 0.0f) == 0.0f) return -1;
    return (long long)(unsigned long long)v;
  }
  const long long whole = octavo_lt(v, -9223372036854775808.0f, 1.0f, 0.0f) != 0.0f  ? (long long)(1ull << 63)
                          : octavo_lt(v, 9223372036854775808.0f, 1.0f, 0.0f) == 0.0f ? 9223372036854775807ll
                                                                                     : (long long)v;
  return whole < low ? low : whole > high ? high : whole;
}
)";

/// Element j of 32-bit words w: as long long, or as float.
std::string element(DType t, std::string_view w, std::string_view j) {
  const auto part = [&](int per_word) {
    return fmt::format("({0}[({1}) / {2}] >> (({1}) % {2} * {3}))", w, j, per_word, 32 / per_word);
  };
  switch (t) {
    case DType::boolean:
    case DType::u8: return fmt::format("(long long)({} & 255u)", part(4));
    case DType::s8: return fmt::format("(long long)(signed char){}", part(4));
    case DType::u16: return fmt::format("(long long)({} & 65535u)", part(2));
    case DType::s16: return fmt::format("(long long)(short){}", part(2));
    case DType::u32: return fmt::format("(long long){}[{}]", w, j);
    case DType::s32: return fmt::format("(long long)(int){}[{}]", w, j);
    case DType::f16: return fmt::format("octavo_f16_value((unsigned short){})", part(2));
    case DType::bf16: return fmt::format("octavo_bf16_value((unsigned short){})", part(2));
    case DType::f32: return fmt::format("__int_as_float((int){}[{}])", w, j);
    default:
      return fmt::format("(long long)((unsigned long long){0}[2 * ({1})] | (unsigned long long){0}[2 * ({1}) + 1] << 32)", w, j);
  }
}

std::string bounds(DType t) {
  switch (t) {
    case DType::s8: return "-128ll, 127ll";
    case DType::u8: return "0ll, 255ll";
    case DType::s16: return "-32768ll, 32767ll";
    case DType::u16: return "0ll, 65535ll";
    case DType::s32: return "-2147483648ll, 2147483647ll";
    case DType::u32: return "0ll, 4294967295ll";
    default: return "(long long)(1ull << 63), 9223372036854775807ll";
  }
}

/// What the operator gives for a0 (and a1): text that sets `y`, a long long, or `f`, a float; and functions in front of the kernel.
struct Formula {
  std::string text, functions;
};

/// A bound of clip as a whole number; nothing: none.
std::optional<std::string> bound(double v, bool low) {
  if (std::isinf(v)) return std::nullopt;
  const double whole = low ? std::ceil(v) : std::floor(v);
  constexpr double kTwo63 = 9223372036854775808.0;
  if (whole >= kTwo63) return low ? std::optional<std::string>("9223372036854775807ll") : std::nullopt;
  if (whole < -kTwo63) return low ? std::nullopt : std::optional<std::string>("(long long)(1ull << 63)");
  if (whole == -kTwo63) return "(long long)(1ull << 63)";
  return fmt::format("{}ll", static_cast<long long>(whole));
}

Result<Formula> of_reals(const Stage& s) {
  const Op op = s.anchor.op;
  program::Program p;
  program::ProgramOps ops{p};
  const int a = p.push(program::Op::acc_f);
  if (is_unary(op)) {
    p.outputs = {{program::unary(ops, op, s.anchor.facts, a), DType::f32}};
    return Formula{"octavo_formula(a0, f);", emit_function(p, "octavo_formula")};
  }
  if (op == Op::mod) {  // the sign of the dividend, or of the divisor
    const char* sign =
        s.anchor.as<ir::Remainder>().fmod ? "" : " if (f != 0.0f && (f < 0.0f) != (a1 < 0.0f)) f = __fadd_rn(f, a1);";
    return Formula{std::string("f = octavo_fmod(a0, a1);") + sign, ""};
  }
  p.operand_count = 1;
  const int b = p.load(program::Op::load_f, 0);
  p.outputs = {{program::binary(ops, op, a, b), DType::f32}};
  return Formula{"octavo_formula(a0, a1, f);", emit_function(p, "octavo_formula")};
}

Result<Formula> of_wholes(const Stage& s) {
  const DType t = s.anchor.inputs[0].dtype;
  const bool is_unsigned = t == DType::u64;
  const auto take = [&](std::string text) { return Formula{"y = " + std::move(text) + ";", kWhole}; };
  const auto words = [&](const char* sign) {
    return fmt::format("(long long)((unsigned long long)a0 {} (unsigned long long)a1)", sign);
  };
  switch (s.anchor.op) {
    case Op::logical_not: return take("a0 == 0 ? 1 : 0");
    case Op::relu: return take("a0 < 0 ? 0 : a0");
    case Op::abs: return take("a0 < 0 ? (long long)(0ull - (unsigned long long)a0) : a0");
    case Op::neg: return take("(long long)(0ull - (unsigned long long)a0)");
    case Op::sign: return take("a0 > 0 ? 1 : a0 < 0 ? -1 : 0");
    case Op::floor:
    case Op::ceil:
    case Op::round: return take("a0");
    case Op::clip: {
      const auto& clip = s.anchor.as<ir::Clip>();
      const auto low = bound(clip.min, true), high = bound(clip.max, false);
      std::string text = "y = a0;";
      if (low) text += fmt::format(" y = y < {0} ? {0} : y;", *low);
      if (high) text += fmt::format(" y = y > {0} ? {0} : y;", *high);
      return Formula{text, kWhole};
    }
    case Op::add: return take(words("+"));
    case Op::sub: return take(words("-"));
    case Op::mul: return take(words("*"));
    case Op::div: return take(is_unsigned ? "a1 == 0 ? 0 : " + words("/") : "octavo_quotient(a0, a1)");
    case Op::mod:
      return take(is_unsigned ? "a1 == 0 ? 0 : " + words("%")
                              : fmt::format("octavo_remainder(a0, a1, {})", s.anchor.as<ir::Remainder>().fmod ? "false" : "true"));
    case Op::pow: return take("octavo_power(a0, a1)");
    case Op::max:
    case Op::min:
      return take(fmt::format("({1})a0 {0} ({1})a1 ? a0 : a1", s.anchor.op == Op::max ? ">" : "<",
                              is_unsigned ? "unsigned long long" : "long long"));
    case Op::bitwise: {
      const DType out = s.stores[0].dtype;
      const bool is_signed = out == DType::s8 || out == DType::s16 || out == DType::s32 || out == DType::s64;
      switch (s.anchor.as<ir::Bitwise>().function) {
        case ir::BitFunction::bit_not: return take("~a0");
        case ir::BitFunction::bit_and: return take("a0 & a1");
        case ir::BitFunction::bit_or: return take("a0 | a1");
        case ir::BitFunction::bit_xor: return take("a0 ^ a1");
        case ir::BitFunction::left:
          return take("(unsigned long long)a1 > 63ull ? 0 : (long long)((unsigned long long)a0 << (int)a1)");
        case ir::BitFunction::right: break;
      }
      return take(is_signed ? "a0 >> ((unsigned long long)a1 > 63ull ? 63 : (int)a1)"
                            : "(unsigned long long)a1 > 63ull ? 0 : (long long)((unsigned long long)a0 >> (int)a1)");
    }
    default: return refuse("operator on integers", ir::name_of(s.anchor.op), "one that the reference has for them");
  }
}

/// `to`: the type of the results.
Result<Formula> cast_of(DType from, DType to) {
  if (is_real(from) && is_real(to)) return Formula{"f = a0;", ""};
  if (is_real(from)) {
    if (to == DType::boolean) return Formula{"y = octavo_eq(a0, 0.0f, 0.0f, 1.0f) != 0.0f ? 1 : 0;", ""};
    return Formula{fmt::format("y = octavo_whole(a0, {}, {});", bounds(to), to == DType::u64), kWhole};
  }
  if (is_real(to)) return Formula{from == DType::u64 ? "f = (float)(unsigned long long)a0;" : "f = (float)a0;", ""};
  return Formula{to == DType::boolean ? "y = a0 != 0 ? 1 : 0;" : "y = a0;", ""};
}

class TypedFamily final : public ElementFamily {
 public:
  TypedFamily() : ElementFamily("typed") {}
  bool about(const Region& r) const override {
    if (!is_single(r)) return false;
    const region::Anchor& a = only(r).anchor;
    const Op op = a.op;
    if (op == Op::bitwise) return a.inputs.size() == 1 || a.inputs.size() == 2;
    return ((is_unary(op) || op == Op::cast) && a.inputs.size() == 1) || (is_binary(op) && a.inputs.size() == 2);
  }

  Result<ElementKernel> kernel(const Stage& s, const Plan&) const override {
    const std::vector<TensorRef>& inputs = s.anchor.inputs;
    for (const TensorRef& x : inputs) {
      if (x.quantizer) return refuse("inputs", "quantized", "plain values");
      if (!is_real(x.dtype) && !is_whole(x.dtype))
        return refuse("type of an input", ir::name_of(x.dtype), "integers, bool, f32, f16 or bf16");
      if (x.dtype != inputs[0].dtype && s.anchor.op != Op::pow && s.anchor.op != Op::bitwise)
        return refuse("types of the inputs", fmt::format("{} and {}", ir::name_of(inputs[0].dtype), ir::name_of(x.dtype)),
                      "one type");
      if (is_real(x.dtype) != is_real(inputs[0].dtype)) return refuse("types of the inputs", "floats and integers", "one kind");
      if (x.dims.size() > s.space.size())
        return fail(ErrorKind::bad_engine, fmt::format("{} of {} does not give {}", ir::name_of(s.anchor.op), ir::to_string(x.dims),
                                                       ir::to_string(s.space)));
    }
    const bool raw = s.program.outputs.empty();
    if (raw && !stores_one_result(s)) return refuse("stores", s.stores.size(), "one result, in one type");
    const DType to = raw ? s.stores[0].dtype : DType::f32;
    if (!is_real(to) && !is_whole(to)) return refuse("type of the result", ir::name_of(to), "integers, bool, f32, f16 or bf16");
    if (!raw && program::uses(s.program, program::Op::acc_i)) return refuse("program", "one that reads integers", "one of floats");
    OCTAVO_TRY(Formula formula, s.anchor.op == Op::cast    ? cast_of(inputs[0].dtype, to)
                                : is_real(inputs[0].dtype) ? of_reals(s)
                                                           : of_wholes(s));
    if (s.anchor.op != Op::cast && is_real(to) != is_real(inputs[0].dtype))
      return refuse("type of the result", ir::name_of(to), "the kind of the inputs");

    Stage stage = raw ? words_stage(s, to, false) : s;
    OCTAVO_TRY(Elements elements, Elements::of(stage, true, {}, 16));
    const bool pairs = stage.space.size() > s.space.size();
    AnchorText anchor;
    anchor.inputs = inputs;
    anchor.real = !raw;
    anchor.functions = formula.functions;
    const int inner = elements.inner(), run = elements.run();
    const bool along_pair = pairs && inner == static_cast<int>(s.space.size());  // the words of one element
    std::string before, inside;
    for (std::size_t k = 0; k < inputs.size(); ++k)
      read(inputs[k], k, s, along_pair ? -1 : inner, run, before, inside, anchor.numbers);
    const char* name = is_real(to) ? "f" : "y";
    std::string result = name;
    if (raw && to == DType::f32) result = "__float_as_int(f)";
    if (raw && (to == DType::f16 || to == DType::bf16)) result = fmt::format("(int)octavo_{}_bits(f)", ir::name_of(to));
    if (raw && to == DType::boolean) result = "y != 0 ? 1 : 0";
    if (raw && is_whole(to) && to != DType::boolean) result = "(int)y";
    if (pairs)
      result = fmt::format("(int)((unsigned long long)y >> (({}) != 0 ? 32 : 0))",
                           along_pair ? fmt::format("c{} + v", inner) : fmt::format("c{}", s.space.size()));
    anchor.body =
        fmt::format("{}  OCTAVO_UNROLL\n  for (int v = 0; v < kRun; ++v) {{\n    {} {};\n{}    {}\n    acc[v] = {};\n  }}\n",
                    before, is_real(to) ? "float" : "long long", name, inside, formula.text, result);
    return ElementKernel{std::move(elements), std::move(anchor)};
  }

 private:
  /// Declares a<k>, the element v of the run; where neighbours are read at once, or one element is all of them, in front of the loop.
  static void read(const TensorRef& x, std::size_t k, const Stage& s, int inner, int run, std::string& before, std::string& inside,
                   OpenNumbers& numbers) {
    const ir::Shape& space = s.space;
    const auto size = region::element_bytes(x);
    std::string at = "0ll";
    std::int64_t along = 0;
    bool vector = run > 1 && run * size <= 16 && x.offset % (run * size) == 0;
    for (std::size_t d = 0; d < space.size(); ++d) {
      const std::int64_t stride = stride_along(x, space.size(), d);
      if (stride == 0) continue;
      if (static_cast<int>(d) == inner) {
        along = stride;
        vector = vector && stride == 1;
      } else {
        vector = vector && stride % run == 0;
      }
      at += fmt::format(" + c{} * {}", d, numbers.put({stride * size, open_along(x, space.size(), d)}, "ll"));
    }
    vector = vector && along == 1;
    const std::string words = fmt::format("w{}", k);
    const std::int64_t bytes = vector ? run * size : size;
    const std::string type = is_real(x.dtype) ? "float" : "long long";
    std::string& where = along == 0 || vector ? before : inside;
    if (along != 0 && !vector) at += fmt::format(" + v * {}ll", along * size);
    where += fmt::format("  unsigned {0}[{1}];\n  octavo_read<{2}>({0}, x{3} + ({4}));\n", words,
                         std::max<std::int64_t>(1, bytes / 4), bytes, k, at);
    inside += fmt::format("    const {} a{} = {};\n", type, k, element(x.dtype, words, vector ? "v" : "0"));
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(typed, TypedFamily)

}  // namespace octavo::cuda
