#include "cuda/families/rows/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/cost_model.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/pieces.h"
#include "cuda/text/shorten.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using program::Op;

constexpr const char* kText =
#include "cuda/families/rows/rows.inc"
    ;
/// So that texts name places and terms alike, whether extents are parameters or not.
constexpr std::string_view kOpenNames = R"(#define octavo_place(tile, row, i) octavo_place(tile, row, i, kChains, kPitch)
#define octavo_terms(chain) octavo_terms(chain, kChains, kExtent)
)";
constexpr int kBatch = 4;  // runs of a lane that are read together

}  // namespace

Result<Rows> Rows::of(const region::Stage& s, std::size_t first, std::size_t last,
                      const std::vector<std::vector<std::int64_t>>& parameters) {
  Rows r;
  r.program_ = s.program;
  const region::TensorRef& x = s.anchor.inputs[0];
  std::vector<std::size_t> outer, inner;
  for (std::size_t k = 0; k < s.space.size(); ++k) {
    const bool open = (s.open >> k & 1) != 0, of_row = k >= first && k < last;
    r.open_extent_ = r.open_extent_ || (open && of_row);
    if (s.space[k] == 1 && (!open || of_row)) continue;
    (k >= first && k < last ? inner : outer).push_back(k);
    (k >= first && k < last ? r.extent_ : r.count_) *= s.space[k];
  }
  if (r.extent_ < 1 || r.count_ < 1) return refuse("elements", ir::to_string(s.space), "some");
  if (r.count_ >= (std::int64_t{1} << 31)) return refuse("rows", r.count_, "less than 2^31");
  // Of equal strides the open one is the greater one of other shapes.
  const auto far = [&](std::size_t k) { return std::pair(x.strides[k], x.open.strides >> k & 1); };
  std::stable_sort(outer.begin(), outer.end(), [&](std::size_t a, std::size_t b) { return far(a) > far(b); });
  r.in_order_ = std::is_sorted(outer.begin(), outer.end());
  for (const std::size_t k : outer) {
    r.dims_.push_back(s.space[k]);
    r.open_dims_.push_back((s.open >> k & 1) != 0 ? 1 : 0);
  }

  Reasons why;
  const auto add = [&](std::string name, const region::TensorRef& ref, const std::vector<std::int64_t>& strides, bool written) {
    Array a{std::move(name), ref, {}, {}, 0, written};
    if (load_function(ref.dtype).empty())
      why = unmet("type of a tensor", ir::name_of(ref.dtype), "one that the GPU's programs read");
    for (const std::size_t k : outer) {
      a.outer.push_back(strides[k]);
      a.open.push_back(strides[k] != 0 && ref.dims.size() == s.space.size() && (ref.open.strides >> k & 1) != 0 ? 1 : 0);
    }
    if (!inner.empty()) a.inner = strides[inner.back()];
    for (std::size_t k = 0; k + 1 < inner.size(); ++k) {
      if (strides[inner[k]] != strides[inner[k + 1]] * s.space[inner[k + 1]])
        why = unmet("strides of a row", fmt::format("{}", ir::to_string(strides)), "a row in one piece");
    }
    r.bytes_ += static_cast<double>(region::tensor_bytes(ref));
    r.arrays_.push_back(std::move(a));
  };
  add("x", x, x.strides, false);
  for (std::size_t k = 0; k < parameters.size(); ++k) add(fmt::format("p{}", k + 1), s.anchor.inputs[k + 1], parameters[k], false);
  const std::vector<char> used = loaded(s.program);
  for (std::size_t k = 0; k < s.operands.size(); ++k) {
    if (used[k] == 0) continue;
    const ElementAccess a = access_of(s.operands[k].ref, s.operands[k].div, s.space, s.open);
    if (std::any_of(a.div.begin(), a.div.end(), [](std::int64_t d) { return d != 1; }))
      return refuse("an operand that repeats", ir::to_string(a.div),
                    "one element for each of the space, or for all of a dimension");
    add(fmt::format("a{}", k), s.operands[k].ref, a.strides, false);
  }
  for (std::size_t j = 0; j < s.stores.size(); ++j)
    add(fmt::format("o{}", j), s.stores[j], access_of(s.stores[j], {}, s.space, s.open).strides, true);
  if (!why.empty()) return refuse(std::move(why));
  if (r.extent_ > 1 && r.arrays_[0].inner != 1) return refuse("elements between neighbours of a row", r.arrays_[0].inner, "1");
  const auto size = element_bytes(x);
  for (const int run : {8, 4, 2, 1}) {
    if (run * size > 16 || r.extent_ % run != 0 || r.mode(r.arrays_[0], run) != Mode::vector) continue;
    r.run_ = run;
    break;
  }
  return r;
}

