// octavo_gpu_texts: which kernels a build for a GPU compiles, by family, and what compiling them costs. No GPU is needed: the planner runs at the
// effort that is asked for, and where a build would time a tactic, the estimate is its time.
//
//   octavo_gpu_texts [--gpu NAME] [--effort N] [--cores N] [--allow TYPES] [--sample N] [--threads N] [--list] [--dump DIR] MODEL.onnx...
//
// --cores: of the machine that is assumed (16). --sample N compiles every Nth text of a family and scales what that took; 0 compiles nothing (default).
// --threads N: behind the table, all texts are compiled by N threads: seconds by the clock, of the threads and of the processors.
// --list: a line a tactic as it would be timed. --dump DIR: writes each text, with the prelude, to DIR/FAMILY-NUMBER.cu.
// Behind the table: how many different texts the kernels of the plan have, which a build compiles where it did not time them. --dump writes them too.
// For each model a table: family, tactics that are timed, different texts, their lines, seconds of a processor in NVRTC, and for making texts and
// packing constants.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api/layer_types.h"
#include "api/pipeline.h"
#include "api/session.h"
#include "base/build_work.h"
#include "cuda/device/absent_gpu.h"
#include "cuda/device/compile_plan.h"
#include "cuda/device/gpu_kernel.h"
#include "cuda/provider.h"
#include "cuda/text/emit_cuda.h"
#include "plan/plan.h"
#include "tune/measured_costs.h"

namespace octavo {
namespace {

struct Arguments {
  std::string gpu = "h100", dump;
  int effort = 1, cores = 16, sample = 0, threads = 0;
  bool list = false;
  std::set<std::string> allowed;
  std::vector<std::string> models;
};

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Row {
  int tactics = 0, texts = 0, compiled = 0;
  std::size_t lines = 0;
  double seconds = 0, most = 0, making = 0;
};

/// What a build of one model would compile, family by family.
class Listing {
 public:
  Listing(const Arguments& a, cuda::Compiler compiler) : a_(a), compiler_(std::move(compiler)) {}

  Status add(const region::Region& region, const region::Plan& plan, const tune::ProvidedTactic& c) {
    Row& row = rows_[c.tactic.family];
    const double begin = processor_seconds();
    auto made = c.provider->compile(region, plan, c.tactic);
    row.making += processor_seconds() - begin;
    ++row.tactics;
    if (!made) return {};  // refused after all, as in a build
    OCTAVO_TRY(const auto texts, cuda::split_modules(std::as_bytes(std::span(made->source.text))));
    for (const auto t : texts)
      OCTAVO_CHECK(add_text(row, c.tactic, std::string(reinterpret_cast<const char*>(t.data()), t.size())));
    return {};
  }

  void print(const std::string& model, double wall) const {
    fmt::print("{}\n{:28} {:>8} {:>6} {:>8} {:>9} {:>8} {:>8}\n", model, "family", "tactics", "texts", "lines", "seconds",
               "longest", "making");
    Row all;
    for (const auto& [family, r] : rows_) {
      line(family, r);
      all.tactics += r.tactics, all.texts += r.texts, all.lines += r.lines, all.compiled += r.compiled, all.making += r.making;
      all.seconds += scaled(r), all.most = std::max(all.most, r.most);
    }
    all.compiled = all.texts;
    line("all", all);
    fmt::print("planning on one thread, all of this but NVRTC: {:.1f} s\n", wall - compiling_);
  }

  /// Of the finished plan.
  Status add_chosen(const region::Plan& plan) {
    std::set<std::string, std::less<>> all;
    int regions = 0, untimed = 0;
    for (const region::Region& r : plan.regions) {
      if (r.code < 0) continue;
      const region::Buffer& source = plan.buffers[static_cast<std::size_t>(r.code)];
      if (source.kind != region::BufferKind::source) continue;
      OCTAVO_TRY(const auto texts, cuda::split_modules(source.data.bytes()));
      ++regions;
      for (const auto t : texts) {
        const std::string text(reinterpret_cast<const char*>(t.data()), t.size());
        if (!all.insert(text).second) continue;
        if (!a_.dump.empty())
          std::ofstream(fmt::format("{}/chosen-{}-{}.cu", a_.dump, r.tactic.family, all.size())) << cuda::emit_prelude() << text;
        untimed += seen_.insert(text).second ? 1 : 0;
      }
    }
    fmt::print("the plan: {} regions with kernels, {} texts, {} of them not timed\n", regions, all.size(), untimed);
    return {};
  }

  Status compile_together() const {
    if (a_.threads == 0) return {};
    const cuda::Compiler compiler = cuda::remembering(compiler_);
    const std::vector<std::string> texts(seen_.begin(), seen_.end());
    std::atomic<std::size_t> next{0}, failed{0};
    const BuildWork before = build_work();
    const auto begin = std::chrono::steady_clock::now();
    const auto work = [&] {
      for (std::size_t i = next++; i < texts.size(); i = next++) failed += compiler(texts[i]) ? 0 : 1;
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < a_.threads; ++t) threads.emplace_back(work);
    for (std::thread& t : threads) t.join();
    const BuildWork done = build_work() - before;
    fmt::print("{} kernels by {} threads: {:.1f} s, {:.1f} s of threads, {:.1f} s of processors\n", done.kernels, a_.threads,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), done.compile,
               done.compile_processor);
    return failed == 0 ? Status() : fail(ErrorKind::internal, "a text does not compile");
  }

