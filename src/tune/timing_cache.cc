#include "tune/timing_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "base/write_file.h"
#include "cpu/isa.h"
#include "tune/file_lock.h"

namespace octavo::tune {
namespace {

constexpr std::string_view kHeader = "# octavo timing cache 2";

std::string short_id(std::string_view device) {
  return fmt::format("{:08x}",
                     static_cast<std::uint32_t>(hash64({reinterpret_cast<const std::byte*>(device.data()), device.size()}, 0)));
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string_view word(std::string_view& rest) {
  const auto begin = rest.find_first_not_of(' ');
  if (begin == std::string_view::npos) return rest = {};
  const auto end = std::min(rest.find(' ', begin), rest.size());
  const auto found = rest.substr(begin, end - begin);
  rest.remove_prefix(end);
  return found;
}

std::string_view trimmed(std::string_view s) {
  const auto a = s.find_first_not_of(" \t\r"), b = s.find_last_not_of(" \t\r");
  return a == std::string_view::npos ? std::string_view() : s.substr(a, b - a + 1);
}

class Parser {
 public:
  TimingCache cache;

  /// Empty, or what is wrong with the line.
  std::string line(std::string_view text) {
    if (text.empty()) return "";
    if (text.front() == '#') {
      pending_.emplace_back(text);
      return "";
    }
    if (text.starts_with("device ")) return device(text.substr(7));
    const auto bar = text.find(" | ");
    if (bar == std::string_view::npos) return "has no \" | \" before the key";
    const std::string key(trimmed(text.substr(bar + 3)));
    std::string_view rest = text.substr(0, bar);
    const auto known = devices_.find(std::string(word(rest)));
    if (known == devices_.end()) return "names a device that no \"device\" line before it describes";
    Where where{known->second, 0};
    const auto threads = word(rest), time = word(rest);
    if (threads.size() < 2 || threads[0] != 't') return "has no thread count such as t1";
    const auto [end, error] = std::from_chars(threads.data() + 1, threads.data() + threads.size(), where.threads);
    if (error != std::errc{} || end != threads.data() + threads.size() || where.threads < 1 || where.threads > 65536)
      return "has no thread count such as t1";
    Timing t;
    if (time != "?") {
      double micro = 0;
      const auto [stop, bad] = std::from_chars(time.data(), time.data() + time.size(), micro);
      if (bad != std::errc{} || stop != time.data() + time.size() || !(micro >= 0) || micro > 1e12)
        return "has no time such as 12.5 us";
      t.seconds = micro * 1e-6;
    }
    if (word(rest) != "us") return "has no \"us\" behind its time";
    auto tactic = word(rest);
    if (tactic == "pin") {
      t.pinned = true;
      tactic = word(rest);
    }
    constexpr std::string_view kDisturbed = "disturbed@";
    if (tactic.starts_with(kDisturbed)) {
      tactic.remove_prefix(kDisturbed.size());
      const auto [stop, bad] = std::from_chars(tactic.data(), tactic.data() + tactic.size(), t.disturbed);
      if (bad != std::errc{} || stop != tactic.data() + tactic.size() || t.disturbed < 1) return "has no seconds behind disturbed@";
      tactic = word(rest);
    }
    if (tactic.empty() || !trimmed(rest).empty()) return "does not name one tactic";
    if (key.empty()) return "has no key";
    if (t.pinned && cache.pinned(where, key)) return "pins a second tactic for its key";
    const TimingCache::Entry entry{where, key, std::string(tactic)};
    if (!cache.entries.emplace(entry, t).second) return "repeats a key and tactic of an earlier line";
    if (!pending_.empty()) cache.comments[entry] = std::move(pending_);
    pending_.clear();
    return "";
  }

  TimingCache finish() {
    cache.tail = std::move(pending_);
    return std::move(cache);
  }

 private:
  std::string device(std::string_view text) {
    const auto equals = text.find(" = ");
    if (equals == std::string_view::npos) return "is not \"device ID = DESCRIPTION\"";
    const std::string name(trimmed(text.substr(equals + 3)));
    const auto [at, fresh] = devices_.emplace(trimmed(text.substr(0, equals)), name);
    if (!fresh && at->second != name) return "describes the device of an earlier line otherwise";
    cache.devices.insert(name);
    cache.head.insert(cache.head.end(), pending_.begin(), pending_.end());
    pending_.clear();
    return "";
  }
  std::vector<std::string> pending_;  ///< comments that wait for the line below them
  std::map<std::string, std::string> devices_;
};

/// Appends the lines that are not there yet.
void add(const std::vector<std::string>& lines, std::vector<std::string>& to) {
  for (const std::string& l : lines) {
    if (std::find(to.begin(), to.end(), l) == to.end()) to.push_back(l);
  }
}

}  // namespace

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string user_cache() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::filesystem::path(text == nullptr ? "" : text);
  };
  std::filesystem::path folder = value("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {  // as the specification says: others are ignored
    folder = value("HOME");
    if (!folder.is_absolute()) return {};
    folder /= ".cache";
  }
  folder /= "octavo";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || ::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) return {};
  return (folder / "timing.txt").string();
}

