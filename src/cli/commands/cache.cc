// octavo cache: the timing cache for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "api/load.h"
#include "api/pipeline.h"
#include "cli/commands/commands.h"
#include "engine/engine.h"
#include "region/key.h"
#include "tune/known_tactics.h"
#include "tune/timing_cache.h"

namespace octavo::cli {
namespace {

using tune::Timing;
using tune::TimingCache;
using tune::Where;

struct CacheOptions {
  std::string file, match, key, tactic, keep;
  std::vector<std::string> files;
  bool other_devices = false, other_versions = false;
  int threads = 0;
};

std::string time_of(const Timing& t) {
  return t.seconds < 0 ? "?" : fmt::format("{:.2f} us", t.seconds * 1e6);
}

Status not_empty(const TimingCache& cache, const std::string& path) {
  if (!cache.entries.empty()) return {};
  return fail(ErrorKind::io, fmt::format("timing cache {}: no such file, or it is empty", path));
}

Result<TimingCache> read_existing(const std::string& path) {
  OCTAVO_TRY(auto cache, TimingCache::read(path));
  OCTAVO_CHECK(not_empty(cache, path));
  return cache;
}

/// What the times of this machine are true for.
std::set<std::string> descriptions_here() {
  std::set<std::string> out;
  for (const api::DeviceHere& d : api::devices_here()) out.insert(d.description);
  return out;
}

/// Of the device that the times are of.
Result<engine::Providers> providers_of(const Where& where) {
  for (const api::DeviceHere& d : api::devices_here()) {
    if (d.description == where.device && d.name != "cpu") return api::providers(d.name);
  }
  engine::Providers host = api::all_providers();
  std::erase_if(host, [](const region::Provider* p) { return p->device() != "host"; });
  return host;
}

/// The devices first, by number; then each key with its tactics as a table, the fastest first.
Result<int> show(const CacheOptions& o) {
  OCTAVO_TRY(const auto cache, read_existing(o.file));
  using Row = std::pair<TimingCache::Entry, Timing>;
  std::map<std::tuple<std::string, Where>, std::vector<Row>> keys;  // by key, then where
  std::map<std::string, int> devices;
  for (const auto& [entry, t] : cache.entries) {
    const auto& [where, key, tactic] = entry;
    if (key.find(o.match) == std::string::npos && tactic.find(o.match) == std::string::npos) continue;
    keys[{key, where}].emplace_back(entry, t);
    devices.emplace(where.device, 0);
  }
  int number = 0, shown = 0;
  const auto here = descriptions_here();
  for (auto& [device, n] : devices)
    fmt::print("device {}: {}{}\n", n = ++number, device, here.contains(device) ? " (this machine)" : "");
  const std::string* last = nullptr;
  for (auto& [at, rows] : keys) {
    const auto& [key, where] = at;
    if (last == nullptr || *last != key)
      fmt::print("\n{}\n  {:>12}  {:>8}  {:3}  {:>6}  {:>7}  {}\n", key, "time", "of best", "pin", "device", "threads", "tactic");
    last = &key;
    const auto unknown_last = [](const Row& r) { return r.second.seconds < 0 ? 1e30 : r.second.seconds; };
    std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return unknown_last(a) < unknown_last(b); });
    const double best = rows.front().second.seconds;
    for (const auto& [entry, t] : rows) {
      const std::string part = t.seconds >= 0 && best > 0 ? fmt::format("{:.2f} x", t.seconds / best) : "";
      fmt::print("  {:>12}  {:>8}  {:3}  {:>6}  {:>7}  {}{}\n", time_of(t), part, t.pinned ? "pin" : "", devices.at(where.device),
                 where.threads, std::get<2>(entry), t.disturbed != 0 ? "  (disturbed)" : "");
      ++shown;
    }
  }
  fmt::print("{}{} of {} times\n", shown > 0 ? "\n" : "", shown, cache.entries.size());
  return 0;
}

