#include "cuda/families/conv/conv_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "region/tensor_ref.h"

namespace octavo::cuda {

std::string value_of(const Parameters& parameters, const char* name) {
  const auto it = parameters.find(name);
  return it == parameters.end() ? std::string() : it->second;
}

bool is_windowed(const region::Region& region) {
  if (region.stages.size() != 1) return false;
  const region::Anchor& a = region.stages[0].anchor;
  if (a.op != ir::Op::conv || !a.integer || !a.weights) return false;
  const ir::Shape& w = a.weights->dims;
  return w.size() == 4 && w[2] * w[3] > 1 && a.as<ir::Window>().group == 1;
}

Reasons why_not_windowed(const ConvShape& s, std::int64_t most_steps) {
  if (s.channels % 16 != 0 || s.piece != 16)
    return unmet("channels, bytes a pixel, bytes a run", fmt::format("{}, {}, {}", s.channels, s.pixel, s.piece),
                 "multiples of 16");
  if (const std::int64_t steps = parts(s.kernel_h * s.kernel_w * s.channels, 32); steps > most_steps)
    return unmet("products of 32 bytes", steps, fmt::format("at most {}", most_steps));
  if (s.pixels() > INT32_MAX / 4) return unmet("pixels", s.pixels(), "less than 2^29");
  return {};
}

double traffic_of(const region::Stage& stage) {
  const auto bytes = [](const region::TensorRef& t) { return static_cast<double>(tensor_bytes(t)); };
  double traffic = bytes(stage.anchor.inputs[0]);
  for (const auto& o : stage.stores) traffic += bytes(o);
  for (const auto& o : stage.operands) traffic += o.ref.strides[3] != 0 ? bytes(o.ref) : 0;
  return traffic;
}

void put_in_order(std::vector<Candidate>& candidates, std::initializer_list<const char*> tile) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  std::set<std::string> seen;
  std::stable_partition(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    std::string which;
    for (const char* name : tile) which += c.parameters.at(name) + "/";
    return seen.insert(which).second;
  });
}

}  // namespace octavo::cuda
