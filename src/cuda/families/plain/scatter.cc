// scatter: ScatterElements and ScatterND. A copy of the data, then a thread an updated element. Where several updates have one target, the reference takes
// them in their order: a table says for each target which update is the last one (the first one, where updates are combined, which then takes the others in
// order), and how many there are. The others are found by the chain of a target's updates, which is in no order and is gone through for each of them; or, where
// they are many, among all updates.
#include "cuda/families/plain/plain.h"

namespace octavo::cuda {
namespace {

using ir::Combine;

/// Tuples of indices (single ones of ScatterElements), each with kInner neighbouring elements; octavo_row(t, u) is their place in rows of kInner
/// elements, -1 where an index is outside of the data, which is an error of the caller's data: such updates are left out.
struct Targets {
  std::string text;
  std::int64_t units = 0, inner = 1, rows = 0;
};

Result<Targets> targets_of(const Stage& s) {
  const ir::Shape &data = s.anchor.inputs[0].dims, &ids = s.anchor.inputs[1].dims;
  const ir::Shape dense = ir::dense_strides(data);
  const auto& facts = s.anchor.as<ir::Scatter>();
  Targets out;
  std::string body;
  const auto indexed = [&](const std::string& place, std::size_t d, std::int64_t step) {
    body += fmt::format(
        "  k = octavo_x1(t, {0});\n  k += k < 0 ? {1}ll : 0ll;\n  if (k < 0 || k >= {1}ll) return -1;\n  row += k * {2}ll;\n",
        place, data[d], step);
  };
  if (facts.kind == ir::ScatterKind::elements) {
    if (ids.size() != data.size() || facts.axis < 0 || facts.axis >= static_cast<std::int64_t>(data.size()))
      return fail(ErrorKind::bad_engine,
                  fmt::format("scatter of {} along axis {} of {}", ir::to_string(ids), facts.axis, ir::to_string(data)));
    const auto axis = static_cast<std::size_t>(facts.axis);
    for (std::size_t d = data.size(); d-- > 0;) {
      if (ids[d] > data[d] && d != axis)
        return fail(ErrorKind::bad_engine, fmt::format("scatter of {} into {}", ir::to_string(ids), ir::to_string(data)));
      if (d != axis) body += fmt::format("  row += rest % {}ll * {}ll;\n", std::max<std::int64_t>(ids[d], 1), dense[d]);
      body += fmt::format("  rest /= {}ll;\n", std::max<std::int64_t>(ids[d], 1));
    }
    indexed("u", axis, dense[axis]);
    out.units = ir::count(ids), out.rows = ir::count(data);
  } else {
    const std::int64_t length = ids.empty() ? 0 : ids.back();
    if (ids.empty() || length > static_cast<std::int64_t>(data.size()))
      return fail(ErrorKind::bad_engine, fmt::format("scatter of {} into {}", ir::to_string(ids), ir::to_string(data)));
    for (std::size_t d = static_cast<std::size_t>(length); d < data.size(); ++d) out.inner *= data[d];
    for (std::size_t d = 0; d < static_cast<std::size_t>(length); ++d)
      indexed(fmt::format("u * {}ll + {}", length, d), d, dense[d] / std::max<std::int64_t>(out.inner, 1));
    out.units = length == 0 ? ir::count(ir::Shape(ids.begin(), ids.end() - 1)) : ir::count(ids) / length;
    out.rows = out.inner == 0 ? 0 : ir::count(data) / out.inner;
  }
  out.text = fmt::format(
      "constexpr long long kInner = {}, kUnits = {};\n"
      "OCTAVO_DEVICE long long octavo_row(const OctavoTensors& t, long long u) {{\n  long long rest = u, row = 0, k = 0;\n  "
      "(void)rest, "
      "(void)k;\n{}  return row;\n}}\n",
      out.inner, out.units, body);
  return out;
}

std::string combined(Combine how, bool real, ir::DType type) {
  switch (how) {
    case Combine::add: return real ? "__fadd_rn(old, update)" : "(long long)((unsigned long long)old + (unsigned long long)update)";
    case Combine::mul: return real ? "__fmul_rn(old, update)" : "(long long)((unsigned long long)old * (unsigned long long)update)";
    default: break;
  }
  const bool largest = how == Combine::max;
  if (real) return largest ? "octavo_lt(old, update, update, old)" : "octavo_lt(update, old, update, old)";
  const char* as = type == ir::DType::u64 ? "(unsigned long long)" : "";
  return largest ? fmt::format("{0}old < {0}update ? update : old", as) : fmt::format("{0}update < {0}old ? update : old", as);
}

class ScatterFamily final : public PlainFamily {
 public:
  ScatterFamily() : PlainFamily("scatter", {ir::Op::scatter}, 0) {}

  Result<std::vector<ir::Shape>> shapes(const Stage& s) const override {
    const std::size_t n = s.anchor.inputs.size();
    if (n != 3 && n != 4) return fail(ErrorKind::bad_engine, fmt::format("scatter of {} operands", n));
    return std::vector<ir::Shape>{s.anchor.inputs[0].dims};
  }

