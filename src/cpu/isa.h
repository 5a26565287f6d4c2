// Which vector instructions this processor has, and how far the user lets us use them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace octavo::cpu {

/// Levels, each including the ones before. avx2: AVX2 + FMA + F16C. avx512: + AVX-512 F, BW, DQ, VL. avx512vnni: + VNNI.
/// amx: + AMX-TILE, AMX-INT8 and AMX-BF16, and the operating system lets this process use tiles (asked for once, at detection).
enum class Isa { portable, avx2, avx512, avx512vnni, amx };
[[nodiscard]] std::string_view name_of(Isa isa);  ///< "portable", "avx2", "avx512", "avx512vnni", "amx"
[[nodiscard]] std::optional<Isa> find_isa(std::string_view name);

/// The level of the processor (CPUID and what the operating system saves), not capped. Cached after the first call.
[[nodiscard]] Isa detected_isa();
/// The cap that the environment variable OCTAVO_CPU names: amx when unset or empty. Extensions can be taken away behind it, as in
/// "avx512vnni,-avx512vbmi". Unknown name: ErrorKind::usage.
[[nodiscard]] Result<Isa> isa_cap();
/// A further cap, on what this thread plans and builds: CapScope (cap.h) sets it.
[[nodiscard]] Isa& thread_cap();
/// min(detected, cap); portable while OCTAVO_CPU is not a known name (offers and loads then report isa_cap's error).
[[nodiscard]] Isa best_isa();
/// Extensions beyond the levels; false below avx512vnni.
[[nodiscard]] bool has_vbmi();  ///< AVX512_VBMI: byte permutes, 256-entry tables in registers
[[nodiscard]] bool has_bf16();  ///< AVX512_BF16
/// Dividing 16 floats occupies the divider for 16 clocks (Intel; 5 on AMD), whatever the cap.
[[nodiscard]] bool slow_division();
/// The names of capabilities in Tactic::required: those of the levels, and of the extensions "avx512vbmi" and "avx512bf16".
/// Why a tactic that requires these cannot be run now: capability_missing, _not_allowed or _unknown. Empty: it can.
[[nodiscard]] Reasons why_lacking(const std::vector<std::string>& required);
/// Is it such a refusal, and not one for what the region is?
[[nodiscard]] bool lacks_capability(const Reasons& refusal);
/// The refusal in words, for errors of loading: "needs avx512vbmi, this processor has avx512vnni".
[[nodiscard]] std::string in_words(const Reasons& refusal);
/// What tactics may require here: "avx512vnni avx512vbmi".
[[nodiscard]] std::string capabilities();
/// Why `isa` cannot be used now: the processor lacks it, the cap forbids it, or the cap is unknown. Empty: it can.
[[nodiscard]] Reasons why_not(Isa isa);

}  // namespace octavo::cpu
