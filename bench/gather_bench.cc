// Speed of channel gathers, one thread, beside memcpy of as many bytes: octavo_gather_bench [--rounds=N]
// The fastest round of each; GB/s counts what is read and written. Every result is checked before.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "cpu/isa.h"
#include "cpu/jit/gather.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;
using Ints = std::vector<std::int64_t>;

struct Case {
  std::string_view name;
  std::int64_t channels, size, groups;  ///< groups 0: a random order
  int part;                             ///< 0: all channels, 1: the first half of the shuffled ones
};

template <class F>
double fastest(int rounds, F f) {
  double best = 1;
  for (int i = 0; i < rounds; ++i) {
    const auto a = Clock::now();
    for (int k = 0; k < 20; ++k) f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - a).count() / 20);
  }
  return best;
}

bool run(const Case& c, int rounds) {
  Ints indices;
  for (std::int64_t i = 0; i < c.channels; ++i)
    indices.push_back(c.groups == 0 ? i : i % c.groups * (c.channels / c.groups) + i / c.groups);
  std::mt19937 random(1);
  if (c.groups == 0) std::shuffle(indices.begin(), indices.end(), random);
  if (c.part == 1) indices.resize(indices.size() / 2);
  const auto made = static_cast<std::int64_t>(indices.size()), pixels = c.size * c.size;
  region::Region r;
  region::Stage& s = r.stages.emplace_back();
  const auto nhwc = [&](int buffer, std::int64_t channels) {
    region::TensorRef t;
    t.buffer = buffer;
    t.dtype = ir::DType::u8;
    t.dims = {1, channels, c.size, c.size};
    t.strides = {channels * pixels, 1, c.size * channels, channels};
    return t;
  };
  s.anchor.op = ir::Op::gather;
  s.anchor.facts = *ir::facts_of(s.anchor.op, {{"axis", std::int64_t{1}}, {"indices", indices}}, 4);
  s.anchor.inputs = {nhwc(0, c.channels)};
  s.space = {1, made, c.size, c.size};
  s.stores = {nhwc(1, made)};
  s.program.outputs.push_back({s.program.push(program::Op::acc_i), ir::DType::u8});
  const auto plan = cpu::jit::match_gather(r);
  if (!plan) {
    fmt::print("{}: {}\n", c.name, plan.error().message);
    return true;
  }
  const auto kernel = cpu::jit::load_gather(*plan);
  if (!kernel) return false;
  std::vector<std::byte> from(static_cast<std::size_t>(c.channels * pixels)), to(static_cast<std::size_t>(made * pixels));
  for (std::byte& b : from) b = static_cast<std::byte>(random());
  const region::Memory memory{{from.data(), to.data()}};
  (*kernel)->run(memory, 0, (*kernel)->tasks(), {});
  for (std::int64_t p = 0; p < pixels; ++p) {
    for (std::int64_t i = 0; i < made; ++i) {
      if (to[static_cast<std::size_t>(p * made + i)] !=
          from[static_cast<std::size_t>(p * c.channels + indices[static_cast<std::size_t>(i)])]) {
        fmt::print("{}: wrong at pixel {}, channel {}\n", c.name, p, i);
        return false;
      }
    }
  }
  const double gather = fastest(rounds, [&] { (*kernel)->run(memory, 0, (*kernel)->tasks(), {}); });
  const double copy = fastest(rounds, [&] {
    std::memcpy(to.data(), from.data(), to.size());
    asm volatile("" ::: "memory");
  });
  const double bytes = 2.0 * static_cast<double>(to.size());
  fmt::print("{:34} {:7.2f} us {:6.1f} GB/s   memcpy {:7.2f} us {:6.1f} GB/s\n", c.name, gather * 1e6, bytes / gather / 1e9,
             copy * 1e6, bytes / copy / 1e9);
  return true;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  int rounds = 200;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--rounds=")) rounds = std::max(1, std::atoi(argv[i] + 9));
  }
  const octavo::Case cases[] = {{"2 groups, 116 @52", 116, 52, 2, 0},  {"2 groups, 116 @52, first half", 116, 52, 2, 1},
                                {"2 groups, 232 @26", 232, 26, 2, 0},  {"2 groups, 232 @26, first half", 232, 26, 2, 1},
                                {"2 groups, 464 @13", 464, 13, 2, 0},  {"4 groups, 272 @28", 272, 28, 4, 0},
                                {"8 groups, 384 @28", 384, 28, 8, 0},  {"any order, 116 @52", 116, 52, 0, 0},
                                {"any order, 512 @14", 512, 14, 0, 0}, {"2 groups, 24 @112", 24, 112, 2, 0}};
  bool right = true;
  for (const octavo::Case& c : cases) right = octavo::run(c, rounds) && right;
  return right ? 0 : 1;
}
