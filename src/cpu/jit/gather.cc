#include "cpu/jit/gather.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/jit/generated.h"
#include "cpu/joined.h"
#include "cpu/table.h"

namespace octavo::cpu {
namespace jit {
namespace {

using Ints = std::vector<std::int64_t>;

class GatherKernel final : public TaskedKernel {
 public:
  explicit GatherKernel(GatherSetting plan) : p_(std::move(plan)) {
    ConstantPool pool(code_);
    const std::size_t at = emit_gather(code_, pool, p_);
    pool.emit();
    code_.finish();
    run_ = reinterpret_cast<GatherFn>(reinterpret_cast<std::uintptr_t>(code_.getCode()) + at);
    const std::int64_t rows = p_.rows();
    tasks_ = static_cast<int>(std::clamp<std::int64_t>(rows * p_.row_bytes / 32768, 1, std::clamp<std::int64_t>(rows, 1, 256)));
  }

  void run(const region::Memory& memory, int task_begin, int task_end, const region::Worker&) const override {
    const std::int64_t rows = p_.rows(), inner = p_.dims.empty() ? 1 : p_.dims.back();
    const std::int64_t end = rows * task_end / tasks_;
    for (std::int64_t row = rows * task_begin / tasks_; row < end;) {
      GatherArgs args;
      args.from = memory.at(p_.source);
      for (std::size_t i = 0; i < p_.stores.size(); ++i) args.to[i] = memory.at(p_.stores[i]);
      std::int64_t rest = row;
      for (std::size_t k = p_.dims.size(); k-- > 0; rest /= p_.dims[k]) {
        const std::int64_t index = rest % p_.dims[k];
        args.from += index * p_.from[k];
        for (std::size_t i = 0; i < p_.stores.size(); ++i) args.to[i] += index * p_.to[i][k];
      }
      args.rows = std::min(end - row, inner - row % inner);
      row += args.rows;
      run_(&args);
    }
  }

