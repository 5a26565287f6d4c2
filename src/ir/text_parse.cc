// Reading the text form (grammar in text.cc). Never trusts its input: every mistake is an error value with the line number. One parser, past 400 lines.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/half.h"
#include "ir/infer.h"
#include "ir/small_types.h"
#include "ir/text.h"
#include "ir/text_lexer.h"

namespace octavo::ir {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;  // of a constant described rather than listed

std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

bool store(Tensor& t, std::int64_t i, double value) {
  const auto k = static_cast<std::size_t>(i);
  const auto integer = [&]<class T>(T) {
    if (!(value >= static_cast<double>(std::numeric_limits<T>::min()) &&
          value <= static_cast<double>(std::numeric_limits<T>::max())))
      return false;
    if (value != std::floor(value) || value >= 0x1p63) return false;
    t.mutable_data<T>()[k] = static_cast<T>(value);
    return true;
  };
  switch (t.dtype()) {
    case DType::f32: t.mutable_data<float>()[k] = static_cast<float>(value); return true;
    case DType::f16: t.mutable_data<std::uint16_t>()[k] = f32_to_f16(static_cast<float>(value)); return true;
    case DType::bf16: t.mutable_data<std::uint16_t>()[k] = f32_to_bf16(static_cast<float>(value)); return true;
    case DType::f64: t.mutable_data<double>()[k] = value; return true;
    case DType::s8: return integer(std::int8_t{});
    case DType::boolean:
      if (value != 0 && value != 1) return false;
      return integer(std::uint8_t{});
    case DType::u8: return integer(std::uint8_t{});
    case DType::s16: return integer(std::int16_t{});
    case DType::u16: return integer(std::uint16_t{});
    case DType::s32: return integer(std::int32_t{});
    case DType::u32: return integer(std::uint32_t{});
    case DType::s64: return integer(std::int64_t{});
    case DType::u64: return integer(std::uint64_t{});
    case DType::s4:
    case DType::u4:
    case DType::s2:
    case DType::u2:
      if (!(value >= static_cast<double>(small_lo(t.dtype())) && value <= static_cast<double>(small_hi(t.dtype())))) return false;
      if (value != std::floor(value)) return false;
      t.mutable_data<std::int8_t>()[k] = static_cast<std::int8_t>(value);
      return true;
    default: t.mutable_data<std::uint8_t>()[k] = f32_to_small(t.dtype(), static_cast<float>(value), false); return true;
  }
  return false;
}

/// 8-bit types: a quarter are the extremes. Floats: multiples of 2^-12 in [-1, 1). Other integers: -1000..1000 (0..1000, 0..1).
double random_value(DType type, std::uint64_t& state) {
  const std::uint64_t r = splitmix(state);
  const bool extreme = (r & 3) == 0;
  const auto byte = static_cast<double>((r >> 8) & 255);
  const double sign = static_cast<double>((r >> 4) & 1);
  switch (type) {
    case DType::u8: return extreme ? 255 * sign : byte;
    case DType::s8: return extreme ? 255 * sign - 128 : byte - 128;
    case DType::boolean: return sign;
    case DType::s4:
    case DType::u4:
    case DType::s2:
    case DType::u2: return extreme ? static_cast<double>(sign != 0 ? small_hi(type) : small_lo(type)) : sign;
    case DType::s16:
    case DType::s32:
    case DType::s64: return static_cast<double>((r >> 8) % 2001) - 1000;
    case DType::u16:
    case DType::u32:
    case DType::u64: return static_cast<double>((r >> 8) % 1001);
    default: return static_cast<double>((r >> 8) & 8191) / 4096 - 1;
  }
}

class Parser {
 public:
  Result<Graph> run(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++line_;
      if (auto status = statement(Lexer(line)); !status) {
        return fail(ErrorKind::usage, fmt::format("reading a graph, line {}: {}", line_, status.error().message));
      }
    }
    return std::move(g_);
  }

 private:
  static tl::unexpected<Error> bad(std::string what) { return fail(ErrorKind::usage, std::move(what)); }

