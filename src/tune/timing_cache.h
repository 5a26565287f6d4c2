// The timing cache: a text file that people read, edit, compare and merge.
//
//   # octavo timing cache 2
//   device 5f1c22ab = PROCESSOR; what it can do
//   5f1c22ab t1     41.27 us                          PROVIDER.FAMILY@2{tile=6} | conv int u8[1,64,56,56]...
//   5f1c22ab t1     63.90 us pin                      PROVIDER.OTHER            | conv int u8[1,64,56,56]...
//   5f1c22ab t1     52.03 us disturbed@1764000000     PROVIDER.THIRD            | conv int u8[1,64,56,56]...
//
// One line a (device, threads, region key, tactic). The tactic's spelling has its version, so the times of a kernel that changed no
// longer apply, and those of all others do. `pin` makes that tactic the choice for its key; its time may be "?". `disturbed@SECONDS`
// says that the samples of the time were far apart (something else had the processor) and when it was taken, in seconds since 1970:
// it counts for builds of the next hour, and then is taken again.
// Lines that begin with # are people's: those directly above an entry stay above it, however often the file is written again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"

namespace octavo::tune {

/// What a time is true for. `device` is the description ("PROCESSOR; what it can do"); files name it by a short hash of it.
struct Where {
  std::string device;
  int threads = 1;
  auto operator<=>(const Where&) const = default;
};
/// This machine. Reads the processor's name from the system each time: ask once, not in a loop.
[[nodiscard]] Where here(int threads);

struct Timing {
  double seconds = -1;  ///< -1: not measured (a pin written by hand)
  bool pinned = false;
  std::int64_t disturbed = 0;  ///< when the time was taken, if its samples were far apart, in seconds since 1970; 0: they were not
  bool operator==(const Timing&) const = default;
};

/// The timing cache of this user: $XDG_CACHE_HOME/octavo/timing.txt, or ~/.cache/octavo/timing.txt. Its folder is made if it can be.
/// Empty where there is neither, or no folder can be made: then builds go without.
[[nodiscard]] std::string user_cache();
/// How long a disturbed time counts.
inline constexpr std::int64_t kDisturbedSeconds = 3600;
[[nodiscard]] std::int64_t seconds_since_1970();

class TimingCache {
 public:
  using Entry = std::tuple<Where, std::string, std::string>;  ///< where, key, tactic

  /// `bad_input` names the line and its text. Never trusts its input; equal texts give equal caches.
  [[nodiscard]] static Result<TimingCache> parse(std::string_view text);
  /// A file that does not exist, or has no bytes, is an empty cache. Errors: io, and those of parse with the path.
  [[nodiscard]] static Result<TimingCache> read(const std::string& path);
  /// Sorted: equal caches give equal texts.
  [[nodiscard]] std::string text() const;
  /// The one way to change a file: reads it, lets `change` edit what it says now, and replaces it whole, all under one lock that
  /// every process takes (on the file's folder; nothing is left behind). So writers wait for each other and lose nothing. When
  /// `change` fails the file stays as it is. Errors: those of read, of `change`, and io.
  [[nodiscard]] static Status edit(const std::string& path, const std::function<Status(TimingCache&)>& change);
  /// edit() that merges this cache into the file: what others wrote since it was read stays, and where both have a time the file's,
  /// unless that one was disturbed: two builds at a time do not undo each other's choices.
  [[nodiscard]] Status add_to(const std::string& path) const;
  /// edit() that merges this cache into the file; where both have a time, this one's.
  [[nodiscard]] Status merge_into(const std::string& path) const;

  [[nodiscard]] const Timing* find(const Where& where, const std::string& key, const std::string& tactic) const;
  [[nodiscard]] std::optional<std::string> pinned(const Where& where, const std::string& key) const;
  void set(const Where& where, const std::string& key, const std::string& tactic, double seconds, std::int64_t disturbed = 0);
  /// One pin a key: another tactic's pin goes. An empty tactic removes it.
  void pin(const Where& where, const std::string& key, const std::string& tactic);
  /// Takes the other's entries and comments; where both have a time, the other's. Pins of both stay, the other's win.
  void merge(const TimingCache& other);
  struct Pruned {
    std::size_t entries = 0, pins = 0, comments = 0, devices = 0;
  };
  /// Drops entries, with the comments above them and the descriptions of devices that then have none. Says how many of each.
  Pruned prune(const std::function<bool(const Entry&)>& drop);

  std::map<Entry, Timing> entries;
  std::map<Entry, std::vector<std::string>> comments;  ///< lines above an entry, "#" included
  std::vector<std::string> head, tail;                 ///< comments below the header line, and behind the last entry
  std::set<std::string> devices;                       ///< described in the file, with entries or without
};

}  // namespace octavo::tune
