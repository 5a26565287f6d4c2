// How the kernels of a plan's regions are started, at every point of a box of open dimensions: what their provider said there, once, when the plan was
// tuned (Provider::restart). A new shape in the box looks it up: nothing is emitted, packed or compared for it.
//
// Launches are texts whose numbers alone differ from point to point. A text is kept once, and each of its numbers as a column over all points; equal columns
// are there once, and a column of equal numbers is one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/parametric.h"

namespace octavo::api {

class LaunchTable {
 public:
  /// Of one region at one point.
  struct Start {
    std::string launch;      ///< Region::launch
    std::int32_t code = -1;  ///< the caller's number of the machine code; -1: it has none
    bool operator==(const Start&) const = default;
  };
  /// Points that a table has at most.
  static constexpr std::size_t kMostPoints = 4096;

  LaunchTable() = default;
  /// Of all points from `least` to `most`, at most kMostPoints.
  LaunchTable(plan::Point least, plan::Point most);

  [[nodiscard]] std::size_t points() const { return points_; }
  [[nodiscard]] plan::Point point(std::size_t index) const;
  /// Nothing: the point is outside.
  [[nodiscard]] std::optional<std::size_t> index_of(const plan::Point& point) const;

  /// `starts`: by point; nothing where the region's launch is not to be taken from the table. Once a region.
  void put(std::size_t region, std::span<const std::optional<Start>> starts);
  /// Codes get other numbers; `place`: of all that there are.
  void number_codes(const std::map<std::int32_t, std::int32_t>& place);
  [[nodiscard]] std::optional<Start> find(std::size_t region, std::size_t point) const;
  /// A text of `find` with an index into `numbers` in the place of each number that is not quoted; empty: it has others.
  struct Indexed {
    std::string text;
    std::int32_t code = -1;
  };
  /// Of a region; empty: none of its launches are here.
  [[nodiscard]] std::vector<Indexed> forms(std::size_t region) const;
  /// Of which of `forms` the text of `find` is, and its numbers. Nothing: `find` finds nothing.
  [[nodiscard]] std::optional<std::size_t> numbers(std::size_t region, std::size_t point, std::vector<std::int64_t>& out) const;
  /// Start::code of what `find` gives; -1: none.
  [[nodiscard]] std::int32_t code(std::size_t region, std::size_t point) const;

  /// For engine files; the numbers go into `data`.
  [[nodiscard]] nlohmann::json to_json(std::vector<std::byte>& data) const;
  /// Trusts nothing but that launches are read with care (Provider::load). `codes`: how many there are. Errors: bad_engine, for what to_json does not
  /// write.
  [[nodiscard]] static Result<LaunchTable> from_json(const nlohmann::json& j, std::span<const std::byte> data,
                                                     std::size_t dimensions, std::size_t codes);

 private:
  struct Form {
    std::string text;  ///< with marks in the place of numbers
    std::int32_t code = -1;
    std::vector<std::uint32_t> numbers;  ///< columns, a mark each
  };
  struct Row {
    std::vector<Form> forms;
    std::uint32_t which = 0;  ///< column: the form at each point; -1: none
  };
  [[nodiscard]] std::uint32_t column(std::vector<std::int64_t> values);
  [[nodiscard]] std::int64_t value(std::uint32_t column, std::size_t point) const;

  plan::Point least_, most_;
  std::size_t points_ = 0;
  std::map<std::size_t, Row> rows_;                 ///< by region
  std::vector<std::vector<std::int64_t>> columns_;  ///< of one value: for all points
  std::map<std::vector<std::int64_t>, std::uint32_t> known_;
};

}  // namespace octavo::api
