// Printing a graph. The grammar, one statement a line, # starts a comment:
//   graph "name"
//   VALUE = input : TYPE [range=NUMBER|QUANTIZER]
//   VALUE = constant TYPE [q=QUANTIZER] DATA [: TYPE]     DATA: (1, 2.5, ...) | hex:00ff.. | seed:N | fill:NUMBER | digest:.. (no
//   way back) VALUE, ... = OP VALUE ... [{KEY=ATTR, ...}] [q=QUANTIZER] [: TYPE [range=NUMBER|QUANTIZER], ...] [from {"ONNX node", ...}]
//   output VALUE [as "name"]
// VALUE: an identifier, "any text", %N (no name), or none (an absent operand). TYPE: f32[1,3,8,8].
// ATTR: 3 | 0.5 | inf | "text" | [1, 2] | [0.5, 1.0]; numbers with . or e are floats, read as f32 unless they end in d.
#include "ir/text.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <unordered_map>

#include "ir/canonical.h"
#include "ir/small_types.h"
#include "ir/text_lexer.h"

namespace octavo::ir {
namespace {

bool is_identifier(std::string_view s) {
  static const std::set<std::string_view> kKeywords{"none", "from", "output", "graph", "as", "range", "inf", "nan"};
  if (s.empty() || kKeywords.contains(s)) return false;
  if (!(std::isalpha(static_cast<unsigned char>(s[0])) || s[0] == '_')) return false;
  for (const char c : s) {
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.')) return false;
  }
  return true;
}

std::string print_float(double v) {
  const auto f = static_cast<float>(v);
  const bool exact = static_cast<double>(f) == v || std::isnan(v);
  std::string s = exact ? fmt::format("{}", f) : fmt::format("{}", v);
  if (s.find_first_of(".einx") == std::string::npos) s += ".0";  // 1 is an integer, 1.0 a float; inf and nan need no point
  return exact ? s : s + "d";
}

std::string print_attr(const Attr& attr) {
  if (const auto* i = std::get_if<std::int64_t>(&attr)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&attr)) return print_float(*d);
  if (const auto* s = std::get_if<std::string>(&attr)) return quoted(*s);
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&attr)) return fmt::format("[{}]", fmt::join(*list, ","));
  const auto& list = std::get<std::vector<double>>(attr);
  if (list.empty()) return "[.]";
  std::string out;
  for (const double d : list) out += (out.empty() ? "" : ",") + print_float(d);
  return "[" + out + "]";
}

std::string print_payload(const Tensor& t, const PrintOptions& options) {
  constexpr std::int64_t kListed = 16;
  bool listed = t.size() <= kListed && t.dtype() != DType::f64 && t.dtype() != DType::u64;
  for (std::int64_t i = 0; listed && i < t.size(); ++i)
    listed = is_float(t.dtype()) || is_small_float(t.dtype()) ? !std::isnan(t.at(i)) : std::abs(t.at(i)) < 0x1p53;
  if (listed) {
    std::string out;
    for (std::int64_t i = 0; i < t.size(); ++i) {
      out +=
          (i ? "," : "") + (is_float(t.dtype()) || is_small_float(t.dtype()) ? fmt::format("{}", static_cast<float>(t.at(i)))
                                                                             : std::to_string(static_cast<std::int64_t>(t.at(i))));
    }
    return "(" + out + ")";
  }
  if (!options.full_constants) return fmt::format("digest:{:016x}", hash_tensor(t));
  std::string out = "hex:";
  static constexpr std::string_view kDigits = "0123456789abcdef";
  out.reserve(out.size() + 2 * t.bytes().size());
  for (const std::byte b : t.bytes()) {
    out += kDigits[static_cast<std::size_t>(b) >> 4];
    out += kDigits[static_cast<std::size_t>(b) & 15];
  }
  return out;
}

class Printer {
 public:
  Printer(const Graph& g, const PrintOptions& options) : g_(g), options_(options) {}

  std::string run() {
    if (!g_.name.empty()) out_ += fmt::format("graph {}\n", quoted(g_.name));
    const std::vector<NodeId> order = g_.order();
    std::unordered_map<std::string, int> uses;
    for (const NodeId id : order) {
      for (const ValueId v : g_.node(id).outputs) ++uses[g_.value(v).name];
    }
    int unnamed = 0;
    for (const NodeId id : order) {
      for (const ValueId v : g_.node(id).outputs) {
        const std::string& name = g_.value(v).name;
        const bool usable = !name.empty() && uses[name] == 1;  // a name that two values bear tells neither from the other
        tokens_[v] = !usable ? fmt::format("%{}", unnamed++) : is_identifier(name) ? name : quoted(name);
      }
    }
    for (const NodeId id : order) node(g_.node(id));
    for (std::size_t i = 0; i < g_.outputs.size(); ++i) {
      out_ += fmt::format("output {}", token(g_.outputs[i]));
      if (i < g_.output_names.size()) out_ += fmt::format(" as {}", quoted(g_.output_names[i]));
      out_ += '\n';
    }
    for (const OutputSize& s : g_.sizes) out_ += fmt::format("size {} {} {}\n", s.output, s.axis, s.count);
    return std::move(out_);
  }

 private:
  std::string token(ValueId v) const { return v == kNone ? "none" : tokens_.at(v); }

  void types(const Node& n) {
    const char* separator = " : ";
    for (const ValueId v : n.outputs) {
      out_ += fmt::format("{}{}", separator, to_string(g_.type(v)));
      if (g_.value(v).range) out_ += " range=" + range(*g_.value(v).range);
      separator = ", ";
    }
  }

  /// The number is the scale of s8 around 0.
  static std::string range(const Quantizer& q) {
    return q == symmetric(q.scale[0]) ? print_float(static_cast<double>(q.scale[0])) : to_string(q);
  }

  void node(const Node& n) {
    for (std::size_t i = 0; i < n.outputs.size(); ++i) out_ += (i ? ", " : "") + token(n.outputs[i]);
    out_ += fmt::format(" = {}", name_of(n.op));
    if (n.op == Op::constant) out_ += " " + to_string(n.payload.type());
    for (const ValueId v : n.inputs) out_ += " " + token(v);
    if (!n.attrs.empty()) {
      const char* separator = " {";
      for (const auto& [key, value] : n.attrs) {
        out_ += fmt::format("{}{}={}", separator, key, print_attr(value));
        separator = ", ";
      }
      out_ += '}';
    }
    if (n.quantizer) out_ += " q=" + to_string(*n.quantizer);
    if (n.op == Op::constant) out_ += " " + print_payload(n.payload, options_);
    const bool plain = n.op == Op::constant && n.outputs.size() == 1 && !g_.value(n.outputs[0]).range &&
                       g_.type(n.outputs[0]).dtype == (n.quantizer ? DType::f32 : n.payload.dtype());
    if (!plain) types(n);
    if (options_.origins && !n.origin.empty()) {
      std::string list;
      for (const std::string& o : n.origin) list += (list.empty() ? "" : ", ") + quoted(o);
      out_ += fmt::format("  from {{{}}}", list);
    }
    out_ += '\n';
  }

  const Graph& g_;
  const PrintOptions& options_;
  std::unordered_map<ValueId, std::string> tokens_;
  std::string out_;
};

}  // namespace

std::string quoted(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else if (static_cast<unsigned char>(c) < 32 || c == 127) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string print(const Graph& g, const PrintOptions& options) {
  return Printer(g, options).run();
}

}  // namespace octavo::ir
