// A tile's epilogue as a sequence of steps: which constants stay in registers, in which order vectors are evaluated, which are
// packed together.
#include <algorithm>
#include <cstddef>

#include "cpu/jit/emitter.h"

namespace octavo::cpu::jit {
namespace {

using program::Op;

/// Operations from which on vectors are evaluated in step.
constexpr int kLongProgram = 8;

bool is_imm(Op op) {
  return op == Op::imm_i || op == Op::imm_f;
}
bool is_load(Op op) {
  return op == Op::load_i || op == Op::load_f;
}

/// Values that may wait to be packed where no accumulator register holds them.
constexpr int kValuesAhead = 12;

}  // namespace

int Emitter::width() const {
  const std::size_t n = e_.code.size();
  std::vector<int> change(n + 1, 0);  // of how many are live, from one instruction to the next
  for (std::size_t v = 0; v < n; ++v) {
    const auto& u = uses_[v];
    if (is_imm(e_.code[v].op) || u.empty() || u.back() <= static_cast<int>(v)) continue;
    ++change[v];
    --change[std::min(static_cast<std::size_t>(u.back()), n)];
  }
  int most = 0, live = 0;
  for (const int by : change) most = std::max(most, live += by);
  return most;
}

/// How often each value is wanted where an instruction cannot read memory.
std::vector<int> Emitter::wanted_in_registers() const {
  std::vector<int> must(e_.code.size(), 0);
  const auto in_memory = [&](int a) {
    return is_imm(e_.code[static_cast<std::size_t>(a)].op) || is_load(e_.code[static_cast<std::size_t>(a)].op);
  };
  for (const Instr& in : e_.code) {
    const auto count = [&](int a) {
      if (in_memory(a)) ++must[static_cast<std::size_t>(a)];
    };
    if (in.args[0] < 0) continue;
    if (in.special == Special::add_down) {
      count(in.args[1]);
    } else if (in.reversed) {
      count(in.args[1]);
    } else if (in.op == Op::fma) {
      if (in_memory(in.args[0])) {
        count(in.args[0]);
      } else if (in_memory(in.args[1]) && in_memory(in.args[2])) {
        count(in.args[1]);
      }
    } else if (in.op == Op::sel_lt || in.op == Op::sel_eq) {
      count(in.args[0]);
      count(in.args[3]);
    } else if (!commutes(in.op) || in_memory(in.args[1])) {
      count(in.args[0]);
    }
  }
  for (std::size_t i = 0; i < e_.code.size(); ++i) {  // 8- and 16-bit operands are converted on every use; AVX2 has no {1to8}
    if (!is_load(e_.code[i].op)) continue;
    const auto t = operand_of(static_cast<int>(i)).dtype;
    const bool broadcast = operand_of(static_cast<int>(i)).access == OperandAccess::uniform ||
                           operand_of(static_cast<int>(i)).access == OperandAccess::pixel;
    if ((t != ir::DType::f32 && t != ir::DType::s32) || (broadcast && !wide())) ++must[i];
  }
  return must;
}

// Constants that every pixel needs go to registers for the whole tile while registers last: first what would need a load of its
// own, then the pack order, then per-channel operands (for one vector at a time: the tile is then walked vector by vector), then
// the rest.
void Emitter::hoist(int lanes) {
  hoisted_.clear();
  channel_values_.clear();
  order_reg_ = -1;
  loaded_vector_ = -1;
  int budget = static_cast<int>(free_.size()) - std::max(3, lanes * (width() - 1) + 3);
  if (tile_.in_memory && wide()) budget -= tight_ ? lanes : kValuesAhead;
  if (tile_.pixels == 1) return;
  const auto grab = [&] {
    const int r = free_.back();
    free_.pop_back();
    --budget;
    return r;
  };
  const auto must = wanted_in_registers();
  const auto invariants = [&](bool only_wanted) {
    for (std::size_t i = 0; i < e_.code.size(); ++i) {
      const int value = static_cast<int>(i);
      const Instr& in = e_.code[i];
      const bool invariant = is_imm(in.op) || (is_load(in.op) && operand_of(value).access == OperandAccess::uniform);
      if (!invariant || uses_[i].empty() || hoisted_.count(value) != 0 || budget <= 0 || (only_wanted && must[i] == 0)) continue;
      const int r = grab();
      if (in.block >= 0) {
        c_.vmovaps(Xbyak::Zmm(r), pool_.block(block_bytes(in.block)));
      } else if (is_imm(in.op)) {
        c_.vpbroadcastd(reg(r), pool_.one(in.imm));
      } else {
        load_into(r, value, 0, 0);
      }
      hoisted_[value] = r;
    }
  };
  invariants(true);
  if (!e_.pack.sinks.empty() && budget > 0) {
    order_reg_ = grab();
    load_order(order_reg_);
  }
  for (bool wanted : {true, false}) {
    if (tight_ && tile_.vectors > 1) break;  // results of all pixels would wait for the last vector
    for (std::size_t i = 0; i < e_.code.size(); ++i) {
      const int value = static_cast<int>(i);
      if (!is_load(e_.code[i].op) || uses_[i].empty() || operand_of(value).access != OperandAccess::channel) continue;
      if (hoisted_.count(value) != 0 || budget <= 0 || (must[i] > 0) != wanted) continue;
      hoisted_[value] = grab();
      channel_values_.push_back(value);
    }
  }
  invariants(false);
}

/// How many vectors are evaluated in step: more than one only for programs long enough that waiting for results is the limit.
int Emitter::lanes_for(bool few_pointers) const {
  if (tight_) return tile_.vectors == 3 ? 3 : 4;  // what is packed together
  if ((few_pointers && !tile_.in_memory) || e_.operations() < kLongProgram) return 1;
  const int each = std::max(1, width() - 1), spare = 3 + (tile_.in_memory && wide() ? kValuesAhead : 0);
  return std::clamp((static_cast<int>(free_.size()) - spare) / each, 1, e_.window > 0 ? 4 : kLanes);
}

void Emitter::begin(const Tile& tile, int free_first, bool few_pointers) {
  tile_ = tile;
  free_.clear();
  for (int r = e_.registers() - 1; r >= free_first; --r) free_.push_back(r);
  pointers_.assign(few_pointers ? few_ : 12, {});
  groups_.clear();
  steps_.clear();
  if (!few_pointers) c_.mov(c_.rsi, c_.ptr[c_.rdi + kArgsTable]);
  tight_ = tile.in_memory && wide() && free_.size() < 24;
  const int lanes = lanes_for(few_pointers);
  hoist(lanes);
  // Four vectors share a pack: one pixel of 3 or 4 vectors, two of 2, four of 1.
  const int together = e_.pack.sinks.empty() || tile.vectors > 2 ? 1 : 4 / tile.vectors;
  for (int p = 0; p < tile.pixels; ++p) {
    if (p % together == 0) groups_.emplace_back();
    for (int v = 0; v < tile.vectors; ++v) groups_.back().members.emplace_back(p, v);
  }
  const auto last_of_group = [&](int p) { return p + 1 == tile.pixels || (p + 1) % together == 0; };
  std::vector<Member> waiting;
  std::vector<std::size_t> full;
  const auto flush = [&] {
    if (!waiting.empty()) steps_.push_back({waiting, 0});
    for (const auto group : full) steps_.push_back({{}, group});
    waiting.clear();
    full.clear();
  };
  const auto add = [&](int p, int v, bool last_vector) {
    const auto group = static_cast<std::size_t>(p / together);
    waiting.push_back({group, (p % together) * tile.vectors + v});
    if (last_vector && last_of_group(p) && !e_.pack.sinks.empty()) full.push_back(group);
    if (static_cast<int>(waiting.size()) == lanes) flush();
  };
  if (channel_values_.empty()) {
    for (int p = 0; p < tile.pixels; ++p) {
      for (int v = 0; v < tile.vectors; ++v) add(p, v, v + 1 == tile.vectors);
    }
  } else {
    // Accumulators in memory: a few pixels at a time, since every value waits for its group in a register of its own.
    const int chunk = tile.in_memory ? std::max(1, kValuesAhead / tile.vectors / together) * together : tile.pixels;
    for (int first = 0; first < tile.pixels; first += chunk) {
      for (int v = 0; v < tile.vectors; ++v) {
        for (int p = first; p < std::min(first + chunk, tile.pixels); ++p) add(p, v, v + 1 == tile.vectors);
        flush();  // the next vector has other channel values
      }
    }
  }
  flush();
}

void Emitter::step(int i) {
  const Step& s = steps_[static_cast<std::size_t>(i)];
  if (s.members.empty()) {
    pack(groups_[s.group]);
    if (between_) between_();
    return;
  }
  const Member& first = s.members.front();
  const int v = groups_[first.group].members[static_cast<std::size_t>(first.member)].second;
  if (v != loaded_vector_) {
    for (int value : channel_values_) {
      if (const auto it = hoisted_.find(value); it != hoisted_.end()) load_into(it->second, value, 0, v);
    }
    loaded_vector_ = v;
  }
  evaluate(s.members);
}

bool Emitter::wants_registers() const {
  if (wide()) return false;
  const auto needs_more = [](const Instr& i) {
    return i.op == Op::sel_lt || i.op == Op::sel_eq || i.op == Op::to_f16 || i.op == Op::to_bf16 || i.op == Op::table;
  };
  const auto converted = [](const Stream& s) { return ir::size_of(s.dtype) < 4; };
  return is_long() || width() > 2 || std::any_of(e_.code.begin(), e_.code.end(), needs_more) ||
         std::any_of(e_.stores.begin(), e_.stores.end(), converted);
}

int Emitter::rows() const {
  int n = 0;
  for (const Step& s : steps_) n += s.members.empty() ? 1 : static_cast<int>(e_.operations());
  return n;
}

void Emitter::emit(const Tile& tile) {
  begin(tile, tile.first + tile.accs(), false);
  for (int i = 0; i < steps(); ++i) step(i);
}

/// Constants of instruction i that no register holds are loaded once for all lanes, as far as registers are free.
std::vector<int> Emitter::share_constants(int i, int lanes) {
  std::vector<int> shared;
  for (const int a : e_.code[static_cast<std::size_t>(i)].args) {
    if (a < 0 || lanes == 1 || free_.size() < 3) break;
    const Op op = e_.code[static_cast<std::size_t>(a)].op;
    if (!is_imm(op) && !(is_load(op) && operand_of(a).access == OperandAccess::uniform)) continue;
    set_lane(0);
    if (place(a).reg >= 0) continue;
    const int r = in_register(a);
    hoisted_[a] = r;
    for (int lane = 0; lane < lanes; ++lane) {
      set_lane(lane);
      place(a).reg = r;
      place(a).hoisted = true;
    }
    shared.push_back(a);
  }
  return shared;
}

void Emitter::unshare(const std::vector<int>& values) {
  for (const int value : values) {
    const auto it = hoisted_.find(value);
    if (it == hoisted_.end()) continue;  // given up for lack of registers
    const int r = it->second;
    drop_hoisted(value);
    release(r);
  }
}

void Emitter::evaluate(const std::vector<Member>& lanes) {
  const int count = static_cast<int>(lanes.size()), n = static_cast<int>(e_.code.size());
  place_sources(count);
  for (std::size_t k = 0; k < lanes.size(); ++k)
    at_[k] = groups_[lanes[k].group].members[static_cast<std::size_t>(lanes[k].member)];
  bool acc_used = false;
  for (now_ = 0; now_ < n; ++now_) {
    const Instr& in = e_.code[static_cast<std::size_t>(now_)];
    const bool is_acc = in.op == Op::acc_i || in.op == Op::acc_f;
    acc_used |= is_acc;
    if (is_imm(in.op) || is_load(in.op)) continue;
    const auto shared = is_acc ? std::vector<int>{} : share_constants(now_, count);
    for (int lane = 0; lane < count; ++lane) {
      set_lane(lane);
      if (is_acc && tile_.in_memory) {
        place(now_).home = Home::accumulator;
        continue;
      }
      if (is_acc) {
        const int acc = tile_.acc(p_, v_);
        place(now_).reg = acc;
        owner_[static_cast<std::size_t>(acc)] = now_;
        lane_of_[static_cast<std::size_t>(acc)] = lane;
        continue;
      }
      compute(now_);
      for (int a : in.args) {  // what ended here and was not reused
        if (a < 0 || !dies(a)) continue;
        Place& pl = place(a);
        if (pl.reg < 0 || pl.hoisted) continue;
        release(pl.reg);
        pl.reg = -1;
      }
      pinned_.fill(false);
    }
    unshare(shared);
    if (between_ && !is_acc) between_();
  }
  now_ = n;
  for (int lane = 0; lane < count; ++lane) {
    set_lane(lane);
    if (!acc_used && !tile_.in_memory) release(tile_.acc(p_, v_));
    const Member& m = lanes[static_cast<std::size_t>(lane)];
    const int r = finish_lane();
    if (r >= 0) groups_[m.group].regs[static_cast<std::size_t>(m.member)] = r;
  }
}

}  // namespace octavo::cpu::jit
