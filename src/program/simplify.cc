// Exact clean-ups, repeated until nothing changes: fold constants by the oracle, merge equal sub-expressions, drop dead code, then
// turn slices between two code values into tables. Every step keeps the outputs' bits (NaN payloads aside, which no output shows).
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "program/interval.h"
#include "program/program.h"

namespace octavo::program {
namespace {

constexpr int kConstant = -1;  // depends on immediates only
constexpr int kMany = -2;      // depends on a source that is no code, or on two codes

bool is_immediate(const Instr& i) {
  return i.op == Op::imm_i || i.op == Op::imm_f;
}
bool is_source(const Instr& i) {
  return i.op == Op::acc_i || i.op == Op::acc_f || i.op == Op::load_i || i.op == Op::load_f;
}

/// Rebuilds a program instruction by instruction, folding and merging on the way.
class Builder {
 public:
  explicit Builder(const Program& from) : from_(from) { out_.operand_count = from.operand_count; }

  int add(Instr instr) {
    if (commutes(instr.op) && instr.args[0] > instr.args[1]) std::swap(instr.args[0], instr.args[1]);
    if (instr.op == Op::table) instr.imm = table_index(from_.tables[static_cast<std::size_t>(instr.imm)]);
    if (const auto same = identity(instr)) return *same;
    if (const auto value = fold(instr)) instr = {info(instr.op).result == 'i' ? Op::imm_i : Op::imm_f, {-1, -1, -1, -1}, *value};
    const auto [it, fresh] = seen_.try_emplace({instr.op, instr.args, instr.imm}, static_cast<int>(out_.code.size()));
    if (fresh) out_.code.push_back(instr);
    return it->second;
  }
  int add_table(const Table& table, int arg) {
    const int k = table_index(table);
    const auto [it, fresh] = seen_.try_emplace({Op::table, {arg, -1, -1, -1}, k}, static_cast<int>(out_.code.size()));
    if (fresh) out_.code.push_back({Op::table, {arg, -1, -1, -1}, k});
    return it->second;
  }
  Program finish(std::vector<Output> outputs) {
    out_.outputs = std::move(outputs);
    return std::move(out_);
  }

 private:
  [[nodiscard]] const Instr& at(int v) const { return out_.code[static_cast<std::size_t>(v)]; }
  [[nodiscard]] bool is_imm(int v, Op op, std::int32_t value) const { return at(v).op == op && at(v).imm == value; }

  int table_index(const Table& table) {
    const auto at_index = static_cast<std::size_t>(std::find(out_.tables.begin(), out_.tables.end(), table) - out_.tables.begin());
    if (at_index == out_.tables.size()) out_.tables.push_back(table);
    return static_cast<int>(at_index);
  }
  /// The value that `instr` is always equal to, if one exists already.
  [[nodiscard]] std::optional<int> identity(const Instr& instr) const {
    const auto [a, b, c, d] = instr.args;
    const std::int32_t one = std::bit_cast<std::int32_t>(1.0F);
    switch (instr.op) {
      case Op::add_i:
      case Op::or_i: return is_imm(a, Op::imm_i, 0) ? std::optional(b) : is_imm(b, Op::imm_i, 0) ? std::optional(a) : std::nullopt;
      case Op::sub_i: return is_imm(b, Op::imm_i, 0) ? std::optional(a) : std::nullopt;
      case Op::max_i:
      case Op::min_i: return a == b ? std::optional(a) : std::nullopt;
      case Op::shl_i:
      case Op::sra_i: return instr.imm == 0 ? std::optional(a) : std::nullopt;
      case Op::mul:
        return is_imm(a, Op::imm_f, one) ? std::optional(b) : is_imm(b, Op::imm_f, one) ? std::optional(a) : std::nullopt;
      case Op::div: return is_imm(b, Op::imm_f, one) ? std::optional(a) : std::nullopt;
      case Op::sel_lt:
      case Op::sel_eq: {
        if (c == d) return c;
        if (at(a).op != Op::imm_f || at(b).op != Op::imm_f) return std::nullopt;
        const auto x = std::bit_cast<float>(at(a).imm), y = std::bit_cast<float>(at(b).imm);
        return (instr.op == Op::sel_lt ? x < y : x == y) ? c : d;
      }
      default: return std::nullopt;
    }
  }
  /// The constant that `instr` computes from immediates. f2i outside int32 is not folded: devices differ there.
  [[nodiscard]] std::optional<std::int32_t> fold(const Instr& instr) const {
    if (is_source(instr) || is_immediate(instr)) return std::nullopt;
    std::array<Scalar, 4> v{};
    for (std::size_t k = 0; k < info(instr.op).operands.size(); ++k) {
      const Instr& arg = at(instr.args[k]);
      if (!is_immediate(arg)) return std::nullopt;
      v[k].i = arg.imm;
    }
    if (instr.op == Op::f2i && !(std::fabs(v[0].f) < 2147483648.0F)) return std::nullopt;
    return evaluate_op(out_, instr, v[0], v[1], v[2], v[3]).i;
  }

