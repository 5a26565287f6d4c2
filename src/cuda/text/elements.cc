#include "cuda/text/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "cuda/text/emit_cuda.h"
#include "cuda/text/shorten.h"
#include "program/program.h"
#include "region/refusal.h"

namespace octavo::cuda {
namespace {

using region::refuse;

using ir::DType;
using program::Op;

constexpr int kThreads = 256;
constexpr const char* kFunctions =
#include "cuda/text/elements.inc"
    ;

std::int64_t bytes_of(const ElementAccess& a) {
  return static_cast<std::int64_t>(ir::size_of(a.dtype));
}

}  // namespace

std::vector<char> loaded(const program::Program& p) {
  std::vector<char> out(static_cast<std::size_t>(p.operand_count), 0);
  for (const program::Instr& i : p.code) {
    if (i.op == Op::load_i || i.op == Op::load_f) out[static_cast<std::size_t>(i.imm)] = 1;
  }
  return out;
}

std::string_view elements_functions() {
  return kFunctions;
}

std::string load_function(DType type) {
  switch (type) {
    case DType::u8:
    case DType::boolean: return "octavo_load_u8";
    case DType::s8: return "octavo_load_s8";
    case DType::u16: return "octavo_load_u16";  // the bits of any type of two bytes
    case DType::s32: return "octavo_load_s32";
    case DType::f32: return "octavo_load_f32";
    case DType::f16: return "octavo_load_f16";
    case DType::bf16: return "octavo_load_bf16";
    default: return "";
  }
}

std::string store_function(DType type) {
  if (type == DType::s8) return "octavo_store_u8";
  const std::string load = load_function(type);
  return load.empty() ? "" : "octavo_store_" + load.substr(std::string_view("octavo_load_").size());
}

std::string_view comparison(ir::Op op) {
  switch (op) {
    case ir::Op::equal: return "==";
    case ir::Op::less: return "<";
    case ir::Op::less_equal: return "<=";
    case ir::Op::greater: return ">";
    case ir::Op::greater_equal: return ">=";
    default: return "";
  }
}

std::string_view register_type(DType type) {
  return ir::is_float(type) ? "float" : "int";
}

std::string float_text(float v) {
  return fmt::format("__int_as_float((int)0x{:08x}u)", std::bit_cast<std::uint32_t>(v));
}

ElementAccess access_of(const region::TensorRef& ref, const std::vector<std::int64_t>& div, const ir::Shape& space,
                        std::uint32_t open) {
  ElementAccess a{ref.buffer, ref.offset, ref.dtype, {}, {}, {}};
  for (std::size_t k = 0; k < space.size(); ++k) {
    const std::int64_t d = div.empty() ? 1 : div[k];
    const bool one = space[k] == 1 && (open >> k & 1) == 0;
    const std::int64_t stride = one || (d >= space[k] && d > 1) ? 0 : ref.strides[k];
    a.strides.push_back(stride);
    a.open.push_back(stride != 0 && (ref.open.strides >> k & 1) != 0 ? 1 : 0);
    a.div.push_back(stride == 0 ? 1 : d);
  }
  return a;
}

ElementAccess followed_along(const region::TensorRef& x, std::size_t from, std::size_t along, const ir::Shape& space) {
  ElementAccess a{
      x.buffer, x.offset, x.dtype, std::vector<std::int64_t>(space.size(), 0), std::vector<std::int64_t>(space.size(), 1), {}};
  for (std::size_t k = 0; k < x.dims.size(); ++k) {
    if (k != from && (x.dims[k] != 1 || (x.open.dims >> k & 1) != 0)) a.offset = std::gcd(a.offset, x.strides[k] * bytes_of(a));
  }
  if (along < a.strides.size()) a.strides[along] = x.strides[from];  // a space of rank 0 is one element
  return a;
}

Result<Elements> Elements::of(const region::Stage& stage, bool has_anchor, const std::vector<ElementAccess>& followed,
                              std::int64_t longest_run) {
  Elements e;
  e.program_ = stage.program, e.space_ = stage.space;
  e.has_anchor_ = has_anchor;
  e.dims_ = stage.space;
  for (const region::Operand& o : stage.operands) {
    if (load_function(o.ref.dtype).empty())
      return refuse("type of an operand", ir::name_of(o.ref.dtype), "one that the GPU's programs read");
    e.loads_.push_back(access_of(o.ref, o.div, stage.space, stage.open));
  }
  for (const region::TensorRef& r : stage.stores) {
    if (load_function(r.dtype).empty()) return refuse("type of a store", ir::name_of(r.dtype), "one that the GPU's programs store");
    e.stores_.push_back(access_of(r, {}, stage.space, stage.open));
  }
  for (std::size_t k = 0; k < stage.space.size(); ++k) {
    e.origin_.push_back(k);
    e.units_.push_back((stage.open >> k & 1) != 0 ? 1 : 0);
  }
  if (!has_anchor) e.split_divisions();
  e.order();
  if (!has_anchor) e.join();
  e.choose_run(followed, longest_run);
  return e;
}

void Elements::split_divisions() {
  for (std::size_t k = 0; k < dims_.size(); ++k) {
    std::int64_t d = 1;  // the smallest division that divides the extent and all other divisions
    for (const ElementAccess& a : loads_) {
      if (a.div[k] > 1 && (d == 1 || a.div[k] < d)) d = a.div[k];
    }
    if (d == 1 || dims_[k] % d != 0 || dims_.size() >= 16) continue;
    if (std::any_of(loads_.begin(), loads_.end(), [&](const ElementAccess& a) { return a.div[k] > 1 && a.div[k] % d != 0; }))
      continue;
    if (is_open(k)) continue;  // an extent that d divides here, and not always
    const auto at = static_cast<std::ptrdiff_t>(k) + 1;
    dims_.insert(dims_.begin() + at, d);
    units_.insert(units_.begin() + at, 0);
    dims_[k] /= d;
    origin_.insert(origin_.begin() + at, origin_[k]);
    for (auto* list : {&loads_, &stores_}) {
      for (ElementAccess& a : *list) {
        const bool divided = a.div[k] > 1;
        a.strides.insert(a.strides.begin() + at, divided ? 0 : a.strides[k]);
        a.div.insert(a.div.begin() + at, 1);
        a.open.insert(a.open.begin() + at, divided ? 0 : a.open[k]);
        (divided ? a.div[k] : a.strides[k]) = divided ? a.div[k] / d : a.strides[k] * d;
      }
    }
    if (std::any_of(loads_.begin(), loads_.end(), [&](const ElementAccess& a) { return a.div[k] > 1; })) --k;
  }
}

void Elements::order() {
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < dims_.size(); ++k) {
    if (dims_[k] != 1 || is_open(k)) order.push_back(k);
  }
  if (!stores_.empty()) {
    // Of equal strides the open one is the greater one of other shapes.
    const auto far = [&](std::size_t k) { return std::pair(stores_[0].strides[k], stores_[0].open[k]); };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return far(a) > far(b); });
  }
  const auto pick = [&](auto& v) {
    std::remove_reference_t<decltype(v)> out;
    for (const std::size_t k : order) out.push_back(v[k]);
    v = std::move(out);
  };
  pick(dims_);
  pick(units_);
  pick(origin_);
  for (auto* list : {&loads_, &stores_}) {
    for (ElementAccess& a : *list) {
      pick(a.strides);
      pick(a.div);
      pick(a.open);
    }
  }
}

