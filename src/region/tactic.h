// A tactic: one way to compute a region, as a value. Providers offer tactics, the search compares them, engine files and timing caches
// name them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/out_of_line.h"
#include "base/result.h"

namespace octavo::region {

/// What a region is computed by. The first five fields and `parts` identify it: the kernel that `Provider::load` makes follows from
/// them, the region and the artifact, and from nothing that the machine has. The others are facts about it that the planner, the
/// engine and reports decide by; providers state them, and compare those of an engine file with their own.
struct Tactic {
  std::string provider;  ///< "cpu", "cuda", "reference"
  std::string family;    ///< "conv.u8s8.avx512vnni.jit": letters, digits, '.', '_', '-'
  int version = 1;       ///< raised whenever the family's packing or arithmetic changes: older engines and times no longer apply
  std::map<std::string, std::string> parameters;  ///< what the provider fixed when it offered: {"tile", "128x64x64"}
  std::vector<Tactic> parts;                      ///< of a tactic that is made of others: one for each stage, in order

  std::vector<std::string> required;  ///< capabilities of the machine by name, sorted: "avx512vbmi", "sm_90"
  bool vector = true;                 ///< a vector kernel; those that are not are a committed list (docs/portable-operators.md)
  bool reference = false;             ///< the reference evaluator: slow, always right
  bool stores_in_place = false;       ///< reads every element of an operand before it stores the result of that element
  bool forwards_stages = false;       ///< what one stage hands to the next never is in memory
  std::int64_t workspace_bytes = 0;   ///< of the device's memory, while the region runs; beside the kernel's scratch a worker

  [[nodiscard]] bool none() const { return family.empty(); }
  /// The spelling in one line: provider.family, "@version" from 2 on, parameters sorted by name, parts.
  ///   cpu.conv.u8s8.avx512vnni.jit{vbmi=1}      cpu.staged.row_tiles(cpu.depthwise.u8s8.block.avx2,cpu.conv.u8s8.block.avx2)
  [[nodiscard]] std::string name() const;
  OCTAVO_OUT_OF_LINE(Tactic);
  bool operator==(const Tactic&) const;
};

/// Reads a spelling back: the fields that identify a tactic. Parts nest at most four deep. Errors: `usage`, with what is wrong.
[[nodiscard]] Result<Tactic> parse_tactic(std::string_view name);

/// Is `tactic` one that `wanted` describes: the same provider, family and version, every parameter that `wanted` has, and parts
/// likewise where it has any? People leave out what they do not care about.
[[nodiscard]] bool selects(const Tactic& wanted, const Tactic& tactic);

/// What all of these require, sorted, each once.
[[nodiscard]] std::vector<std::string> required_by(const std::vector<Tactic>& tactics);

}  // namespace octavo::region
