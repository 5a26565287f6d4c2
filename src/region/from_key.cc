// One reader, past 400 lines: of everything that a key spells.
#include "region/from_key.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "ir/block_codes.h"
#include "program/span.h"
#include "region/key.h"
#include "region/store_results.h"
#include "region/unread.h"
#include "region/weight_codes.h"

namespace octavo::region {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{8} << 30;
constexpr std::size_t kMostStages = 16, kMostInstructions = 4096;
constexpr std::string_view kStage = "stage";

tl::unexpected<Error> bad(std::string what) {
  return fail(ErrorKind::bad_input, std::move(what));
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  for (const auto part : split(text, " ")) {
    if (!part.empty()) out.push_back(part);
  }
  return out;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T v{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

template <class T>
std::optional<std::vector<T>> numbers(std::string_view text) {
  std::vector<T> out;
  if (text.empty()) return out;
  for (const auto part : split(text, ",")) {
    const auto v = number<T>(part);
    if (!v) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

/// Takes `prefix` off the front.
bool taken(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// What stands between an opening and a closing character at the front; takes both off.
std::optional<std::string_view> bracketed(std::string_view& text, char open, char close) {
  if (text.empty() || text.front() != open) return std::nullopt;
  const auto end = text.find(close);
  if (end == std::string_view::npos) return std::nullopt;
  const auto inner = text.substr(1, end - 1);
  text.remove_prefix(end + 1);
  return inner;
}

ir::Attr attribute(std::string_view text) {
  if (text.find(',') != std::string_view::npos) {
    if (text.ends_with(',')) text.remove_suffix(1);
    if (auto whole = numbers<std::int64_t>(text)) return *whole;
    if (auto real = numbers<double>(text)) return *real;
  }
  if (const auto whole = number<std::int64_t>(text)) return *whole;
  if (const auto real = number<double>(text)) return *real;
  return std::string(text);
}

class Reader {
 public:
  Reader(std::string_view key, int threads) : key_(key) { plan_.threads = threads; }

  Result<Plan> run() {
    plan_.model_name = "region key";
    Region r;
    r.name = "region key";
    r.key = std::string(key_);
    r.independent = key_.find(" || ") != std::string_view::npos;
    const auto parts = split(key_, r.independent ? " || " : " ; ");
    if (parts.size() > kMostStages) return bad(fmt::format("{} stages, at most {}", parts.size(), kMostStages));
    for (const auto part : parts) {
      OCTAVO_TRY(auto s, stage(part, r));
      r.stages.push_back(std::move(s));
    }
    plan_.regions.push_back(std::move(r));
    fill_constants();
    if (const auto ok = verify(plan_); !ok) return bad(ok.error().message);
    if (const std::string again = region::key(plan_.regions[0], plan_); again != key_)
      return bad(fmt::format("it is not spelled as this version spells keys; what was read is: {}", again));
    return std::move(plan_);
  }

 private:
  Result<Stage> stage(std::string_view text, const Region& before) {
    auto colon = text.find(" : ");
    if (colon == std::string_view::npos) colon = text.find(" :,");
    const auto arrow = colon == std::string_view::npos ? colon : text.find(" >", colon + 2);
    if (arrow == std::string_view::npos)
      return bad(fmt::format("\"{}\" is not OPERATOR TENSORS : PROGRAM, OPERANDS > STORES", text.substr(0, 200)));
    Stage s;
    ir::Attrs attributes;
    OCTAVO_TRY(const auto x, anchor(text.substr(0, colon), s, attributes));
    auto middle = split(text.substr(colon + 2, arrow - colon - 2), ", ");
    for (std::size_t i = 0; i < middle.size(); ++i) {  // " :, a" leaves a comma
      while (!middle[i].empty() && (middle[i].front() == ' ' || middle[i].front() == ',')) middle[i].remove_prefix(1);
    }
    if (text.substr(colon + 2, 1) == ",") middle.insert(middle.begin(), "");
    const auto stores = words(text.substr(arrow + 2));
    if (stores.empty()) return bad("a stage without stores");
    OCTAVO_TRY(s.stores.emplace_back(), tensor(stores[0], BufferKind::output));
    s.space = s.stores[0].dims;
    // What a stage reads is what an earlier one stored, or what its neighbour reads.
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool shared = i == 0 && before.independent && first_ == x[i];
      if (before.stages.empty() && i == 0) first_ = x[i];
      TensorRef t;
      if (x[i].starts_with(kStage)) {
        OCTAVO_TRY(t, forwarded(x[i], before));
      } else if (shared && !before.stages.empty()) {
        t = before.stages[0].anchor.inputs[0];
      } else {
        OCTAVO_TRY(t, tensor(x[i], BufferKind::input));
      }
      if (t.dtype == ir::DType::u8 && !s.anchor.none()) t.quantizer = ir::per_tensor(ir::DType::u8, 1.0F, 128);
      s.anchor.inputs.push_back(std::move(t));
    }
    if (const Status facts = set_attributes(s.anchor, attributes); !facts) return bad(facts.error().message);
    for (std::size_t i = 1; i < middle.size(); ++i) {
      OCTAVO_TRY(s.operands.emplace_back(), operand(middle[i], before));
    }
    for (std::size_t i = 1; i < stores.size(); ++i) {
      OCTAVO_TRY(s.stores.emplace_back(), tensor(stores[i], BufferKind::output));
    }
    if (s.anchor.none() || !middle[0].empty()) OCTAVO_CHECK(program(middle[0], s));
    return s;
  }

  /// The spelled anchor; returns the spelled inputs.
  Result<std::vector<std::string_view>> anchor(std::string_view text, Stage& s, ir::Attrs& attributes) {
    const auto parts = words(text);
    if (parts.empty()) return bad("a stage without an operator");
    std::vector<std::string_view> inputs;
    if (parts[0] != "pointwise") {
      const auto op = ir::find_op(parts[0]);
      if (!op || *op == ir::Op::input) return bad(fmt::format("\"{}\" is no operator", parts[0]));
      s.anchor.op = *op;
      s.anchor.integer = true;
    }
    for (std::size_t i = 1; i < parts.size(); ++i) {
      std::string_view p = parts[i];
      if (p == "float") {
        s.anchor.integer = false;
      } else if (const auto equals = p.find('='); equals != std::string_view::npos) {
        attributes[std::string(p.substr(0, equals))] = attribute(p.substr(equals + 1));
      } else if (p == "w" && i + 1 < parts.size()) {
        OCTAVO_TRY(s.anchor.weights, tensor(parts[++i], BufferKind::constant));
      } else if (p.starts_with("codes")) {
        s.anchor.weight_codes = parse_weight_codes(p);
        if (!s.anchor.weight_codes) return bad(fmt::format("\"{}\" is not codes[BITS,BLOCK,ONE_ZERO]", p));
        if (const Status ok = check_weight_codes(s.anchor); !ok) return bad(ok.error().message);
      } else if (taken(p, "zero")) {
        const auto count = bracketed(p, '[', ']');
        const auto n = count ? number<std::size_t>(*count) : std::nullopt;
        if (!n || *n > (std::size_t{1} << 24)) return bad(fmt::format("\"{}\" is not zero[COUNT]", parts[i]));
        s.anchor.weight_zero.assign(*n, 1);
      } else {
        inputs.push_back(p);
      }
    }
    return inputs;
  }

  /// "stage0.1:u8[...]": what an earlier stage stores. That it is spelled as it is stored shows when the key is spelled again.
  static Result<TensorRef> forwarded(std::string_view text, const Region& before) {
    std::string_view from = text.substr(0, text.find(':'));
    const std::string_view all = from;
    taken(from, kStage);
    const auto point = from.find('.');
    const auto stage = number<std::size_t>(from.substr(0, point));
    const auto store =
        point == std::string_view::npos ? std::optional<std::size_t>(0) : number<std::size_t>(from.substr(point + 1));
    if (!stage || !store || before.independent || *stage >= before.stages.size() || *store >= before.stages[*stage].stores.size())
      return bad(fmt::format("\"{}\" is not a result of a stage before it", all));
    return before.stages[*stage].stores[*store];
  }

  Result<Operand> operand(std::string_view text, const Region& before) {
    Operand o;
    if (text.starts_with(kStage)) {
      OCTAVO_TRY(o.ref, forwarded(text, before));
      return o;
    }
    const auto slash = text.find('/');
    const std::string_view spelled = text.substr(0, slash);
    const bool constant = spelled.ends_with("]c") || spelled.ends_with("]one");  // one a channel, or one: scales and biases
    OCTAVO_TRY(o.ref, tensor(spelled, constant ? BufferKind::constant : BufferKind::input));
    if (slash == std::string_view::npos) return o;
    const auto div = numbers<std::int64_t>(text.substr(slash + 1));
    if (!div) return bad(fmt::format("\"{}\": divisors that are no numbers", text));
    o.div = *div;
    return o;
  }

  Result<TensorRef> tensor(std::string_view text, BufferKind kind) {
    const std::string_view all = text;
    const auto wrong = [&](std::string_view why) { return bad(fmt::format("tensor \"{}\": {}", all.substr(0, 100), why)); };
    const bool callers = taken(text, "io:");
    const auto open = text.find('[');
    if (open == std::string_view::npos) return wrong("no dimensions");
    TensorRef t;
    if (!ir::parse_dtype(text.substr(0, open), t.dtype)) return wrong("no element type");
    text.remove_prefix(open);
    const auto inner = bracketed(text, '[', ']');
    const auto dims = inner ? numbers<std::int64_t>(*inner) : std::nullopt;
    if (!dims) return wrong("dimensions that are no numbers");
    t.dims = *dims;
    std::int64_t elements = 1;
    for (const std::int64_t d : t.dims) {
      if (d < 0 || (d > 0 && elements > kMostBytes / d)) return wrong("too large");
      elements *= std::max<std::int64_t>(d, 1);
    }
    t.strides = ir::dense_strides(t.dims);
    const std::size_t rank = t.dims.size();
    if (const auto strides = bracketed(text, '(', ')')) {
      const auto given = numbers<std::int64_t>(*strides);
      if (!given || given->size() != rank) return wrong("strides that are not one number a dimension");
      t.strides = *given;
    } else if (taken(text, "nhwc")) {
      if (rank < 3) return wrong("nhwc with fewer than three dimensions");
      std::int64_t step = t.dims[1];
      for (std::size_t i = rank; i-- > 2;) t.strides[i] = step, step *= t.dims[i];
      t.strides[1] = 1;
      t.strides[0] = step;
    } else if (taken(text, "one") || taken(text, "c")) {
      const bool channel = all.ends_with("c");
      std::fill(t.strides.begin(), t.strides.end(), 0);
      if (channel && rank < 2) return wrong("one element a channel without channels");
      if (channel) t.strides[1] = 1;
    }
    if (!text.empty()) return wrong(fmt::format("what is \"{}\"?", text));
    OCTAVO_CHECK(place(t, callers ? kind : kind == BufferKind::constant ? kind : BufferKind::arena, all));
    return t;
  }

  /// A buffer that holds what the tensor reaches.
  Status place(TensorRef& t, BufferKind kind, std::string_view spelled) {
    const auto size = static_cast<std::int64_t>(ir::size_of(t.dtype));
    __int128 low = 0, high = 1;
    for (std::size_t k = 0; k < t.dims.size(); ++k) {
      const __int128 span = __int128{std::max<std::int64_t>(t.dims[k], 1) - 1} * t.strides[k];
      (span < 0 ? low : high) += span;
    }
    const __int128 bytes = (high - low) * size;
    if (bytes > kMostBytes - bytes_)
      return fail(ErrorKind::unsupported, fmt::format("tensor \"{}\" needs more than {} GiB", spelled, kMostBytes >> 30));
    bytes_ += static_cast<std::int64_t>(bytes);
    t.offset = static_cast<std::int64_t>(-low) * size;
    Buffer b;
    b.kind = kind;
    b.bytes = static_cast<std::int64_t>(bytes);
    if (kind == BufferKind::input || kind == BufferKind::output) {
      auto& list = kind == BufferKind::input ? plan_.inputs : plan_.outputs;
      Binding binding;
      binding.name = fmt::format("{} {}", kind == BufferKind::input ? "input" : "output", list.size());
      binding.type = {t.dtype, {b.bytes / size}};
      b.binding = static_cast<int>(list.size());
      list.push_back(std::move(binding));
    }
    if (kind == BufferKind::arena) {
      constexpr std::int64_t kSlack = 64;
      b.arena_offset = plan_.devices[kHost].arena_bytes + kSlack;
      plan_.devices[kHost].arena_bytes += (b.bytes + 63) / 64 * 64 + 2 * kSlack;
    }
    t.buffer = static_cast<BufferId>(plan_.buffers.size());
    plan_.buffers.push_back(std::move(b));
    return {};
  }

  static Result<std::vector<int>> arguments(std::string_view word, std::string_view& rest, std::vector<int> unsaid) {
    const auto inner = bracketed(rest, '(', ')');
    if (!inner) return unsaid;
    const auto given = numbers<int>(*inner);
    if (!given) return bad(fmt::format("\"{}\": operands that are no numbers", word));
    return *given;
  }

  Status program(std::string_view text, Stage& s) {
    program::Program& p = s.program;
    detail::Unread unread;
    std::int32_t loads = 0, tables = 0;
    std::optional<std::vector<int>> stored;
    for (const auto word : words(text)) {
      if (p.code.size() > kMostInstructions) return bad(fmt::format("more than {} instructions", kMostInstructions));
      std::string_view rest = word;
      const auto name = rest.substr(0, rest.find_first_of("@("));
      rest.remove_prefix(name.size());
      if (name == "store") {
        OCTAVO_TRY(stored, arguments(word, rest, {}));
        continue;
      }
      const auto ops = program::all_ops();
      const auto row = std::find_if(ops.begin(), ops.end(), [&](const program::OpInfo& o) { return o.name == name; });
      if (row == ops.end()) return bad(fmt::format("\"{}\" is no operation of a program", word));
      const bool load = row->op == program::Op::load_i || row->op == program::Op::load_f, table = row->op == program::Op::table;
      program::Instr i;
      i.op = row->op;
      i.imm = load ? loads++ : table ? tables++ : 0;
      if (taken(rest, "@")) {
        const auto digits = rest.substr(0, rest.find('('));
        const auto imm = number<std::int32_t>(digits);
        if (!imm || *imm < 0 || *imm > 4096) return bad(fmt::format("\"{}\": what follows @ is no number", word));
        i.imm = *imm;
        rest.remove_prefix(digits.size());
      }
      if (table && i.imm >= static_cast<std::int32_t>(p.tables.size())) p.tables.resize(static_cast<std::size_t>(i.imm) + 1);
      OCTAVO_TRY(const auto args, arguments(word, rest, unread.last(row->operands.size())));
      if (args.size() != row->operands.size() || !rest.empty())
        return bad(fmt::format("\"{}\" takes {} operands, {} are there", word, row->operands.size(), args.size()));
      std::copy(args.begin(), args.end(), i.args.begin());
      unread.made(args);
      p.code.push_back(i);
    }
    const auto values = stored ? *stored : unread.last(s.anchor.none() || !p.code.empty() ? s.stores.size() : 0);
    if (values.size() > s.stores.size()) return bad(fmt::format("{} values for {} stores", values.size(), s.stores.size()));
    for (std::size_t j = 0; j < values.size(); ++j) p.outputs.push_back({values[j], s.stores[j].dtype});
    p.operand_count = static_cast<int>(s.operands.size());
    make_up_constants(p);
    if (program::verify(p)) program::mark(p);  // whoever reads the plan verifies it and says what is wrong
    return {};
  }

  /// Clamps to 0 and 255, tables that fit a byte, 1 elsewhere: as the program of a quantized layer would be.
  static void make_up_constants(program::Program& p) {
    const auto clamps = [&](int value, program::Op real, program::Op whole) {
      return std::any_of(p.code.begin(), p.code.end(), [&](const program::Instr& i) {
        return (i.op == real || i.op == whole) && (i.args[0] == value || i.args[1] == value);
      });
    };
    for (std::size_t k = 0; k < p.code.size(); ++k) {
      program::Instr& i = p.code[k];
      if (i.op != program::Op::imm_f && i.op != program::Op::imm_i) continue;
      const int v = static_cast<int>(k);
      const int made = clamps(v, program::Op::max, program::Op::max_i)   ? 0
                       : clamps(v, program::Op::min, program::Op::min_i) ? 255
                                                                         : 1;
      i.imm = i.op == program::Op::imm_i ? made : std::bit_cast<std::int32_t>(static_cast<float>(made));
    }
    for (program::Table& t : p.tables) {
      for (std::size_t k = 0; k < t.size(); ++k) t[k] = static_cast<std::uint8_t>(255 - k);
    }
  }

  void fill_constants() {
    std::map<BufferId, ir::DType> types;
    for (const Stage& s : plan_.regions[0].stages) {
      if (s.anchor.weights) types[s.anchor.weights->buffer] = s.anchor.weights->dtype;
      for (const Operand& o : s.operands) types[o.ref.buffer] = o.ref.dtype;
    }
    for (const auto& [id, type] : types) {
      Buffer& b = plan_.buffers[static_cast<std::size_t>(id)];
      if (b.kind == BufferKind::constant) b.data = seeded_constant(type, b.bytes);
    }
    for (const Stage& s : plan_.regions[0].stages) {
      const region::Anchor& a = s.anchor;
      if (a.weight_codes && a.weights && a.weights->dims.size() == 4)
        plan_.buffers[static_cast<std::size_t>(a.weights->buffer)].data = seeded_weights(*a.weight_codes, a.weights->dims);
    }
  }

  /// Weights [columns, rows, 1, 1] with their codes.
  static ir::Tensor seeded_weights(const WeightCodes& as, const ir::Shape& dims) {
    const std::int64_t columns = dims[0], rows = dims[1], blocks = (rows + as.block - 1) / as.block;
    ir::BlockCodes codes{as.bits, as.block, seeded_constant(ir::DType::u8, columns * rows).reshaped({columns, rows}),
                         seeded_constant(ir::DType::f32, columns * blocks * 4).reshaped({columns, blocks}),
                         ir::Tensor(ir::DType::f32, {columns, blocks})};
    ir::Tensor out(ir::DType::f32, {columns, rows, 1, 1});
    float* to = out.mutable_data<float>().data();
    std::uint8_t* code = codes.codes.mutable_data<std::uint8_t>().data();
    const float* scale = codes.scales.data<float>().data();
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t i = 0; i < rows; ++i, ++code, ++to) {
        *code &= static_cast<std::uint8_t>((1 << as.bits) - 1);
        *to = static_cast<float>(*code) * scale[j * blocks + i / as.block];
      }
    }
    out.set_codes(std::make_shared<const ir::BlockCodes>(std::move(codes)));
    return out;
  }

  std::string_view key_, first_;
  Plan plan_;
  std::int64_t bytes_ = 0;
};

}  // namespace

ir::Tensor seeded_constant(ir::DType type, std::int64_t bytes) {
  ir::Tensor t(type, {bytes / static_cast<std::int64_t>(ir::size_of(type))});
  auto out = t.mutable_bytes();
  if (type == ir::DType::s64) return t;
  std::uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525 + 1013904223; };
  const auto fill = [&](auto make) {
    using T = decltype(make(state));
    for (std::size_t i = 0; i + sizeof(T) <= out.size(); i += sizeof(T)) {
      const T v = make(next() >> 8);
      std::memcpy(out.data() + i, &v, sizeof v);
    }
  };
  switch (type) {
    case ir::DType::f32: fill([](std::uint32_t r) { return static_cast<float>(r) * 0x1p-23F - 1.0F; }); break;
    case ir::DType::f16: fill([](std::uint32_t r) { return static_cast<std::uint16_t>((r & 0x83ff) | 0x3800); }); break;
    case ir::DType::bf16: fill([](std::uint32_t r) { return static_cast<std::uint16_t>((r & 0x807f) | 0x3f00); }); break;
    case ir::DType::s32: fill([](std::uint32_t r) { return static_cast<std::int32_t>(r % 2001) - 1000; }); break;
    case ir::DType::boolean: fill([](std::uint32_t r) { return static_cast<std::uint8_t>(r & 1); }); break;
    default: fill([](std::uint32_t r) { return static_cast<std::uint8_t>(r); }); break;
  }
  return t;
}

Result<Plan> plan_from_key(std::string_view key, int threads) {
  auto plan = Reader(key, threads).run();
  if (plan) return plan;
  return fail(plan.error().kind, fmt::format("region key: {}", plan.error().message));
}

}  // namespace octavo::region
