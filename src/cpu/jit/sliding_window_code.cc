// Over 400 lines: three forms of one loop that share their registers, columns and stores.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <deque>
#include <vector>

#include "cpu/jit/sliding_window.h"

namespace octavo::cpu::jit {
namespace {

using program::Op;
using Xbyak::Reg64;
using Xbyak::Ymm;
using Xbyak::Zmm;

/// Three forms, by what leaves most operands in registers (a dot's weights from memory are a load each, and two loads a clock are
/// then the limit):
/// - scattered (stride 2): a column goes to the sums of both outputs that use it; no window, all weights in registers;
/// - a window of three columns (stride 1, up to 32 channels), all weights in registers;
/// - a window of four columns, two output columns together (stride 1): each vector of weights is loaded once for both.
class SlidingWindow {
 public:
  SlidingWindow(Code& c, ConstantPool& pool, const SlidingWindowSetting& plan, const SlidingWindowShape& shape)
      : c_(c),
        pool_(pool),
        d_(plan),
        s_(shape),
        whole_(shape.vectors == 4 && shape.tail == 16),
        joined_(shape.vectors <= 2 && shape.tail == 16),
        form_(plan.stride() == 2   ? Form::scattered
              : shape.vectors <= 2 ? Form::window
                                   : Form::pair) {}

  void emit() {
    enter(c_, 16);
    const auto at = [](std::size_t offset) { return static_cast<int>(offset); };
    constants();
    c_.mov(c_.ptr[c_.rsp], c_.rdi);
    c_.mov(c_.rax, c_.ptr[c_.rdi + at(offsetof(SlidingWindowArgs, padding))]);
    c_.mov(c_.ptr[c_.rsp + 8], c_.rax);
    c_.mov(weights_, c_.ptr[c_.rdi + at(offsetof(SlidingWindowArgs, weights))]);
    c_.mov(values_, c_.ptr[c_.rdi + at(offsetof(SlidingWindowArgs, values))]);  // rdi itself: the arguments are at [rsp]
    if (form_ != Form::pair) {
      for (int k = 0; k < 3; ++k) {
        for (int v = 0; v < s_.vectors; ++v) {
          for (int r = 0; r < s_.rows; ++r) c_.vmovdqu64(weight(k, v, r), weight_at(k, v, r));
        }
      }
    }
    Xbyak::Label next;
    c_.align(32);
    c_.L(next);
    begin_rows();
    const int count = static_cast<int>(d_.shape.out_w);
    if (form_ == Form::scattered) {
      for (int v = 0; v < s_.vectors; ++v) dot(sum(0, v), column(0, v), weight(0, v, 0), true);
      scattered(0, true);
      repeat(count - 1, 2, [&](int i) { scattered(1 - i); });
      finish_scattered((count - 1) % 2);
    } else if (form_ == Form::window) {
      repeat(count, 3, [&](int i) { window(i); });
    } else {
      repeat(count / 2, 2, [&](int i) { pair(2 * i, 2); });
      if (count % 2 == 1) pair(count / 2 % 2 * 2, 1);
    }
    end_rows();
    c_.jnz(next, Xbyak::CodeGenerator::T_NEAR);
    leave(c_, 16);
    for (auto& [label, back] : switches_) {  // the row is over: padding from here on
      c_.L(label);
      for (int i = 0; i < input_rows(); ++i) {
        c_.mov(row(i), c_.ptr[c_.rsp + 8]);
        c_.xor_(step(i), step(i));
      }
      c_.mov(columns_, 0x7fffffff);
      c_.jmp(back, Xbyak::CodeGenerator::T_NEAR);
    }
  }

 private:
  enum class Form : std::uint8_t { scattered, window, pair };
  static constexpr int kStraight = 4;  ///< turns that are emitted one after the other
  // Registers. Scattered: sums of two columns 0..7, a column 8..11, temporaries 12..16. Window: sums 0..3, columns 4..9,
  // temporaries 10..14. Both: orders 15..17, weights 18..29, half a table 30..31. Pair: columns 0..15, sums and temporaries 16..27,
  // one vector of weights 28, the order 29, values 30..31.
  static constexpr int kWeights = 18, kHeld = 30;
  static constexpr std::array<int, 3> kTemps{12, 10, 16}, kOrder{17, 16, 29}, kJoin{15, 15, 0}, kJoin2{16, 17, 0},
      kValue{13, 13, 30};

