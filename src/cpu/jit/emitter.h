// Emits a lowered epilogue program for a tile of pixels x vectors whose accumulators are in registers: vectors of 16 channels in zmm, or
// of 8 in ymm (LoweredEpilogue::lanes; AVX2), where masks are vectors and half as many registers are there.
//
// Registers: rdi = TileArgs*, kept. rsp points at stack_bytes() of spill space. Every other general register, k1..k5 and every zmm
// may be changed. Order of lanes: lane i of vector v is channel lanes * v + i of the block.
#pragma once

#define XBYAK_NO_OP_NAMES
#include <xbyak/xbyak.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "cpu/jit/lower.h"
#include "cpu/jit/recorded.h"

namespace octavo::cpu::jit {

/// What generated tile functions receive. They advance table and count, and use `walk`, `walk_end` as they like.
struct TileArgs {
  const std::int32_t* table = nullptr;  ///< pixel table: LoweredEpilogue::columns byte offsets a pixel
  std::int64_t tiles = 0;               ///< >= 1
  const std::byte* x = nullptr;
  const std::byte* weights = nullptr;
  const std::int32_t* init = nullptr;  ///< first accumulator values of the block's channels
  const std::byte* walk_end = nullptr;
  const std::int64_t* walk = nullptr;
  std::array<std::byte*, kMaxStreams>
      stream{};                      ///< operands, then stores: address of (first pixel's base, first channel of the block)
  const std::byte* ahead = nullptr;  ///< where the weights that come next begin; fetched bit by bit, never read
};
// Where generated code finds them.
inline constexpr int kArgsTable = offsetof(TileArgs, table), kArgsTiles = offsetof(TileArgs, tiles), kArgsX = offsetof(TileArgs, x),
                     kArgsWeights = offsetof(TileArgs, weights), kArgsInit = offsetof(TileArgs, init),
                     kArgsWalkEnd = offsetof(TileArgs, walk_end), kArgsWalk = offsetof(TileArgs, walk),
                     kArgsStream = offsetof(TileArgs, stream), kArgsAhead = offsetof(TileArgs, ahead);
using TileFn = void (*)(TileArgs*);

class Code : public Xbyak::CodeGenerator {
 public:
  Code() : CodeGenerator(1 << 16, Xbyak::AutoGrow) {}
  /// The code is finished: it gets its final addresses, and its pages become executable and read only.
  void finish() {
    ready(Xbyak::CodeArray::PROTECT_RE);
    RecordCode::finished(reinterpret_cast<const std::byte*>(getCode()), getSize());
  }
};

/// Register i of vectors of 16 lanes, or of 8.
[[nodiscard]] inline Xbyak::Xmm vector_register(int lanes, int i) {
  return lanes == 16 ? Xbyak::Xmm(Xbyak::Operand::ZMM, i) : Xbyak::Xmm(Xbyak::Operand::YMM, i);
}

struct Tile {
  int pixels = 1, vectors = 1;
  int lanes = 16;          ///< LoweredEpilogue::lanes
  int tail = lanes;        ///< channels in the last vector, 1..lanes
  int first = 0;           ///< zmm of pixel 0, vector 0
  bool in_memory = false;  ///< accumulators are int32 at [r15 + place()]
  int rows = 0, skip = 0;  ///< of amx_code.h
  bool operator==(const Tile&) const = default;
  [[nodiscard]] int acc(int p, int v) const { return first + p * vectors + v; }  ///< zmm index
  [[nodiscard]] int accs() const { return pixels * vectors; }
  [[nodiscard]] int place(int p, int v) const { return (p * vectors + v) * 64; }
};

/// All bits to zero.
void clear(Code& c, const Xbyak::Xmm& register_);
/// Callee-saved registers and spill space around a generated function. Clobbers rax.
void enter(Code& c, int stack_bytes);
void leave(Code& c, int stack_bytes);

/// The first `tail` of eight codes as dwords of ymm `reg`, one by one, so that nothing behind them is read.
void load_codes_tail(Code& c, int reg, const Xbyak::Address& from, int tail);

/// A block of the constant pool: the value in every 32 bits.
[[nodiscard]] std::array<std::uint8_t, 64> each_dword(std::int32_t value);
/// The mask of AVX2 for a last vector of `tail` channels.
[[nodiscard]] std::array<std::uint8_t, 64> first_dwords(int tail);

/// Read-only data behind the code, reached relative to rip.
class ConstantPool {
 public:
  explicit ConstantPool(Code& code, int lanes = 16) : c_(code), lanes_(lanes) {}
  /// As an operand of vectors: {1to16}, or the bytes eight times.
  Xbyak::Address each_lane(std::int32_t bits) {
    if (lanes_ == 16) return c_.ptr_b[c_.rip + dwords_[bits]];
    return c_.ptr[c_.rip + blocks_[each_dword(bits)]];
  }
  Xbyak::Address one(std::int32_t bits) { return c_.ptr[c_.rip + dwords_[bits]]; }  ///< the four bytes
  Xbyak::Address block(const std::array<std::uint8_t, 64>& v) { return c_.ptr[c_.rip + blocks_[v]]; }
  /// `wide`: 256 int32 entries, for gathers. Otherwise 256 bytes.
  Xbyak::Address table(const program::Table& t, bool wide, int byte_offset) {
    return c_.ptr[c_.rip + tables_[{t, wide}] + byte_offset];
  }
  void emit();  ///< once, after the last instruction

