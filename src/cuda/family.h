// A family: one way to compute one kind of region on a GPU, as the text of kernels and how to launch them.
//
// A region is read once, by `match`, into the family's setting, a plain struct of everything that it needs. Tactics, their estimates and texts
// follow from the setting, the tactic's tile and the target alone.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cuda/text/architecture.h"
#include "cuda/text/kernel_text.h"
#include "region/family.h"
#include "region/refusal.h"
#include "region/region.h"

namespace octavo::cuda {

using region::refusal_of;
using region::refuse;
using region::unmet;

/// The GPU that kernels are made for.
struct Target {
  Architecture architecture = "sm_90a";
  int multiprocessors = 132;
  std::int64_t shared_bytes = 227 * 1024;  ///< that one block can use
  /// Can kernels be launched as Launch::early says? From sm_90 on.
  [[nodiscard]] bool starts_early() const;
};

/// Readable parameters of a tactic, which a search can vary: {"tile", "128x64x64"}, {"stages", "3"}.
using region::Parameters;
/// What one of them means. `values` here: words by "|", of which an empty one stands for a parameter that is left out; empty: numbers joined by "x".
using region::ParameterRow;
/// And where a tile, a struct of numbers, holds it: numbers of 1 and more, or the index of a word.
template <class Tile>
struct TileParameter {
  ParameterRow row;
  std::array<int Tile::*, 3> parts{};
};

/// The tile of families with one way to compute a region.
struct NoTile {
  static constexpr std::array<TileParameter<NoTile>, 0> kParameters{};
};

namespace detail {
[[nodiscard]] std::string spell_parameter(const ParameterRow& row, std::span<const int> parts);
[[nodiscard]] bool parse_parameter(const ParameterRow& row, const Parameters& parameters, std::span<int> parts);
[[nodiscard]] Error not_parameters(std::string_view family, const Parameters& parameters, std::span<const ParameterRow> rows);

template <class Tile>
[[nodiscard]] std::vector<int> parts_of(const Tile& tile, const TileParameter<Tile>& p) {
  std::vector<int> out;
  for (int Tile::*part : p.parts) {
    if (part != nullptr) out.push_back(tile.*part);
  }
  return out;
}
template <class Tile>
inline constexpr bool kIsOptional = false;
template <class Tile>
inline constexpr bool kIsOptional<std::optional<Tile>> = true;
}  // namespace detail

/// The rows of a tile's parameters. Of std::optional<Tile>: those of the tile, which may be left out as a whole.
template <class Tile>
[[nodiscard]] std::vector<ParameterRow> rows_of_tile() {
  if constexpr (detail::kIsOptional<Tile>) {
    return rows_of_tile<typename Tile::value_type>();
  } else {
    std::vector<ParameterRow> out;
    for (const TileParameter<Tile>& p : Tile::kParameters) out.push_back(p.row);
    return out;
  }
}

template <class Tile>
[[nodiscard]] Parameters spell(const Tile& tile) {
  Parameters out;
  if constexpr (detail::kIsOptional<Tile>) {
    if (tile) out = spell(*tile);
  } else {
    for (const TileParameter<Tile>& p : Tile::kParameters) {
      if (std::string value = detail::spell_parameter(p.row, detail::parts_of(tile, p)); !value.empty())
        out.emplace(p.row.name, std::move(value));
    }
  }
  return out;
}

/// Error: `bad_input` for parameters that `spell` does not write.
template <class Tile>
[[nodiscard]] Result<Tile> parse(const Parameters& parameters, std::string_view family) {
  if constexpr (detail::kIsOptional<Tile>) {
    if (parameters.empty()) return Tile();
    OCTAVO_TRY(typename Tile::value_type tile, parse<typename Tile::value_type>(parameters, family));
    return Tile(std::move(tile));
  } else {
    Tile tile;
    bool good = true;
    for (const TileParameter<Tile>& p : Tile::kParameters) {
      std::vector<int> parts = detail::parts_of(tile, p);
      good = good && detail::parse_parameter(p.row, parameters, parts);
      for (std::size_t i = 0; i < parts.size(); ++i) tile.*p.parts[i] = parts[i];
    }
    if (!good || spell(tile) != parameters) return tl::unexpected(detail::not_parameters(family, parameters, rows_of_tile<Tile>()));
    return tile;
  }
}

/// One way that a family offers for a region. `seconds` is an estimate that orders candidates until a time was measured.
struct EstimatedTactic {
  Parameters parameters;
  double seconds = 0;
};

/// A region that a family computes, read: it can be asked as often as one likes.
class Matched {
 public:
  virtual ~Matched() = default;
  /// The best guess first; never empty.
  [[nodiscard]] virtual std::vector<EstimatedTactic> tactics() const = 0;
  [[nodiscard]] virtual Result<KernelText> emit(const Parameters& parameters) const = 0;
};

/// Immutable, static storage, thread-safe; nothing may depend on addresses or time. The one interface of all families (FamilyOf makes it).
class Family {
 public:
  virtual ~Family() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  ///< "conv.u8s8.mma"
  /// Raised when packed constants or arithmetic change.
  [[nodiscard]] virtual int version() const { return 1; }
  [[nodiscard]] virtual std::vector<ParameterRow> parameters() const = 0;
  /// The kinds of regions this family is about; for others it is silent.
  [[nodiscard]] virtual bool about(const region::Region& region) const = 0;
  /// How many sets of parameters are compiled and timed at any effort, in the order of their estimates: fewer where that order is known to be good.
  [[nodiscard]] virtual std::size_t preferred() const { return 8; }
  /// Where it is about a region, are no other families asked?
  [[nodiscard]] virtual bool alone() const { return false; }
  /// Error: why a region of its kind is refused, with the values (refusal_of).
  [[nodiscard]] virtual Result<std::unique_ptr<const Matched>> matched(const region::Region& region, const region::Plan& plan,
                                                                       const Target& target) const = 0;

