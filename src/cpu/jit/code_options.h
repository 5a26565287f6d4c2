// What code is generated for.
#pragma once

#include <array>
#include <cstdint>

#include "region/family.h"

namespace octavo::cpu::jit {

/// Fixed in the tactic's parameters when it is offered, so that packing (at build) and code generation (at load) agree on every machine.
struct CodeOptions {
  int lanes = 16;  ///< LoweredEpilogue::lanes; the family says it, not a parameter
  bool vbmi = false;
  bool multiply = false;
  /// 0 and -1: as estimates have it.
  int pixels = 0, vectors = 0;
  std::int64_t rows = 0, row_tiles = 0;
  int blocks_first = -1;  ///< "order": 1 "blocks", 0 "rows"
  int prefetch = -1;
  bool operator==(const CodeOptions&) const = default;

  /// What this machine has.
  [[nodiscard]] static region::Parameters here();
  /// Of parameters that kCodeParameters describe.
  [[nodiscard]] static CodeOptions of(const region::Parameters& parameters, int lanes = 16);
  /// The parameters that `of` reads.
  [[nodiscard]] region::Parameters parameters() const;
};

inline constexpr std::array kCodeParameters{
    region::ParameterRow{"vbmi", "1", "byte permutes look tables up, and curves are computed by table"},
    region::ParameterRow{"division", "multiply",
                         "divisions become multiplications where that gives the same bits: for processors that divide slowly"},
    region::ParameterRow{"pixels", "1..12", "the most pixels of a tile, where registers hold as many"},
    region::ParameterRow{"vectors", "1..4", "of floats: the most vectors of a block"},
    region::ParameterRow{"rows", "1..65536",
                         "of depthwise: rows computed together; of a sliding window: of a block, before the next"},
    region::ParameterRow{"row_tiles", "1..65536", "so many row tiles, if there are as many rows; of depthwise: tasks"},
    region::ParameterRow{"order", "blocks, rows", "tasks in order of blocks of channels, or of row tiles"},
    region::ParameterRow{"prefetch", "0..64", "so many blocks ahead weights are fetched; of depthwise: rows of the input"}};

/// Of these parameters those that make a difference to code that looks tables up, or not, and divides, or not.
[[nodiscard]] region::Parameters with_effect(region::Parameters parameters, bool looks_up, bool divides);
/// Capabilities that tactics with these parameters need beside their family's.
[[nodiscard]] std::vector<std::string> required_by_options(const region::Parameters& parameters);

/// Sets of parameters that differ from usual ones in one thing each.
class Variants {
 public:
  explicit Variants(const CodeOptions& usual) : usual_(usual) {}
  template <class Change>
  void add(const Change& change) {
    CodeOptions t = usual_;
    change(t);
    if (t == usual_) return;
    region::Parameters set = t.parameters();
    for (const auto& have : all_) {
      if (have == set) return;
    }
    all_.push_back(std::move(set));
  }
  [[nodiscard]] std::vector<region::Parameters> take() { return std::move(all_); }

 private:
  CodeOptions usual_;
  std::vector<region::Parameters> all_;
};

}  // namespace octavo::cpu::jit
