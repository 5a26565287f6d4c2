// max_pool.whole: max_pool of integers, a thread a window. A window wholly in the padding gives the least value of the type.
#include "cuda/families/plain/window.h"

namespace octavo::cuda {
namespace {

constexpr const char* kMaxPoolWholeBody = R"(
  const long long base = i / kResults * kPlane;
  long long most = kLeast;
  for (int tap = 0; tap < kTaps; ++tap) {
    const long long at = octavo_inside(i, tap);
    if (at >= 0) most = max(most, octavo_x0(t, base + at));
  }
  octavo_put0(t, i, most);
)";

std::string_view least(ir::DType type) {
  switch (type) {
    case ir::DType::s8: return "-128ll";
    case ir::DType::s16: return "-32768ll";
    case ir::DType::s32: return "-2147483648ll";
    case ir::DType::s64: return "-9223372036854775807ll - 1";
    default: return "0ll";
  }
}

class MaxPoolWholeFamily final : public PlainFamily {
 public:
  MaxPoolWholeFamily() : PlainFamily("max_pool.whole", {ir::Op::max_pool}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    OCTAVO_TRY(ir::Shape y, pooled_shape(s));
    return std::vector<ir::Shape>{std::move(y)};
  }

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef& x = s.anchor.inputs[0];
    if (reads_floats(x) || !s.program.outputs.empty())
      return refuse("type of the input", ir::name_of(x.dtype), "integers that no program reads");
    OCTAVO_TRY(const ir::Shape y, pooled_shape(s));
    PlainText t;
    t.functions = window_functions(s) + fmt::format("constexpr long long kLeast = {};\n", least(x.dtype));
    t.passes = {PlainPass{kMaxPoolWholeBody, ir::count(y)}};
    t.work = static_cast<double>(ir::count(y)) * static_cast<double>(ir::count(s.anchor.as<ir::Window>().kernel));
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(max_pool_whole, MaxPoolWholeFamily)

}  // namespace octavo::cuda
