// Random quantized networks on a GPU: random_networks FIRST COUNT [SECONDS]. Each network is built for the GPU and for the CPU; every region of the GPU's
// engine is judged against the reference, fed with the engine's own inputs; the outputs are compared with those of the CPU's engine and of
// the reference; and three other placements of the same Q/DQ pairs must give the same plan hash.
//
// A line for each network that is not equal, then the counts. Exit code 0: all are equal; 1: some are not; 3: no GPU. Networks that the GPU
// refuses (no kernel for an operator) are counted by reason.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <string>

#include "api/check.h"
#include "api/pipeline.h"
#include "cuda/device/gpu_device.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "support/feeds.h"
#include "support/placement.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

struct Counts {
  int equal = 0, float_sums = 0, different = 0, other_hash = 0, loose = 0;
  std::int64_t regions = 0, elements = 0;
  std::map<std::string, int> refused;
};

api::PipelineOptions options_for(const char* device) {
  api::PipelineOptions options;
  options.device = device;
  options.plan.effort = 0;
  options.plan.threads = 1;
  options.timing.cache = std::string(api::kNoCache);
  return options;
}

/// Empty, or what differs.
Result<std::string> judge(std::uint64_t seed, Counts& counts) {
  const ir::Graph graph = testing::random_network(seed, {.shuffles = seed % 2 == 0});
  auto gpu = api::build_graph(graph, options_for("cuda"));
  if (!gpu) {
    const std::string& m = gpu.error().message;
    ++counts.refused[m.substr(0, m.find('\n')).substr(0, 160)];
    return std::string();
  }
  OCTAVO_TRY(const auto cpu, api::build_graph(graph, options_for("cpu")));
  const auto feeds = testing::seeded_feeds(graph, seed);
  OCTAVO_TRY(const api::CheckReport report, api::check(gpu->engine, gpu->graph, feeds));
  counts.regions += static_cast<std::int64_t>(report.regions.size());
  for (const auto& r : report.regions) counts.elements += r.elements;
  if (!report.ok()) return report.first_divergence();
  OCTAVO_TRY(const auto context, engine::Context::create(cpu.engine, 1));
  OCTAVO_TRY(const auto on_cpu, api::run(*context, feeds));
  if (testing::has_float_sum(gpu->engine->plan())) {
    ++counts.float_sums;  // their order is free: judged region by region alone
  } else {
    if (const auto d = testing::first_difference(on_cpu, report.outputs); !d.empty()) return "beside the CPU's engine: " + d;
    OCTAVO_TRY(const auto want, reference::evaluate(gpu->graph, feeds));
    if (const auto d = testing::first_difference(want, report.outputs); !d.empty()) return "beside the reference: " + d;
  }
  OCTAVO_TRY(const auto providers, api::providers("cuda"));
  const auto hash_of = [&](const ir::Graph& g) -> Result<std::string> {  // of the plan before its kernels are compiled
    onnx::Model model;
    model.graph = g;
    OCTAVO_TRY(const auto planned, plan::make_plan(g, providers, api::planner_options(options_for("cuda"), model)));
    return region::plan_hash(planned.plan);
  };
  OCTAVO_TRY(const std::string hash, hash_of(graph));
  testing::PlacementCounts moves;
  for (std::uint64_t k = 0; k < 3; ++k) {
    OCTAVO_TRY(const std::string other, hash_of(testing::place_otherwise(graph, seed * 31 + k, 12, moves)));
    if (other == hash) continue;
    if (testing::has_loose_codes(graph)) {
      ++counts.loose;
      continue;
    }
    ++counts.other_hash;
    return fmt::format("placement {} has another plan hash", k);
  }
  return std::string();
}

int check(std::uint64_t first, std::uint64_t count, double seconds) {
  Counts counts;
  const auto started = std::chrono::steady_clock::now();
  std::uint64_t seed = first;
  for (; seed < first + count; ++seed) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count() > seconds) {
      break;
    }
    const auto found = judge(seed, counts);
    const std::string what = found ? *found : "error: " + found.error().message;
    if (what.empty()) {
      ++counts.equal;
    } else {
      ++counts.different;
      fmt::print("seed {}: {}\n", seed, what);
      std::fflush(stdout);
    }
  }
  int refused = 0;
  for (const auto& [why, n] : counts.refused) {
    refused += n;
    fmt::print("refused {} times: {}\n", n, why);
  }
  fmt::print(
      "networks {} to {}: {} equal ({} with sums of floats, {} regions, {} elements), {} differ ({} in the plan hash of a "
      "placement), {} refused, "
      "{} placements whose half-precision quantizers allow another plan\n",
      first, seed - 1, counts.equal - refused, counts.float_sums, counts.regions, counts.elements, counts.different,
      counts.other_hash, refused, counts.loose);
  return counts.different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fmt::print(stderr,
               "usage: random_networks FIRST COUNT [SECONDS]\nAfter SECONDS no other network is begun, and those that were judged "
               "are counted.\n");
    return 2;
  }
  if (const auto facts = octavo::cuda::gpu_facts(); !facts) {
    fmt::print("no GPU: {}\n", facts.error().message);
    return 3;
  }
  return octavo::check(std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10),
                       argc == 4 ? std::atof(argv[3]) : 1e9);
}
