// doubles: element-wise operators and casts that read or give float64, with ONNX's broadcasting, and comparisons of floats of 16 bits. Arithmetic and comparisons
// are of doubles; the functions of one operand, and powers, go through float32, as the reference computes them.
#include "cuda/families/plain/plain.h"
#include "cuda/text/elements.h"
#include "cuda/text/emit_cuda.h"
#include "program/math.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using ir::Op;

bool is_unary(Op op) {
  return op >= Op::relu && op <= Op::cos;
}

/// The operator on doubles a and b; empty: there is none.
std::string arithmetic(const Stage& s) {
  switch (s.anchor.op) {
    case Op::add: return "a + b";
    case Op::sub: return "a - b";
    case Op::mul: return "a * b";
    case Op::div: return "a / b";
    case Op::max: return "a != a ? a : b != b ? b : a > b ? a : b";
    case Op::min: return "a != a ? a : b != b ? b : a < b ? a : b";
    case Op::prelu: return "a < 0.0 ? a * b : a";
    case Op::mod: return s.anchor.as<ir::Remainder>().fmod ? "octavo_fmod(a, b)" : "octavo_remainder(a, b)";
    default: return "";
  }
}

/// Towards zero, within the type; NaN is 0.
constexpr const char* kDoublesWhole = R"(
OCTAVO_DEVICE long long octavo_whole(double v, double lo, double hi) {
  if (v != v) return 0;
  if (v >= 9223372036854775808.0 && kWide) return kUnsigned ? (v >= 18446744073709551616.0 ? -1 : (long long)(unsigned long long)v) : 9223372036854775807ll;
  return (long long)(v < lo ? lo : v > hi ? hi : v);
}
)";
std::string bounds(DType t) {
  switch (t) {
    case DType::s8: return "-128.0, 127.0";
    case DType::u8: return "0.0, 255.0";
    case DType::s16: return "-32768.0, 32767.0";
    case DType::u16: return "0.0, 65535.0";
    case DType::s32: return "-2147483648.0, 2147483647.0";
    case DType::u32: return "0.0, 4294967295.0";
    case DType::s64: return "-9223372036854775808.0, 9223372036854775808.0";
    default: return "0.0, 9223372036854775808.0";
  }
}

class DoublesFamily final : public PlainFamily {
 public:
  DoublesFamily() : PlainFamily("doubles", operators(), 0) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override { return std::vector<ir::Shape>{s.space}; }

  /// Every input as often as the result has elements.
  Result<std::vector<region::TensorRef>> inputs(const Stage& s) const override {
    std::vector<region::TensorRef> out = s.anchor.inputs;
    for (region::TensorRef& x : out) {
      ir::Shape strides(s.space.size());
      for (std::size_t k = 0; k < s.space.size(); ++k) strides[k] = stride_along(x, s.space.size(), k);
      if (x.dims.size() > s.space.size())
        return fail(ErrorKind::bad_engine, fmt::format("{} of {} does not give {}", ir::name_of(s.anchor.op), ir::to_string(x.dims),
                                                       ir::to_string(s.space)));
      x.dims = s.space, x.strides = strides;
    }
    return out;
  }

  Result<PlainText> text(const Stage& s) const override {
    const std::vector<region::TensorRef>& x = s.anchor.inputs;
    const Op op = s.anchor.op;
    const bool raw = s.program.outputs.empty();
    if (raw && s.stores.size() != 1) return refuse("stores", s.stores.size(), "1");
    const DType from = x[0].dtype, to = raw ? s.stores[0].dtype : DType::f32;
    const bool compares = !comparison(op).empty();
    if (from != DType::f64 && to != DType::f64 && !(compares && ir::is_float(from)))
      return refuse("types", fmt::format("{} and {}", ir::name_of(from), ir::name_of(to)), "f64");
    if (x.size() == 2 && x[0].dtype != x[1].dtype)
      return refuse("types of the inputs", fmt::format("{} and {}", ir::name_of(x[0].dtype), ir::name_of(x[1].dtype)), "one type");
    PlainText t;
    t.work = static_cast<double>(ir::count(s.space));
    const auto read = [](int k) { return fmt::format("((const double*)t.x{0})[octavo_at_x{0}(i)]", k); };
    const auto pass = [&](std::string body) {
      t.passes = {in_order({std::move(body), ir::count(s.space)})};
      return t;
    };
    const std::string give = to == DType::f64 ? "  ((double*)t.y0)[octavo_at_y0(i)] = " : "  octavo_put0(t, i, (float)";
    const char* end = to == DType::f64 ? ";\n" : ");\n";
    if (op == Op::cast) {
      if (from != DType::f64) {
        const char* of = from == DType::u64 ? "(double)(unsigned long long)octavo_x0(t, i)" : "(double)octavo_x0(t, i)";
        return pass(give + of + end);
      }
      if (ir::is_float(to)) return pass(give + read(0) + end);
      if (to == DType::boolean) return pass(fmt::format("  octavo_put0(t, i, {} != 0.0 ? 1ll : 0ll);\n", read(0)));
      t.functions =
          fmt::format("constexpr bool kWide = {}, kUnsigned = {};\n", to == DType::s64 || to == DType::u64, to == DType::u64) +
          kDoublesWhole;
      return pass(fmt::format("  octavo_put0(t, i, octavo_whole({}, {}));\n", read(0), bounds(to)));
    }
    if (compares) {
      const bool wide = from == DType::f64;
      return pass(fmt::format("  octavo_put0(t, i, {} {} {} ? 1ll : 0ll);\n", wide ? read(0) : "octavo_x0(t, i)", comparison(op),
                              wide ? read(1) : "octavo_x1(t, i)"));
    }
    t.functions = R"(// The sign of the divisor.
OCTAVO_DEVICE double octavo_remainder(double a, double b) {
  const double r = octavo_fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
)";
    if (const std::string f = arithmetic(s); !f.empty())
      return pass(fmt::format("  const double a = {}, b = {};\n{}({}){}", read(0), read(1), give, f, end));
    program::Program p;
    program::ProgramOps ops{p};
    const int a = p.push(program::Op::acc_f);
    if (is_unary(op)) {
      p.outputs = {{program::unary(ops, op, s.anchor.facts, a), DType::f32}};
    } else if (op == Op::pow) {
      p.operand_count = 1;
      p.outputs = {{program::pow(ops, a, p.load(program::Op::load_f, 0)), DType::f32}};
    } else {
      return refuse("operator on f64", ir::name_of(op), "one that the reference has for it");
    }
    t.functions = emit_function(p, "octavo_formula");
    return pass(fmt::format("  float f;\n  octavo_formula(octavo_x0(t, i){}, f);\n{}f{}", op == Op::pow ? ", octavo_x1(t, i)" : "",
                            give, end));
  }

 private:
  static std::vector<Op> operators() {
    std::vector<Op> out{Op::cast, Op::add, Op::sub,   Op::mul,  Op::div,        Op::max,     Op::min,           Op::prelu,
                        Op::mod,  Op::pow, Op::equal, Op::less, Op::less_equal, Op::greater, Op::greater_equal, Op::clip};
    for (int op = static_cast<int>(Op::relu); op <= static_cast<int>(Op::cos); ++op) {
      if (static_cast<Op>(op) != Op::clip) out.push_back(static_cast<Op>(op));
    }
    return out;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(doubles, DoublesFamily)

}  // namespace octavo::cuda
