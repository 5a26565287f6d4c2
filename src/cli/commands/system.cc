#include "cli/commands/system.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/utsname.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cpu/isa.h"
#include "cpu/onednn/onednn.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/nvrtc.h"
#include "engine/file.h"
#include "engine/thread_pool.h"
#include "engine/version.h"
#include "report/sentences.h"
#include "tune/timing_cache.h"

namespace octavo::cli {
namespace {

/// The first line of a file that begins with `key`, behind the colon; without a key the first line.
std::string line_of(const std::string& path, std::string_view key = {}) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (key.empty()) return line;
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    const auto at = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return {};
}

/// The number that a text begins with; 0: it begins with none.
std::int64_t number_of(const std::string& text) {
  std::int64_t n = 0;
  return std::from_chars(text.data(), text.data() + text.size(), n).ec == std::errc() ? n : 0;
}

std::string size_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{1} << 30) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.3g} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.3g} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

void add_processor(SystemFacts& f) {
  f.processor = line_of("/proc/cpuinfo", "model name");
  if (f.processor.empty()) f.processor = "unknown";
  f.capabilities = cpu::capabilities();
  const char* cap = std::getenv("OCTAVO_CPU");
  f.cap = cap == nullptr ? "" : cap;
  f.levels = cpu::level_states();
  f.machine = this_machine();
  f.processors = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  f.affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : f.processors;
  f.quota = engine::quota_cores();
  f.threads = engine::available_cores();
  f.memory_bytes = number_of(line_of("/proc/meminfo", "MemTotal")) << 10;
  f.memory_limit_bytes = number_of(line_of("/sys/fs/cgroup/memory.max"));  // "max": no limit
}

void add_gpus(SystemFacts& f) {
  if (const auto path = cuda::driver_path()) f.driver_path = *path;
  if (const auto count = cuda::gpu_count()) {
    for (int i = 0; i < *count; ++i) {
      const auto facts = cuda::gpu_facts(i);
      f.gpus.push_back(facts ? *facts : cuda::GpuFacts{});
      f.gpu_refusals.push_back(facts ? cuda::why_unsupported(*facts) : facts.error().message);
    }
  } else {
    f.driver_refusal = count.error().message;
  }
  if (const auto version = cuda::compiler_version()) {
    f.nvrtc_version = *version;
    f.nvrtc_path = cuda::compiler_path().value_or("");
  } else {
    f.nvrtc_refusal = version.error().message;
  }
}

void add_timing_cache(SystemFacts& f) {
  f.timing_cache = tune::user_cache();
  if (f.timing_cache.empty()) return;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(f.timing_cache, error);
  f.timing_bytes = error ? 0 : static_cast<std::int64_t>(bytes);
  if (const auto cache = tune::TimingCache::read(f.timing_cache)) {
    f.timing_entries = cache->entries.size();
  } else {
    f.timing_refusal = cache.error().message;
  }
}

}  // namespace

SystemFacts system_facts() {
  SystemFacts f;
  f.version = engine::kVersion;
  f.engine_format = engine::kFormat;
#if defined(__clang__)
  f.compiler = "clang " __clang_version__;
#else
  f.compiler = "GCC " __VERSION__;
#endif
  f.libc = gnu_get_libc_version();
  f.onednn = cpu::onednn_version();
  utsname names{};
  if (uname(&names) == 0) f.kernel = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
  add_processor(f);
  add_gpus(f);
  add_timing_cache(f);
  return f;
}