Result<int> diff(const CacheOptions& o) {
  OCTAVO_TRY(const auto a, read_existing(o.files[0]));
  OCTAVO_TRY(const auto b, read_existing(o.files[1]));
  std::set<TimingCache::Entry> all;
  for (const auto& [entry, t] : a.entries) all.insert(entry);
  for (const auto& [entry, t] : b.entries) all.insert(entry);
  int different = 0;
  for (const auto& entry : all) {
    const auto x = a.entries.find(entry), y = b.entries.find(entry);
    if (x != a.entries.end() && y != b.entries.end() && x->second == y->second) continue;
    ++different;
    const auto side = [](const auto& cache, const auto& at) {
      return at == cache.entries.end() ? std::string("-") : time_of(at->second) + (at->second.pinned ? " pin" : "");
    };
    fmt::print("{:>16} {:>16}  {} t{} | {}\n", side(a, x), side(b, y), std::get<2>(entry), std::get<0>(entry).threads,
               std::get<1>(entry));
  }
  fmt::print("{} of {} entries differ\n", different, all.size());
  return different == 0 ? 0 : 1;
}

Result<int> merge(const CacheOptions& o) {
  TimingCache all;
  for (const std::string& file : o.files) {
    OCTAVO_TRY(const auto one, read_existing(file));
    all.merge(one);
  }
  std::size_t had = 0, has = 0;
  OCTAVO_CHECK(TimingCache::edit(o.file, [&](TimingCache& now) -> Status {
    had = now.entries.size();
    now.merge(all);
    has = now.entries.size();
    return {};
  }));
  fmt::print("{}: {} times, {} of them new\n", o.file, has, has - had);
  return 0;
}

/// The one key of this machine that the options mean.
Result<std::pair<Where, std::string>> one_key(const TimingCache& cache, const CacheOptions& o) {
  std::set<std::pair<Where, std::string>> found;
  const auto here = descriptions_here();
  for (const auto& [entry, t] : cache.entries) {
    const auto& [where, key, tactic] = entry;
    if (o.threads > 0 && where.threads != o.threads) continue;
    if (!here.contains(where.device)) continue;
    if (o.key.empty() ? key.find(o.match) != std::string::npos : key == o.key) found.insert({where, key});
  }
  if (found.size() == 1) return *found.begin();
  if (found.empty())
    return fail(ErrorKind::usage,
                fmt::format("timing cache {}: no key of this machine fits\n  see: octavo cache show {}", o.file, o.file));
  std::string list;
  for (const auto& [where, key] : found) list += fmt::format("\n  t{} | {}", where.threads, key);
  return fail(ErrorKind::usage,
              fmt::format("timing cache {}: {} keys fit; name one with --key, and --threads:{}", o.file, found.size(), list));
}

Result<int> pin(const CacheOptions& o, bool set) {
  std::string key, was, tactic;
  bool timed = true;
  OCTAVO_CHECK(TimingCache::edit(o.file, [&](TimingCache& cache) -> Status {
    OCTAVO_CHECK(not_empty(cache, o.file));
    OCTAVO_TRY(const auto at, one_key(cache, o));
    key = at.second;
    was = cache.pinned(at.first, key).value_or("");
    if (!set && was.empty()) return fail(ErrorKind::usage, fmt::format("timing cache {}: nothing is pinned for {}", o.file, key));
    if (set) {
      OCTAVO_TRY(const engine::Providers providers, providers_of(at.first));
      OCTAVO_TRY(tactic, tune::find_tactic(o.tactic, cache, at.first, key, providers));
    }
    cache.pin(at.first, key, tactic);
    timed = !set || cache.find(at.first, key, tactic)->seconds >= 0;
    return {};
  }));
  fmt::print("{} {}{}\n  {}\n", set ? "pinned" : "unpinned", set ? tactic : was,
             set && !was.empty() && was != tactic ? ", was " + was : "", key);
  if (!timed) fmt::print("  it has no time yet: the next build measures it, and fails if this tactic cannot run the region\n");
  return 0;
}

/// Is the tactic none of those that the providers have for the key, in its version? Of keys that spell no region: no.
bool outdated(const std::string& key, int threads, const std::string& name) {
  const auto tactic = region::parse_tactic(name);
  const auto known = tune::offers_for(key, threads, api::all_providers());
  if (!tactic || !known) return false;
  return std::none_of(known->begin(), known->end(), [&](const region::Offer& o) {
    return o.tactic.provider == tactic->provider && o.tactic.family == tactic->family && o.tactic.version == tactic->version;
  });
}

