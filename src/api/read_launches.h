// The kernels of a launch table as their providers have read them: once for all shapes, each of which only has other numbers. And providers that load the kernels
// of one shape so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/launch_table.h"
#include "cpu/code_shelf.h"
#include "engine/engine.h"
#include "region/restarts.h"

namespace octavo::api {

class ReadLaunches {
 public:
  /// `codes`: by number; they outlive this object and the kernels. What a provider cannot read, or reads in no such way, is left out: it is loaded as text.
  void read(const LaunchTable& table, const region::Plan& plan, const engine::Providers& providers,
            std::span<const std::span<const std::byte>> codes);

  /// What the kernels of a plan for one shape are loaded by.
  struct Shape {
    const LaunchTable* table = nullptr;
    std::optional<std::size_t> point;  ///< of the table; nothing: launches are texts
    std::vector<const std::string*>
        layouts;  ///< by region of the host: what packed constants have to be (Provider::packed_layout); null: anything
    cpu::CodeShelf* shelf = nullptr;  ///< of code that is generated for the host; null: every kernel has its own
  };
  /// Providers for it, in the order of `providers`; for as long as this object, `providers`, the table and the layouts live.
  [[nodiscard]] std::vector<std::unique_ptr<const region::Provider>> at(const Shape& shape,
                                                                        const engine::Providers& providers) const;

 private:
  friend class ReadProvider;
  struct Form {
    std::shared_ptr<const region::Read> launch;  ///< null: as text
    std::shared_ptr<const region::Read> code;    ///< null: it has none
  };
  std::map<std::size_t, std::vector<Form>> rows_;  ///< by region, then form
};

}  // namespace octavo::api
