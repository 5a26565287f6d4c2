#include <array>
#include <bit>
#include <cstddef>
#include <deque>

#include "cpu/avx512/rolling.h"

namespace octavo::cpu::avx512 {
namespace {

using program::Op;
using Xbyak::Reg64;
using Xbyak::Ymm;
using Xbyak::Zmm;

class Rolling {
 public:
  Rolling(Code& c, ConstantPool& pool, const RollingPlan& plan, const region::Stage& stage, const RollingShape& shape)
      : c_(c), pool_(pool), d_(plan), stage_(stage), s_(shape), whole_(shape.vectors == 4 && shape.tail == 16) {}

  void emit() {
    enter(c_, 16);
    const auto at = [](std::size_t offset) { return static_cast<int>(offset); };
    if (!whole_) {
      const int bytes = (s_.vectors - 1) * 16 + s_.tail;
      c_.mov(c_.rax, (std::uint64_t{1} << static_cast<unsigned>(bytes)) - 1U);
      c_.kmovq(c_.k1, c_.rax);
      c_.vmovdqa64(Zmm(kOrder), pool_.block(natural_order()));
    }
    for (const auto& sink : d_.epilogue.pack.sinks) {  // half a table fits beside the window
      if (sink.table < 0 || held_ >= 0) continue;
      const auto& t = d_.epilogue.tables[static_cast<std::size_t>(sink.table)];
      const auto half = HalfTable::of(t);
      if (half.offset < 0) continue;
      held_ = sink.table;
      c_.vmovdqa64(Zmm(kHeld), pool_.table(t, false, half.offset));
      c_.vmovdqa64(Zmm(kHeld + 1), pool_.table(t, false, half.offset + 64));
    }
    if (d_.requant.zero != 0) c_.vmovdqa64(Zmm(kZero), pool_.block(each_word(d_.requant.zero)));
    c_.mov(c_.rax, c_.ptr[c_.rdi + at(offsetof(RollingArgs, padding))]);
    c_.mov(c_.ptr[c_.rsp], c_.rax);
    const int first = static_cast<int>(d_.first_columns());
    for (int k = 0; k < first; ++k) {
      for (int i = 0; i < input_rows(); ++i) c_.mov(row(i), c_.ptr[c_.rdi + at(offsetof(RollingArgs, first)) + (k * 4 + i) * 8]);
      interleave(k);
    }
    for (int i = 0; i < input_rows(); ++i) {
      c_.mov(row(i), c_.ptr[c_.rdi + at(offsetof(RollingArgs, row)) + 8 * i]);
      c_.mov(step(i), c_.ptr[c_.rdi + at(offsetof(RollingArgs, step)) + 8 * i]);
    }
    for (std::size_t k = 0; k < d_.epilogue.pack.sinks.size(); ++k)
      c_.mov(out(k), c_.ptr[c_.rdi + at(offsetof(RollingArgs, out)) + 8 * static_cast<int>(k)]);
    c_.mov(columns_, c_.ptr[c_.rdi + at(offsetof(RollingArgs, columns))]);
    c_.mov(count_, c_.ptr[c_.rdi + at(offsetof(RollingArgs, count))]);
    c_.mov(weights_, c_.ptr[c_.rdi + at(offsetof(RollingArgs, weights))]);
    c_.mov(values_, c_.ptr[c_.rdi + at(offsetof(RollingArgs, values))]);  // rdi itself: the arguments are read
    Xbyak::Label loop, done;
    c_.align(32);
    c_.L(loop);
    // Three steps bring every column back to its registers.
    for (int i = 0, oldest = 0; i < 3; ++i) {
      for (int n = static_cast<int>(3 - d_.stride()); n < 3; ++n) new_column((oldest + n) % 3);
      dots(oldest);
      for (int r = 0; r < s_.rows; ++r) requantize(r);
      store_all();
      c_.dec(count_);
      if (i < 2) {
        c_.jz(done, Xbyak::CodeGenerator::T_NEAR);
      } else {
        c_.jnz(loop, Xbyak::CodeGenerator::T_NEAR);
      }
      oldest = (oldest + static_cast<int>(d_.stride())) % 3;
    }
    c_.L(done);
    leave(c_, 16);
    for (auto& [label, back] : switches_) {  // the row is over: padding from here on
      c_.L(label);
      for (int i = 0; i < input_rows(); ++i) {
        c_.mov(row(i), c_.ptr[c_.rsp]);
        c_.xor_(step(i), step(i));
      }
      c_.mov(columns_, 0x7fffffff);
      c_.jmp(back, Xbyak::CodeGenerator::T_NEAR);
    }
  }