  Status statement(Lexer in) {
    if (in.at_end()) return {};
    if (in.take_word("graph")) {
      auto name = in.string();
      if (!name) return bad("graph needs a name in quotes");
      g_.name = *name;
    } else if (in.take_word("output")) {
      OCTAVO_TRY(const std::string token, value_token(in));
      OCTAVO_TRY(const ValueId v, find(token));
      std::string name = g_.value(v).name;
      if (in.take_word("as")) {
        auto given = in.string();
        if (!given) return bad("as needs a name in quotes");
        name = *given;
      }
      g_.outputs.push_back(v);
      g_.output_names.push_back(name);
    } else if (in.take_word("size")) {
      std::array<int, 3> at{};
      for (int& n : at) {
        const auto given = in.number<int>();  // bounds and counters are below 0
        if (!given) return bad("size needs three numbers");
        n = *given;
      }
      g_.sizes.push_back({at[0], at[1], at[2]});
    } else {
      OCTAVO_CHECK(node(in));
    }
    if (!in.at_end()) return bad(fmt::format("unexpected \"{}\"", in.rest()));
    return {};
  }

  static Result<std::string> value_token(Lexer& in) {  // %7 and "%7" are different values
    if (auto s = in.string()) return "\"" + *s;
    if (auto w = in.word()) return (*w)[0] == '%' ? *w : "\"" + *w;
    return bad(fmt::format("expected a value, found \"{}\"", in.rest()));
  }
  static std::string spelled(const std::string& token) { return token[0] == '"' ? token + "\"" : token; }
  Result<ValueId> find(const std::string& token) const {
    const auto it = values_.find(token);
    if (it == values_.end()) return bad(fmt::format("value {} is not defined above", spelled(token)));
    return it->second;
  }

  static Result<TensorType> type(Lexer& in) {
    const auto name = in.word();
    TensorType t;
    if (!name || !parse_dtype(*name, t.dtype))
      return bad(fmt::format("expected a type such as f32[1,3], found \"{}\"", name.value_or("") + std::string(in.rest())));
    if (!in.take("[")) return bad(fmt::format("type {} needs dimensions in brackets", *name));
    std::int64_t elements = 1;
    while (!in.take("]")) {
      const auto d = in.number<std::int64_t>();
      if (!d || *d < 0 || t.shape.size() >= 32) return bad("a dimension is not a number >= 0, or there are more than 32");
      if (*d > 0 && elements > (std::int64_t{1} << 40) / *d) return bad("the tensor has more than 2^40 elements");
      elements *= *d;
      t.shape.push_back(*d);
      if (!in.take(",") && !in.peek("]")) return bad(fmt::format("expected , or ] in the dimensions, found \"{}\"", in.rest()));
    }
    return t;
  }

  static Result<double> real(Lexer& in, bool& integer, std::int64_t& exact) {
    Lexer start = in;
    integer = false;
    if (auto i = in.number<std::int64_t>(); i && !in.peek(".") && !in.peek("e") && !in.peek("d")) {
      integer = true;
      exact = *i;
      return *i == 0 && start.peek("-") ? -0.0 : static_cast<double>(*i);
    }
    in = start;
    if (auto d = in.number<double>()) {
      if (in.take("d")) return *d;
      if (std::isfinite(*d)) {  // directly to f32: through double it would be rounded twice
        if (auto f = start.number<float>()) return static_cast<double>(*f);
        return bad("the number is outside the range of f32");
      }
      return *d;
    }
    return bad(fmt::format("expected a number, found \"{}\"", in.rest()));
  }

  static bool float_key(std::string_view key) {
    static const std::set<std::string_view> kKeys{"alpha", "beta",    "gamma", "min",    "max",
                                                  "value", "epsilon", "bias",  "scales", "cubic_coeff_a"};
    return kKeys.contains(key);
  }

  static Result<Attr> attr(Lexer& in, std::string_view key) {
    if (auto s = in.string()) return Attr{*s};
    bool integer = false;
    std::int64_t exact = 0;
    if (!in.take("[")) {
      OCTAVO_TRY(const double d, real(in, integer, exact));
      return integer && !float_key(key) ? Attr{exact} : Attr{d};
    }
    if (in.take(".")) return in.take("]") ? Result<Attr>(Attr{std::vector<double>{}}) : bad("expected ] after [.");
    std::vector<std::int64_t> ints;
    std::vector<double> reals;
    bool all_integers = !float_key(key);
    while (!in.take("]")) {
      OCTAVO_TRY(const double d, real(in, integer, exact));
      ints.push_back(exact);
      reals.push_back(d);
      all_integers = all_integers && integer;
      if (!in.take(",") && !in.peek("]")) return bad(fmt::format("expected , or ] in a list, found \"{}\"", in.rest()));
    }
    return all_integers ? Attr{ints} : Attr{reals};
  }

