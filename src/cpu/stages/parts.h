// What families need whose tactics are made of others.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/family.h"

namespace octavo::cpu {

/// Row::rank of all families, the preferred ones first.
inline constexpr std::array kRanks{0, 1};
/// What the provider offers that has this rank.
[[nodiscard]] std::vector<Offer> offers_of_rank(const Region& region, const Plan& plan, int rank);

/// A tactic has a part for each stage. Error: `bad_engine`.
[[nodiscard]] inline Status check_parts(const std::vector<Tactic>& parts, std::size_t stages) {
  if (parts.size() == stages) return {};
  return fail(ErrorKind::bad_engine, fmt::format("a tactic of {} parts for {} stages", parts.size(), stages));
}

/// What packs and loads a part: its constants, and the kernel that reads them. Errors: those of Provider::compile and load.
[[nodiscard]] Result<std::vector<ir::Tensor>> pack_part(const Region& region, const Plan& plan, const Tactic& part);
/// FamilyOf::layout of a part.
[[nodiscard]] std::optional<std::string> layout_of_part(const Region& region, const Plan& plan, const Tactic& part);
/// `layout`: what layout_of_part has to be; errors also: `unsupported` where it is another one.
[[nodiscard]] Result<std::unique_ptr<Kernel>> load_part(const Region& region, const Plan& plan, const Tactic& part, Packed packed,
                                                        std::optional<std::string_view> layout = {});

}  // namespace octavo::cpu
