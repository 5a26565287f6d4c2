// cumulate: sums or products along one dimension, a thread a line, in the reference's order.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

class CumulateFamily final : public PlainFamily {
 public:
  CumulateFamily() : PlainFamily("cumulate", {ir::Op::cumulate}, 1) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override { return std::vector<ir::Shape>{s.anchor.inputs[0].dims}; }

  Result<PlainText> text(const Stage& s) const override {
    const auto& facts = s.anchor.as<ir::Cumulate>();
    const region::TensorRef& x = s.anchor.inputs[0];
    OCTAVO_TRY(const Line line, line_of(x.dims, facts.axis));
    const bool real = reads_floats(x), product = facts.function == ir::Accumulation::prod;
    const char* next = real ? (product ? "__fmul_rn(sum, v)" : "__fadd_rn(sum, v)") : product ? "sum * v" : "sum + v";
    PlainPass pass;
    pass.block = 64;
    pass.threads = line.lines;
    pass.body =
        fmt::format(R"(  const long long base = i / {inner}ll * {step}ll + i % {inner}ll;
  {type} sum = {start};
  for (long long j = 0; j < {extent}ll; ++j) {{
    const long long at = base + ({order}) * {inner}ll;
    const {type} v = ({type})octavo_x0(t, at), next = {next};
    octavo_put0(t, at, ({stored}){given});
    sum = next;
  }}
)",
                    fmt::arg("inner", line.inner), fmt::arg("step", line.inner * line.extent), fmt::arg("extent", line.extent),
                    fmt::arg("type", real ? "float" : "unsigned long long"), fmt::arg("start", product ? 1 : 0),
                    fmt::arg("order", facts.reverse ? fmt::format("{}ll - j", line.extent - 1) : "j"), fmt::arg("next", next),
                    fmt::arg("stored", real ? "float" : "long long"), fmt::arg("given", facts.exclusive ? "sum" : "next"));
    PlainText t;
    t.passes = {pass};
    t.work = static_cast<double>(ir::count(x.dims));
    t.chain = static_cast<double>(line.extent);
    return t;
  }
};

}  // namespace

const Family& cumulate_family() {
  static const CumulateFamily family;
  return family;
}

}  // namespace octavo::cuda
