// Families of generated convolutions.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "cpu/family.h"
#include "cpu/jit/code_options.h"
#include "cpu/jit/conv_plan.h"

namespace octavo::cpu::jit {

/// Its tactics have what CodeOptions says of the machine; the setting has the estimate, as `seconds`.
template <class Setting>
class GeneratedFamily : public FamilyOf<Setting> {
 public:
  /// `lanes`: of its vectors.
  explicit GeneratedFamily(Row row, int lanes = 16) : FamilyOf<Setting>(std::move(row)), lanes_(lanes) {}
  [[nodiscard]] bool outdated_here() const final { return is_outdated(lanes_); }
  [[nodiscard]] Parameters parameters_here() const override { return CodeOptions::here(); }
  [[nodiscard]] std::vector<std::string> required_by(const Parameters& p) const final { return required_by_options(p); }
  [[nodiscard]] double cost(const Setting& setting, Isa) const final { return setting.seconds; }

 protected:
  [[nodiscard]] CodeOptions options_of(const Request& q) const { return CodeOptions::of(q.parameters, lanes_); }

 private:
  int lanes_;
};

/// Part of FamilyOf::layout: where the constants of each block are.
[[nodiscard]] inline std::string layout_of_blocks(std::span<const Block> blocks) {
  std::string out;
  for (const Block& b : blocks) out += fmt::format(" {}+{}:{}@{},{}", b.first_channel, b.channels, b.vectors, b.weights, b.init);
  return out;
}

}  // namespace octavo::cpu::jit
