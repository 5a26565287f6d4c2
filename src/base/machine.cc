#include "base/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <thread>

namespace octavo {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// "1024K" in bytes; 0: not such a text.
std::int64_t bytes_of(const std::string& text) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || n <= 0) return 0;
  const char unit = end == text.data() + text.size() ? '\0' : *end;
  return unit == 'K' ? n << 10 : unit == 'M' ? n << 20 : n;
}

MachineModel read_machine() {
  MachineModel m;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = first_line(folder + "level"), type = first_line(folder + "type");
    const std::int64_t bytes = bytes_of(first_line(folder + "size"));
    if (bytes == 0 || type == "Instruction") continue;
    if (level == "1") m.l1_bytes = bytes;
    if (level == "2") m.l2_bytes = bytes;
    if (level == "3") m.l3_bytes = bytes;
  }
  m.cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const std::int64_t khz = bytes_of(first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"));
  if (khz > 0) m.clock_hz = static_cast<double>(khz) * 1e3;
#if defined(__x86_64__)
  m.vector_bytes = __builtin_cpu_supports("avx512f") ? 64 : __builtin_cpu_supports("avx2") ? 32 : 16;
#endif
  return m;
}

}  // namespace

const MachineModel& this_machine() {
  static const MachineModel machine = read_machine();
  return machine;
}

std::string to_string(const MachineModel& m) {
  return fmt::format("l1={} l2={} l3={} cores={} vector={} clock={:g}", m.l1_bytes, m.l2_bytes, m.l3_bytes, m.cores, m.vector_bytes,
                     m.clock_hz);
}

Result<MachineModel> parse_machine(std::string_view text) {
  MachineModel m;
  const auto bad = [](std::string_view field, std::string_view why) {
    return fail(ErrorKind::usage, fmt::format("machine model: \"{}\" {}", field, why));
  };
  while (!text.empty()) {
    const std::string_view field = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), field.size() + 1));
    if (field.empty()) continue;
    const auto equals = field.find('=');
    if (equals == std::string_view::npos) return bad(field, "is not NAME=NUMBER");
    const std::string_view name = field.substr(0, equals), number = field.substr(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(value) || value < 0 || value > 1e15)
      return bad(field, "has no number that can be");
    if (name != "l3" && value < 1) return bad(field, "is too little");
    if (name == "l1") {
      m.l1_bytes = static_cast<std::int64_t>(value);
    } else if (name == "l2") {
      m.l2_bytes = static_cast<std::int64_t>(value);
    } else if (name == "l3") {
      m.l3_bytes = static_cast<std::int64_t>(value);
    } else if (name == "cores" || name == "vector") {
      if (value > 1e6) return bad(field, "is too much");
      (name == "cores" ? m.cores : m.vector_bytes) = static_cast<int>(value);
    } else if (name == "clock") {
      m.clock_hz = value;
    } else {
      return bad(field, "is none of l1, l2, l3, cores, vector, clock");
    }
  }
  return m;
}

}  // namespace octavo