  // For one question about a region.
  [[nodiscard]] Reasons why_not(const region::Region& region, const region::Plan& plan, const Target& target) const;
  [[nodiscard]] std::vector<EstimatedTactic> candidates(const region::Region& region, const region::Plan& plan,
                                                        const Target& target) const;
  [[nodiscard]] Result<KernelText> emit(const region::Region& region, const region::Plan& plan, const Parameters& parameters,
                                        const Target& target) const;
};

/// A tile with its estimate.
template <class Tile>
struct Choice {
  Tile tile;
  double seconds = 0;
};

/// What a family writes. The setting holds no address of the region or the plan.
template <class SettingType, class TileType = NoTile>
class FamilyOf : public Family {
 public:
  using Setting = SettingType;
  using Tile = TileType;
  /// Error: why not, by `refuse`. Must not ask the machine: it is asked again when an engine file is loaded.
  [[nodiscard]] virtual Result<Setting> match(const region::Region& region, const region::Plan& plan,
                                              const Target& target) const = 0;
  /// The best guess first; never empty.
  [[nodiscard]] virtual std::vector<Choice<Tile>> tactics(const Setting& setting, const Target& target) const = 0;
  /// Error: a tile that the family cannot use here.
  [[nodiscard]] virtual Result<KernelText> emit(const Setting& setting, const Tile& tile, const Target& target) const = 0;

  [[nodiscard]] std::vector<ParameterRow> parameters() const final { return rows_of_tile<Tile>(); }
  [[nodiscard]] Result<std::unique_ptr<const Matched>> matched(const region::Region& region, const region::Plan& plan,
                                                               const Target& target) const final {
    OCTAVO_TRY(Setting setting, match(region, plan, target));
    return std::unique_ptr<const Matched>(std::make_unique<Match>(*this, std::move(setting), target));
  }

 private:
  class Match final : public Matched {
   public:
    Match(const FamilyOf& family, Setting setting, const Target& target)
        : family_(family), setting_(std::move(setting)), target_(target) {}
    std::vector<EstimatedTactic> tactics() const override {
      std::vector<EstimatedTactic> out;
      for (const Choice<Tile>& c : family_.tactics(setting_, target_)) out.push_back({spell(c.tile), c.seconds});
      return out;
    }
    Result<KernelText> emit(const Parameters& parameters) const override {
      OCTAVO_TRY(const Tile tile, parse<Tile>(parameters, family_.name()));
      return family_.emit(setting_, tile, target_);
    }

   private:
    const FamilyOf& family_;
    Setting setting_;
    Target target_;
  };
};

}  // namespace octavo::cuda