  static Status attrs(Lexer& in, Attrs& out) {
    if (!in.take("{")) return {};
    while (!in.take("}")) {
      const auto key = in.word();
      if (!key || !in.take("="))
        return bad(fmt::format("expected key=value, found \"{}\"", key.value_or("") + std::string(in.rest())));
      OCTAVO_TRY(Attr value, attr(in, *key));
      if (!out.emplace(*key, std::move(value)).second) return bad(fmt::format("attribute {} is given twice", *key));
      if (!in.take(",") && !in.peek("}")) return bad(fmt::format("expected , or }} after an attribute, found \"{}\"", in.rest()));
    }
    return {};
  }

  static Status quantizer(Lexer& in, std::optional<Quantizer>& out) {
    if (!in.take("q=")) return {};
    const std::string_view text = in.until(" \t\r");
    out = parse_quantizer(text);
    if (!out)
      return bad(fmt::format("\"{}\" is not a quantizer such as u8(0.02,128) or s8[axis=0](0.1,0.2;0,0)", text.substr(0, 60)));
    return {};
  }

  static Result<Tensor> payload(Lexer& in, const TensorType& t) {
    const std::int64_t n = count(t.shape);
    if (in.take("digest:")) return bad("the constant was printed as a digest; print it with full_constants to read it back");
    if (in.take("hex:")) {
      const std::string_view hex = in.until(" \t\r");
      if (hex.size() % 2 != 0 || hex.size() / 2 / size_of(t.dtype) != static_cast<std::size_t>(n) ||
          hex.size() / 2 % size_of(t.dtype) != 0) {
        return bad(fmt::format("{} has {} hex digits for {} elements", to_string(t), hex.size(), n));
      }
      Tensor out(t);
      for (std::size_t i = 0; i < hex.size(); i += 2) {
        unsigned byte = 0;
        const auto [end, error] = std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
        if (error != std::errc{} || end != hex.data() + i + 2) return bad("hex: holds something else than hexadecimal digits");
        out.mutable_bytes()[i / 2] = static_cast<std::byte>(byte);
      }
      return out;
    }
    if (in.take("(")) {
      if (n > static_cast<std::int64_t>(1) << 24) return bad("too many elements to list");
      std::vector<double> listed;
      while (!in.take(")")) {
        bool integer = false;
        std::int64_t exact = 0;
        OCTAVO_TRY(const double d, real(in, integer, exact));
        listed.push_back(d);
        if (!in.take(",") && !in.peek(")")) return bad(fmt::format("expected , or ) in the elements, found \"{}\"", in.rest()));
      }
      if (static_cast<std::int64_t>(listed.size()) != n)
        return bad(fmt::format("{} elements listed for {}", listed.size(), to_string(t)));
      Tensor out(t);
      for (std::int64_t i = 0; i < n; ++i) {
        if (!store(out, i, listed[static_cast<std::size_t>(i)]))
          return bad(fmt::format("element {} is not a {}", i, name_of(t.dtype)));
      }
      return out;
    }
    const bool seed = in.take("seed:");
    if (!seed && !in.take("fill:"))
      return bad(fmt::format("expected the elements: (..), hex:, seed: or fill:, found \"{}\"", in.rest()));
    bool integer = false;
    std::int64_t exact = 0;
    OCTAVO_TRY(const double value, real(in, integer, exact));
    if (seed && !integer) return bad("seed: needs an integer");
    if (n > kMaxBytes / static_cast<std::int64_t>(size_of(t.dtype)))
      return bad(fmt::format("{} is larger than 2^30 bytes", to_string(t)));
    Tensor out(t);
    auto state = static_cast<std::uint64_t>(exact);
    for (std::int64_t i = 0; i < n; ++i) {
      if (!store(out, i, seed ? random_value(t.dtype, state) : value))
        return bad(fmt::format("{} is not a {}", value, name_of(t.dtype)));
    }
    return out;
  }