 private:
  GatherSetting p_;
  Code code_;
  GatherFn run_ = nullptr;
};

/// Which byte of the source row each byte of the stored row is.
Ints bytes_of(const Ints& indices, std::int64_t size) {
  Ints out;
  for (const std::int64_t i : indices) {
    for (std::int64_t b = 0; b < size; ++b) out.push_back(i * size + b);
  }
  return out;
}

/// Windows that together hold the bytes [first, last) of the result. False: too many.
bool fill_chunk(const GatherSetting& p, const std::int64_t* first, const std::int64_t* last, GatherChunk& c) {
  Ints wanted(first, last);
  std::sort(wanted.begin(), wanted.end());
  for (const std::int64_t b : wanted) {
    if (!c.windows.empty() && b < c.windows.back() + 64) continue;
    c.windows.push_back(std::max<std::int64_t>(0, std::min(b, p.source_bytes - 64)));
  }
  if (c.windows.size() > kGatherWindows) return false;
  c.controls.resize(std::max<std::size_t>(1, c.windows.size() - 1));
  c.merged.resize(c.controls.size() - 1);
  for (auto& control : c.controls) control.fill(0);
  for (const std::int64_t* b = first; b != last; ++b) {
    std::size_t w = 0;
    while (*b >= c.windows[w] + 64) ++w;
    const auto lane = static_cast<std::size_t>(b - first);
    const auto at = static_cast<std::uint8_t>(*b - c.windows[w]);
    if (w < 2) {
      c.controls[0][lane] = static_cast<std::uint8_t>(at + 64 * w);
    } else {
      c.controls[w - 1][lane] = at;
      c.merged[w - 2] |= std::uint64_t{1} << lane;
    }
  }
  return true;
}

/// The dimensions but `axis` as few loops, the outermost in store 0 first.
void find_rows(const region::Stage& s, std::size_t axis, std::int64_t size, GatherSetting& p) {
  const region::TensorRef& x = s.anchor.inputs[0];
  const auto bytes = [&](ir::Shape strides) {
    strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(axis));
    for (std::int64_t& v : strides) v *= size;
    return strides;
  };
  ir::Shape dims = s.space;
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  std::vector<ir::Shape> strides;
  for (const region::TensorRef& r : s.stores) strides.push_back(bytes(r.strides));
  strides.push_back(bytes(x.strides));
  Joined loops = joined(dims, strides);
  p.dims = std::move(loops.dims), p.from = std::move(loops.strides.back());
  loops.strides.pop_back();
  p.to = std::move(loops.strides);
}

}  // namespace

std::int64_t GatherSetting::rows() const {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n;
}

Result<GatherSetting> match_gather(const region::Region& region) {
  GatherSetting p;
  if (region.stages.size() != 1) return refuse("stages", region.stages.size(), "1");
  const region::Stage& s = region.stages.front();
  if (s.anchor.op != ir::Op::gather || s.anchor.inputs.empty()) return refuse("operator", ir::name_of(s.anchor.op), "gather");
  const auto& gather = s.anchor.as<ir::Gather>();
  const Ints& indices = gather.indices;
  if (indices.empty()) return refuse("indices", "computed at run time, or not of one dimension", "constants of one dimension");
  const region::TensorRef& x = s.anchor.inputs[0];
  const auto axis = static_cast<std::size_t>(gather.axis);
  if (axis >= s.space.size() || x.dims.size() != s.space.size())
    return refuse("rank of the result", s.space.size(), fmt::format("{}, as the input", x.dims.size()));
  for (std::size_t k = 0; k < s.space.size(); ++k) {
    if (k != axis && x.dims[k] != s.space[k])
      return refuse("shape of the result", ir::to_string(s.space),
                    fmt::format("as the input's {} beside the axis", ir::to_string(x.dims)));
  }
  if (static_cast<std::int64_t>(indices.size()) != s.space[axis])
    return refuse("indices", indices.size(), fmt::format("{}", s.space[axis]));
  for (const std::int64_t i : indices) {
    if (i < 0 || i >= x.dims[axis]) return refuse("index", i, fmt::format("0 to {}", x.dims[axis] - 1));
  }
  if (ir::count(s.space) == 0) return refuse("elements", 0, "some");
  if (s.stores.empty() || s.stores.size() > kGatherStores)
    return refuse("stores", s.stores.size(), fmt::format("1 to {}", kGatherStores));
  const bool by_anchor = s.program.outputs.empty();
  if (by_anchor && s.stores.size() != 1) return refuse("stores without a program", s.stores.size(), "1");
  for (std::size_t i = 0; i < s.stores.size(); ++i) {
    if (s.stores[i].dtype != x.dtype)
      return refuse("type of a store", ir::name_of(s.stores[i].dtype), fmt::format("{}, as the input", ir::name_of(x.dtype)));
    if (s.stores[i].strides[axis] != 1) return refuse("stride of a store along the axis", s.stores[i].strides[axis], "1");
    if (by_anchor) continue;
    const program::Op made = s.program.code[static_cast<std::size_t>(s.program.outputs[i].value)].op;
    if (made != program::Op::acc_i && made != program::Op::acc_f) return refuse("epilogue", "computes", "none");
  }
  if (x.dims[axis] != 1 && x.strides[axis] != 1) return refuse("stride of the input along the axis", x.strides[axis], "1");
  const auto size = static_cast<std::int64_t>(ir::size_of(x.dtype));
  p.source = x, p.stores = s.stores;
  p.row_bytes = s.space[axis] * size;
  p.source_bytes = x.dims[axis] * size;
  if (std::max(p.row_bytes, p.source_bytes) > kGatherRowBytes)
    return refuse("bytes a row", std::max(p.row_bytes, p.source_bytes), fmt::format("at most {}", kGatherRowBytes));
  find_rows(s, axis, size, p);
  const Ints bytes = bytes_of(indices, size);
  double clocks = 2;
  for (std::int64_t at = 0; at < p.row_bytes; at += 64) {
    GatherChunk& c = p.chunks.emplace_back();
    c.to = std::max<std::int64_t>(0, std::min(at, p.row_bytes - 64));
    const std::int64_t n = std::min<std::int64_t>(64, p.row_bytes - c.to);
    if (!fill_chunk(p, bytes.data() + c.to, bytes.data() + c.to + n, c))
      return refuse("windows that 64 bytes come from", "more", fmt::format("at most {}", kGatherWindows));
    clocks += 1.5 * static_cast<double>(c.windows.size() + s.stores.size());
  }
  p.seconds = clocks * static_cast<double>(p.rows()) * kSecondsPerCycle + 2e-7;
  return p;
}

Result<std::unique_ptr<Kernel>> load_gather(GatherSetting plan) {
  return make_generated<GatherKernel>(std::move(plan));
}

namespace {

class GatherFamily final : public FamilyOf<GatherSetting> {
 public:
  GatherFamily() : FamilyOf({.name = "gather.avx512vbmi.jit", .levels = kLevels, .required = {"avx512vbmi"}, .rank = 0}) {}
  bool about(const Region& r) const override { return is_one(r, ir::Op::gather); }
  Match<GatherSetting> match(const Request& q) const override { return match_gather(q.region); }
  double cost(const GatherSetting& p, Isa) const override { return p.seconds; }
  Result<std::unique_ptr<Kernel>> load(GatherSetting p, Packed) const override { return load_gather(std::move(p)); }

 private:
  static constexpr std::array kLevels{Isa::avx512vnni};
};

}  // namespace
}  // namespace jit

OCTAVO_DEFINE_FAMILY(generated_gather, jit::GatherFamily)

}  // namespace octavo::cpu
