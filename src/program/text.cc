// The text form of a program, on one line:
//   operands 2; table0 = 00ff...(512 digits); v0 = acc_i; v1 = i2f v0; v2 = imm_f 0.5; v3 = shl_i 4 v0; v4 = load_f 1; store0 u8 v7
// Immediates come before operands. Floats print as the shortest decimal that reads back to the same bits; NaN and infinities as 0x
// + bits.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "program/program.h"

namespace octavo::program {
namespace {

std::string float_text(std::int32_t bits) {
  const auto v = std::bit_cast<float>(bits);
  return std::isfinite(v) ? fmt::format("{}", v) : fmt::format("{:#010x}", static_cast<std::uint32_t>(bits));
}

/// Splits a statement into words at spaces.
std::vector<std::string_view> words_of(std::string_view s) {
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < s.size();) {
    if (s[i] == ' ' || s[i] == '\n' || s[i] == '\t') {
      ++i;
      continue;
    }
    const std::size_t end = std::min(s.find_first_of(" \n\t", i), s.size());
    out.push_back(s.substr(i, end - i));
    i = end;
  }
  return out;
}

template <class T>
std::optional<T> number(std::string_view s, int base = 10) {
  T v{};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v, base);
  if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return v;
}

/// "v12" -> 12 for prefix "v".
std::optional<int> numbered(std::string_view s, std::string_view prefix) {
  if (s.substr(0, prefix.size()) != prefix) return std::nullopt;
  return number<int>(s.substr(prefix.size()));
}

std::optional<std::int32_t> float_bits(std::string_view s) {
  if (s.substr(0, 2) == "0x") {
    const auto bits = number<std::uint32_t>(s.substr(2), 16);
    return bits ? std::optional(static_cast<std::int32_t>(*bits)) : std::nullopt;
  }
  float v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return std::bit_cast<std::int32_t>(v);
}

std::optional<Op> find_op(std::string_view name) {
  for (const OpInfo& row : all_ops()) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

tl::unexpected<Error> bad(std::string_view statement, std::string_view why) {
  return fail(ErrorKind::bad_engine, fmt::format("reading a program: {} in \"{}\"", why, statement.substr(0, 80)));
}

Status parse_table(Program& p, std::string_view statement, const std::vector<std::string_view>& w) {
  if (w.size() != 3 || w[1] != "=" || numbered(w[0], "table") != static_cast<int>(p.tables.size()) || w[2].size() != 512) {
    return bad(statement, fmt::format("expected table{} = 512 hexadecimal digits", p.tables.size()));
  }
  Table& t = p.tables.emplace_back();
  for (std::size_t i = 0; i < t.size(); ++i) {
    const auto byte = number<std::uint8_t>(w[2].substr(2 * i, 2), 16);
    if (!byte) return bad(statement, "a table entry is not hexadecimal");
    t[i] = *byte;
  }
  return {};
}

Status parse_instr(Program& p, std::string_view statement, const std::vector<std::string_view>& w) {
  if (w.size() < 3 || w[1] != "=" || numbered(w[0], "v") != static_cast<int>(p.code.size())) {
    return bad(statement, fmt::format("expected v{} = operation operands", p.code.size()));
  }
  const auto op = find_op(w[2]);
  if (!op) return bad(statement, "unknown operation");
  Instr instr{*op, {-1, -1, -1, -1}, 0};
  std::size_t next = 3;
  if (has_immediate(*op)) {
    const auto imm = next < w.size() ? (*op == Op::imm_f ? float_bits(w[next]) : number<std::int32_t>(w[next])) : std::nullopt;
    if (!imm) return bad(statement, "the immediate is missing or not a number");
    instr.imm = *imm;
    ++next;
  }
  const std::size_t arity = info(*op).operands.size();
  if (w.size() - next != arity) return bad(statement, fmt::format("{} takes {} operands, found {}", w[2], arity, w.size() - next));
  for (std::size_t k = 0; k < arity; ++k) {
    const auto arg = numbered(w[next + k], "v");
    if (!arg) return bad(statement, "an operand is not a value");
    instr.args[k] = *arg;
  }
  p.code.push_back(instr);
  return {};
}

Status parse_statement(Program& p, std::string_view statement) {
  const auto w = words_of(statement);
  if (w.empty()) return {};
  if (w[0] == "operands") {
    const auto n = w.size() == 2 ? number<int>(w[1]) : std::nullopt;
    if (!n) return bad(statement, "expected operands N");
    p.operand_count = *n;
    return {};
  }
  if (w[0].substr(0, 5) == "table") return parse_table(p, statement, w);
  if (w[0].substr(0, 5) == "store") {
    Output out;
    const auto value = w.size() == 3 ? numbered(w[2], "v") : std::nullopt;
    if (!value || numbered(w[0], "store") != static_cast<int>(p.outputs.size()) || !ir::parse_dtype(w[1], out.type)) {
      return bad(statement, fmt::format("expected store{} type value", p.outputs.size()));
    }
    out.value = *value;
    p.outputs.push_back(out);
    return {};
  }
  return parse_instr(p, statement, w);
}

}  // namespace

std::string print(const Program& p) {
  std::string out;
  const auto statement = [&out](std::string text) { out += (out.empty() ? "" : "; ") + text; };
  if (p.operand_count) statement(fmt::format("operands {}", p.operand_count));
  for (std::size_t k = 0; k < p.tables.size(); ++k) {
    std::string hex;
    for (const std::uint8_t byte : p.tables[k]) hex += fmt::format("{:02x}", byte);
    statement(fmt::format("table{} = {}", k, hex));
  }
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    const Instr& instr = p.code[i];
    const OpInfo& row = info(instr.op);
    std::string text = fmt::format("v{} = {}", i, row.name);
    if (instr.op == Op::imm_f) {
      text += " " + float_text(instr.imm);
    } else if (has_immediate(instr.op)) {
      text += fmt::format(" {}", instr.imm);
    }
    for (std::size_t k = 0; k < row.operands.size(); ++k) text += fmt::format(" v{}", instr.args[k]);
    statement(std::move(text));
  }
  for (std::size_t j = 0; j < p.outputs.size(); ++j) {
    statement(fmt::format("store{} {} v{}", j, ir::name_of(p.outputs[j].type), p.outputs[j].value));
  }
  return out;
}

Result<Program> parse(std::string_view text) {
  Program p;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    OCTAVO_CHECK(parse_statement(p, text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (auto ok = verify(p); !ok) return fail(ErrorKind::bad_engine, "reading a program: " + ok.error().message);
  mark(p);
  return p;
}

}  // namespace octavo::program
