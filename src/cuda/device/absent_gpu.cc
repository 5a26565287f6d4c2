#include "cuda/device/absent_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <mutex>
#include <set>

#include "base/nearest.h"

namespace octavo::cuda {
namespace {

struct KnownGpu {
  std::string_view name;
  Architecture architecture;
  int multiprocessors;
  std::int64_t shared_kib;
};
constexpr KnownGpu kGpus[] = {
#define GPU(NAME, ARCHITECTURE, MULTIPROCESSORS, KIB) {NAME, ARCHITECTURE, MULTIPROCESSORS, KIB},
#include "cuda/device/known_gpus.def"
};

/// Words of a driver's name that leave the number of multiprocessors as it is: makers, sizes of memory ("80GB", "144G") and its kind, sockets.
bool says_nothing(std::string_view word) {
  for (const std::string_view other : {"nvidia", "geforce", "tesla", "generation", "sxm", "sxm2", "sxm3", "sxm4", "sxm5"}) {
    if (word == other) return true;
  }
  if (word.starts_with("hbm")) return true;
  const std::size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  return digits > 0 && (word.substr(digits) == "g" || word.substr(digits) == "gb");
}

/// The words of a name that tell GPUs apart, in lower case and without spaces.
std::string plain(std::string_view name) {
  std::string out, word;
  const auto end = [&] {
    if (!says_nothing(word)) out += word;
    word.clear();
  };
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else
      end();
  }
  end();
  return out;
}

/// The same, without the bus: most GPUs for PCI Express have as many multiprocessors as those for a socket; those that have not are in the table.
std::string without_bus(std::string_view name) {
  std::string out = plain(name);
  if (out.ends_with("pcie")) out.erase(out.size() - 4);
  return out;
}

/// "sm_90" is "sm_90a": its kernels use what only that has.
bool is_architecture(const KnownGpu& g, std::string_view name) {
  const auto asked = parse_architecture(name);
  return asked && asked->sm == g.architecture.sm && (g.architecture.specific || !asked->specific);
}

/// Holds no bytes: addresses are never read.
class NoMemory final : public region::DeviceMemory {
 public:
  std::byte* address() const override { return reinterpret_cast<std::byte*>(std::uintptr_t{256}); }  // NOLINT: never read
};

class AbsentGpu final : public region::Device {
 public:
  explicit AbsentGpu(GpuFacts facts) : facts_(std::move(facts)) {}
  std::string_view name() const override { return "cuda"; }
  bool is_here() const override { return false; }
  Result<std::string> description() const override {
    return fmt::format("{}; {}, {} multiprocessors; not in this machine", facts_.name,
                       facts_.architecture.sm == 0 ? "of an architecture that was not asked for" : facts_.architecture.text(),
                       facts_.multiprocessors);
  }
  Result<std::unique_ptr<region::DeviceMemory>> allocate(std::size_t) const override { return std::make_unique<NoMemory>(); }
  Status write(std::byte*, std::span<const std::byte>) const override { return {}; }
  Status read(std::span<std::byte>, const std::byte*) const override { return tl::unexpected(absent()); }
  Result<std::shared_ptr<const void>> hold(std::span<const std::byte>) const override { return std::shared_ptr<const void>(); }
  void expect_transfers(std::span<const std::size_t>) const override {}
  Result<std::unique_ptr<region::Executor>> executor(const region::Plan&, std::span<const region::Kernel* const>) const override {
    return tl::unexpected(absent());
  }

 private:
  [[nodiscard]] Error absent() const {
    return Error{
        ErrorKind::unsupported,
        fmt::format("the engine was built for {}, which is not in this machine\n  save it and load it on a machine that has "
                    "such a GPU, or build for device cuda",
                    with_architecture(facts_))};
  }
  GpuFacts facts_;
};

}  // namespace

std::string with_architecture(const GpuFacts& facts) {
  const std::string architecture = facts.architecture.sm == 0 ? std::string() : facts.architecture.text();
  return architecture.empty() || facts.name.ends_with(architecture) ? facts.name : fmt::format("{} ({})", facts.name, architecture);
}

std::vector<std::string> known_gpus() {
  std::vector<std::string> out;
  for (const KnownGpu& g : kGpus) {
    if (std::string text = g.architecture.text(); std::find(out.begin(), out.end(), text) == out.end())
      out.push_back(std::move(text));
  }
  for (const KnownGpu& g : kGpus) out.emplace_back(g.name);
  return out;
}

Result<GpuFacts> find_gpu(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGpus), std::end(kGpus),
                                   [&](const KnownGpu& g) { return is_architecture(g, name) || plain(g.name) == plain(name); });
  if (found == std::end(kGpus))
    found = std::find_if(std::begin(kGpus), std::end(kGpus), [&](const KnownGpu& g) { return plain(g.name) == without_bus(name); });
  if (found == std::end(kGpus)) {
    GpuFacts asked;
    if (const auto architecture = parse_architecture(name)) asked.name = name, asked.architecture = *architecture;
    if (const std::string why = asked.name.empty() ? "" : why_unsupported(asked); !why.empty())
      return fail(ErrorKind::unsupported, fmt::format("GPU \"{}\": {}", name, why));
    const std::vector<std::string> all = known_gpus();
    return fail(ErrorKind::usage,
                fmt::format("no GPU \"{}\" is known{}\n  give its architecture, for example sm_86; sm_75 and later are supported",
                            name, nearest_text(std::set<std::string>(all.begin(), all.end()), name)));
  }
  GpuFacts facts;
  facts.name = is_architecture(*found, name) ? "a GPU of " + found->architecture.text() : std::string(found->name);
  facts.architecture = found->architecture;
  facts.multiprocessors = found->multiprocessors;
  facts.shared_bytes = found->shared_kib * 1024;
  if (const std::string why = why_unsupported(facts); !why.empty())
    return fail(ErrorKind::unsupported, fmt::format("GPU \"{}\": {}", name, why));
  return facts;
}

const region::Device& absent_gpu(const GpuFacts& facts) {
  static std::mutex mutex;
  static std::map<std::string, AbsentGpu> all;
  const std::lock_guard lock(mutex);
  return all.try_emplace(facts.name, facts).first->second;
}

}  // namespace octavo::cuda