Rows::Mode Rows::mode(const Array& a, int run) const {
  if (run == 1) return Mode::vector;
  if (a.inner == 0) return Mode::same;
  if (a.inner != 1 || a.ref.offset % (run * element_bytes(a.ref)) != 0) return Mode::each;
  const bool aligned = std::all_of(a.outer.begin(), a.outer.end(), [&](std::int64_t stride) { return stride % run == 0; });
  return aligned ? Mode::vector : Mode::each;
}

std::int64_t Rows::pitch(std::int64_t chain) const {
  // An odd number of vectors: eight threads that read 16 bytes, 16 that read 8 or 32 that read 4 meet no bank twice.
  const std::int64_t wide = std::min(run_, 4), vectors = ((chain == 0 ? extent_ : std::min(chain, extent_)) + wide - 1) / wide;
  return (vectors | 1) * wide;
}

std::int64_t Rows::shared_bytes(const RowTile& tile, std::int64_t chain) const {
  return tile.rows * chains(chain) * (pitch(chain) + 2) * 4;
}

bool Rows::fits(const RowTile& t, std::int64_t chain, const Target& target) const {
  return t.rows >= 1 && t.rows <= 64 && t.warps >= 1 && t.warps <= 16 && t.warps <= t.rows && chains(chain) <= kMostChains &&
         shared_bytes(t, chain) <= target.shared_bytes;
}

/// An estimate of an H100: what issues, what memory gives, and what a block waits for, which as many blocks overlap as fit.
double Rows::seconds(const RowTile& t, std::int64_t chain, const Target& target) const {
  constexpr double kInstructions = 60, kWait = 2500, kTerm = 8;
  const double elements = static_cast<double>(count_) * static_cast<double>(extent_);
  const double resident = std::max(
      1.0, std::min({std::floor(64.0 / t.warps), 32.0,
                     std::floor(static_cast<double>(target.shared_bytes) / static_cast<double>(shared_bytes(t, chain) + 1024))}));
  const double blocks = std::ceil(static_cast<double>(count_) / t.rows), at_once = target.multiprocessors * resident;
  const double lanes =
      std::ceil(static_cast<double>(extent_) / (32.0 * run_)) * 32.0 * run_;  // those that have nothing to do count as well
  const double own = std::ceil(static_cast<double>(t.rows) / t.warps) * lanes / 32 * kInstructions / 2;
  const double sums = chain == 0 ? kTerm * static_cast<double>(extent_)
                                 : 2 * kTerm * static_cast<double>(std::min(chain, extent_)) *
                                       std::ceil(static_cast<double>(t.rows * chains(chain)) / (32.0 * t.warps));
  const double issued = elements / static_cast<double>(extent_) * lanes * kInstructions /
                        (cost::kLanes * std::min<double>(target.multiprocessors, blocks));
  return cost::kLaunch + std::max({bytes_ / cost::kMemoryOfPasses, issued / cost::kClock,
                                   std::ceil(blocks / at_once) * (kWait + own + sums) / cost::kClock});
}

std::vector<Choice<RowTile>> Rows::tactics(const Target& target, std::int64_t chain) const {
  std::vector<Choice<RowTile>> out;
  for (const int rows : {1, 2, 4, 8, 16, 32}) {
    for (const int warps : {1, 2, 4, 8}) {
      const RowTile t{rows, warps};
      if (fits(t, chain, target)) out.push_back({t, seconds(t, chain, target)});
    }
  }
  put_in_order(out, [](const RowTile& t) { return t.rows / t.warps; });
  return out;
}

Status Rows::check(const RowTile& t, std::int64_t chain, const Target& target) const {
  if (fits(t, chain, target)) return {};
  return refuse("rows, warps, bytes of shared memory of a block",
                fmt::format("{}, {}, {}", t.rows, t.warps, shared_bytes(t, chain)),
                fmt::format("1 to 64, at most 16 and as many as rows, at most {}", target.shared_bytes));
}

