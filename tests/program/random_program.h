// Random well-formed programs that use every operation sooner or later, and random inputs for them. Shared by the tests of all
// emitters.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "program/program.h"

namespace octavo::program {

/// Deterministic in the seed. Even seeds read acc_i, odd ones acc_f. `f2i` operands are clamped within int32 first, `table`
/// operands masked.
inline Program random_program(unsigned seed, int length = 40) {
  std::mt19937 rng(seed);
  const auto below = [&rng](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  Program p;
  std::vector<int> ints, floats;
  const auto note = [&](int v) { (info(p.code[static_cast<std::size_t>(v)].op).result == 'i' ? ints : floats).push_back(v); };
  note(p.push(seed % 2 ? Op::acc_f : Op::acc_i));
  for (int k = 0; k < 3; ++k) note(p.load(k == 0 ? Op::load_i : Op::load_f, k));
  note(p.imm_i(static_cast<std::int32_t>(rng())));
  note(p.imm_i(static_cast<std::int32_t>(rng() % 256)));
  note(p.imm_f(std::bit_cast<float>(static_cast<std::uint32_t>(rng()))));
  note(p.imm_f(static_cast<float>(static_cast<int>(rng() % 2000) - 1000) / 16.0F));
  for (int t = 0; t < 2; ++t) {
    for (std::uint8_t& e : p.tables.emplace_back()) e = static_cast<std::uint8_t>(rng());
  }
  const auto any_int = [&] { return ints[below(ints.size())]; };
  const auto any_float = [&] { return floats[below(floats.size())]; };
  while (static_cast<int>(p.code.size()) < length) {
    const OpInfo& row = all_ops()[below(all_ops().size())];
    switch (row.op) {
      case Op::acc_i:
      case Op::acc_f:
      case Op::load_i:
      case Op::load_f:
      case Op::imm_i:
      case Op::imm_f: break;
      case Op::f2i: {
        const int low = p.push(Op::max, any_float(), p.imm_f(-1e6F));
        note(low);
        note(p.push(Op::min, low, p.imm_f(1e6F)));
        note(p.push(Op::f2i, floats.back()));
        break;
      }
      case Op::table: {
        note(p.push(Op::and_i, any_int(), p.imm_i(255)));
        note(p.push_imm(Op::table, static_cast<std::int32_t>(below(2)), ints.back()));
        break;
      }
      case Op::bits_i: {  // a NaN's payload differs between devices
        note(p.push(Op::nan0, any_float()));
        note(p.push(Op::bits_i, floats.back()));
        break;
      }
      case Op::shl_i:
      case Op::sra_i: note(p.push_imm(row.op, static_cast<std::int32_t>(below(32)), any_int())); break;
      default: {
        std::array<int, 4> args{-1, -1, -1, -1};
        for (std::size_t k = 0; k < row.operands.size(); ++k) args[k] = row.operands[k] == 'i' ? any_int() : any_float();
        note(p.push(row.op, args[0], args[1], args[2], args[3]));
      }
    }
  }
  const int code = p.push(Op::min_i, p.push(Op::max_i, ints.back(), p.imm_i(0)), p.imm_i(255));
  const int bit = p.push(Op::and_i, ints.front(), p.imm_i(1));
  p.outputs = {{code, ir::DType::u8},
               {floats.back(), ir::DType::f32},
               {ints.back(), ir::DType::s32},
               {floats[floats.size() - 2], ir::DType::f16},
               {floats[floats.size() / 2], ir::DType::bf16},
               {bit, ir::DType::boolean}};
  // Values that nobody reads would show nothing: integers are summed into one more store, floats (up to twelve) are stored as they
  // are.
  std::vector<char> read(p.code.size(), 0);
  for (const Instr& i : p.code) {
    for (const int arg : i.args) {
      if (arg >= 0) read[static_cast<std::size_t>(arg)] = 1;
    }
  }
  int sum = bit;
  for (std::size_t v = 0, stored = 0; v < read.size(); ++v) {
    if (read[v]) continue;
    if (info(p.code[v].op).result == 'i') {
      sum = p.push(Op::add_i, sum, static_cast<int>(v));
    } else if (stored++ < 12) {
      p.outputs.push_back({static_cast<int>(v), ir::DType::f32});
    }
  }
  p.outputs.push_back({sum, ir::DType::s32});
  return p;
}

/// A value for an accumulator or operand of the given type letter: half of them small and ordinary, half extremes and random bits.
inline Scalar random_scalar(char type, std::mt19937& rng) {
  Scalar s{};
  if (type == 'i') {
    constexpr std::int32_t kExtremes[] = {0, 1, -1, 127, -128, 255, 256, INT32_MAX, INT32_MIN};
    s.i = rng() % 4 == 0 ? kExtremes[rng() % 9] : static_cast<std::int32_t>(rng()) >> (rng() % 32);
  } else {
    constexpr std::uint32_t kExtremes[] = {0,           0x80000000U, 0x3f800000U, 0x7f800000U, 0xff800000U,
                                           0x7fc00000U, 1,           0x80000001U, 0x7f7fffffU, 0x3f000000U};
    switch (rng() % 4) {
      case 0: s.f = std::bit_cast<float>(kExtremes[rng() % 10]); break;
      case 1: s.f = std::bit_cast<float>(static_cast<std::uint32_t>(rng())); break;
      default: s.f = static_cast<float>(static_cast<std::int32_t>(rng())) * 0x1p-24F;
    }
  }
  return s;
}

}  // namespace octavo::program