  [[nodiscard]] std::size_t form() const { return static_cast<std::size_t>(form_); }
  [[nodiscard]] int input_rows() const { return s_.rows == 2 ? 4 : 3; }
  [[nodiscard]] Zmm column(int set, int v) const {
    return Zmm(form_ == Form::scattered ? 8 + v : form_ == Form::window ? 4 + set * 2 + v : set * 4 + v);
  }
  [[nodiscard]] Zmm temp(int i) const { return Zmm(kTemps[form()] + i); }
  [[nodiscard]] Zmm order() const { return Zmm(kOrder[form()]); }
  [[nodiscard]] Zmm join(int v) const { return Zmm(v == 0 ? kJoin[form()] : kJoin2[form()]); }
  [[nodiscard]] Zmm weight(int k, int v, int r) const { return Zmm(kWeights + (k * s_.vectors + v) * s_.rows + r); }
  [[nodiscard]] Reg64 row(int i) const { return std::array<Reg64, 4>{c_.rbx, c_.rcx, c_.rdx, c_.rsi}[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Reg64 step(int i) const { return std::array<Reg64, 4>{c_.r8, c_.r9, c_.r10, c_.r11}[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Reg64 out(std::size_t k) const { return std::array<Reg64, kSlidingWindowSinks>{c_.r12, c_.r13, c_.r14}[k]; }
  [[nodiscard]] Xbyak::Address value(int kind, int v) const {
    return c_.ptr[values_ + (kind * static_cast<int>(d_.init_count) + 16 * v) * 4];
  }
  [[nodiscard]] Xbyak::Address weight_at(int k, int v, int r) const {
    return c_.ptr[weights_ + ((k * s_.vectors + v) * static_cast<int>(d_.rows) + r) * 64];
  }

  void constants() {
    if (!whole_) c_.vmovdqa64(order(), pool_.block(natural_order()));
    if (joined_) {
      for (int v = 0; v < s_.vectors; ++v) c_.vmovdqa64(join(v), pool_.block(joining_order(v)));
      for (int i = 1; i < 4; ++i) {
        c_.mov(c_.eax, s_.vectors == 2 ? 0xf0 : 0xf << (4 * i));
        c_.kmovw(quarter(i), c_.eax);
      }
    } else if (!whole_) {
      const int bytes = (s_.vectors - 1) * 16 + s_.tail;
      c_.mov(c_.rax, (std::uint64_t{1} << static_cast<unsigned>(bytes)) - 1U);
      c_.kmovq(c_.k1, c_.rax);
    }
    if (form_ == Form::pair) return;
    for (const auto& sink : d_.epilogue.pack.sinks) {  // half a table fits beside the rest
      if (sink.table < 0 || held_ >= 0) continue;
      const auto& t = d_.epilogue.tables[static_cast<std::size_t>(sink.table)];
      const auto half = HalfTable::of(t);
      if (half.offset < 0) continue;
      held_ = sink.table;
      c_.vmovdqa64(Zmm(kHeld), pool_.table(t, false, half.offset));
      c_.vmovdqa64(Zmm(kHeld + 1), pool_.table(t, false, half.offset + 64));
    }
  }

  /// Where the rows and results begin; the columns before the loop.
  void begin_rows() {
    const auto at = [](std::size_t offset) { return static_cast<int>(offset); };
    const Conv2d& shape = d_.shape;
    const Reg64 args = count_, y = columns_, free = out(0), zero = out(1);
    c_.mov(args, c_.ptr[c_.rsp]);
    c_.mov(y, c_.ptr[args + at(offsetof(SlidingWindowArgs, y))]);
    c_.mov(row(0), c_.ptr[args + at(offsetof(SlidingWindowArgs, row))]);
    c_.mov(free, c_.ptr[args + at(offsetof(SlidingWindowArgs, row_bytes))]);
    c_.lea(row(1), c_.ptr[row(0) + free]);
    c_.lea(row(2), c_.ptr[row(0) + free * 2]);
    if (input_rows() == 4) c_.lea(row(3), c_.ptr[row(1) + free * 2]);
    c_.mov(free, c_.ptr[c_.rsp + 8]);
    c_.xor_(zero.cvt32(), zero.cvt32());
    for (int i = 0; i < input_rows(); ++i) {
      c_.mov(step(i), d_.streams.input.strides[3]);
      if (i > 0) c_.inc(y);
      c_.cmp(y, static_cast<int>(shape.h));
      c_.cmovae(row(i), free);  // unsigned: above the first row too
      c_.cmovae(step(i), zero);
    }
    const int first = static_cast<int>(d_.first_columns()), left = static_cast<int>(shape.pads[1]);
    for (int k = 0; k < first; ++k) {
      if (k >= left && k - left < shape.w) {
        interleave(k);
        for (int i = 0; i < input_rows(); ++i) c_.add(row(i), step(i));
      } else {
        for (int v = 0; v < s_.vectors; ++v) c_.vmovdqa64(column(k, v), pool_.block(each_byte(d_.zero)));
      }
    }
    for (std::size_t k = 0; k < d_.epilogue.pack.sinks.size(); ++k)
      c_.mov(out(k), c_.ptr[args + at(offsetof(SlidingWindowArgs, out)) + 8 * static_cast<int>(k)]);
    c_.mov(columns_, std::max<std::int64_t>(0, shape.w - (first - left)));
  }

  /// To the rows below; the zero flag is set behind the last.
  void end_rows() {
    const auto at = [](std::size_t offset) { return static_cast<int>(offset); };
    const Reg64 args = count_, bytes = columns_;
    c_.mov(args, c_.ptr[c_.rsp]);
    c_.mov(bytes, c_.ptr[args + at(offsetof(SlidingWindowArgs, step_bytes))]);
    c_.add(c_.ptr[args + at(offsetof(SlidingWindowArgs, row))], bytes);
    c_.add(c_.qword[args + at(offsetof(SlidingWindowArgs, y))], s_.rows * static_cast<int>(d_.stride()));
    for (std::size_t k = 0; k < d_.epilogue.pack.sinks.size(); ++k) {
      const auto& ref = d_.streams.stores[static_cast<std::size_t>(d_.epilogue.pack.sinks[k].output)];
      c_.add(c_.qword[args + at(offsetof(SlidingWindowArgs, out)) + 8 * static_cast<int>(k)],
             s_.rows * static_cast<int>(ref.strides[2]));
    }
    c_.dec(c_.qword[args + at(offsetof(SlidingWindowArgs, steps))]);
  }

  /// f(0), f(1) ... f(count - 1), where f(i) and f(i + period) are the same code.
  template <class F>
  void repeat(int count, int period, F f) {
    const int turns = count > kStraight ? count / period : 0;
    if (turns > 0) {
      Xbyak::Label loop;
      c_.mov(count_, turns);
      c_.align(32);
      c_.L(loop);
      for (int i = 0; i < period; ++i) f(i);
      c_.dec(count_);
      c_.jnz(loop, Xbyak::CodeGenerator::T_NEAR);
    }
    for (int i = turns * period; i < count; ++i) f(i % period);
  }

  void new_column(int set) {
    auto& [label, back] = switches_.emplace_back();
    c_.sub(columns_, 1);
    c_.js(label, Xbyak::CodeGenerator::T_NEAR);
    c_.L(back);
    interleave(set);
    for (int i = 0; i < input_rows(); ++i) c_.add(row(i), step(i));
  }

  [[nodiscard]] Xbyak::Opmask quarter(int i) const { return Xbyak::Opmask(3 + i); }
  /// Where byte r of channel n of vector v is among the rows, side by side in one or two registers.
  [[nodiscard]] std::array<std::uint8_t, 64> joining_order(int v) const {
    std::array<std::uint8_t, 64> order{};
    for (std::size_t n = 0; n < 16; ++n) {
      for (std::size_t r = 0; r < 4; ++r) {
        const std::size_t from = std::min<std::size_t>(r, static_cast<std::size_t>(input_rows() - 1));
        order[4 * n + r] =
            static_cast<std::uint8_t>(from * 16 * static_cast<std::size_t>(s_.vectors) + 16 * static_cast<std::size_t>(v) + n);
      }
    }
    return order;
  }

  /// Rows of one column to [16 channels][4 rows] a vector. With three rows the fourth byte meets weights of 0.
  void interleave(int set) {
    const int rows = input_rows();
    if (joined_ && s_.vectors == 1) {
      c_.vmovdqu(Xbyak::Xmm(temp(0).getIdx()), c_.ptr[row(0)]);
      for (int i = 1; i < rows; ++i) c_.vbroadcasti32x4(temp(0) | quarter(i), c_.ptr[row(i)]);
      c_.vpermb(column(set, 0), join(0), temp(0));
      return;
    }
    if (joined_) {
      for (int i = 0; i < rows; i += 2) {
        c_.vmovdqu(Ymm(temp(i).getIdx()), c_.ptr[row(i)]);
        if (i + 1 < rows) c_.vbroadcasti64x4(temp(i) | quarter(1), c_.ptr[row(i + 1)]);
      }
      for (int v = 0; v < 2; ++v) {
        c_.vmovdqa64(column(set, v), join(v));
        c_.vpermi2b(column(set, v), temp(0), temp(2));
      }
      return;
    }
    for (int i = 0; i < rows; ++i) {
      if (whole_) {
        c_.vmovdqu64(temp(i), c_.ptr[row(i)]);
      } else {
        c_.vmovdqu8(temp(i) | c_.k1 | Xbyak::util::T_z, c_.ptr[row(i)]);
        c_.vpermd(temp(i), order(), temp(i));
      }
    }
    const Zmm third = temp(2), fourth = temp(rows == 4 ? 3 : 2);
    const Zmm low(column(set, 0)), low_too(column(set, 1));  // their first values are the halves of what they become
    c_.vpunpcklbw(low, temp(0), temp(1));
    c_.vpunpcklbw(temp(4), third, fourth);
    if (s_.vectors > 2) {
      c_.vpunpckhbw(temp(0), temp(0), temp(1));
      c_.vpunpckhbw(temp(2), third, fourth);
    }
    if (s_.vectors > 1) c_.vpunpckhwd(low_too, low, temp(4));
    c_.vpunpcklwd(low, low, temp(4));
    if (s_.vectors > 2) c_.vpunpcklwd(column(set, 2), temp(0), temp(2));
    if (s_.vectors > 3) c_.vpunpckhwd(column(set, 3), temp(0), temp(2));
  }

  void dot(const Zmm& to, const Zmm& x, const Zmm& w, bool first) {
    if (first) c_.vpxord(to, to, to);
    c_.vpdpbusd(to, x, w);
  }

  /// Sums of column i % 2 of the scattered form.
  [[nodiscard]] static Zmm sum(int i, int v) { return Zmm(4 * i + v); }

  /// Column i's sums are finished among the next column's: what waits for dots would fill the schedulers.
  void scattered(int i, bool first = false) {
    new_column(0);
    for (int v = 0; v < s_.vectors; ++v) dot(sum(i, v), column(0, v), weight(1, v, 0), false);
    if (!first) finish_scattered(1 - i);
    new_column(0);
    for (int v = 0; v < s_.vectors; ++v) {
      dot(sum(i, v), column(0, v), weight(2, v, 0), false);
      dot(sum(1 - i, v), column(0, v), weight(0, v, 0), true);
    }
  }

  void finish_scattered(int i) {
    std::array<Zmm, 4> packed;
    for (int v = 0; v < s_.vectors; ++v) {
      requantize(v, {sum(i, v)});
      packed[static_cast<std::size_t>(v)] = sum(i, v);
    }
    finish(packed);
    advance(1);
  }

  /// The oldest column is in set i.
  void window(int i) {
    new_column((i + 2) % 3);
    const auto acc = [&](int r, int v) { return Zmm(2 * r + v); };
    for (int k = 0; k < 3; ++k) {
      for (int v = 0; v < s_.vectors; ++v) {
        for (int r = 0; r < s_.rows; ++r) dot(acc(r, v), column((i + k) % 3, v), weight(k, v, r), k == 0);
      }
    }
    for (int v = 0; v < s_.vectors; ++v) {
      std::vector<Zmm> all;
      for (int r = 0; r < s_.rows; ++r) all.push_back(acc(r, v));
      requantize(v, all);
    }
    if (joined_) {
      finish_rows(acc);
    } else {
      for (int r = 0; r < s_.rows; ++r) finish({acc(r, 0), acc(r, s_.vectors - 1), Zmm(0), Zmm(0)}, r);
    }
    advance(1);
  }

  /// `wide` output columns; the oldest input column is in set `oldest`.
  void pair(int oldest, int wide) {
    for (int x = 0; x < wide; ++x) new_column((oldest + 2 + x) % 4);
    const int accs = s_.rows * wide;
    const auto acc = [&](int j, int v) { return Zmm((v == 0 ? 24 : v % 2 == 1 ? 20 : 16) + j); };
    const auto word = [&](int j) { return Zmm(24 + j); };
    const Zmm w(28);
    for (int v = 0; v <= s_.vectors; ++v) {  // requantized one vector later: what waits for dots would fill the schedulers
      for (int k = 0; k < 3 && v < s_.vectors; ++k) {
        for (int r = 0; r < s_.rows; ++r) {
          c_.vmovdqu64(w, weight_at(k, v, r));
          for (int x = 0; x < wide; ++x) dot(acc(r * wide + x, v), column((oldest + k + x) % 4, v), w, k == 0);
        }
      }
      if (v == 0) continue;
      std::vector<Zmm> all;
      for (int j = 0; j < accs; ++j) all.push_back(acc(j, v - 1));
      requantize(v - 1, all);
      if (v == 2) {
        for (int j = 0; j < accs; ++j) pack_words(word(j), acc(j, 0), acc(j, 1));
      }
    }
    for (int j = 0; j < accs; ++j) {
      pack_words(acc(j, 2), acc(j, 2), acc(j, s_.vectors - 1));
      pack_bytes(word(j), acc(j, 2));
      if (!whole_) c_.vpermd(word(j), order(), word(j));
      store(word(j), j / wide, j % wide);
    }
    advance(wide);
  }

  void requantize(int v, const std::vector<Zmm>& accs) {
    const Requant& q = d_.requant;
    const Zmm m(kValue[form()]), b(kValue[form()] + 1);
    const auto all = [&](auto f) {
      for (const Zmm& a : accs) f(a);
    };
    if (!s_.line) all([&](const Zmm& a) { c_.vpaddd(a, a, value(4, v)); });
    all([&](const Zmm& a) { c_.vcvtdq2ps(a, a); });
    if (s_.line) {
      c_.vmovups(m, value(0, v));
      if (accs.size() > 1) c_.vmovups(b, value(1, v));
      all([&](const Zmm& a) {
        if (accs.size() > 1) {
          c_.vfmadd213ps(a, m, b);
        } else {
          c_.vfmadd213ps(a, m, value(1, v));
        }
      });
      if (q.alpha < 1) all([&](const Zmm& a) { leaky(a, q.alpha, m); });
    } else {
      c_.vmovups(m, value(2, v));
      all([&](const Zmm& a) {
        if (q.bias >= 0 && q.fused) {
          c_.vfmadd213ps(a, m, value(3, v));
        } else {
          c_.vmulps(a, a, m);
          if (q.bias >= 0) c_.vaddps(a, a, value(3, v));
        }
      });
      for (const auto& s : q.steps) {
        const auto imm = pool_.each_lane(std::bit_cast<std::int32_t>(s.constant));
        all([&](const Zmm& a) {
          if (s.op == Op::div) c_.vdivps(a, a, imm);
          if (s.op == Op::sel_lt) leaky(a, s.constant, m);
          if (s.op == Op::max) c_.vmaxps(a, a, imm);
          if (s.op == Op::min) c_.vminps(a, a, imm);
        });
      }
    }
    all([&](const Zmm& a) { c_.vcvtps2dq(a, a); });
  }

  /// y < 0 ? alpha * y : y for alpha in (0, 1), where it is the larger of both.
  void leaky(const Zmm& y, float alpha, const Zmm& free) {
    c_.vmulps(free, y, pool_.each_lane(std::bit_cast<std::int32_t>(alpha)));
    c_.vmaxps(y, y, free);
  }

  void pack_words(const Zmm& to, const Zmm& a, const Zmm& b) {
    c_.vpackssdw(to, a, b);
    if (d_.requant.zero != 0) c_.vpaddsw(to, to, pool_.block(each_word(d_.requant.zero)));
  }

  void pack_bytes(const Zmm& a, const Zmm& other) {
    const Requant& q = d_.requant;
    const std::int32_t lo = s_.line ? q.first : q.lo, hi = s_.line ? q.last : q.hi;
    if (d_.epilogue.pack.is_signed) {
      c_.vpacksswb(a, a, other);
      if (lo > -128) c_.vpmaxsb(a, a, pool_.block(each_byte(lo)));
      if (hi < 127) c_.vpminsb(a, a, pool_.block(each_byte(hi)));
    } else {
      c_.vpackuswb(a, a, other);
      if (lo > 0) c_.vpmaxub(a, a, pool_.block(each_byte(lo)));
      if (hi < 255) c_.vpminub(a, a, pool_.block(each_byte(hi)));
    }
  }

  /// Packs and stores one output row's codes, a vector each.
  void finish(const std::array<Zmm, 4>& a, int r = 0) {
    const auto n = static_cast<std::size_t>(s_.vectors);
    pack_words(a[0], a[0], a[std::min<std::size_t>(1, n - 1)]);
    if (n > 2) pack_words(a[2], a[2], a[n - 1]);
    pack_bytes(a[0], a[n > 2 ? 2 : 0]);
    if (!whole_) c_.vpermd(a[0], order(), a[0]);
    store(a[0], r, 0);
  }

  /// The same of all output rows, side by side in one register.
  template <class F>
  void finish_rows(F acc) {
    const Zmm a = acc(0, 0), last = acc(s_.rows - 1, s_.vectors - 1);
    if (s_.vectors == 1) {
      pack_words(a, a, last);
      pack_bytes(a, a);
    } else {
      pack_words(a, a, acc(0, 1));
      if (s_.rows == 2) pack_words(acc(1, 0), acc(1, 0), last);
      pack_bytes(a, acc(s_.rows - 1, 0));
    }
    c_.vpermd(a, order(), a);
    store(a, 0, 0);
  }

  void store(const Zmm& a, int r, int x) {
    const auto& sinks = d_.epilogue.pack.sinks;
    for (std::size_t k = 0; k < sinks.size(); ++k) {
      const auto& strides = d_.streams.stores[static_cast<std::size_t>(sinks[k].output)].strides;
      const auto to = [&](int rows) {
        return c_.ptr[out(k) + (r + rows) * static_cast<int>(strides[2]) + x * static_cast<int>(strides[3])];
      };
      const Zmm bytes = sinks[k].table < 0 ? a : look_up(sinks[k].table, a);
      if (whole_) {
        c_.vmovdqu64(to(0), bytes);
      } else if (joined_ && s_.vectors == 2) {
        c_.vmovdqu(to(0), Ymm(bytes.getIdx()));
        if (s_.rows == 2) c_.vextracti64x4(to(1), bytes, 1);
      } else if (joined_) {
        c_.vmovdqu(to(0), Xbyak::Xmm(bytes.getIdx()));
        if (s_.rows == 2) c_.vextracti32x4(to(1), bytes, 1);
      } else {
        c_.vmovdqu8(to(0) | c_.k1, bytes);
      }
    }
  }

  void advance(int columns) {
    for (std::size_t k = 0; k < d_.epilogue.pack.sinks.size(); ++k) {
      const auto& ref = d_.streams.stores[static_cast<std::size_t>(d_.epilogue.pack.sinks[k].output)];
      c_.add(out(k), columns * static_cast<int>(ref.strides[3]));
    }
  }

  Zmm look_up(int which, const Zmm& index) {
    const auto& t = d_.epilogue.tables[static_cast<std::size_t>(which)];
    const Zmm low(kValue[form()]), high(kValue[form()] + 1);
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
  const SlidingWindowSetting& d_;
  SlidingWindowShape s_;
  bool whole_;
  bool joined_;  ///< 16 or 32 channels: rows side by side in one register
  Form form_;
  const Reg64 columns_ = Xbyak::util::rax, count_ = Xbyak::util::rbp, weights_ = Xbyak::util::r15, values_ = Xbyak::util::rdi;
  std::deque<std::pair<Xbyak::Label, Xbyak::Label>> switches_;
  int held_ = -1;  ///< the table in registers kHeld and kHeld + 1
};

}  // namespace

std::size_t emit_sliding_window(Code& c, ConstantPool& pool, const SlidingWindowSetting& plan, const SlidingWindowShape& shape) {
  c.align(64);
  const std::size_t start = c.getSize();
  SlidingWindow(c, pool, plan, shape).emit();
  return start;
}

}  // namespace octavo::cpu::jit