 private:
  Code& c_;
  int lanes_;
  std::map<std::int32_t, Xbyak::Label> dwords_;
  std::map<std::array<std::uint8_t, 64>, Xbyak::Label> blocks_;
  std::map<std::pair<program::Table, bool>, Xbyak::Label> tables_;
};

/// Blocks of the constant pool: the low byte, or the low 16 bits, of a value everywhere.
[[nodiscard]] std::array<std::uint8_t, 64> each_byte(std::int32_t value);
[[nodiscard]] std::array<std::uint8_t, 64> each_word(std::int32_t value);
/// Index that swaps dwords 4 a + b and 4 b + a. After two rounds of in-lane packs, dword 4 L + v holds lane L of vector v: this
/// puts vector v's lanes together, and before in-lane unpacks it does the reverse.
[[nodiscard]] std::array<std::uint8_t, 64> natural_order();
/// Index of byte 2 of each dword of two vectors.
[[nodiscard]] std::array<std::uint8_t, 64> third_bytes();

/// Tables often have one half that is one value (what relu cuts off): indices are clamped to the other half, and half the work is
/// left.
struct HalfTable {
  int offset = -1;         ///< of the half that is looked up; -1: both are needed
  std::uint8_t bound = 0;  ///< indices are clamped to it
  static HalfTable of(const program::Table& t) {
    const auto all = [&](std::size_t first, std::size_t last) {
      return std::all_of(t.begin() + static_cast<std::ptrdiff_t>(first), t.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                         [&](std::uint8_t v) { return v == t[first]; });
    };
    if (all(0, 128)) return {128, 128};
    if (all(127, 255)) return {0, 127};
    return {};
  }
};

class Emitter {
 public:
  Emitter(Code& code, ConstantPool& pool, const LoweredEpilogue& epilogue, bool vbmi);

  [[nodiscard]] int stack_bytes() const { return kLanes * static_cast<int>(e_.code.size()) * 64; }
  /// Sets the tail masks k1 (dwords of the last vector) and k3 (bytes of a pixel), and constants in k4 and k5. Once a function.
  void masks(const Tile& tile);
  /// Once, behind the last instruction of the functions that it was used for: what they jump to where a curve leaves a code open.
  void finish();
  /// The epilogue of one tile; reads the table at [rdi + table].
  void emit(const Tile& tile);
  /// The same in pieces, between which the caller may emit instructions that touch none of the registers given here: zmm
  /// `free_first`..31, the tile's accumulators, rsi, rbx, rcx, rdx, rbp, and r8..r15 unless `few_pointers`. With few
  /// pointers rsi must hold the address of the tile's table entries already, and stays. rax and k2 hold nothing from piece to
  /// piece.
  void begin(const Tile& tile, int free_first, bool few_pointers);
  /// `few`: 4, or 2, which leaves rcx and rdx to the caller.
  void few_pointers(std::size_t few) { few_ = few; }
  [[nodiscard]] int steps() const { return static_cast<int>(steps_.size()); }
  void step(int i);
  /// Between steps: the caller has changed registers of addresses (rbx, rcx, rdx, rbp).
  void forget_pointers() { pointers_.assign(pointers_.size(), {}); }
  /// Called between instructions of a step that do not depend on each other's registers: rows() times in all steps.
  void between(std::function<void()> f) { between_ = std::move(f); }
  /// With 16 registers: the accumulators of a tile go to memory first, and all registers are the epilogue's.
  [[nodiscard]] bool wants_registers() const;
  [[nodiscard]] int rows() const;
  /// Long enough that vectors are evaluated in step with registers of their own (kManyOperations).
  [[nodiscard]] bool is_long() const { return e_.operations() >= kManyOperations; }
  /// Values that are live together at most, constants not counted.
  [[nodiscard]] int width() const;

 private:
  /// Where a value is. `home`: where it can be fetched again without a spill store.
  enum class Home : std::uint8_t { none, constant, memory, stack, accumulator };
  struct Place {
    int reg = -1;
    Home home = Home::none;
    bool hoisted = false;
  };

  /// Vectors that are evaluated in step, instruction by instruction: a long program is a chain of dependent instructions, and the
  /// scheduler holds only so many that wait (docs/lab/kernels.md).
  static constexpr int kLanes = 6;
  /// (group, member) of groups_.
  struct Member {
    std::size_t group = 0;
    int member = 0;
  };

