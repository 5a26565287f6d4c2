// octavo_gpu_ref: ONNX + .npy inputs -> a plan of the GPU's kernels alone -> the emulation, against the reference evaluator in the same process. The tool
// behind tests/onnx/emulate_gpu.py.
//   octavo_gpu_ref jobs.txt   one job a line (tools/npy_jobs.h)
// A job prints one line: "ok <family> <family> ..." (that ran), "refused <why>" (no kernel), "wrong <what differs>" or "error <kind number> <text>". Floats
// may differ by 2e-5 of the largest value (of types of 16 bits: by a step), integers not at all, but by the 1 of OCTAVO_STEPS=1.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "api/pipeline.h"
#include "cuda/emulation/emulated_device.h"
#include "cuda/provider.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "tools/npy_jobs.h"

namespace octavo {
namespace {

using ir::DType;
using ir::Tensor;

std::string difference(const Tensor& got, const Tensor& want, double steps) {
  if (got.type() != want.type()) return fmt::format("{} instead of {}", ir::to_string(got.type()), ir::to_string(want.type()));
  const bool real = ir::is_float(want.dtype());
  double largest = 1e-6;
  for (std::int64_t i = 0; real && i < want.size(); ++i) {
    if (std::isfinite(want.at(i))) largest = std::max(largest, std::abs(want.at(i)));
  }
  const double step = want.dtype() == DType::f16 ? 1.0 / 1024 : want.dtype() == DType::bf16 ? 1.0 / 128 : 2e-5;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double a = got.at(i), b = want.at(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::abs(a - b) <= (real ? step * largest : steps))) return fmt::format("element {}: {} instead of {}", i, a, b);
  }
  return "";
}

Result<std::string> run_job(const std::vector<std::string>& fields) {
  OCTAVO_TRY(tools::Job job, tools::open_job(fields));
  const auto provider = cuda::make_provider({"sm_80", 108, 163 * 1024}, [](std::string_view t) -> Result<std::string> {
    return std::string(t);  // the emulation runs texts
  });
  plan::PlanOptions how;
  how.usual = cuda::usual_choices(), how.priced = cuda::priced_choices();
  auto planned = plan::make_plan(job.model.graph, {provider.get()}, how);
  if (!planned) {
    std::string why = planned.error().message;
    std::replace(why.begin(), why.end(), '\n', '|');
    if (planned.error().kind == ErrorKind::unsupported) return "refused " + why;
    return tl::unexpected(planned.error());
  }
  region::Plan* const plan = &planned->plan;
  OCTAVO_CHECK(provider->finish({&plan, 1}, 1));
  std::set<std::string> ran;
  for (const region::Region& r : planned->plan.regions) ran.insert(r.tactic.family);
  const auto device = testing::emulated_device();
  OCTAVO_TRY(const auto engine, engine::Engine::create(std::move(planned->plan), {provider.get()}, "", {device.get()}));
  OCTAVO_TRY(const auto context, engine::Context::create(engine, 1));
  OCTAVO_TRY(std::vector<Tensor> got, api::run(*context, job.feeds));
  OCTAVO_TRY(std::vector<Tensor> want, reference::evaluate(job.model.graph, job.feeds));
  OCTAVO_CHECK(tools::cut(got, job.model.graph));
  OCTAVO_CHECK(tools::cut(want, job.model.graph));
  if (got.size() != want.size()) return fmt::format("wrong {} outputs instead of {}", got.size(), want.size());
  const char* steps = std::getenv("OCTAVO_STEPS");
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (const std::string what = difference(got[i], want[i], steps != nullptr ? std::atof(steps) : 0); !what.empty())
      return fmt::format("wrong output {}, {} (kernels {})", i, what, fmt::join(ran, " "));
  }
  return fmt::format("ok {}", fmt::join(ran, " "));
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  if (argc == 2) return octavo::tools::batch(argv[1], octavo::run_job);
  std::cerr << "usage: octavo_gpu_ref jobs.txt\n";
  return 2;
}