  Result<PlainText> text(const Stage& s) const override {
    const region::TensorRef &x = s.anchor.inputs[0], &update = s.anchor.inputs[2];
    OCTAVO_TRY(const Targets to, targets_of(s));
    if (x.dtype != update.dtype) return fail(ErrorKind::bad_engine, "scatter: data and updates of two types");
    if (reads_floats(s.anchor.inputs[1])) return fail(ErrorKind::bad_engine, "scatter: indices that are floats");
    if (ir::count(update.dims) != to.units * to.inner)
      return fail(ErrorKind::bad_engine,
                  fmt::format("scatter of {} updates, there are {}", to.units * to.inner, ir::count(update.dims)));
    if (to.units >= (std::int64_t{1} << 31)) return refuse("updates", to.units, "less than 2^31");
    const Combine how = s.anchor.as<ir::Scatter>().combine;
    const bool real = reads_floats(x);
    // Where floats are combined, all of them go through float32.
    const bool raw = s.program.outputs.empty() && (how == Combine::none || !real);
    const auto move = [&](int input, const std::string& to_element, const std::string& from) {
      return raw ? fmt::format("octavo_put_bits0(t, {}, octavo_bits{}(t, {}));", to_element, input, from)
                 : fmt::format("octavo_put0(t, {}, octavo_x{}(t, {}));", to_element, input, from);
    };
    PlainText t;
    t.functions = to.text;
    // `ends`: one more than the update at a target's end of the chain, 0: none; `before`: the same of the update before.
    t.scratch_bytes = 12 * std::max<std::int64_t>(to.rows, 1) + 4 * to.units;
    const std::string table = fmt::format(
        "  int *const chosen = (int*)t.w, *const meeting = chosen + {0}ll, *const ends = meeting + {0}ll, *const before = ends + "
        "{0}ll;\n"
        "  (void)ends, (void)before;\n",
        to.rows);
    // Updates that are not there are left out: their threads return at once.
    std::string there;
    if (s.anchor.inputs.size() == 4) {
      const ir::Shape& ids = s.anchor.inputs[1].dims;
      const std::int64_t rows = ids.empty() ? 1 : ids[0];
      t.functions += fmt::format(
          "OCTAVO_DEVICE long long octavo_there(const OctavoTensors& t) {{ return min(max(octavo_x3(t, 0), 0ll), {}ll) * {}ll; "
          "}}\n",
          rows, rows == 0 ? 0 : to.units / rows);
      there = "  if (u >= octavo_there(t)) return;\n";
    }
    PlainPass copy, choose, write;
    copy.threads = ir::count(x.dims);
    copy.body = table + fmt::format("  {}\n  if (i < {}ll) chosen[i] = meeting[i] = ends[i] = 0;\n", move(0, "i", "i"), to.rows);
    t.passes = {copy};
    if (to.units == 0 || to.rows == 0) return t;
    choose.threads = to.units;
    choose.body = (there.empty() ? "" : "  const long long u = i;\n" + there) + table +
                  fmt::format(R"(  const long long row = octavo_row(t, i);
  if (row < 0) return;
  octavo_atomic_max(chosen + row, (int)({}));
  octavo_atomic_add(meeting + row, 1);
{}
)",
                              how == Combine::none ? "i + 1" : "kUnits - i",
                              how == Combine::none ? "" : "  before[i] = octavo_atomic_exchange(ends + row, (int)(i + 1));");
    write.threads = to.units * to.inner;
    write.body = table +
                 (there.empty() ? "  const long long u = i / kInner, row = octavo_row(t, u), to = row * kInner + i % kInner;\n"
                                : "  const long long u = i / kInner;\n" + there +
                                      "  const long long row = octavo_row(t, u), to = row * kInner + i % kInner;\n") +
                 "  if (row < 0) return;\n";
    if (how == Combine::none) {
      write.body += "  (void)meeting;\n  if (chosen[row] == (int)(u + 1)) " + move(2, "to", "i") + "\n";
    } else {
      t.functions += fmt::format("OCTAVO_DEVICE {0} octavo_combined({0} old, {0} update) {{ return {1}; }}\n",
                                 real ? "float" : "long long", combined(how, real, x.dtype));
      write.body += fmt::format(R"(  if (chosen[row] != (int)(kUnits - u)) return;
  {} v = octavo_combined(octavo_x0(t, to), octavo_x2(t, i));
  long long left = meeting[row] - 1, last = u;
  if (left * left * 8 < kUnits - u) {{
    for (; left > 0; --left) {{
      long long next = kUnits;
      for (long long q = ends[row]; q > 0; q = before[q - 1]) next = q - 1 > last && q - 1 < next ? q - 1 : next;
      v = octavo_combined(v, octavo_x2(t, next * kInner + i % kInner));
      last = next;
    }}
  }}
  for (long long q = u + 1; left > 0; ++q) {{
    if (octavo_row(t, q) != row) continue;
    v = octavo_combined(v, octavo_x2(t, q * kInner + i % kInner));
    --left;
  }}
  octavo_put0(t, to, v);
)",
                                real ? "float" : "long long");
    }
    t.passes.push_back(choose);
    t.passes.push_back(write);
    t.work = static_cast<double>(ir::count(x.dims) + 3 * to.units * to.inner);
    return t;
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(scatter, ScatterFamily)

}  // namespace octavo::cuda