void Elements::join() {
  for (std::size_t k = 0; k + 1 < dims_.size();) {
    bool joins = true;
    for (const auto* list : {&loads_, &stores_}) {
      for (const ElementAccess& a : *list)
        joins = joins && a.div[k] == 1 && a.div[k + 1] == 1 && a.strides[k] == a.strides[k + 1] * dims_[k + 1] &&
                (a.strides[k] == 0 || (a.open[k] != 0) == (a.open[k + 1] != 0 || is_open(k + 1)));
    }
    if (!joins) {
      ++k;
      continue;
    }
    units_[k] = is_open(k) || is_open(k + 1) ? unit(k) * unit(k + 1) : 0;
    dims_[k] *= dims_[k + 1];
    const auto at = static_cast<std::ptrdiff_t>(k);
    dims_.erase(dims_.begin() + at + 1);
    units_.erase(units_.begin() + at + 1);
    origin_.erase(origin_.begin() + at);
    for (auto* list : {&loads_, &stores_}) {
      for (ElementAccess& a : *list) {
        a.strides.erase(a.strides.begin() + at);
        a.div.erase(a.div.begin() + at);
        a.open.erase(a.open.begin() + at);
      }
    }
  }
}

Elements::Mode Elements::mode(const ElementAccess& a, std::int64_t run) const {
  if (run == 1) return Mode::vector;
  const std::size_t last = dims_.size() - 1;
  if (a.strides[last] == 0 || a.div[last] % run == 0) return Mode::same;
  if (a.strides[last] != 1 || a.div[last] != 1 || a.offset % (run * bytes_of(a)) != 0) return Mode::each;
  for (std::size_t k = 0; k < last; ++k) {
    if (a.strides[k] % run != 0) return Mode::each;
  }
  return Mode::vector;
}

