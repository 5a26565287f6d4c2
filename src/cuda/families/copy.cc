// copy: regions that only move elements between strided tensors, any type: copies of a reshape, and programs that store what they
// load. Words go in runs where both sides lie along memory. Where the two sides' innermost dimensions differ, tiles of 32 x 32 words
// are turned through shared memory, so that both sides are read and written along memory.
#include <algorithm>
#include <optional>

#include "cuda/families/words.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kTile = 32;

/// The stage as words: operand 0 to store 0.
Result<Stage> moved(const Stage& s) {
  const bool anchored = !s.anchor.none();
  const region::TensorRef& from = anchored ? s.anchor.inputs[0] : s.operands[0].ref;
  if (ir::size_of(from.dtype) != ir::size_of(s.stores[0].dtype))
    return refuse("type of the store", ir::name_of(s.stores[0].dtype), fmt::format("one as wide as {}", ir::name_of(from.dtype)));
  if (anchored && from.dims != s.space) return refuse("shape of the store", ir::to_string(s.space), ir::to_string(from.dims));
  Stage w = words_stage(s, from.dtype, true);
  region::Operand o{as_words(from), anchored ? std::vector<std::int64_t>{} : s.operands[0].div};
  if (!o.div.empty() && o.div.size() < w.space.size()) o.div.push_back(1);
  w.operands = {std::move(o)};
  return w;
}

/// The dimension of stride 1, of those that a tile pays for; -1: none.
int along_memory(const region::TensorRef& r, const ir::Shape& space) {
  for (std::size_t k = 0; k < space.size(); ++k) {
    if (r.strides[k] == 1 && space[k] >= kTile / 2) return static_cast<int>(k);
  }
  return -1;
}

Result<KernelText> turned(const Stage& s, int in, int out) {
  const region::TensorRef &x = s.operands[0].ref, &y = s.stores[0];
  const auto size = element_bytes(x);
  const char* type = size == 1 ? "unsigned char" : size == 2 ? "unsigned short" : "unsigned";
  const std::int64_t rows = s.space[static_cast<std::size_t>(in)], columns = s.space[static_cast<std::size_t>(out)];
  std::string outer, from = "0ll", to = "0ll";
  std::int64_t others = 1;
  OpenNumbers numbers;
  const auto extent = [&](std::size_t k, std::int64_t value) { return numbers.put({value, (s.open >> k & 1) != 0}); };
  const auto stride = [&](const region::TensorRef& r, std::size_t k) {
    return numbers.put({r.strides[k], (r.open.strides >> k & 1) != 0}, "ll");
  };
  const auto row = static_cast<std::size_t>(in), column = static_cast<std::size_t>(out);
  for (std::size_t k = s.space.size(); k-- > 0;) {
    if (k == row || k == column || (s.space[k] == 1 && (s.open >> k & 1) == 0)) continue;
    outer += fmt::format("  const int i{0} = rest % {1}; rest /= {1};\n", k, extent(k, s.space[k]));
    from += fmt::format(" + i{} * {}", k, stride(x, k));
    to += fmt::format(" + i{} * {}", k, stride(y, k));
    others *= s.space[k];
  }
  const std::int64_t row_tiles = (rows + kTile - 1) / kTile, column_tiles = (columns + kTile - 1) / kTile;
  const std::string row_tiles_text = extent(row, row_tiles), column_tiles_text = extent(column, column_tiles),
                    rows_text = extent(row, rows), columns_text = extent(column, columns), from_step = stride(x, column),
                    to_step = stride(y, row);
  KernelText t;
  t.text = fmt::format(R"(OCTAVO_KERNEL(256, 1) octavo_turn(const unsigned char* x, unsigned char* y{open}) {{
  octavo_wait_for_previous();
  __shared__ {type} tile[32][33];
  const int lane = octavo_thread() % 32, first = octavo_thread() / 32;
  int rest = octavo_block();
  const int a = rest % {row_tiles} * 32; rest /= {row_tiles};
  const int b = rest % {column_tiles} * 32; rest /= {column_tiles};
{outer}  const {type}* const from = (const {type}*)x + {from};
  {type}* const to = ({type}*)y + {to};
  for (int j = first; j < 32; j += 8) {{
    if (a + lane < {rows} && b + j < {columns}) tile[j][lane] = from[(long long)(b + j) * {from_step} + (a + lane)];
  }}
  octavo_barrier();
  octavo_let_next_begin();
  for (int j = first; j < 32; j += 8) {{
    if (a + j < {rows} && b + lane < {columns}) to[(long long)(a + j) * {to_step} + (b + lane)] = tile[lane][j];
  }}
}}
)",
                       fmt::arg("open", numbers.parameters()), fmt::arg("type", type), fmt::arg("row_tiles", row_tiles_text),
                       fmt::arg("column_tiles", column_tiles_text), fmt::arg("outer", outer), fmt::arg("from", from),
                       fmt::arg("to", to), fmt::arg("rows", rows_text), fmt::arg("columns", columns_text),
                       fmt::arg("from_step", from_step), fmt::arg("to_step", to_step));
  const std::int64_t blocks = row_tiles * column_tiles * others;
  if (blocks >= (std::int64_t{1} << 31)) return refuse("tiles", blocks, "less than 2^31");
  Launch l = launch_of("octavo_turn", blocks, 256);
  l.arguments = {{Argument::Kind::buffer, x.buffer, x.offset}, {Argument::Kind::buffer, y.buffer, y.offset}};
  numbers.add_to(l);
  t.launches = {std::move(l)};
  return t;
}

struct Copy {
  std::optional<KernelText> turned;  ///< or runs of elements
  Elements elements;
  double seconds = 0;
};

class CopyFamily final : public FamilyOf<Copy> {
 public:
  std::string_view name() const override { return "copy"; }
  bool about(const Region& r) const override {
    if (!is_single(r) || only(r).stores.size() != 1) return false;
    const Stage& s = only(r);
    if (s.anchor.op == ir::Op::reshape) return s.program.outputs.empty();
    const auto& code = s.program.code;  // one load, stored in the same type
    return s.anchor.none() && s.operands.size() == 1 && code.size() == 1 && s.program.outputs.size() == 1 &&
           (code[0].op == program::Op::load_i || code[0].op == program::Op::load_f) && s.operands[0].ref.dtype == s.stores[0].dtype;
  }
  Result<Copy> match(const Region& r, const Plan&, const Target&) const override {
    Copy copy;
    copy.seconds = seconds_of_a_pass(r);
    OCTAVO_TRY(const Stage s, moved(only(r)));
    const region::Operand& from = s.operands[0];
    const int in = along_memory(from.ref, s.space), out = along_memory(s.stores[0], s.space);
    const bool divided = std::any_of(from.div.begin(), from.div.end(), [](auto d) { return d != 1; });
    if (in >= 0 && out >= 0 && in != out && !divided) {
      OCTAVO_TRY(copy.turned, turned(s, in, out));
    } else {
      OCTAVO_TRY(copy.elements, Elements::of(s, false));
    }
    return copy;
  }
  std::vector<Choice<NoTile>> tactics(const Copy& copy, const Target&) const override { return {{{}, copy.seconds}}; }
  Result<KernelText> emit(const Copy& copy, const NoTile&, const Target&) const override {
    return copy.turned ? *copy.turned : copy.elements.emit({});
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(copy, CopyFamily)

}  // namespace octavo::cuda
