// The timing cache: a text file that people read, edit, compare and merge.
//
//   # octavo timing cache 1
//   device 5f1c22ab = AMD EPYC ...; avx512vnni vbmi
//   5f1c22ab t1 v0.1.0     41.27 us      cpu.conv.u8s8.avx512vnni.jit | conv int u8[1,64,56,56]...
//   5f1c22ab t1 v0.1.0     63.90 us pin  cpu.conv.u8s8.block.avx512   | conv int u8[1,64,56,56]...
//
// One line a (device, threads, version, region key, tactic). `pin` makes that tactic the choice for its key; its time may be "?".
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"

namespace octavo::tune {

/// What a time is true for. `device` is the description ("AMD EPYC ...; avx512vnni vbmi"); files name it by a short hash of it.
struct Where {
  std::string device;
  int threads = 1;
  std::string version;
  auto operator<=>(const Where&) const = default;
};
/// This machine and this Octavo.
[[nodiscard]] Where here(int threads);

struct Timing {
  double seconds = -1;  ///< -1: not measured (a pin written by hand)
  bool pinned = false;
  bool operator==(const Timing&) const = default;
};

class TimingCache {
 public:
  using Entry = std::tuple<Where, std::string, std::string>;  ///< where, key, tactic

  /// `bad_input` names the line and its text. Never trusts its input; equal texts give equal caches.
  [[nodiscard]] static Result<TimingCache> parse(std::string_view text);
  /// A file that does not exist is an empty cache. Errors: io, and those of parse with the path.
  [[nodiscard]] static Result<TimingCache> read(const std::string& path);
  /// Sorted: equal caches give equal texts.
  [[nodiscard]] std::string text() const;
  /// Whole or not at all. With `merge`, what others wrote since it was read stays.
  [[nodiscard]] Status write(const std::string& path, bool merge) const;

  [[nodiscard]] const Timing* find(const Where& where, const std::string& key, const std::string& tactic) const;
  [[nodiscard]] std::optional<std::string> pinned(const Where& where, const std::string& key) const;
  void set(const Where& where, const std::string& key, const std::string& tactic, double seconds);
  /// One pin a key: another tactic's pin goes. An empty tactic removes it.
  void pin(const Where& where, const std::string& key, const std::string& tactic);
  /// Takes the other's entries; where both have a time, the other's. Pins of both stay, the other's win.
  void merge(const TimingCache& other);

  std::map<Entry, Timing> entries;
};

}  // namespace octavo::tune
