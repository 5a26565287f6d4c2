// quantize_rt, dequantize_rt: QuantizeLinear and DequantizeLinear whose scales and zero points are computed, a thread an element. Quotients and products are
// rounded to the scale's type, as the reference rounds them.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

using ir::DType;

std::string rounded(DType scale, const std::string& v) {
  if (scale == DType::f16) return fmt::format("octavo_f16_value(octavo_f16_bits({}))", v);
  if (scale == DType::bf16) return fmt::format("octavo_bf16_value(octavo_bf16_bits({}))", v);
  return v;
}

/// `channel`: which scale element i has.
Result<std::string> channel_of(const Stage& s) {
  const ir::Shape &x = s.anchor.inputs[0].dims, &scale = s.anchor.inputs[1].dims;
  if (ir::count(s.anchor.inputs[2].dims) != ir::count(scale) || ir::count(scale) == 0 || reads_floats(s.anchor.inputs[2]) ||
      !reads_floats(s.anchor.inputs[1]))
    return fail(ErrorKind::bad_engine,
                fmt::format("{} scales, {} zero points", ir::count(scale), ir::count(s.anchor.inputs[2].dims)));
  if (ir::count(scale) == 1) return std::string("  const long long channel = 0;\n");
  OCTAVO_TRY(const Line line, line_of(x, s.anchor.as<ir::Along>().axis));
  if (ir::count(scale) != line.extent)
    return fail(ErrorKind::bad_engine, fmt::format("{} scales for {} channels", ir::count(scale), line.extent));
  return fmt::format("  const long long channel = i / {}ll % {}ll;\n", line.inner, line.extent);
}

class RunTimeFamily : public PlainFamily {
 public:
  using PlainFamily::PlainFamily;
};

class QuantizeRtFamily final : public RunTimeFamily {
 public:
  QuantizeRtFamily() : RunTimeFamily("quantize_rt", {ir::Op::quantize_rt}, 3) {}

  Result<PlainText> text(const Stage& s) const override {
    OCTAVO_TRY(const std::string channel, channel_of(s));
    if (!s.program.outputs.empty() || !reads_floats(s.anchor.inputs[0]))
      return refuse("codes", "in a program", "stored as they are");
    const DType to = s.stores[0].dtype;
    std::int64_t lo = 0, hi = 0;
    switch (to) {
      case DType::u8: hi = 255; break;
      case DType::s8: lo = -128, hi = 127; break;
      case DType::u16: hi = 65535; break;
      case DType::s16: lo = -32768, hi = 32767; break;
      case DType::s32: lo = -(std::int64_t{1} << 31), hi = (std::int64_t{1} << 31) - 1; break;
      default: return refuse("type of the codes", ir::name_of(to), "s8, u8, s16, u16 or s32");
    }
    PlainText t;
    t.passes = {PlainPass{
        channel + fmt::format(R"(  const long long zero = octavo_x2(t, channel);
  const float ratio = {};
  long long code = 0;
  if (ratio == ratio) {{
    const double lo = (double)({}ll - zero), hi = (double)({}ll - zero), v = (double)rintf(ratio);
    code = (long long)(v < lo ? lo : v > hi ? hi : v);
  }}
  octavo_put0(t, i, code + zero);
)",
                              rounded(s.anchor.inputs[1].dtype, "__fdiv_rn(octavo_x0(t, i), octavo_x1(t, channel))"), lo, hi),
        ir::count(s.anchor.inputs[0].dims)}};
    t.passes.front().in_order = true;
    t.work = static_cast<double>(ir::count(s.anchor.inputs[0].dims));
    return t;
  }
};

class DequantizeRtFamily final : public RunTimeFamily {
 public:
  DequantizeRtFamily() : RunTimeFamily("dequantize_rt", {ir::Op::dequantize_rt}, 3) {}

  Result<PlainText> text(const Stage& s) const override {
    OCTAVO_TRY(const std::string channel, channel_of(s));
    if (reads_floats(s.anchor.inputs[0])) return refuse("type of the codes", ir::name_of(s.anchor.inputs[0].dtype), "integers");
    PlainText t;
    t.passes = {in_order(
        {channel + fmt::format("  octavo_put0(t, i, {});\n", rounded(s.anchor.inputs[1].dtype,
                                                                     "__fmul_rn((float)(octavo_x0(t, i) - octavo_x2(t, channel)), "
                                                                     "octavo_x1(t, channel))")),
         ir::count(s.anchor.inputs[0].dims)})};
    t.work = static_cast<double>(ir::count(s.anchor.inputs[0].dims));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(quantize_rt, QuantizeRtFamily)
OCTAVO_DEFINE_FAMILY(dequantize_rt, DequantizeRtFamily)

}  // namespace octavo::cuda