/// Where a row begins in each tensor.
std::string Rows::places(OpenNumbers& numbers) const {
  std::string text = "struct OctavoRow {\n", split;
  for (const Array& a : arrays_) text += fmt::format("  long long {};\n", a.name);
  text += "};\n";
  std::string body;
  for (std::size_t k = dims_.size(); k-- > 0;) {
    const std::string extent = k == 0 ? "" : numbers.put({dims_[k], open_dims_[k] != 0}, "u");
    const std::string index = k == 0 ? "rest" : "rest % " + extent;
    for (const Array& a : arrays_) {
      if (a.outer[k] != 0)
        body += fmt::format("  at.{} += (long long)({}) * {};\n", a.name, index,
                            numbers.put({a.outer[k] * element_bytes(a.ref), a.open[k] != 0}, "ll"));
    }
    if (k > 0) body += fmt::format("  rest /= {};\n", extent);
  }
  return text +
         fmt::format("OCTAVO_DEVICE OctavoRow octavo_row(unsigned rest{}) {{\n  OctavoRow at = {{}};\n", numbers.parameters()) +
         body + "  return at;\n}\n";
}

std::string Rows::load(const Array& a, const std::string& into) const {
  const std::string function = load_function(a.ref.dtype), type(register_type(a.ref.dtype));
  const auto step = a.inner * element_bytes(a.ref);
  std::string text = fmt::format("      {} {}[kRun];\n", type, into);
  if (mode(a, run_) == Mode::vector)
    return text + fmt::format("      {}({}, {} + at.{} + i * {}ll);\n", function, into, a.name, a.name, step);
  return text + fmt::format(
                    "      OCTAVO_UNROLL\n      for (int v = 0; v < kRun; ++v) {{\n        {0} one[1];\n        {1}(one, {2} + "
                    "at.{2} + (i + v) * "
                    "{3}ll);\n        {4}[v] = one[0];\n      }}\n",
                    type, function, a.name, step, into);
}

