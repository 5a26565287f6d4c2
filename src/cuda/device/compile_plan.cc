#include "cuda/device/compile_plan.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/build_work.h"
#include "base/hash.h"
#include "base/read_file.h"
#include "base/write_file.h"
#include "cuda/device/compile_pool.h"
#include "cuda/device/gpu_kernel.h"
#include "cuda/device/nvrtc.h"
#include "cuda/text/emit_cuda.h"
#include "region/artifact.h"

namespace octavo::cuda {
namespace {

struct Work {
  std::string text, region;  ///< one that has it, for messages
  Result<std::string> code;
};

/// Compiles each once.
void compile_all(std::vector<Work>& all, const Compiler& compile, int threads) {
  KeptProcesses kept;
  if (threads > 1 && all.size() > 1) kept.keep();
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
    const auto [at, fresh] = made.emplace(texts[i], r.code);
    std::vector<std::string> modules;
    for (const std::size_t t : texts[i]) {
      if (fresh) modules.push_back(*work[t].code);
    }
    region::keep_code(join_modules(modules), r, plan);
    r.code = at->second;  // which may be another region's: this one's is empty then
  }
}

}  // namespace

namespace {

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Result<std::string> counted(const Compiler& compiler, std::string_view text) {
  const auto begin = std::chrono::steady_clock::now();
  const double processor = processor_seconds();
  Result<std::string> code = compiler(text);
  BuildWork more;
  more.kernels = 1;
  more.compile = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  more.compile_processor = processor_seconds() - processor;
  add_build_work(more);
  return code;
}

}  // namespace

std::uint64_t compilations() {
  return build_work().kernels;
}

Compiler nvrtc_compiler(Architecture architecture) {
  return [options = compile_options(architecture)](std::string_view text) -> Result<std::string> {
    OCTAVO_TRY(Compiled made, compile_pool().compile(emit_prelude() + std::string(text), options));
    BuildWork more;
    more.compile_processor = made.processor_elsewhere;
    add_build_work(more);
    return std::move(made.cubin);
  };
}

Compiler remembering(Compiler compiler) {
  struct Memory {
    std::mutex mutex;
    std::condition_variable done;                          ///< one of `under_way` is
    std::map<std::string, std::string, std::less<>> code;  ///< by text
    std::set<std::string, std::less<>> under_way;
  };
  return [compiler = std::move(compiler), memory = std::make_shared<Memory>()](std::string_view text) -> Result<std::string> {
    constexpr std::size_t kMost = 4096;
    std::unique_lock lock(memory->mutex);
    for (;;) {
      if (const auto known = memory->code.find(text); known != memory->code.end()) return known->second;
      if (memory->under_way.emplace(text).second) break;
      memory->done.wait(lock);
    }
    lock.unlock();
    Result<std::string> code = counted(compiler, text);
    lock.lock();
    memory->under_way.erase(memory->under_way.find(text));
    memory->done.notify_all();
    if (!code) return code;
    if (memory->code.size() >= kMost) memory->code.clear();
    return memory->code.emplace(std::string(text), *std::move(code)).first->second;
  };
}

namespace {

/// ($XDG_CACHE_HOME or ~/.cache)/octavo/kernels, made if need be; empty: there is none.
std::string kernels_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache != nullptr && *cache == '/') {
    folder = cache;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  folder = folder / "octavo" / "kernels";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? std::string() : folder.string();
}

/// A kept result: the text's length in 16 digits, the text, the code, 32 digits of a hash of all that.
std::optional<std::string> read_kept(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return std::nullopt;
  struct stat info {};
  std::vector<std::byte> bytes;
  const bool ours = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 022) == 0;
  const bool read = ours && read_all(fd, bytes);
  ::close(fd);
  constexpr std::size_t kDigits = 16, kHash = 32;
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!read || all.size() < kDigits + text.size() + kHash) return std::nullopt;
  const std::string_view body = all.substr(0, all.size() - kHash);
  if (hash128_hex(body) != all.substr(body.size()) || body.substr(0, kDigits) != fmt::format("{:016x}", text.size()) ||
      body.substr(kDigits, text.size()) != text)
    return std::nullopt;
  return std::string(body.substr(kDigits + text.size()));
}

}  // namespace

Compiler kept_on_disk(Compiler compiler, std::string key) {
  return [compiler = std::move(compiler), key = std::move(key)](std::string_view text) -> Result<std::string> {
    const std::string folder = kernels_folder();
    if (folder.empty()) return compiler(text);
    const std::string whole = key + "\n" + std::string(text);
    const std::string path = fmt::format("{}/{}.bin", folder, hash128_hex(whole));
    if (auto kept = read_kept(path, whole)) return std::move(*kept);
    OCTAVO_TRY(std::string code, compiler(text));
    std::string body = fmt::format("{:016x}", whole.size()) + whole + code;
    body += hash128_hex(body);
    if (write_file(path, body)) (void)::chmod(path.c_str(), 0600);  // a full disk costs the next load a compilation
    return code;
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
      if (r.code < 0 || r.tactic.provider != kProvider) continue;
      const region::Buffer& source = plan.buffers[static_cast<std::size_t>(r.code)];
      if (source.kind != region::BufferKind::source) continue;
      OCTAVO_TRY(const auto modules, split_modules(source.data.bytes()));
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
