#include "region/key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/canonical.h"
#include "region/stage_graph.h"
#include "region/store_results.h"
#include "region/unread.h"
#include "region/weight_codes.h"

namespace octavo::region {
namespace {

std::string layout(const TensorRef& r) {
  const ir::Shape& d = r.dims;
  if (r.strides == ir::dense_strides(d)) return "";
  if (d.size() >= 3) {
    std::vector<std::int64_t> last(d.size());
    std::int64_t step = d[1];
    for (std::size_t i = d.size(); i-- > 2;) last[i] = step, step *= d[i];
    last[1] = 1;
    last[0] = step;
    if (r.strides == last) return "nhwc";
  }
  bool channel = d.size() >= 2 && r.strides[1] == 1;
  for (std::size_t i = 0; i < d.size(); ++i) channel = channel && (i == 1 || r.strides[i] == 0);
  if (channel) return "c";
  if (std::all_of(r.strides.begin(), r.strides.end(), [](std::int64_t s) { return s == 0; })) return "one";
  return fmt::format("({})", fmt::join(r.strides, ","));
}

std::string tensor(const TensorRef& r, const Plan& plan) {
  const Buffer& b = plan.buffers[static_cast<std::size_t>(r.buffer)];
  const bool callers = b.kind == BufferKind::input || b.kind == BufferKind::output;  // no slack around it: other code
  return fmt::format("{}{}[{}]{}", callers ? "io:" : "", ir::name_of(r.dtype), fmt::join(r.dims, ","), layout(r));
}

/// Floats have a point, lists of fewer than two elements a comma: the text tells the kind.
std::string value_text(const ir::Attr& value) {
  const auto real = [](double v) {
    const std::string text = fmt::format("{}", v);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  };
  if (const auto* i = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* f = std::get_if<double>(&value)) return real(*f);
  if (const auto* t = std::get_if<std::string>(&value)) return *t;
  std::vector<std::string> items;
  if (const auto* l = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t v : *l) items.push_back(fmt::format("{}", v));
  }
  if (const auto* l = std::get_if<std::vector<double>>(&value)) {
    for (const double v : *l) items.push_back(real(v));
  }
  return fmt::format("{}{}", fmt::join(items, ","), items.size() < 2 ? "," : "");
}

std::string attributes(const Anchor& a) {
  std::string out;
  for (const auto& [name, value] : ir::without_defaults(a.op, attributes_of(a)))
    out += fmt::format(" {}={}", name, value_text(value));
  return out;
}

/// All of the program but its constants: see key.h.
std::string skeleton(const program::Program& p) {
  std::string out;
  detail::Unread unread;
  int loads = 0, tables = 0;
  for (const program::Instr& i : p.code) {
    out += fmt::format(" {}", program::info(i.op).name);
    const bool load = i.op == program::Op::load_i || i.op == program::Op::load_f;
    const bool shift = i.op == program::Op::shl_i || i.op == program::Op::sra_i;
    const bool table = i.op == program::Op::table;
    if (shift || (load && i.imm != loads) || (table && i.imm != tables)) out += fmt::format("@{}", i.imm);
    loads += load ? 1 : 0;
    tables += table ? 1 : 0;
    const auto args = program::info(i.op).operands.size();
    const std::vector<int> given(i.args.begin(), i.args.begin() + static_cast<std::ptrdiff_t>(args));
    if (unread.last(args) != given) out += fmt::format("({})", fmt::join(given, ","));
    unread.made(given);
  }
  std::vector<int> stored;
  for (const auto& o : p.outputs) stored.push_back(o.value);
  if (unread.last(stored.size()) != stored) out += fmt::format(" store({})", fmt::join(stored, ","));
  return out;
}

}  // namespace

std::string key(const Region& region, const Plan& plan) {
  std::string out;
  for (std::size_t k = 0; k < region.stages.size(); ++k) {
    const Stage& s = region.stages[k];
    if (!out.empty()) out += region.independent ? " || " : " ; ";
    out += s.anchor.none() ? "pointwise" : std::string(ir::name_of(s.anchor.op));
    if (!s.anchor.none() && !s.anchor.integer) out += " float";
    out += attributes(s.anchor);
    const auto read = [&](const TensorRef& t) {
      const auto from = forwarded_from(region, k, t);
      if (!from) return tensor(t, plan);
      const std::string store = from->store == 0 ? "" : fmt::format(".{}", from->store);
      return fmt::format("stage{}{}:{}", from->stage, store, tensor(region.stages[from->stage].stores[from->store], plan));
    };
    for (const TensorRef& in : s.anchor.inputs) out += " " + read(in);
    if (s.anchor.weights) out += " w " + tensor(*s.anchor.weights, plan);
    if (!s.anchor.weight_zero.empty()) out += fmt::format(" zero[{}]", s.anchor.weight_zero.size());
    if (s.anchor.weight_codes) out += " " + spelled(*s.anchor.weight_codes);
    out += " :" + skeleton(s.program);
    for (const Operand& o : s.operands) {
      out += ", " + read(o.ref);
      if (std::any_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d != 1; }))
        out += fmt::format("/{}", fmt::join(o.div, ","));
    }
    out += " >";
    for (const TensorRef& t : s.stores) out += " " + tensor(t, plan);
  }
  return out;
}

std::string key_of(const Region& region, const Plan& plan) {
  return region.key.empty() && !plan.decided_for.empty() ? key(region, plan) : region.key;
}

}  // namespace octavo::region
