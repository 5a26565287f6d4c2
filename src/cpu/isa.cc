#include "cpu/isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/causes/kernels.h"
#include "cpu/assumed.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace octavo::cpu {
namespace {

constexpr std::array<std::string_view, 5> kNames{"portable", "avx2", "avx512", "avx512vnni", "amx"};
constexpr std::string_view kVbmi = "avx512vbmi", kBf16 = "avx512bf16";

#if defined(__x86_64__)
/// CPUID says that tiles and their products of int8 and bfloat16 exist, XCR0 that the system saves them, and Linux grants the 8 KiB of state to this
/// process (threads made later inherit it).
bool amx_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmx =
      1U << 22 | 1U << 24 | 1U << 25;  // AMX-BF16, AMX-TILE, AMX-INT8: all processors with one have the others
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1U << 27)) == 0) return false;  // OSXSAVE
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmx) != kAmx) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTiles = 3U << 17;  // XTILECFG, XTILEDATA
  if ((low & kTiles) != kTiles) return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

Processor detect() {
  Processor f;
#if defined(__x86_64__)
  __builtin_cpu_init();  // __builtin_cpu_supports looks at XCR0 too: the operating system must save the registers
  unsigned a = 0, b = 0, c = 0, d = 0;
  f.slow_division = __builtin_cpu_is("intel") != 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 29)) != 0;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !f16c) return f;
  f.isa = Isa::avx2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return f;
  }
  f.isa = Isa::avx512;
  if (!__builtin_cpu_supports("avx512vnni")) return f;
  f.isa = Isa::avx512vnni;
  f.vbmi = __builtin_cpu_supports("avx512vbmi") != 0;
  f.bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1U << 5)) != 0;
  if (amx_granted()) f.isa = Isa::amx;
#endif
  return f;
}

thread_local const Processor* assumed = nullptr;

const Processor& features() {
  if (assumed != nullptr) return *assumed;
  static const Processor f = detect();  // CPUID traps under virtual machines: ask once
  return f;
}

}  // namespace

AssumeProcessor::AssumeProcessor(const Processor& processor) : now_(processor), outer_(assumed) {
  assumed = &now_;
}
AssumeProcessor::~AssumeProcessor() {
  assumed = outer_;
}
bool assumes_processor() {
  return assumed != nullptr;
}

std::string_view name_of(Isa isa) {
  return kNames[static_cast<std::size_t>(isa)];
}

std::optional<Isa> find_isa(std::string_view name) {
  const auto* it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<Isa>(it - kNames.begin());
}

Isa detected_isa() {
  return features().isa;
}

namespace {

struct Cap {
  Isa level = Isa::amx;
  bool vbmi = true, bf16 = true;
};
Result<Cap> read_cap() {
  Cap cap;
  const char* text = std::getenv("OCTAVO_CPU");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (const auto isa = find_isa(word)) {
      cap.level = *isa;
    } else if (word.starts_with('-') && word.substr(1) == kVbmi) {
      cap.vbmi = false;
    } else if (word.starts_with('-') && word.substr(1) == kBf16) {
      cap.bf16 = false;
    } else {
      return fail(ErrorKind::usage,
                  fmt::format("choosing CPU kernels: environment variable OCTAVO_CPU is \"{}\", which is not one of {}\n"
                              "  unset it to use everything this processor has ({})",
                              text, fmt::join(kNames, ", "), name_of(detected_isa())));
    }
  }
  cap.level = std::min(cap.level, thread_cap());
  return cap;
}

}  // namespace

Isa& thread_cap() {
  thread_local Isa cap = Isa::amx;
  return cap;
}

Result<Isa> isa_cap() {
  OCTAVO_TRY(const Cap cap, read_cap());
  return cap.level;
}

Isa best_isa() {
  const Result<Isa> cap = isa_cap();
  return cap ? std::min(*cap, detected_isa()) : Isa::portable;
}

bool has_vbmi() {
  const auto cap = read_cap();
  return best_isa() >= Isa::avx512vnni && features().vbmi && cap && cap->vbmi;
}
bool has_bf16() {
  const auto cap = read_cap();
  return best_isa() >= Isa::avx512vnni && features().bf16 && cap && cap->bf16;
}

bool slow_division() {
  return features().slow_division;
}

Reasons why_not(Isa isa) {
  const Result<Isa> cap = isa_cap();
  if (!cap) return {because<cause::kernel_error>(cap.error().message)};
  if (isa > detected_isa()) return {because<cause::capability_missing>(name_of(isa), name_of(detected_isa()))};
  if (isa > thread_cap()) return {because<cause::capability_not_allowed>(name_of(isa), "the option cpu", name_of(thread_cap()))};
  if (isa > *cap) return {because<cause::capability_not_allowed>(name_of(isa), "OCTAVO_CPU", name_of(*cap))};
  return {};
}

std::string capabilities() {
  std::string out(name_of(best_isa()));
  if (has_vbmi()) out += fmt::format(" {}", kVbmi);
  if (has_bf16()) out += fmt::format(" {}", kBf16);
  return out;
}

Reasons why_lacking(const std::vector<std::string>& required) {
  for (const std::string& name : required) {
    if (const auto isa = find_isa(name)) {
      if (Reasons why = why_not(*isa); !why.empty()) return why;
      continue;
    }
    const bool vbmi = name == kVbmi, bf16 = name == kBf16;
    if (!vbmi && !bf16) return {because<cause::capability_unknown>(name)};
    if (vbmi ? has_vbmi() : has_bf16()) continue;
    if (Reasons why = why_not(Isa::avx512vnni); !why.empty()) return why;  // the extensions begin there
    return {because<cause::capability_missing>(name, capabilities())};
  }
  return {};
}

bool lacks_capability(const Reasons& refusal) {
  return has(refusal, cause::capability_missing) || has(refusal, cause::capability_not_allowed) ||
         has(refusal, cause::capability_unknown);
}

std::string in_words(const Reasons& refusal) {
  if (refusal.size() != 1 || !lacks_capability(refusal)) return spelled(refusal);
  const auto& v = refusal.front().values;
  const auto text = [&](std::size_t i) { return std::get<std::string>(v[i]); };
  if (refusal.front().cause == cause::capability_missing) return fmt::format("needs {}, this processor has {}", text(0), text(1));
  if (refusal.front().cause == cause::capability_not_allowed)
    return fmt::format("needs {}, {} allows {}", text(0), text(1), text(2));
  return fmt::format("needs {}, which this version does not know", text(0));
}

}  // namespace octavo::cpu
