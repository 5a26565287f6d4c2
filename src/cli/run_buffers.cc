#include "cli/run_buffers.h"

#include "api/check.h"

namespace octavo::cli {

RunBuffers::RunBuffers(const region::Plan& plan) : inputs(api::random_inputs(plan, 1)) {
  for (const ir::Tensor& t : inputs) in.push_back(t.bytes().data());
  for (const region::Binding& b : plan.outputs) outputs.emplace_back(b.type);
  for (ir::Tensor& t : outputs) out.push_back(t.mutable_bytes().data());
}

void RunBuffers::feed(std::vector<ir::Tensor> tensors) {
  inputs = std::move(tensors);
  in.clear();
  for (const ir::Tensor& t : inputs) in.push_back(t.bytes().data());
}

}  // namespace octavo::cli