 private:
  static double scaled(const Row& r) { return r.compiled == 0 ? 0 : r.seconds * r.texts / r.compiled; }
  static void line(std::string_view name, const Row& r) {
    fmt::print("{:28} {:>8} {:>6} {:>8} {:>9.1f} {:>8.2f} {:>8.2f}\n", name, r.tactics, r.texts, r.lines, scaled(r), r.most,
               r.making);
  }

  Status add_text(Row& row, const region::Tactic& tactic, std::string text) {
    if (!seen_.insert(text).second) return {};
    row.lines += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    const int number = row.texts++;
    if (!a_.dump.empty()) std::ofstream(fmt::format("{}/{}-{}.cu", a_.dump, tactic.family, number)) << cuda::emit_prelude() << text;
    if (a_.sample == 0 || number % a_.sample != 0) return {};
    const auto wall = std::chrono::steady_clock::now();
    const double begin = processor_seconds();
    OCTAVO_TRY(const std::string code, compiler_(text));
    (void)code;
    const double took = processor_seconds() - begin;
    compiling_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
    row.seconds += took, row.most = std::max(row.most, took), ++row.compiled;
    if (a_.list) fmt::print("  compiled in {:.2f} s: {} #{}\n", took, tactic.name(), number);
    return {};
  }

  const Arguments& a_;
  cuda::Compiler compiler_;
  std::map<std::string, Row, std::less<>> rows_;
  std::set<std::string, std::less<>> seen_;
  double compiling_ = 0;
};

Status texts_of(const std::string& path, const Arguments& a) {
  OCTAVO_TRY(const cuda::GpuFacts facts, cuda::find_gpu(a.gpu));
  const cuda::Target target{facts.architecture, facts.multiprocessors, facts.shared_bytes};
  const cuda::Compiler compiler = cuda::nvrtc_compiler(target.architecture);
  Listing listing(a, compiler);
  const auto provider = cuda::make_provider(target, compiler);
  const std::vector<const region::Provider*> providers{provider.get()};
  api::PipelineOptions options;
  options.device = "cuda:" + a.gpu;
  options.plan.effort = a.effort;
  if (!a.allowed.empty()) {
    OCTAVO_TRY(options.plan.allowed, api::allowed_types(a.allowed));
  }
  OCTAVO_TRY(const auto session, api::Session::open(path));
  OCTAVO_TRY(const auto model, session->imported(options.import));
  tune::TuneOptions tuning;
  tuning.device = a.gpu, tuning.effort = a.effort, tuning.cores = a.cores;
  tuning.compile_seconds = cuda::kCompileSeconds;
  tuning.measure = [&](const region::Region& r, const region::Plan& plan,
                       const std::vector<tune::ProvidedTactic>& candidates) -> Result<std::vector<tune::TacticSeconds>> {
    std::map<std::string, double> estimates;
    for (const auto& all : {provider->offers(r, plan), provider->variants(r, plan)}) {
      for (const region::Offer& o : all) estimates[o.tactic.name()] = o.cost;
    }
    std::vector<tune::TacticSeconds> out;
    for (const tune::ProvidedTactic& c : candidates) {
      OCTAVO_CHECK(listing.add(r, plan, c));
      out.push_back({estimates[c.tactic.name()], false});
      if (a.list) fmt::print("{:10.2f} us {} | {}\n", out.back().seconds * 1e6, c.tactic.name(), r.name);
    }
    return out;
  };
  tune::MeasuredCosts costs({}, providers, std::move(tuning));
  plan::PlanOptions p = api::planner_options(options, *model);
  p.costs = &costs;
  const auto begin = std::chrono::steady_clock::now();
  OCTAVO_TRY(const plan::Planned planned, plan::make_plan(model->graph, providers, p));
  listing.print(fmt::format("{}: {} regions", path, planned.plan.regions.size()),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  OCTAVO_CHECK(listing.add_chosen(planned.plan));
  return listing.compile_together();
}

int main_of(const std::vector<std::string>& words) {
  Arguments a;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] { return i + 1 < words.size() ? words[++i] : std::string(); };
    if (words[i] == "--gpu") {
      a.gpu = value();
    } else if (words[i] == "--effort") {
      a.effort = std::atoi(value().c_str());
    } else if (words[i] == "--cores") {
      a.cores = std::atoi(value().c_str());
    } else if (words[i] == "--sample") {
      a.sample = std::atoi(value().c_str());
    } else if (words[i] == "--threads") {
      a.threads = std::atoi(value().c_str());
    } else if (words[i] == "--dump") {
      a.dump = value();
    } else if (words[i] == "--list") {
      a.list = true;
    } else if (words[i] == "--allow") {
      std::string types = value();
      for (std::size_t at = 0; at != std::string::npos;) {
        const std::size_t end = types.find(',', at);
        a.allowed.insert(types.substr(at, end == std::string::npos ? end : end - at));
        at = end == std::string::npos ? end : end + 1;
      }
    } else {
      a.models.push_back(words[i]);
    }
  }
  for (const std::string& m : a.models) {
    if (const Status done = texts_of(m, a); !done) {
      fmt::print(stderr, "{}: {}\n", m, done.error().message);
      return 1;
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::main_of({argv + 1, argv + argc});
}