Result<int> prune(const CacheOptions& o) {
  if (!o.other_devices && !o.other_versions && o.keep.empty())
    return fail(ErrorKind::usage, "cache prune: say what to drop: --other-devices, --other-versions, --keep-keys-of ENGINE");
  std::set<std::string> keep;
  if (!o.keep.empty()) {
    OCTAVO_TRY(const auto engines, api::load_engines(o.keep));
    for (const auto& engine : engines) {
      for (const region::Region& r : engine->plan().regions) keep.insert(region::key_of(r, engine->plan()));
    }
  }
  const auto here = descriptions_here();
  std::size_t left = 0;
  TimingCache::Pruned gone;
  OCTAVO_CHECK(TimingCache::edit(o.file, [&](TimingCache& cache) -> Status {
    OCTAVO_CHECK(not_empty(cache, o.file));
    gone = cache.prune([&](const TimingCache::Entry& entry) {
      const auto& [where, key, tactic] = entry;
      return (o.other_devices && !here.contains(where.device)) || (o.other_versions && outdated(key, where.threads, tactic)) ||
             (!o.keep.empty() && !keep.contains(key));
    });
    left = cache.entries.size();
    return {};
  }));
  fmt::print("{}: {} of {} times kept\n", o.file, left, left + gone.entries);
  const auto note = [](std::size_t n, const char* what) {
    if (n > 0) fmt::print("  dropped with them: {} {}\n", n, what);
  };
  note(gone.pins, "pins");
  note(gone.comments, "lines of comments above them");
  note(gone.devices, "devices that had no other times");
  return 0;
}

}  // namespace

Command add_cache(Arguments& app) {
  auto o = std::make_shared<CacheOptions>();
  app.require_subcommand();
  const auto file = [&](Arguments* sub) { sub->add_option("FILE", o->file, "Timing cache")->required(); };
  auto* showing = app.add_subcommand("show", "Print keys, tactics, times and pins");
  file(showing);
  showing->add_option("--match", o->match, "Show only keys or tactics that contain this text");
  auto* comparing = app.add_subcommand("diff", "Print the entries in which two caches differ; the exit code is 1 if there are any");
  comparing->add_option("FILES", o->files, "Two timing caches")->required()->expected(2);
  auto* merging = app.add_subcommand("merge", "Add the entries of several caches to one; later files win");
  merging->add_option("OUT", o->file, "Timing cache to add to; it is created if it does not exist")->required();
  merging->add_option("FILES", o->files, "Timing caches")->required()->expected(1, -1);
  auto* pinning = app.add_subcommand("pin", "Always use one tactic for a key, whatever its time");
  auto* unpinning = app.add_subcommand("unpin", "Remove a pin");
  for (auto* sub : {pinning, unpinning}) {
    file(sub);
    sub->add_option("--key", o->key, "Key of the region, as `octavo explain` and the file spell it");
    sub->add_option("--match", o->match, "Instead of --key: a text that only one key contains");
    sub->add_option("--threads", o->threads, "Thread count, if the key has times for several");
  }
  pinning->add_option("--tactic", o->tactic, "Tactic to use")->required();
  auto* pruning = app.add_subcommand("prune", "Remove entries");
  file(pruning);
  pruning->add_flag("--other-devices", o->other_devices, "Remove those of other machines");
  pruning->add_flag("--other-versions", o->other_versions,
                    "Remove those of tactics that this Octavo does not have, or has in another version");
  pruning->add_option("--keep-keys-of", o->keep, "Remove all entries whose key this engine file does not use")->reads("ENGINE");
  app.footer(
      "The file is text: docs/timing-cache.md. Example: octavo cache pin times.txt --match 'w s8[64,64,3,3]' --tactic TACTIC, "
      "where TACTIC is one that `octavo cache show times.txt` lists, with or without its {parameters}");
  return [=]() -> Result<int> {
    if (showing->parsed()) return show(*o);
    if (comparing->parsed()) return diff(*o);
    if (merging->parsed()) return merge(*o);
    if (pinning->parsed()) return pin(*o, true);
    if (unpinning->parsed()) return pin(*o, false);
    return prune(*o);
  };
}

}  // namespace octavo::cli