 private:
  static constexpr int kTemps = 20, kZero = 26, kOrder = 27, kLookup = 28, kHeld = 30;
  [[nodiscard]] int input_rows() const { return s_.rows == 2 ? 4 : 3; }
  [[nodiscard]] Zmm acc(int r, int v) const { return Zmm(r * s_.vectors + v); }
  [[nodiscard]] static Zmm column(int set, int v) { return Zmm(8 + set * 4 + v); }
  [[nodiscard]] static Zmm temp(int i) { return Zmm(kTemps + i); }
  [[nodiscard]] Reg64 row(int i) const { return std::array<Reg64, 4>{c_.rbx, c_.rcx, c_.rdx, c_.rsi}[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Reg64 step(int i) const { return std::array<Reg64, 4>{c_.r8, c_.r9, c_.r10, c_.r11}[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Reg64 out(std::size_t k) const { return std::array<Reg64, kRollingSinks>{c_.r12, c_.r13, c_.r14}[k]; }
  [[nodiscard]] Xbyak::Address value(int kind, int v) const {
    return c_.ptr[values_ + (kind * static_cast<int>(d_.init_count) + 16 * v) * 4];
  }

  void new_column(int set) {
    auto& [label, back] = switches_.emplace_back();
    c_.sub(columns_, 1);
    c_.js(label, Xbyak::CodeGenerator::T_NEAR);
    c_.L(back);
    interleave(set);
    for (int i = 0; i < input_rows(); ++i) c_.add(row(i), step(i));
  }

  /// Rows of one column to [16 channels][4 rows] a vector. With three rows the fourth byte meets weights of 0.
  void interleave(int set) {
    const int rows = input_rows();
    for (int i = 0; i < rows; ++i) {
      if (whole_) {
        c_.vmovdqu64(temp(i), c_.ptr[row(i)]);
      } else {
        c_.vmovdqu8(temp(i) | c_.k1 | Xbyak::util::T_z, c_.ptr[row(i)]);
        c_.vpermd(temp(i), Zmm(kOrder), temp(i));
      }
    }
    const Zmm third = temp(2), fourth = temp(rows == 4 ? 3 : 2);
    c_.vpunpcklbw(temp(4), temp(0), temp(1));
    c_.vpunpcklbw(temp(5), third, fourth);
    if (s_.vectors > 2) {
      c_.vpunpckhbw(temp(0), temp(0), temp(1));
      c_.vpunpckhbw(temp(2), third, fourth);
    }
    c_.vpunpcklwd(column(set, 0), temp(4), temp(5));
    if (s_.vectors > 1) c_.vpunpckhwd(column(set, 1), temp(4), temp(5));
    if (s_.vectors > 2) c_.vpunpcklwd(column(set, 2), temp(0), temp(2));
    if (s_.vectors > 3) c_.vpunpckhwd(column(set, 3), temp(0), temp(2));
  }

  void dots(int oldest) {
    for (int k = 0; k < 3; ++k) {
      for (int v = 0; v < s_.vectors; ++v) {
        for (int r = 0; r < s_.rows; ++r) {
          if (k == 0) c_.vpxord(acc(r, v), acc(r, v), acc(r, v));
          c_.vpdpbusd(acc(r, v), column((oldest + k) % 3, v),
                      c_.ptr[weights_ + ((k * s_.vectors + v) * static_cast<int>(d_.rows) + r) * 64]);
        }
      }
    }
  }

  void requantize(int r) {
    const Requant& q = d_.requant;
    for (int v = 0; v < s_.vectors; ++v) {
      const Zmm a = acc(r, v);
      if (s_.line) {
        const Zmm m = temp(0), b = temp(1);
        if (r == 0) {
          c_.vmovups(m, value(0, v));
          c_.vmovups(b, value(1, v));
          for (int each = 0; each < s_.rows; ++each) {
            c_.vcvtdq2ps(acc(each, v), acc(each, v));
            c_.vfmadd213ps(acc(each, v), m, b);
            if (q.alpha < 1) leaky(acc(each, v), q.alpha);
            c_.vcvtps2dq(acc(each, v), acc(each, v));
          }
        }
        continue;
      }
      c_.vpaddd(a, a, value(4, v));
      c_.vcvtdq2ps(a, a);
      if (q.bias >= 0 && q.fused) {
        c_.vmovups(temp(0), value(2, v));
        c_.vfmadd213ps(a, temp(0), value(3, v));
      } else {
        c_.vmulps(a, a, value(2, v));
        if (q.bias >= 0) c_.vaddps(a, a, value(3, v));
      }
      for (const auto& s : q.steps) {
        const auto imm = pool_.each_lane(std::bit_cast<std::int32_t>(s.imm));
        if (s.op == Op::div) c_.vdivps(a, a, imm);
        if (s.op == Op::sel_lt) leaky(a, s.imm);
        if (s.op == Op::max) c_.vmaxps(a, a, imm);
        if (s.op == Op::min) c_.vminps(a, a, imm);
      }
      c_.vcvtps2dq(a, a);
    }
  }

  /// y < 0 ? alpha * y : y for alpha in (0, 1), where it is the larger of both.
  void leaky(const Zmm& y, float alpha) {
    c_.vmulps(temp(2), y, pool_.each_lane(std::bit_cast<std::int32_t>(alpha)));
    c_.vmaxps(y, y, temp(2));
  }

  void store_all() {
    const Requant& q = d_.requant;
    const bool is_signed = d_.epilogue.pack.is_signed;
    const std::int32_t lo = s_.line ? q.first : q.lo, hi = s_.line ? q.last : q.hi;
    for (int r = 0; r < s_.rows; ++r) {
      const Zmm a = acc(r, 0), other = acc(r, s_.vectors > 2 ? 2 : 0);
      c_.vpackssdw(a, a, acc(r, s_.vectors > 1 ? 1 : 0));
      if (q.zero != 0) c_.vpaddsw(a, a, Zmm(kZero));
      if (s_.vectors > 2) {
        c_.vpackssdw(other, other, acc(r, s_.vectors > 3 ? 3 : 2));
        if (q.zero != 0) c_.vpaddsw(other, other, Zmm(kZero));
      }
      if (is_signed) {
        c_.vpacksswb(a, a, other);
        if (lo > -128) c_.vpmaxsb(a, a, pool_.block(each_byte(lo)));
        if (hi < 127) c_.vpminsb(a, a, pool_.block(each_byte(hi)));
      } else {
        c_.vpackuswb(a, a, other);
        if (lo > 0) c_.vpmaxub(a, a, pool_.block(each_byte(lo)));
        if (hi < 255) c_.vpminub(a, a, pool_.block(each_byte(hi)));
      }
      if (!whole_) c_.vpermd(a, Zmm(kOrder), a);
      const auto& sinks = d_.epilogue.pack.sinks;
      for (std::size_t k = 0; k < sinks.size(); ++k) {
        const auto to = c_.ptr[out(k) + r * static_cast<int>(stage_.stores[static_cast<std::size_t>(sinks[k].output)].strides[2])];
        const Zmm bytes = sinks[k].table < 0 ? a : look_up(sinks[k].table, a);
        if (whole_) {
          c_.vmovdqu64(to, bytes);
        } else {
          c_.vmovdqu8(to | c_.k1, bytes);
        }
      }
    }
    for (std::size_t k = 0; k < d_.epilogue.pack.sinks.size(); ++k) {
      const auto& ref = stage_.stores[static_cast<std::size_t>(d_.epilogue.pack.sinks[k].output)];
      c_.add(out(k), static_cast<int>(ref.strides[3]));
    }
  }

  Zmm look_up(int which, const Zmm& index) {
    const auto& t = d_.epilogue.tables[static_cast<std::size_t>(which)];
    const Zmm low(kLookup), high(kLookup + 1);
    if (const auto half = HalfTable::of(t); half.offset >= 0) {
      const auto bound = pool_.block(each_byte(half.bound));
      if (half.offset > 0) {
        c_.vpmaxub(low, index, bound);
      } else {
        c_.vpminub(low, index, bound);
      }
      if (which == held_) {
        c_.vpermi2b(low, Zmm(kHeld), Zmm(kHeld + 1));
        return low;
      }
      c_.vmovdqa64(high, pool_.table(t, false, half.offset));
      c_.vpermi2b(low, high, pool_.table(t, false, half.offset + 64));
      return low;
    }
    c_.vmovdqa64(low, pool_.table(t, false, 0));
    c_.vpermt2b(low, index, pool_.table(t, false, 64));
    c_.vmovdqa64(high, pool_.table(t, false, 128));
    c_.vpermt2b(high, index, pool_.table(t, false, 192));
    c_.vpmovb2m(c_.k2, index);
    c_.vmovdqu8(low | c_.k2, high);
    return low;
  }

  Code& c_;
  ConstantPool& pool_;
  const RollingPlan& d_;
  const region::Stage& stage_;
  RollingShape s_;
  bool whole_;
  const Reg64 columns_ = Xbyak::util::rax, count_ = Xbyak::util::rbp, weights_ = Xbyak::util::r15, values_ = Xbyak::util::rdi;
  std::deque<std::pair<Xbyak::Label, Xbyak::Label>> switches_;
  int held_ = -1;  ///< the table in registers kHeld and kHeld + 1
};

}  // namespace

std::size_t emit_rolling(Code& c, ConstantPool& pool, const RollingPlan& plan, const region::Stage& stage,
                         const RollingShape& shape) {
  c.align(64);
  const std::size_t start = c.getSize();
  Rolling(c, pool, plan, stage, shape).emit();
  return start;
}

}  // namespace octavo::cpu::avx512