void Elements::choose_run(const std::vector<ElementAccess>& followed, std::int64_t longest) {
  std::int64_t widest = 1, reach = 0;
  for (const auto* list : {&loads_, &stores_}) {
    for (const ElementAccess& a : *list) {
      widest = std::max(widest, bytes_of(a));
      std::int64_t end = 0;
      for (std::size_t k = 0; k < dims_.size(); ++k) end += std::abs(a.strides[k]) * (dims_[k] - 1);
      reach = std::max(reach, end * bytes_of(a));
    }
  }
  wide_ = reach >= (std::int64_t{1} << 31);
  if (dims_.empty()) return;
  inner_ = static_cast<int>(origin_.back());
  for (const std::int64_t run : {16, 8, 4, 2}) {
    if (run > longest || unit(dims_.size() - 1) % run != 0 || run * widest > 32) continue;
    bool good = std::all_of(stores_.begin(), stores_.end(), [&](const ElementAccess& a) { return mode(a, run) == Mode::vector; });
    for (ElementAccess a : followed) {  // in the space's dimensions
      ElementAccess ordered = a;
      ordered.strides.clear();
      ordered.div.clear();
      for (const std::size_t k : origin_) {
        ordered.strides.push_back(a.strides[k]);
        ordered.div.push_back(a.div[k]);
      }
      good = good && mode(ordered, run) == Mode::vector;
    }
    if (!good) continue;
    run_ = static_cast<int>(run);
    return;
  }
}

std::string Elements::offset(const ElementAccess& a, OpenNumbers& numbers) const {
  std::string text;
  for (std::size_t k = 0; k < dims_.size(); ++k) {
    if (a.strides[k] == 0) continue;
    const std::string index = a.div[k] == 1 ? fmt::format("i{}", k) : fmt::format("(i{} / {})", k, a.div[k]);
    const std::int64_t step = a.strides[k] * bytes_of(a);
    text += fmt::format("{}{} * {}", text.empty() ? "" : " + ", index, numbers.put({step, a.open[k] != 0}, wide_ ? "LL" : ""));
  }
  return text.empty() ? "0" : text;
}

