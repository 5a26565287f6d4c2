#include "cuda/families/planar.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "cuda/families/families.h"
#include "cuda/text/elements.h"
#include "cuda/text/emit_cuda.h"
#include "cuda/text/epilogue.h"
#include "cuda/text/shorten.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using program::Op;

constexpr int kThreads = 256;
constexpr std::int64_t kMostChannels = 8;
constexpr std::string_view kText =
#include "cuda/families/planar.inc"
    ;

/// Is each element read where the space has it, columns neighbours in memory?
bool along_columns(const region::Operand& o) {
  return o.ref.strides.size() == 4 && o.ref.strides[3] == 1 && (o.ref.dims[1] == 1 || o.ref.strides[1] != 1) &&
         std::all_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d == 1; });
}

/// Which operands the program loads: 'i', 'f' or 0.
std::vector<char> loads_of(const program::Program& p) {
  std::vector<char> kinds(static_cast<std::size_t>(p.operand_count), 0);
  for (const program::Instr& i : p.code) {
    if (i.op == Op::load_i || i.op == Op::load_f) kinds[static_cast<std::size_t>(i.imm)] = program::info(i.op).result;
  }
  return kinds;
}

std::string literal(char kind, std::uint32_t bits, ir::DType type) {
  if (kind == 'i') return fmt::format("(int)0x{:08x}u", bits);
  if (ir::size_of(type) == 2) return fmt::format("octavo_{}_value((unsigned short)0x{:04x}u)", ir::name_of(type), bits);
  return fmt::format("__int_as_float((int)0x{:08x}u)", bits);
}

struct PlanarCopy {
  Planar planes;
  region::TensorRef store;
  std::int64_t images = 1, pixels = 4, blocks = 1, out_image = 0, vector = 4;
  double seconds = 0;
};

class PlanarFamily final : public FamilyOf<PlanarCopy> {
 public:
  std::string_view name() const override { return "pointwise.planar"; }
  bool about(const Region& r) const override { return is_single(r) && about_planar(only(r)); }

  Result<PlanarCopy> match(const Region& r, const Plan& plan, const Target&) const override {
    const Stage& s = only(r);
    PlanarCopy c;
    OCTAVO_TRY(c.planes, read_planar(s, plan));
    const Planar& p = c.planes;
    const region::TensorRef& y = c.store = s.stores[0];
    c.images = s.space[0], c.pixels = s.space[2] * s.space[3], c.seconds = seconds_of_a_pass(r);
    if ((s.space[2] > 1 && p.row != s.space[3] * p.element) || c.pixels % 4 != 0)
      return refuse("pixels and bytes a row", fmt::format("{}, {}", s.space[3], p.row), "dense planes of a multiple of 4 pixels");
    const bool dense =
        (s.space[3] == 1 || y.strides[3] == p.channels) && (s.space[2] == 1 || y.strides[2] == s.space[3] * p.channels);
    if (!dense) return refuse("pixels of the store", "apart", "side by side");
    c.out_image = c.images == 1 && (s.open & 1) == 0 ? 0 : y.strides[0];
    c.vector = std::gcd(std::gcd(c.out_image, y.offset), std::gcd(c.pixels * p.channels, std::int64_t{16}));
    if (c.vector < 4) return refuse("alignment of the stored images", c.vector, "at least 4 bytes");
    c.blocks = parts(c.pixels / 4, kThreads);
    if (c.blocks * c.images > std::numeric_limits<std::int32_t>::max())
      return refuse("blocks", c.blocks * c.images, "less than 2^31");
    return c;
  }
  std::vector<Choice<NoTile>> tactics(const PlanarCopy& c, const Target&) const override { return {{{}, c.seconds}}; }
  Result<KernelText> emit(const PlanarCopy& c, const NoTile&, const Target&) const override {
    const Planar& p = c.planes;
    KernelText out;
    out.text = fmt::format(
        "constexpr int kThreads = {}, kChannels = {}, kBlocks = {}, kPixels = {}, kElement = {}, kVector = {};\n"
        "constexpr long long kInImage = {}, kOutImage = {};\n",
        kThreads, p.channels, c.blocks, c.pixels, p.element, c.vector, p.image, c.out_image);
    out.text += std::string(elements_functions()) + p.text + std::string(kText);
    Launch launch = launch_of("octavo_planar", c.blocks * c.images, kThreads);
    launch.arguments = {{Argument::Kind::buffer, p.source.buffer, p.source.offset},
                        {Argument::Kind::buffer, c.store.buffer, c.store.offset}};
    out.launches.push_back(std::move(launch));
    return out;
  }
};

}  // namespace