  // emitter.cc: values and registers
  void place_sources(int lanes);
  void set_lane(int lane);
  int finish_lane();
  void drop_hoisted(int value);
  void compute(int i);
  [[nodiscard]] std::array<std::uint8_t, 64> block_bytes(int block) const;
  // emitter_tile.cc: the order of work
  void evaluate(const std::vector<Member>& lanes);  ///< the registers of the packed values go to the groups
  std::vector<int> share_constants(int i, int lanes);
  void unshare(const std::vector<int>& values);
  void hoist(int lanes);
  [[nodiscard]] int lanes_for(bool few_pointers) const;
  [[nodiscard]] std::vector<int> wanted_in_registers() const;
  int take(int value);
  void release(int reg);
  int in_register(int value);
  template <class F>
  void with_source(int value, F f);
  int destination(int i, std::initializer_list<int> args);
  [[nodiscard]] bool dies(int value) const;
  [[nodiscard]] int next_use(int value) const { return use_from(value, now_ + 1); }
  [[nodiscard]] int use_from(int value, int first) const;
  [[nodiscard]] Place& place(int value) { return places_[static_cast<std::size_t>(lane_)][static_cast<std::size_t>(value)]; }
  [[nodiscard]] int slot(int lane, int value) const { return (lane * static_cast<int>(e_.code.size()) + value) * 64; }

  // emitter_ops.cc: instruction sequences
  void load_into(int reg, int value, int p, int v);
  void load_order(int reg);
  void table(int dst, int index, int which);
  void canonical_nan(int dst, int src);
  void round_bf16(int dst, int src);
  void store(int j, int reg);
  /// Vectors that are packed together, and the registers that their values ended in.
  struct Group {
    std::vector<std::pair<int, int>> members;  ///< (pixel, vector)
    std::array<int, 4> regs{-1, -1, -1, -1};
  };
  void pack(const Group& group);
  void pack_written(const Group& group);
  int look_up(int which, int index);
  void store_packed(const Group& group, int j, int out);
  Xbyak::Reg64 pointer(int stream, int pixel);
  Xbyak::Address element(int stream, int p, int v);
  [[nodiscard]] bool masked(int v) const { return v == tile_.vectors - 1 && tile_.tail != tile_.lanes; }
  [[nodiscard]] Xbyak::Xmm reg(int i) const { return vector_register(e_.lanes, i); }
  [[nodiscard]] bool wide() const { return e_.lanes == 16; }
  void load_narrow_tail(int reg, ir::DType type, const Xbyak::Address& from);
  void store_narrow_tail(const Xbyak::Address& to, int reg, int bytes_each);
  void store_tail(const Xbyak::Address& to, int reg);
  void store_bytes(const Xbyak::Address& to, int reg);

  /// A curve's m and b are there for whole vectors, and must be: a lane without a channel has no open code.
  [[nodiscard]] bool padded(int value) const { return e_.window > 0 && e_.code[static_cast<std::size_t>(value)].imm < 2; }
  [[nodiscard]] const Stream& operand_of(int value) const {
    return e_.operands[static_cast<std::size_t>(e_.code[static_cast<std::size_t>(value)].imm)];
  }

  Code& c_;
  ConstantPool& pool_;
  const LoweredEpilogue& e_;
  bool vbmi_;

  Tile tile_;
  int p_ = 0, v_ = 0, now_ = 0;
  std::vector<std::vector<int>> uses_;  ///< instructions that read each value; code.size() stands for the outputs
  std::array<std::vector<Place>, kLanes> places_;
  std::array<std::pair<int, int>, kLanes> at_{};  ///< (pixel, vector) of each lane
  int lane_ = 0;
  std::map<int, int> hoisted_;       ///< value -> zmm, for the whole tile
  std::vector<int> channel_values_;  ///< of those, per-channel operands: reloaded when the vector changes
  int loaded_vector_ = -1;
  std::vector<int> free_;
  std::array<int, 32> owner_{};    ///< value in each zmm; -1: not ours to move
  std::array<int, 32> lane_of_{};  ///< whose value it is; hoisted ones are everybody's
  std::array<bool, 32> pinned_{};
  int order_reg_ = -1;  ///< the pack permutation, when hoisted
  /// Addresses in general registers: the stream's, for one pixel (-1: for all).
  struct Pointer {
    int stream = -1, pixel = -1, last_use = 0;
  };
  std::vector<Pointer> pointers_;
  std::size_t few_ = 4;
  int clock_ = 0;
  std::vector<Group> groups_;
  struct Step {
    std::vector<Member> members;  ///< evaluated in step; empty: pack the group
    std::size_t group = 0;
  };
  std::vector<Step> steps_;
  bool tight_ = false;  ///< accumulators in memory, and other code's in the registers: results must not wait for each other
  std::function<void()> between_;
  /// A group that is computed as written.
  struct Open {
    Xbyak::Label from, to;
    int pixel = 0, pixels = 0;
    Tile tile;
  };
  std::list<Open> open_;
  Open& open_curve(const Group& group);
  void emit_written(const Tile& tile);
};

}  // namespace octavo::cpu::jit