Where here(int threads) {
  return {fmt::format("{}; {}", processor(), cpu::capabilities()), threads};
}

Result<TimingCache> TimingCache::parse(std::string_view text) {
  if (trimmed(text.substr(0, text.find('\n'))) != kHeader)
    return fail(ErrorKind::bad_input, fmt::format("line 1: not a timing cache; it must begin with \"{}\"", kHeader));
  Parser parser;
  text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  for (int number = 2; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    if (auto wrong = parser.line(line); !wrong.empty())
      return fail(ErrorKind::bad_input, fmt::format("line {} {}: \"{}\"", number, wrong, line.substr(0, 200)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parser.finish();
}

Result<TimingCache> TimingCache::read(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return TimingCache();
  if (!std::filesystem::is_regular_file(path, error))
    return fail(ErrorKind::io, fmt::format("timing cache {}: not a regular file", path));
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) return fail(ErrorKind::io, fmt::format("timing cache {}: cannot be read", path));
  if (text.str().empty()) return TimingCache();  // `mktemp`, `touch`
  auto parsed = parse(text.str());
  if (!parsed)
    return fail(parsed.error().kind,
                fmt::format("timing cache {}: {}\n  correct the line, or delete the file; the next build makes a new one", path,
                            parsed.error().message));
  return parsed;
}

std::string TimingCache::text() const {
  std::string out(kHeader);
  out += '\n';
  const auto lines = [&](const std::vector<std::string>& list) {
    for (const std::string& l : list) out += l + '\n';
  };
  lines(head);
  std::set<std::string> all = devices;
  for (const auto& [entry, t] : entries) all.insert(std::get<0>(entry).device);
  for (const std::string& d : all) out += fmt::format("device {} = {}\n", short_id(d), d);
  for (const auto& [entry, t] : entries) {
    const auto& [where, key, tactic] = entry;
    if (const auto above = comments.find(entry); above != comments.end()) lines(above->second);
    const std::string time = t.seconds < 0 ? "?" : fmt::format("{:.2f}", t.seconds * 1e6);
    const std::string mark = t.disturbed == 0 ? "" : fmt::format("disturbed@{} ", t.disturbed);
    out += fmt::format("{} t{} {:>9} us {} {}{} | {}\n", short_id(where.device), where.threads, time, t.pinned ? "pin" : "   ",
                       mark, tactic, key);
  }
  lines(tail);
  return out;
}

Status TimingCache::edit(const std::string& path, const std::function<Status(TimingCache&)>& change) {
  FileLock lock;
  OCTAVO_CHECK(lock.take(path));
  OCTAVO_TRY(TimingCache cache, read(path));
  OCTAVO_CHECK(change(cache));
  return write_file(path, cache.text(), "timing cache");
}

Status TimingCache::add_to(const std::string& path) const {
  return edit(path, [this](TimingCache& now) -> Status {
    TimingCache both = *this;
    for (const auto& [entry, t] : now.entries) {  // what the file has wins, but for disturbed times
      const auto mine = both.entries.find(entry);
      if (mine != both.entries.end() && t.seconds >= 0 && t.disturbed == 0) mine->second = t;
    }
    now.merge(both);
    return {};
  });
}

Status TimingCache::merge_into(const std::string& path) const {
  return edit(path, [this](TimingCache& now) -> Status {
    now.merge(*this);
    return {};
  });
}

const Timing* TimingCache::find(const Where& where, const std::string& key, const std::string& tactic) const {
  const auto found = entries.find({where, key, tactic});
  return found == entries.end() ? nullptr : &found->second;
}

std::optional<std::string> TimingCache::pinned(const Where& where, const std::string& key) const {
  for (auto at = entries.lower_bound({where, key, ""}); at != entries.end(); ++at) {
    const auto& [w, k, tactic] = at->first;
    if (w != where || k != key) break;
    if (at->second.pinned) return tactic;
  }
  return std::nullopt;
}

void TimingCache::set(const Where& where, const std::string& key, const std::string& tactic, double seconds,
                      std::int64_t disturbed) {
  // As the file will say it: a build from the file and the build that wrote it see the same number.
  double rounded = 0;
  const std::string text = fmt::format("{:.2f}", seconds * 1e6);
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  Timing& t = entries[{where, key, tactic}];
  t.seconds = rounded * 1e-6;
  t.disturbed = disturbed;
}

void TimingCache::pin(const Where& where, const std::string& key, const std::string& tactic) {
  std::vector<std::string> orphans;  // comments above pins that had no time and go
  for (auto at = entries.lower_bound({where, key, ""}); at != entries.end();) {
    const auto& [w, k, t] = at->first;
    if (w != where || k != key) break;
    at->second.pinned = false;
    if (at->second.seconds >= 0 || t == tactic) {
      ++at;
      continue;
    }
    if (const auto above = comments.extract(at->first)) add(above.mapped(), orphans);
    at = entries.erase(at);
  }
  if (tactic.empty()) {
    const auto next = entries.lower_bound({where, key, ""});
    add(orphans, next != entries.end() && std::get<0>(next->first) == where && std::get<1>(next->first) == key
                     ? comments[next->first]
                     : tail);
    return;
  }
  entries[{where, key, tactic}].pinned = true;
  if (!orphans.empty()) add(orphans, comments[{where, key, tactic}]);
}

void TimingCache::merge(const TimingCache& other) {
  for (const auto& [entry, t] : other.entries) {
    const auto& [where, key, tactic] = entry;
    if (t.pinned) pin(where, key, tactic);
    Timing& mine = entries[entry];
    if (t.seconds >= 0) mine.seconds = t.seconds, mine.disturbed = t.disturbed;
  }
  for (const auto& [entry, lines] : other.comments) add(lines, comments[entry]);
  add(other.head, head);
  add(other.tail, tail);
  devices.insert(other.devices.begin(), other.devices.end());
}

TimingCache::Pruned TimingCache::prune(const std::function<bool(const Entry&)>& drop) {
  Pruned gone;
  std::set<std::string> before, after;
  for (auto at = entries.begin(); at != entries.end();) {
    const std::string& device = std::get<0>(at->first).device;
    before.insert(device);
    if (!drop(at->first)) {
      after.insert(device);
      ++at;
      continue;
    }
    ++gone.entries;
    gone.pins += at->second.pinned ? 1 : 0;
    if (const auto above = comments.extract(at->first)) gone.comments += above.mapped().size();
    at = entries.erase(at);
  }
  for (const std::string& d : before) {
    if (after.contains(d)) continue;
    devices.erase(d);
    ++gone.devices;
  }
  return gone;
}

}  // namespace octavo::tune
