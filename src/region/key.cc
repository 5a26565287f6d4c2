#include "region/key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"
#include "ir/canonical.h"

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

std::string attributes(const Anchor& a) {
  std::string out;
  for (const auto& [name, value] : ir::without_defaults(a.op, a.attrs)) {
    out += fmt::format(" {}=", name);
    if (const auto* i = std::get_if<std::int64_t>(&value)) out += fmt::format("{}", *i);
    if (const auto* f = std::get_if<double>(&value)) out += fmt::format("{}", *f);
    if (const auto* t = std::get_if<std::string>(&value)) out += *t;
    if (const auto* l = std::get_if<std::vector<std::int64_t>>(&value)) out += fmt::format("{}", fmt::join(*l, ","));
    if (const auto* l = std::get_if<std::vector<double>>(&value)) out += fmt::format("{}", fmt::join(*l, ","));
  }
  return out;
}

/// The operations, and a hash of what each reads.
std::string skeleton(const program::Program& p) {
  std::string ops, shape;
  for (const program::Instr& i : p.code) {
    ops += fmt::format(" {}", program::info(i.op).name);
    shape += fmt::format("{},{},{},{};", i.args[0], i.args[1], i.args[2], i.args[3]);
    const bool slot = i.op == program::Op::load_i || i.op == program::Op::load_f;
    if (slot) shape += fmt::format("@{}", i.imm);
  }
  for (const auto& o : p.outputs) shape += fmt::format(">{}", o.value);
  return p.code.empty() ? "" : fmt::format("{} #{:04x}", ops, hash64(shape) & 0xffff);
}

}  // namespace

std::string key(const Region& region, const Plan& plan) {
  std::string out;
  for (const Stage& s : region.stages) {
    if (!out.empty()) out += region.independent ? " || " : " ; ";
    out += s.anchor.none() ? "pointwise" : std::string(ir::name_of(s.anchor.op));
    if (!s.anchor.none() && !s.anchor.integer) out += " float";
    out += attributes(s.anchor);
    for (const TensorRef& in : s.anchor.inputs) out += " " + tensor(in, plan);
    if (s.anchor.weights) out += " w " + tensor(*s.anchor.weights, plan);
    if (!s.anchor.weight_zero.empty()) out += fmt::format(" zero[{}]", s.anchor.weight_zero.size());
    out += " :" + skeleton(s.program);
    for (const Operand& o : s.operands) {
      out += ", " + tensor(o.ref, plan);
      if (std::any_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d != 1; }))
        out += fmt::format("/{}", fmt::join(o.div, ","));
    }
    out += " >";
    for (const TensorRef& t : s.stores) out += " " + tensor(t, plan);
  }
  return out;
}

}  // namespace octavo::region
