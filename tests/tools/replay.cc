// octavo_replay: what the planner and the kernels make of networks, as text that two versions of the project can be compared by
// (scripts/replay.py). No kernel runs, so that every processor and GPU can be planned for on any x86-64 machine.
//
//   octavo_replay [--processors NAMES] [--gpus NAMES] [--float16] [--random FIRST COUNT] [--wide FIRST COUNT] [MODEL.onnx ...]
//
// NAMES are separated by commas, "none" for none; all processors (kProcessors) and sm_80,sm_90a by default. --float16: GPUs may compute in it. For each network and target:
//   NETWORK TARGET plan HASH                 the plan hash, which covers memory, layouts, programs and constants
//   NETWORK TARGET N ONNX-NODES | PRECISION | TACTIC | constants D | code D | launch D
// one line a region; D are digests of the packed constants, of the machine code that the kernel generates when it is loaded (CPU) or of
// the text that NVRTC gets (GPU), and of how it is launched. "-": there is none. A network that is refused has one line with the error.
// Planned at effort 0, by estimates. Random networks: half of them for two threads; a third may compute in bfloat16.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "cpu/assumed.h"
#include "cpu/jit/recorded.h"
#include "cpu/provider.h"
#include "cuda/provider.h"
#include "onnx/import/import.h"
#include "plan/plan.h"
#include "support/placement.h"
#include "support/wide_network.h"

namespace octavo {
namespace {

using Providers = std::vector<const region::Provider*>;

struct NamedProcessor {
  std::string_view name;
  cpu::Processor processor;
};
constexpr NamedProcessor kProcessors[] = {
    {"portable", {}},
    {"avx2", {cpu::Isa::avx2}},
    {"avx512", {cpu::Isa::avx512}},
    {"avx512vnni", {.isa = cpu::Isa::avx512vnni, .vbmi = true, .bf16 = true}},
    {"amx", {.isa = cpu::Isa::amx, .vbmi = true, .bf16 = true, .slow_division = true}},
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  while (text != "none" && !text.empty()) {
    const auto word = text.substr(0, text.find(','));
    out.emplace_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return out;
}

std::string digest(std::string_view bytes) {
  return bytes.empty() ? "-" : hash128_hex(bytes).substr(0, 12);
}

std::string_view bytes_of(const region::Plan& plan, region::BufferId id) {
  if (id < 0) return {};
  const auto bytes = plan.buffers[static_cast<std::size_t>(id)].data.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The code that the region's kernel generates. Only kernels that neither compute nor ask other libraries while they are loaded are.
std::string generated(const region::Region& r, const region::Plan& plan, const Providers& providers) {
  const auto provider = std::find_if(providers.begin(), providers.end(), [&](const auto* p) { return p->knows(r.tactic); });
  if (provider == providers.end()) return "no provider";
  std::vector<const std::byte*> constants;
  for (const region::BufferId id : r.packed) constants.push_back(reinterpret_cast<const std::byte*>(bytes_of(plan, id).data()));
  const cpu::jit::RecordCode record;
  const auto kernel = (*provider)->load(r, plan, {.constants = constants, .code = {}, .launch = r.launch});
  return kernel ? digest(record.bytes()) : "error: " + kernel.error().message;
}

/// The lines of one plan.
void describe(const std::string& name, const region::Plan& plan, const Providers* load_with) {
  if (const auto sound = region::verify(plan); !sound) return fmt::print("{} refused: {}\n", name, sound.error().message);
  fmt::print("{} plan {}\n", name, region::plan_hash(plan));
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const region::Region& r = plan.regions[i];
    std::string packed;
    for (const region::BufferId id : r.packed) packed += hash128_hex(bytes_of(plan, id));
    fmt::print("{} {} {} | {} | {} | constants {} | code {} | launch {}\n", name, i, fmt::join(r.onnx_nodes, ","),
               to_string(r.precision), r.tactic.name(), digest(packed),
               load_with ? generated(r, plan, *load_with) : digest(bytes_of(plan, r.code)), digest(r.launch));
  }
}

struct Targets {
  std::vector<std::string> processors, gpus;
  bool float16 = false;  ///< allowed on GPUs
};

void replay(const std::string& network, const ir::Graph& graph, plan::PlanOptions options, const Targets& targets,
            const std::map<std::string, ir::DType>& model_types = {}) {
  const auto print = [&](const std::string& target, const Result<plan::Planned>& planned, const Providers* load_with) {
    const std::string name = network + " " + target;
    if (planned) return describe(name, planned->plan, load_with);
    const std::string& m = planned.error().message;
    fmt::print("{} refused: {}\n", name, m.substr(0, m.find('\n')));
  };
  for (const NamedProcessor& p : kProcessors) {
    if (std::find(targets.processors.begin(), targets.processors.end(), p.name) == targets.processors.end()) continue;
    const cpu::AssumeProcessor assumed(p.processor);
    print(std::string(p.name), plan::make_plan(graph, cpu::providers(), options), &cpu::providers());
  }
  options.usual = cuda::usual_choices();
  options.priced = cuda::priced_choices();
  options.model_types = model_types;
  if (targets.float16) options.allowed.insert("float16");
  for (const std::string& gpu : targets.gpus) {
    cuda::Target target;
    target.architecture = cuda::parse_architecture(gpu).value();
    const auto provider =
        cuda::make_provider(target, [](std::string_view text) -> Result<std::string> { return std::string(text); });
    print(gpu, plan::make_plan(graph, {provider.get()}, options), nullptr);
  }
  std::fflush(stdout);
}

int main_of(const std::vector<std::string>& words) {
  Targets targets{.processors = {}, .gpus = {"sm_80", "sm_90a"}};
  for (const NamedProcessor& p : kProcessors) targets.processors.emplace_back(p.name);
  const auto number = [&](std::size_t i) { return i < words.size() ? std::strtoull(words[i].c_str(), nullptr, 10) : 0; };
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--processors" && i + 1 < words.size()) {
      targets.processors = split(words[++i]);
    } else if (words[i] == "--gpus" && i + 1 < words.size()) {
      targets.gpus = split(words[++i]);
    } else if (words[i] == "--float16") {
      targets.float16 = true;
    } else if (words[i] == "--random" || words[i] == "--wide") {
      const bool wide = words[i] == "--wide";
      const std::uint64_t first = number(i + 1), count = number(i + 2);
      i += 2;
      for (std::uint64_t seed = first; seed < first + count; ++seed) {
        plan::PlanOptions options;
        options.threads = 1 + static_cast<int>(seed % 2);
        if (seed % 3 == 0) options.allowed.insert("bfloat16");
        replay(fmt::format("{}:{}", wide ? "wide" : "random", seed),
               wide ? testing::wide_network(seed) : testing::random_network(seed, {.shuffles = seed % 2 == 0}), options, targets);
      }
    } else {
      const auto model = onnx::import_file(words[i]);
      const std::string name = words[i].substr(words[i].rfind('/') + 1);
      if (!model) {
        fmt::print("{} refused: {}\n", name, model.error().message.substr(0, model.error().message.find('\n')));
        continue;
      }
      replay(name, model->graph, {}, targets, model->float_types);
    }
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::main_of({argv + 1, argv + argc});
}
