// Times engines on a GPU: builds a model for it and runs it with inputs and outputs in the GPU's memory, and in the host's.
//   engine_bench [effort=N] [cache=FILE] [force=CHOICE,...] [check=1] [log=1] MODEL.onnx BATCH...
// A line a batch: latency (median of runs that wait for the end), images a second, the same with transfers, and the slowest regions by
// the GPU's clock. check=1: every region against the reference instead. log=1: every time that the plan is made by.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <numeric>
#include <sstream>

#include "api/check.h"
#include "api/pipeline.h"
#include "cuda/device/gpu_device.h"

namespace {

using namespace octavo;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Median seconds of `run`, over about a second, after some that do not count.
template <class Run>
Result<double> median(Run run) {
  for (int i = 0; i < 5; ++i) OCTAVO_CHECK(run());
  std::vector<double> all;
  const auto begin = Clock::now();
  while (seconds_since(begin) < 1 || all.size() < 10) {
    const auto start = Clock::now();
    OCTAVO_CHECK(run());
    all.push_back(seconds_since(start));
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

Status bench(const std::map<std::string, std::string>& settings, const std::string& model, std::int64_t batch) {
  const auto setting = [&](const char* name, const char* otherwise) {
    const auto at = settings.find(name);
    return at == settings.end() ? std::string(otherwise) : at->second;
  };
  api::PipelineOptions options;
  options.plan.effort = std::atoi(setting("effort", "0").c_str());
  options.timing.cache = setting("cache", "none");
  if (setting("log", "0") == "1") options.timing.log = [](const std::string& line) { fmt::print("{}\n", line); };
  std::stringstream forced(setting("force", ""));
  for (std::string choice; std::getline(forced, choice, ',');) options.plan.forced.insert(choice);
  options.device = "cuda";
  options.import.default_batch = batch;
  const auto start = Clock::now();
  OCTAVO_TRY(const api::Built built, api::build_file(model, options));
  const double build = seconds_since(start);
  const region::Plan& plan = built.engine->plan();
  if (setting("check", "0") == "1") {
    OCTAVO_TRY(const api::CheckReport report, api::check(built.engine, built.graph, api::random_inputs(plan, 1)));
    fmt::print("{} batch {}: {} regions, {}\n", model, batch, report.regions.size(),
               report.ok() ? "all equal" : report.first_divergence());
    return {};
  }
  OCTAVO_TRY(const auto context, engine::Context::create(built.engine, 1));
  const region::Device& gpu = cuda::gpu();
  const auto inputs = api::random_inputs(plan, 1);
  std::vector<std::unique_ptr<region::DeviceMemory>> memory;
  std::vector<engine::Address> in, out;
  std::vector<std::vector<std::byte>> outputs;
  std::vector<const void*> host_in;
  std::vector<void*> host_out;
  for (const ir::Tensor& t : inputs) {
    OCTAVO_TRY(memory.emplace_back(), gpu.allocate(t.bytes().size()));
    OCTAVO_CHECK(gpu.write(memory.back()->address(), t.bytes()));
    in.push_back({memory.back()->address(), 1});
    host_in.push_back(t.bytes().data());
  }
  for (const region::Binding& b : plan.outputs) {
    const ir::Tensor t(b.type);
    outputs.emplace_back(t.bytes().size());
    OCTAVO_TRY(memory.emplace_back(), gpu.allocate(t.bytes().size()));
    out.push_back({memory.back()->address(), 1});
    host_out.push_back(outputs.back().data());
  }
  OCTAVO_TRY(const double here, median([&] { return context->run(in, out, nullptr); }));
  OCTAVO_TRY(const double there, median([&] { return context->run(host_in, host_out); }));
  const auto n = static_cast<double>(batch);
  fmt::print("{}\n", plan.regions.empty() ? "" : api::runs_on(*built.engine));
  fmt::print(
      "{} batch {}: {:.3f} ms, {:.0f} images/s; from host memory {:.3f} ms, {:.0f} images/s; {} regions, built in {:.1f} s\n",
      model, batch, here * 1e3, n / here, there * 1e3, n / there, plan.regions.size(), build);
  OCTAVO_TRY(const engine::Profile profile, context->profile(host_in, host_out, 20));
  std::vector<std::size_t> order(plan.regions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return profile.regions[a].median > profile.regions[b].median; });
  for (std::size_t i = 0; i < order.size() && i < 70; ++i) {
    const region::Region& r = plan.regions[order[i]];
    fmt::print("  {:8.1f} us  {}  {}\n", profile.regions[order[i]].median * 1e6, r.tactic.name(), r.name.substr(0, 60));
  }
  std::fflush(stdout);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto facts = octavo::cuda::gpu_facts())
    fmt::print("{} ({}, {} multiprocessors)\n", facts->name, facts->architecture.text(), facts->multiprocessors);
  std::map<std::string, std::string> settings;
  std::string model;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (const auto equals = word.find('='); equals != std::string::npos) {
      settings[word.substr(0, equals)] = word.substr(equals + 1);
    } else if (model.empty()) {
      model = word;
    } else if (const auto status = bench(settings, model, std::atoll(word.c_str())); !status) {
      fmt::print("{}: {}\n", model, status.error().message);
      return 1;
    }
  }
  return 0;
}