  const Program& from_;
  Program out_;
  std::map<std::tuple<Op, std::array<int, 4>, std::int32_t>, int> seen_;
};

Instr remapped(Instr instr, const std::vector<int>& map) {
  for (int& arg : instr.args) {
    if (arg >= 0) arg = map[static_cast<std::size_t>(arg)];
  }
  return instr;
}

std::vector<Output> remapped(std::vector<Output> outputs, const std::vector<int>& map) {
  for (Output& out : outputs) out.value = map[static_cast<std::size_t>(out.value)];
  return outputs;
}

std::vector<char> live_values(const Program& p) {
  std::vector<char> live(p.code.size(), 0);
  for (const Output& out : p.outputs) live[static_cast<std::size_t>(out.value)] = 1;
  for (std::size_t i = p.code.size(); i-- > 0;) {
    for (const int arg : p.code[i].args) {
      if (live[i] && arg >= 0) live[static_cast<std::size_t>(arg)] = 1;
    }
  }
  return live;
}

/// Folds, merges and drops dead code.
Program tidy(const Program& p) {
  const std::vector<char> live = live_values(p);
  Builder b(p);
  std::vector<int> map(p.code.size(), -1);
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    if (live[i]) map[i] = b.add(remapped(p.code[i], map));
  }
  return b.finish(remapped(p.outputs, map));
}

/// For each value the one code value that it is a function of, or kConstant or kMany. A code value that depends on many is its own
/// root.
std::vector<int> find_roots(const Program& p, const std::vector<Interval>& intervals) {
  std::vector<int> root(p.code.size(), kMany);
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    int found = is_source(instr) ? kMany : kConstant;
    for (const int arg : instr.args) {
      const int r = arg < 0 ? kConstant : root[static_cast<std::size_t>(arg)];
      if (r != kConstant) found = found == kConstant || found == r ? r : kMany;
    }
    if (found == kMany && info(instr.op).result == 'i' && intervals[i].is_code()) found = static_cast<int>(i);
    root[i] = found;
  }
  return root;
}

struct Slice {
  Table table{};
  int operations = 0;  ///< between root and value, the value's own included
  bool has_table = false;
};

/// Evaluates `value` for every code of `root`. Codes that the root cannot take get the entry of the nearest one that it can, so
/// that the table does not depend on how the slice was written.
Slice tabulate(const Program& p, int root, int value, const Interval& range) {
  std::vector<char> needed(p.code.size(), 0);
  needed[static_cast<std::size_t>(value)] = 1;
  Slice s;
  for (int i = value; i > root; --i) {
    const Instr& instr = p.code[static_cast<std::size_t>(i)];
    if (!needed[static_cast<std::size_t>(i)] || is_immediate(instr)) continue;
    ++s.operations;
    s.has_table |= instr.op == Op::table;
    for (const int arg : instr.args) {
      if (arg >= 0) needed[static_cast<std::size_t>(arg)] = 1;
    }
  }
  std::vector<Scalar> v(p.code.size());
  for (int i = 0; i < root; ++i)
    v[static_cast<std::size_t>(i)].i = p.code[static_cast<std::size_t>(i)].imm;  // immediates before the root
  for (int code = 0; code < 256; ++code) {
    v[static_cast<std::size_t>(root)].i = std::clamp(code, static_cast<int>(range.lo), static_cast<int>(range.hi));
    for (int i = root + 1; i <= value; ++i) {
      const Instr& instr = p.code[static_cast<std::size_t>(i)];
      if (is_immediate(instr)) v[static_cast<std::size_t>(i)].i = instr.imm;
      if (!needed[static_cast<std::size_t>(i)] || is_immediate(instr)) continue;
      const auto arg = [&](std::size_t k) { return instr.args[k] < 0 ? Scalar{} : v[static_cast<std::size_t>(instr.args[k])]; };
      v[static_cast<std::size_t>(i)] = evaluate_op(p, instr, arg(0), arg(1), arg(2), arg(3));
    }
    s.table[static_cast<std::size_t>(code)] = static_cast<std::uint8_t>(v[static_cast<std::size_t>(value)].i);
  }
  return s;
}

bool is_identity(const Table& t, const Interval& range) {
  for (int code = static_cast<int>(range.lo); code <= static_cast<int>(range.hi); ++code) {
    if (t[static_cast<std::size_t>(code)] != code) return false;
  }
  return true;
}

Program make_tables(const Program& p, const std::vector<bool>& operand_is_u8) {
  const std::vector<Interval> intervals = find_intervals(p, operand_is_u8);
  const std::vector<int> roots = find_roots(p, intervals);
  Builder b(p);
  std::vector<int> map(p.code.size(), -1);
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    const int root = roots[i];
    if (root >= 0 && root != static_cast<int>(i) && info(p.code[i].op).result == 'i' && intervals[i].is_code()) {
      const Interval& range = intervals[static_cast<std::size_t>(root)];
      const Slice s = tabulate(p, root, static_cast<int>(i), range);
      const int from = map[static_cast<std::size_t>(root)];
      if (is_identity(s.table, range)) {
        map[i] = from;
        continue;
      }
      if (s.operations > 2 || (s.has_table && s.operations == 2)) {
        map[i] = b.add_table(s.table, from);
        continue;
      }
    }
    map[i] = b.add(remapped(p.code[i], map));
  }
  return b.finish(remapped(p.outputs, map));
}

}  // namespace

Program simplify(const Program& p, const std::vector<bool>& operand_is_u8) {
  Program now = tidy(p);
  while (true) {
    Program next = tidy(make_tables(now, operand_is_u8));
    if (next == now) break;
    now = std::move(next);
  }
  mark(now);
  return now;
}

}  // namespace octavo::program