std::string text_of(const SystemFacts& f) {
  std::string out;
  const auto line = [&](std::string_view name, const std::string& value) { out += fmt::format("{:<14} {}\n", name, value); };
  line("octavo", fmt::format("{}, engine files of format {}, compiled by {}, {}", f.version, f.engine_format, f.compiler,
                             f.onednn.empty() ? "without oneDNN" : "oneDNN " + f.onednn));
  line("system", fmt::format("{}, glibc {}", f.kernel, f.libc));
  line("processor", f.processor);
  line("instructions", f.capabilities + (f.cap.empty() ? "" : fmt::format(" (OCTAVO_CPU={})", f.cap)));
  for (const cpu::LevelState& level : f.levels)
    line("", fmt::format("{:<11} {}", level.name, level.why_not.empty() ? "yes" : report::sentences(level.why_not)));
  line("caches", fmt::format("L1 {}, L2 {}, L3 {}", size_text(f.machine.l1_bytes), size_text(f.machine.l2_bytes),
                             size_text(f.machine.l3_bytes)));
  line("threads", fmt::format("{} by default: {} processors, {} allowed by affinity, cgroup quota {}", f.threads, f.processors,
                              f.affinity, f.quota == 0 ? "none" : fmt::format("{} cores", f.quota)));
  line("memory",
       size_text(f.memory_bytes) +
           (f.memory_limit_bytes > 0 ? fmt::format(", limited to {} by the cgroup", size_text(f.memory_limit_bytes)) : ""));
  line("CUDA driver", f.driver_refusal.empty() ? f.driver_path : f.driver_refusal);
  for (std::size_t i = 0; i < f.gpus.size(); ++i) {
    const cuda::GpuFacts& g = f.gpus[i];
    std::string text = g.name.empty()
                           ? f.gpu_refusals[i]
                           : fmt::format("{}, {}, {} multiprocessors, {}, driver for CUDA {}: {}", g.name, g.architecture.text(),
                                         g.multiprocessors, size_text(g.memory_bytes), g.driver,
                                         f.gpu_refusals[i].empty() ? "supported" : "not supported, " + f.gpu_refusals[i]);
    line(fmt::format("GPU {}", i), text);
  }
  line("NVRTC", f.nvrtc_refusal.empty() ? fmt::format("{}, {}", f.nvrtc_version, f.nvrtc_path) : f.nvrtc_refusal);
  if (f.timing_cache.empty()) {
    line("timing cache", "none: no folder for it can be made");
  } else if (!f.timing_refusal.empty()) {
    line("timing cache", f.timing_refusal);
  } else {
    line("timing cache", fmt::format("{}, {}, {} times", f.timing_cache, size_text(f.timing_bytes), f.timing_entries));
  }
  return out;
}

std::string json_of(const SystemFacts& f) {
  using nlohmann::json;
  const auto or_null = [](const std::string& text) { return text.empty() ? json(nullptr) : json(text); };
  json levels = json::object(), gpus = json::array();
  for (const cpu::LevelState& level : f.levels) levels[level.name] = or_null(report::sentences(level.why_not));
  for (std::size_t i = 0; i < f.gpus.size(); ++i) {
    const cuda::GpuFacts& g = f.gpus[i];
    gpus.push_back({{"name", or_null(g.name)},
                    {"architecture", or_null(g.architecture.text())},
                    {"multiprocessors", g.multiprocessors},
                    {"memory_bytes", g.memory_bytes},
                    {"shared_bytes", g.shared_bytes},
                    {"driver_cuda", or_null(g.driver)},
                    {"refusal", or_null(f.gpu_refusals[i])}});
  }
  const json out{
      {"octavo",
       {{"version", f.version}, {"engine_format", f.engine_format}, {"compiler", f.compiler}, {"onednn", or_null(f.onednn)}}},
      {"system", {{"kernel", f.kernel}, {"glibc", f.libc}}},
      {"processor",
       {{"name", f.processor},
        {"capabilities", f.capabilities},
        {"cap", or_null(f.cap)},
        {"levels", levels},
        {"l1_bytes", f.machine.l1_bytes},
        {"l2_bytes", f.machine.l2_bytes},
        {"l3_bytes", f.machine.l3_bytes}}},
      {"threads",
       {{"default", f.threads},
        {"processors", f.processors},
        {"affinity", f.affinity},
        {"cgroup_quota", f.quota > 0 ? json(f.quota) : json(nullptr)}}},
      {"memory",
       {{"bytes", f.memory_bytes}, {"cgroup_limit_bytes", f.memory_limit_bytes > 0 ? json(f.memory_limit_bytes) : json(nullptr)}}},
      {"cuda",
       {{"driver_path", or_null(f.driver_path)},
        {"refusal", or_null(f.driver_refusal)},
        {"gpus", gpus},
        {"nvrtc",
         {{"path", or_null(f.nvrtc_path)}, {"version", or_null(f.nvrtc_version)}, {"refusal", or_null(f.nvrtc_refusal)}}}}},
      {"timing_cache",
       {{"path", or_null(f.timing_cache)},
        {"bytes", f.timing_bytes},
        {"times", f.timing_entries},
        {"refusal", or_null(f.timing_refusal)}}}};
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace octavo::cli
