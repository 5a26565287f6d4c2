// octavo_ref: ONNX + .npy inputs -> import -> reference evaluator -> .npy outputs. The tool behind tests/onnx/compare_ort.py.
//   octavo_ref --batch jobs.txt     one job a line (tools/npy_jobs.h)
//   octavo_ref --print model.onnx   the imported graph as text, notes, absorbed nodes
//   octavo_ref --inputs model.onnx  names, types and shapes of the inputs
// A job prints one line: "ok <n outputs>" or "error <kind number> <text on one line>". Outputs go to <prefix>0.npy, <prefix>1.npy,
// ... With OCTAVO_REF_NORMALIZE=1 the graph is put into normal form first.
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>

#include "ir/text.h"
#include "quant/normal_form.h"
#include "reference/evaluate.h"
#include "tools/npy_jobs.h"

namespace octavo {
namespace {

Result<std::string> run_job(const std::vector<std::string>& fields) {
  OCTAVO_TRY(tools::Job job, tools::open_job(fields));
  if (std::getenv("OCTAVO_REF_NORMALIZE")) OCTAVO_CHECK(quant::normalize(job.model.graph));
  OCTAVO_TRY(std::vector<ir::Tensor> results, reference::evaluate(job.model.graph, job.feeds));
  OCTAVO_CHECK(tools::cut(results, job.model.graph));
  for (std::size_t i = 0; i < results.size(); ++i)
    OCTAVO_CHECK(tools::write_npy(fields[1] + std::to_string(i) + ".npy", results[i]));
  return fmt::format("ok {}", results.size());
}

int report(const Error& error) {
  std::cerr << "error: " << error.message << "\n";
  return exit_code(error.kind);
}

int print(const std::string& path) {
  const auto model = onnx::import_file(path);
  if (!model) return report(model.error());
  std::cout << ir::print(model->graph, {.full_constants = false});
  for (const std::string& note : model->notes) std::cout << "# note: " << note << "\n";
  for (const auto& [node, why] : model->absorbed) std::cout << "# absorbed: " << node << ": " << why << "\n";
  return 0;
}

int inputs(const std::string& path) {
  const auto parsed = onnx::Parsed::file(path);
  if (!parsed) return report(parsed.error());
  const auto list = onnx::inputs_of(*parsed);
  if (!list) return report(list.error());
  for (const onnx::InputInfo& info : *list)
    std::cout << info.name << "\t" << ir::name_of(info.dtype) << "\t" << info.shape_text() << "\n";
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 2 && args[0] == "--batch") return octavo::tools::batch(args[1], octavo::run_job);
  if (args.size() == 2 && args[0] == "--print") return octavo::print(args[1]);
  if (args.size() == 2 && args[0] == "--inputs") return octavo::inputs(args[1]);
  std::cerr << "usage: octavo_ref --batch jobs.txt | --print model.onnx | --inputs model.onnx\n";
  return 2;
}