bool about_planar(const region::Stage& s) {
  return s.anchor.none() && s.space.size() == 4 && s.space[1] <= kMostChannels && s.stores.size() == 1 &&
         s.program.outputs.size() == 1 && ir::is_int8(s.stores[0].dtype) && (s.space[1] == 1 || s.stores[0].strides[1] == 1) &&
         std::any_of(s.operands.begin(), s.operands.end(), along_columns);
}

Result<Planar> read_planar(const region::Stage& s, const region::Plan& plan) {
  Planar p;
  if (!about_planar(s)) return refuse("stage", "of another kind", "bytes from one tensor with neighbouring columns");
  p.channels = static_cast<int>(s.space[1]);
  Magnitudes sources;
  sources.acc = std::numeric_limits<double>::infinity();
  sources.operands.assign(s.operands.size(), std::numeric_limits<double>::infinity());
  program::Program program = without_store_clamps(shorten(s.program, sources, std::vector<char>(s.operands.size(), 0)).program);
  const std::vector<char> kinds = loads_of(program);
  const Tail tail = tail_of(s, plan);
  const region::Operand* source = nullptr;
  std::vector<std::string> arguments(static_cast<std::size_t>(p.channels));  // of each channel's call
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k] == 0) continue;
    const region::Operand& o = s.operands[k];
    if (const auto& bits = tail.constants[k]) {
      for (std::size_t c = 0; c < arguments.size(); ++c) arguments[c] += ", " + literal(kinds[k], (*bits)[c], o.ref.dtype);
      continue;
    }
    if (source != nullptr || !along_columns(o) || load_function(o.ref.dtype).empty())
      return refuse(fmt::format("operand {}", k), fmt::format("a tensor of {}", ir::name_of(o.ref.dtype)),
                    "constant, or the one tensor with neighbouring columns");
    source = &o;
    for (std::string& a : arguments) a += ", v[k]";
  }
  if (source == nullptr) return refuse("operands that are no constants", 0, "1");
  p.source = source->ref;
  p.element = element_bytes(p.source);
  const auto stride = [&](std::size_t d) { return broadcast_stride(p.source, s.space, d) * p.element; };
  const bool images = (s.open & 1) != 0;  // any number of them
  p.image = images ? p.source.strides[0] * p.element : stride(0), p.plane = stride(1), p.row = stride(2);
  for (const std::int64_t v : {p.image, p.plane, p.source.offset}) {
    if (v % (4 * p.element) != 0)
      return refuse("bytes between planes or images", v, fmt::format("a multiple of {}", 4 * p.element));
  }
  const bool real = ir::is_float(p.source.dtype), sign = s.stores[0].dtype == ir::DType::s8;
  p.text = emit_function(program, "octavo_code");
  p.text += fmt::format(
      "OCTAVO_DEVICE void octavo_four_pixels(unsigned (&words)[{0}], const unsigned char* from) {{\n  int r[4 * {0}];\n",
      p.channels);
  for (int c = 0; c < p.channels; ++c) {
    p.text += fmt::format("  {{\n    {} v[4];\n    {}(v, from + {}ll);\n    OCTAVO_UNROLL\n", real ? "float" : "int",
                          load_function(p.source.dtype), c * p.plane);
    p.text += fmt::format("    for (int k = 0; k < 4; ++k) octavo_code(0{}, r[k * {} + {}]);\n  }}\n",
                          arguments[static_cast<std::size_t>(c)], p.channels, c);
  }
  p.text += fmt::format(
      "  OCTAVO_UNROLL\n  for (int w = 0; w < {}; ++w) words[w] = octavo_pack_{}(r[4 * w], r[4 * w + 1], r[4 * w + 2], r[4 * w + "
      "3]);\n}}\n",
      p.channels, sign ? "s8" : "u8");
  return p;
}

OCTAVO_DEFINE_FAMILY(planar, PlanarFamily)

}  // namespace octavo::cuda
