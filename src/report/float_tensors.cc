#include "report/float_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "region/stage_graph.h"
#include "region/tensor_ref.h"
#include "report/costs.h"

namespace octavo::report {
namespace {

using region::Region;
using region::TensorRef;

bool only_moves(const Region& r) {
  return r.precision == region::Work::move || r.precision == region::Work::transfer;
}

/// The regions that read a buffer as float32, by index, in order.
std::map<region::BufferId, std::vector<std::size_t>> float_readers(const region::Plan& plan) {
  std::map<region::BufferId, std::vector<std::size_t>> readers;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (only_moves(plan.regions[i])) continue;
    for (const TensorRef* t : region::reads_of(plan.regions[i])) {
      auto& of = readers[t->buffer];
      if (t->dtype == ir::DType::f32 && (of.empty() || of.back() != i)) of.push_back(i);
    }
  }
  return readers;
}

bool stores_codes_too(const region::Stage& stage) {
  return std::any_of(stage.stores.begin(), stage.stores.end(), [](const TensorRef& t) { return t.quantizer.has_value(); });
}

}  // namespace

FloatTensors float_tensors_of(const region::Plan& plan) {
  FloatTensors out;
  out.measured = measured(plan);
  auto all_readers = float_readers(plan);
  const auto has_codes = [&](std::size_t r) { return plan.regions[r].precision.has_codes(); };
  std::set<std::size_t> touching;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& maker = plan.regions[i];
    if (only_moves(maker)) continue;
    for (std::size_t s = 0; s < maker.stages.size(); ++s) {
      const region::Stage& stage = maker.stages[s];
      for (std::size_t k = 0; k < stage.stores.size(); ++k) {
        const TensorRef& t = stage.stores[k];
        if (t.dtype != ir::DType::f32 || !region::leaves(maker, {s, k})) continue;
        if (plan.buffers[static_cast<std::size_t>(t.buffer)].kind != region::BufferKind::arena) continue;
        std::vector<std::size_t> readers = all_readers[t.buffer];
        std::erase(readers, i);
        if (readers.empty() || !(has_codes(i) || std::any_of(readers.begin(), readers.end(), has_codes))) continue;
        if (out.count == 0) out.tensor = t.value, out.maker = maker.name, out.reader = plan.regions[readers[0]].name;
        ++out.count;
        out.with_codes += stores_codes_too(stage) ? 1 : 0;
        out.bytes += 2 * region::tensor_bytes(t);
        touching.insert(i);
        touching.insert(readers.begin(), readers.end());
      }
    }
  }
  if (out.count == 0) return out;
  out.share_of_bytes = static_cast<double>(out.bytes) / static_cast<double>(std::max<std::int64_t>(totals_of(plan).bytes, 1));
  out.bytes *= plan.images;
  double all = 0, part = 0;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const double seconds = std::max(plan.regions[i].seconds, 0.0);
    if (!plan.regions[i].precision.computes_here()) {
      out.beside_transfers = true;
      continue;
    }
    all += seconds;
    part += touching.contains(i) ? seconds : 0;
  }
  if (all > 0) out.share_of_time = part / all;
  return out;
}

std::string text(const FloatTensors& t, const WaysOut& ways) {
  if (!t.matter()) return "";
  const bool one = t.count == 1;
  std::string out = fmt::format(
      "{} tensor{} between regions {} float32, because the placement of Q/DQ has no pair where {} read: writing and reading {} "
      "moves at least {}, {:.0f} % of the bytes of a run; the first is \"{}\", which \"{}\" stores and \"{}\" reads\n",
      t.count, one ? "" : "s", one ? "is" : "are", one ? "it is" : "they are", one ? "it" : "them", amount(t.bytes, "B"),
      100 * t.share_of_bytes, t.tensor, t.maker, t.reader);
  if (t.share_of_time >= 0) {
    out += fmt::format("  the regions that store or read {} take {:.0f} % of the {} time{}\n", one ? "it" : "them",
                       100 * t.share_of_time, t.measured ? "measured" : "estimated",
                       t.beside_transfers ? " on the GPU, without the copies from and to the host" : "");
  }
  if (ways.permit && t.with_codes > 0) {
    const bool all = t.with_codes == t.count;
    out += fmt::format(
        "  --qdq permit lets the planner read {} as 8-bit codes, which are stored already, and leave out other pairs, if that is "
        "faster; the outputs then differ from the model's, and build prints by how much (docs/implicit.md)\n",
        all ? (one ? "it" : "them") : fmt::format("{} of them", t.with_codes));
  }
  if (!ways.allow.empty()) {
    out += fmt::format(
        "  --allow {} stores such tensors in {} and computes float layers in it, which rounds more (docs/precision.md)\n",
        ways.allow, ways.type);
  }
  return out;
}

}  // namespace octavo::report