Result<KernelText> Rows::emit(const RowTile& tile, const RowText& anchor, const Target& target) const {
  OCTAVO_CHECK(check(tile, anchor.chain, target));
  const program::Program p = shortened(program_, static_cast<std::size_t>(program_.operand_count));
  KernelText out;
  Launch launch = launch_of("octavo_rows", (count_ + tile.rows - 1) / tile.rows, 32 * tile.warps, shared_bytes(tile, anchor.chain));
  if (in_order_) launch.counted = {count_, tile.rows};
  std::string parameters, each = anchor.each, call = program::uses(p, Op::acc_f) || program::uses(p, Op::acc_i) ? "acc[v]" : "0";
  std::string parameter_loads, operand_loads, results, called, stores, kept_arrays, kept_loads;
  // Parameters of all rows are read beside the rows: behind the sums everything else would wait for them.
  constexpr std::int64_t kMostKept = 64;  // registers
  const std::int64_t turns = parts(extent_, 32 * run_);
  const auto given_once = [](const Array& a) {
    return a.name[0] != 'p' || std::all_of(a.outer.begin(), a.outer.end(), [](std::int64_t stride) { return stride == 0; });
  };
  const auto parameters_of_rows = std::count_if(arrays_.begin(), arrays_.end(), [](const Array& a) { return a.name[0] == 'p'; });
  const bool kept = !anchor.open && parameters_of_rows > 0 && parameters_of_rows * turns * run_ <= kMostKept &&
                    std::all_of(arrays_.begin(), arrays_.end(), given_once);
  int stored = 0;
  for (const Array& a : arrays_) {
    parameters += fmt::format("{}{}unsigned char* {}", parameters.empty() ? "" : ", ", a.written ? "" : "const ", a.name);
    launch.arguments.push_back({Argument::Kind::buffer, a.ref.buffer, a.ref.offset});
    if (a.name[0] == 'p' && kept) {
      parameter_loads += fmt::format("      const {0} (&e{1})[kRun] = kept_{1}[turn];\n", register_type(a.ref.dtype), a.name);
      kept_arrays += fmt::format("  {} kept_{}[kTurns][kRun];\n", register_type(a.ref.dtype), a.name);
      kept_loads += fmt::format("{}      OCTAVO_UNROLL\n      for (int v = 0; v < kRun; ++v) kept_{}[turn][v] = from_{}[v];\n",
                                load(a, "from_" + a.name), a.name, a.name);
    } else if (a.name[0] == 'p') {
      parameter_loads += load(a, "e" + a.name);
    }
    if (a.name[0] == 'a') operand_loads += load(a, "l" + a.name), call += fmt::format(", l{}[v]", a.name);
    if (!a.written) continue;
    const std::string function = store_function(a.ref.dtype);
    const auto step = std::max<std::int64_t>(a.inner, 0) * element_bytes(a.ref);
    results += fmt::format("      {} r{}[kRun];\n", register_type(a.ref.dtype), stored);
    call += fmt::format(", r{}[v]", stored);
    stores += mode(a, run_) == Mode::vector
                  ? fmt::format("      {0}({1} + at.{1} + i * {2}ll, r{3});\n", function, a.name, step, stored)
                  : fmt::format(
                        "      OCTAVO_UNROLL\n      for (int v = 0; v < kRun; ++v) {{\n        const {4} one[1] = {{r{3}[v]}};\n   "
                        "     {0}({1} + "
                        "at.{1} + (i + v) * {2}ll, one);\n      }}\n",
                        function, a.name, step, stored, register_type(a.ref.dtype));
    ++stored;
  }
  each = parameter_loads + anchor.each + operand_loads + results +
         fmt::format("      OCTAVO_UNROLL\n      for (int v = 0; v < kRun; ++v) octavo_program({});\n{}", call, stores);
  OpenNumbers given;
  const std::string of_rows = places(given), passed = given.passed();
  const bool open = !passed.empty() || std::any_of(open_dims_.begin(), open_dims_.end(), [](char o) { return o != 0; });
  if (open) given.name("kCount", count_, "unsigned");
  if (anchor.open)
    given.name("kExtent", extent_), given.name("kChains", chains(anchor.chain)), given.name("kPitch", pitch(anchor.chain));
  given.add_to(launch);
  const std::int64_t batch = anchor.open ? kBatch : std::min<std::int64_t>(kBatch, parts(extent_, 32 * run_));
  std::string text = text_for(kText, open), numbers;
  if (anchor.open) {
    numbers = declare({{"kRun", run_},
                       {"kWide", std::min(run_, 4)},
                       {"kRows", tile.rows},
                       {"kWarps", tile.warps},
                       {"kBatch", batch},
                       {"kChain", anchor.chain},
                       {"kSize", element_bytes(arrays_[0].ref)}});
  } else {
    numbers = declare({{"kExtent", extent_},
                       {"kRun", run_},
                       {"kWide", std::min(run_, 4)},
                       {"kRows", tile.rows},
                       {"kWarps", tile.warps},
                       {"kBatch", batch},
                       {"kChain", anchor.chain == 0 ? extent_ : anchor.chain},
                       {"kChains", chains(anchor.chain)},
                       {"kPitch", pitch(anchor.chain)},
                       {"kSize", element_bytes(arrays_[0].ref)}});
  }
  if (!open) numbers += fmt::format("constexpr unsigned kCount = {}u;\n", count_);
  const std::string read_x =
      fmt::format("OCTAVO_DEVICE void octavo_load_x(float (&e)[kRun], const unsigned char* p) {{ {}(e, p); }}\n",
                  load_function(arrays_[0].ref.dtype));
  replace_mark(text, "@OF_PLACE@", anchor.open ? ", int kChains, int kPitch" : "");
  replace_mark(text, "@OF_TERMS@", anchor.open ? ", int kChains, int kExtent" : "");
  replace_mark(text, "@NAMES@", anchor.open ? kOpenNames : "");
  replace_mark(text, "@FUNCTIONS@", anchor.functions);
  replace_mark(text, "@PARAMETERS@", parameters + given.parameters());
  if (open) replace_mark(text, "@PASSED@", passed), replace_mark(text, "@PASSED@", passed);
  replace_mark(text, "@TAKE@", anchor.take);
  replace_mark(text, "@STAGED@", anchor.staged);
  replace_mark(text, "@CHAINS@", anchor.chains);
  replace_mark(text, "@BEFORE@", anchor.before);
  const std::string of_turn =
      "OCTAVO_UNROLL\n    for (int turn = 0; turn < kTurns; ++turn) {\n      const int i = (32 * turn + lane) * kRun;\n"
      "      if (i >= kExtent) continue;\n";
  replace_mark(text, "@KEPT@",
               kept ? fmt::format("  constexpr int kTurns = {};\n{}  {{\n    const OctavoRow at = {{}};\n    {}{}    }}\n  }}\n",
                                  turns, kept_arrays, of_turn, kept_loads)
                    : "");
  replace_mark(text, "@TURN@", kept ? "    " + of_turn : "    for (int i = lane * kRun; i < kExtent; i += 32 * kRun) {\n");
  replace_mark(text, "@EACH@", each);
  out.text = std::string(elements_functions()) + emit_function(p, "octavo_program") + numbers + of_rows + read_x + text;
  out.launches.push_back(std::move(launch));
  return out;
}

}  // namespace octavo::cuda