KernelText Elements::emit(const AnchorText& anchor) const {
  const program::Program p = shortened(program_, loads_.size());
  const std::vector<char> used = loaded(p);
  KernelText out;
  OpenNumbers numbers = anchor.numbers;
  Launch launch;
  launch.function = "octavo_elements";
  std::string parameters, loads, call, results, stores;
  const auto parameter = [&](const std::string& name, Argument what, bool written) {
    parameters += fmt::format("{}{}unsigned char* {}", parameters.empty() ? "" : ", ", written ? "" : "const ", name);
    launch.arguments.push_back(what);
  };
  for (std::size_t k = 0; k < anchor.inputs.size(); ++k)
    parameter(fmt::format("x{}", k), {Argument::Kind::buffer, anchor.inputs[k].buffer, anchor.inputs[k].offset}, false);
  for (std::size_t k = 0; k < anchor.constants.size(); ++k) {
    parameter(fmt::format("k{}", k), {Argument::Kind::constant, static_cast<std::int32_t>(k), 0}, false);
    out.constants.push_back(anchor.constants[k]);
  }
  if (anchor.workspace_bytes > 0) parameter("w", {Argument::Kind::workspace, 0, 0}, false);
  out.workspace_bytes = anchor.workspace_bytes;
  out.launches = anchor.before;
  for (std::size_t k = 0; k < loads_.size(); ++k) {
    if (!used[k]) continue;
    const ElementAccess& a = loads_[k];
    parameter(fmt::format("a{}", k), {Argument::Kind::buffer, a.buffer, a.offset}, false);
    const std::string load = load_function(a.dtype), at = fmt::format("a{} + {}", k, offset(a, numbers));
    loads += fmt::format("  {} l{}[kRun];\n", register_type(a.dtype), k);
    switch (mode(a, run_)) {
      case Mode::vector: loads += fmt::format("  {}(l{}, {});\n", load, k, at); break;
      case Mode::same:
        loads += fmt::format("  {{\n    {} one[1];\n    {}(one, {});\n", register_type(a.dtype), load, at);
        loads += fmt::format("    OCTAVO_UNROLL\n    for (int v = 0; v < kRun; ++v) l{}[v] = one[0];\n  }}\n", k);
        break;
      case Mode::each: {
        const std::size_t last = dims_.size() - 1;
        const std::string first = fmt::format("i{}", last);
        loads += fmt::format("  OCTAVO_UNROLL\n  for (int v = 0; v < kRun; ++v) {{\n    const int {} = run_at + v;\n", first);
        loads +=
            fmt::format("    {0} one[1];\n    {1}(one, {2});\n    l{3}[v] = one[0];\n  }}\n", register_type(a.dtype), load, at, k);
        break;
      }
    }
    call += fmt::format(", l{}[v]", k);
  }
  for (std::size_t j = 0; j < stores_.size(); ++j) {
    const ElementAccess& a = stores_[j];
    parameter(fmt::format("o{}", j), {Argument::Kind::buffer, a.buffer, a.offset}, true);
    results += fmt::format("  {} r{}[kRun];\n", register_type(a.dtype), j);
    call += fmt::format(", r{}[v]", j);
    stores += fmt::format("  {}(o{} + {}, r{});\n", store_function(a.dtype), j, offset(a, numbers), j);
  }
  std::int64_t total = 1;
  bool open = false;
  for (std::size_t k = 0; k < dims_.size(); ++k) {
    total *= dims_[k];
    open = open || is_open(k);
  }
  const std::int64_t threads = total / run_;
  const char* index = threads < (std::int64_t{1} << 31) ? "unsigned" : "unsigned long long";
  const bool acc = has_anchor_ && (program::uses(p, Op::acc_i) || program::uses(p, Op::acc_f));
  std::string text;
  const std::int64_t units = kThreads / anchor.shared;  // runs of a block
  const std::string last_thread = numbers.put({threads, open}, index[8] != 0 ? "ull" : "u");
  if (anchor.shared == 1) {
    text += fmt::format("  constexpr int share = 0;\n  {0} rest = ({0})octavo_block() * {1}u + (unsigned)octavo_thread();\n", index,
                        kThreads);
    text += fmt::format("  if (rest >= {}) return;\n", last_thread);
  } else {
    text += fmt::format("  const int share = octavo_thread() / {0}, mine = octavo_thread() % {0};\n", units);
    text += fmt::format("  {0} rest = ({0})octavo_block() * {1}u + (unsigned)mine;\n", index, units);
    text += fmt::format("  const bool inside = rest < {};\n  if (!inside) rest = 0;\n", last_thread);
  }
  for (std::size_t k = dims_.size(); k-- > 0;) {
    const bool last = k + 1 == dims_.size();
    const std::string n = k == 0 ? "" : numbers.put({last ? dims_[k] / run_ : dims_[k], is_open(k)}, "u");
    text += fmt::format("  const int i{} = (int)(rest{}){};\n", k, k == 0 ? "" : " % " + n,
                        last && run_ > 1 ? fmt::format(" * {}", run_) : "");
    if (k > 0) text += fmt::format("  rest /= {};\n", n);
  }
  if (!dims_.empty()) text += fmt::format("  const int run_at = i{};\n", dims_.size() - 1);
  if (has_anchor_) {
    for (std::size_t d = 0; d < space_.size(); ++d) {
      const auto at = std::find(origin_.begin(), origin_.end(), d);
      text += at == origin_.end() ? fmt::format("  constexpr int c{} = 0;\n", d)
                                  : fmt::format("  const int c{} = i{};\n", d, at - origin_.begin());
    }
    const char* type = anchor.real ? "float" : "int";
    text += fmt::format("  {} acc[kRun];\n{}", type, anchor.body);
    if (anchor.shared > 1) {
      // Threads of one part of all runs lie side by side: neighbours in shared memory too.
      text += fmt::format("  __shared__ {} parts[{} * kRun];\n", type, kThreads);
      text += fmt::format("  for (int v = 0; v < kRun; ++v) parts[v * {} + octavo_thread()] = acc[v];\n", kThreads);
      text += fmt::format(
          "  for (int half = {0}; half > 0; half /= 2) {{\n    octavo_barrier();\n    if (share < half) {{\n"
          "      for (int v = 0; v < kRun; ++v) parts[v * {1} + octavo_thread()] = acc[v] = octavo_add(acc[v], parts[v * {1} + "
          "octavo_thread() + half * {2}]);\n    }}\n  }}\n",
          anchor.shared / 2, kThreads, units);
      text += "  if (share != 0 || !inside) return;\n";
    }
    text += anchor.finish;
    if (anchor.shared == 1) text += "  (void)share;\n";
  }
  text += loads + "  octavo_let_next_begin();\n" + results;
  text += fmt::format("  OCTAVO_UNROLL\n  for (int v = 0; v < kRun; ++v) octavo_program({}{});\n{}}}\n", acc ? "acc[v]" : "0", call,
                      stores);
  launch.grid = {static_cast<int>((threads + units - 1) / units), 1, 1};
  launch.block = {kThreads, 1, 1};
  launch.counted = {total, run_ * (anchor.shared == 1 ? 1 : units)};
  if (anchor.shared == 1) launch.counted.item = fmt::format("(long long)octavo_block() * {} + octavo_thread()", kThreads);
  numbers.add_to(launch);
  out.text =
      std::string(kFunctions) + emit_function(p, "octavo_program") + anchor.functions +
      fmt::format("OCTAVO_KERNEL({}, 1) octavo_elements({}{}) {{\n  octavo_wait_for_previous();\n  constexpr int kRun = {};\n",
                  kThreads, parameters, numbers.parameters(), run_) +
      text;
  out.launches.push_back(std::move(launch));
  return out;
}

}  // namespace octavo::cuda