  /// ": TYPE [range=NUMBER|QUANTIZER], ..."
  static Status types(Lexer& in, std::vector<TensorType>& out, std::vector<std::optional<Quantizer>>& range) {
    if (!in.take(":")) return {};
    do {
      OCTAVO_TRY(TensorType t, type(in));
      out.push_back(std::move(t));
      range.emplace_back();
      if (in.take("range=")) {
        if (const auto scale = in.number<float>()) {
          range.back() = symmetric(*scale);
          continue;
        }
        const std::string text = std::string(in.until(")")) + ")";
        range.back() = in.take(")") ? parse_quantizer(text) : std::nullopt;
        if (!range.back()) return bad("range= needs a number, the scale of s8 around 0, or a quantizer such as u8(0.02,3)");
      }
    } while (in.take(","));
    return {};
  }

  Status node(Lexer& in) {
    std::vector<std::string> results;
    do {
      OCTAVO_TRY(std::string token, value_token(in));
      if (values_.contains(token) || std::find(results.begin(), results.end(), token) != results.end())
        return bad(fmt::format("value {} is defined twice", spelled(token)));
      results.push_back(std::move(token));
    } while (in.take(","));
    if (!in.take("=")) return bad(fmt::format("expected =, found \"{}\"", in.rest()));
    const auto op_name = in.word();
    const auto op = find_op(op_name.value_or(""));
    if (!op) return bad(fmt::format("\"{}\" is not an operator", op_name.value_or(std::string(in.rest()))));

    Node n;
    n.op = *op;
    TensorType payload_type;
    if (n.op == Op::constant) {
      OCTAVO_TRY(payload_type, type(in));
    }
    while (!in.at_end() && !in.peek("{") && !in.peek("q=") && !in.peek(":") && !in.peek("(") && n.op != Op::constant) {
      Lexer look = in;
      if (look.take_word("from")) break;
      if (in.take_word("none")) {
        n.inputs.push_back(kNone);
        continue;
      }
      OCTAVO_TRY(const std::string token, value_token(in));
      OCTAVO_TRY(const ValueId v, find(token));
      n.inputs.push_back(v);
    }
    OCTAVO_CHECK(attrs(in, n.attrs));
    OCTAVO_CHECK(quantizer(in, n.quantizer));
    if (n.op == Op::constant) {
      OCTAVO_TRY(n.payload, payload(in, payload_type));
    }
    std::vector<TensorType> given;
    std::vector<std::optional<Quantizer>> range;
    OCTAVO_CHECK(types(in, given, range));
    if (given.empty()) {
      OCTAVO_TRY(given, result_types(n));
    }
    if (given.size() != results.size()) return bad(fmt::format("{} results and {} types", results.size(), given.size()));
    if (in.take_word("from")) OCTAVO_CHECK(origin(in, n));

    std::vector<std::string> names;
    for (const std::string& token : results) names.push_back(token[0] == '"' ? token.substr(1) : "");
    n.name = names[0];
    if (n.origin.empty() && n.op != Op::input && n.op != Op::constant) n.origin = {names[0].empty() ? results[0] : names[0]};
    const NodeId id = g_.add_node(std::move(n), given, names);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueId v = g_.node(id).outputs[i];
      values_.emplace(results[i], v);
      if (i < range.size()) g_.value(v).range = range[i];
    }
    if (*op == Op::input) g_.inputs.push_back(g_.node(id).outputs[0]);
    return {};
  }

  Result<std::vector<TensorType>> result_types(const Node& n) const {
    if (n.op == Op::input) return bad("an input needs a type");
    if (n.op == Op::constant) return std::vector<TensorType>{{n.quantizer ? DType::f32 : n.payload.dtype(), n.payload.shape()}};
    return infer(g_, n);
  }

  static Status origin(Lexer& in, Node& n) {
    if (!in.take("{")) return bad("from needs {\"name\", ...}");
    while (!in.take("}")) {
      auto name = in.string();
      if (!name) return bad("from needs names in quotes");
      n.origin.insert(*name);
      if (!in.take(",") && !in.peek("}")) return bad("expected , or } in the list of origins");
    }
    return {};
  }

  Graph g_;
  std::unordered_map<std::string, ValueId> values_;
  int line_ = 0;
};

}  // namespace

Result<Graph> parse(std::string_view text) {
  return Parser().run(text);
}

}  // namespace octavo::ir
