#include "cuda/compile_plan.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/emit_cuda.h"
#include "cuda/gpu_kernel.h"
#include "cuda/nvrtc.h"

namespace octavo::cuda {
namespace {

struct Work {
  std::string text, region;  ///< one that has it, for messages
  Result<std::string> code;
};

/// Compiles each once.
void compile_all(std::vector<Work>& all, const Compiler& compile, int threads) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++) all[i].code = compile(all[i].text);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads && static_cast<std::size_t>(t) < all.size(); ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
}

/// `texts`: of each region, indices into `work`.
void put_code(region::Plan& plan, const std::vector<std::vector<std::size_t>>& texts, const std::vector<Work>& work) {
  std::map<std::vector<std::size_t>, region::BufferId> made;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    region::Region& r = plan.regions[i];
    if (texts[i].empty()) continue;
    region::Buffer& buffer = plan.buffers[static_cast<std::size_t>(r.code)];
    const auto [at, fresh] = made.emplace(texts[i], r.code);
    if (!fresh) {  // another region holds the same code
      buffer.data = ir::Tensor(ir::DType::u8, {0});
      buffer.bytes = 0;
      r.code = at->second;
      continue;
    }
    std::vector<std::string> modules;
    for (const std::size_t t : texts[i]) modules.push_back(*work[t].code);
    const std::string joined = join_modules(modules);
    buffer.data = ir::Tensor(ir::DType::u8, {static_cast<std::int64_t>(joined.size())});
    std::memcpy(buffer.data.mutable_bytes().data(), joined.data(), joined.size());
    buffer.bytes = static_cast<std::int64_t>(joined.size());
  }
}

}  // namespace

Compiler nvrtc_compiler(const std::string& architecture) {
  return [options = compile_options(architecture)](std::string_view text) -> Result<std::string> {
    OCTAVO_TRY(Compiled made, cuda::compile(emit_prelude() + std::string(text), options));
    return std::move(made.cubin);
  };
}

Compiler remembering(Compiler compiler) {
  struct Memory {
    std::mutex mutex;
    std::map<std::string, std::string, std::less<>> code;  ///< by text
  };
  return [compiler = std::move(compiler), memory = std::make_shared<Memory>()](std::string_view text) -> Result<std::string> {
    constexpr std::size_t kMost = 4096;
    {
      const std::lock_guard lock(memory->mutex);
      if (const auto known = memory->code.find(text); known != memory->code.end()) return known->second;
    }
    OCTAVO_TRY(std::string code, compiler(text));
    const std::lock_guard lock(memory->mutex);
    if (memory->code.size() >= kMost) memory->code.clear();
    return memory->code.emplace(std::string(text), std::move(code)).first->second;
  };
}

Status compile_kernels(std::span<region::Plan* const> plans, const Compiler& compile, int threads) {
  std::vector<Work> work;
  std::map<std::string, std::size_t> index;                                // of a text in `work`
  std::vector<std::vector<std::vector<std::size_t>>> texts(plans.size());  // by plan and region
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const region::Plan& plan = *plans[p];
    texts[p].resize(plan.regions.size());
    for (std::size_t i = 0; i < plan.regions.size(); ++i) {
      const region::Region& r = plan.regions[i];
      if (r.code < 0 || r.tactic.provider != "cuda") continue;
      OCTAVO_TRY(const auto modules, split_modules(plan.buffers[static_cast<std::size_t>(r.code)].data.bytes()));
      for (const auto m : modules) {
        std::string text(reinterpret_cast<const char*>(m.data()), m.size());
        const auto [at, fresh] = index.emplace(text, work.size());
        if (fresh) work.push_back({std::move(text), r.name, std::string()});
        texts[p][i].push_back(at->second);
      }
    }
  }
  compile_all(work, compile, threads);
  for (const Work& w : work) {
    if (!w.code) return fail(w.code.error().kind, fmt::format("region \"{}\": {}", w.region, w.code.error().message));
  }
  for (std::size_t p = 0; p < plans.size(); ++p) put_code(*plans[p], texts[p], work);
  return {};
}

}  // namespace octavo::cuda
