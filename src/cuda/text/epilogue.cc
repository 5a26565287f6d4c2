// One class, past 400 lines, writes the text of a stage's program with all ways to read operands and to store results; more files would only share its
// members.
#include "cuda/text/epilogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "cuda/text/emit_cuda.h"
#include "cuda/text/near.h"
#include "cuda/text/near_floats.h"
#include "cuda/text/shorten.h"
#include "region/refusal.h"
#include "region/tensor_ref.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using program::Instr;
using program::Op;
using program::Program;
using region::TensorRef;
using region::unmet;

bool is_16_bit(DType t) {
  return t == DType::f16 || t == DType::bf16;
}
constexpr std::string_view kHeld = "u8, s8, s32, bool, f32, f16 or bf16";
bool can_hold(DType t) {
  return ir::is_int8(t) || t == DType::s32 || t == DType::f32 || is_16_bit(t) || t == DType::boolean;
}

/// The tensor's data when it is a constant of the plan with one value a channel, or one in all.
const ir::Tensor* channel_constant(const region::Stage& s, const region::Plan& plan, const region::Operand& o) {
  const auto& buffer = plan.buffers[static_cast<std::size_t>(o.ref.buffer)];
  if (buffer.kind != region::BufferKind::constant || buffer.data.empty()) return nullptr;
  for (std::size_t d = 0; d < 4; ++d) {
    if (d != 1 && (s.space[d] > 1 || (s.open >> d & 1) != 0) && o.ref.strides[d] != 0) return nullptr;
  }
  return (o.div.empty() || o.div[1] == 1) ? &buffer.data : nullptr;
}

/// Element c of a channel constant, as 32 bits: s32, or a float's.
std::uint32_t channel_value(const TensorRef& ref, const ir::Tensor& data, std::int64_t c) {
  const std::byte* p = data.bytes().data() + ref.offset + c * ref.strides[1] * element_bytes(ref);
  const auto read = [p](auto v) {
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  switch (ref.dtype) {
    case DType::u8:
    case DType::boolean: return read(std::uint8_t{});
    case DType::s8: return static_cast<std::uint32_t>(static_cast<std::int32_t>(read(std::int8_t{})));
    case DType::f16:
    case DType::bf16: return read(std::uint16_t{});
    default: return read(std::uint32_t{});
  }
}

/// How a tensor of the space is addressed.
struct PixelAccess {
  bool flat = true;               ///< offset = pixel * pixel_bytes
  std::int64_t strides[4] = {};   ///< bytes
  bool open[4] = {};              ///< strides that are open
  std::vector<std::int64_t> div;  ///< one a dimension
  int element = 1, vector = 1;    ///< bytes
};

/// `open`: dimensions of the space that are open: their number of elements may be another one.
PixelAccess access_of(const TensorRef& ref, const std::vector<std::int64_t>& div, const ir::Shape& space, std::uint32_t open,
                      int run) {
  PixelAccess a;
  a.element = static_cast<int>(ir::size_of(ref.dtype));
  a.div = div.empty() ? std::vector<std::int64_t>(4, 1) : div;
  const auto one = [&](std::size_t d) { return space[d] == 1 && (open >> d & 1) == 0; };
  for (std::size_t d = 0; d < 4; ++d) {
    a.strides[d] = (one(d) ? 0 : ref.strides[d]) * a.element;
    a.open[d] = !one(d) && (ref.open.strides >> d & 1) != 0;
  }
  if (one(3)) {
    const std::size_t d = one(2) ? 0 : 2;
    a.strides[3] = a.strides[d], a.open[3] = a.open[d];
  }
  const std::int64_t row = one(2) ? 0 : a.strides[2], image = one(0) ? 0 : a.strides[0];
  a.flat = std::all_of(a.div.begin(), a.div.end(), [](std::int64_t d) { return d == 1; }) &&
           (one(2) || one(3) || row == space[3] * a.strides[3]) && (one(0) || image == space[2] * space[3] * a.strides[3]);
  a.vector = a.element;
  if (a.strides[1] == a.element && a.div[1] == 1) {
    std::int64_t common = std::gcd(ref.offset, space[1] * a.element);
    for (const std::size_t d : {0, 2, 3}) common = std::gcd(common, ref.strides[d] * a.element);
    common = std::gcd(common, std::int64_t{16});
    a.vector = static_cast<int>(std::gcd(common, std::int64_t{run} * a.element));
  }
  return a;
}

bool contiguous(const PixelAccess& a) {
  return a.strides[1] == a.element && a.div[1] == 1;
}

constexpr std::string_view kHelpers =
#include "cuda/text/epilogue.inc"
    ;

/// Leaves an s32 channel constant that is added to the accumulator, and nothing else is done with either, to the caller.
std::vector<std::int32_t> take_bias(const Tail& s, Program& p) {
  int acc = -1, sum = -1, operand = -1;
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    if (p.code[i].op == Op::acc_i) acc = acc < 0 ? static_cast<int>(i) : -2;
  }
  if (acc < 0) return {};
  for (std::size_t i = 0; i < p.code.size(); ++i) {
    const Instr& in = p.code[i];
    if (std::find(in.args.begin(), in.args.end(), acc) == in.args.end()) continue;
    if (in.op != Op::add_i || sum >= 0) return {};
    const Instr& other = p.code[static_cast<std::size_t>(in.args[0] == acc ? in.args[1] : in.args[0])];
    if (other.op != Op::load_i) return {};
    sum = static_cast<int>(i), operand = other.imm;
  }
  for (const program::Output& o : p.outputs) {
    if (o.value == acc) return {};
  }
  if (sum < 0) return {};
  const auto& values = s.constants[static_cast<std::size_t>(operand)];
  if (!values || s.operands[static_cast<std::size_t>(operand)].ref.dtype != DType::s32) return {};
  std::vector<std::int32_t> bias;
  for (const std::uint32_t v : *values) bias.push_back(static_cast<std::int32_t>(v));
  for (Instr& in : p.code) std::replace(in.args.begin(), in.args.end(), sum, acc);
  for (program::Output& out : p.outputs) out.value = out.value == sum ? acc : out.value;
  p = program::simplify(p);
  return bias;
}

class Emitter {
 public:
  Emitter(const Tail& s, const EpilogueShape& shape, std::int64_t constants_at)
      : s_(s), shape_(shape), constants_at_(constants_at) {}

  EmittedEpilogue run() {
    if (out_.refusal = why_not(); !out_.refusal.empty()) return out_;
    Program p = s_.program;
    if (shape_.takes_bias) out_.bias = take_bias(s_, p);
    Magnitudes sources{shape_.accumulator, {}};
    for (const std::int32_t b : out_.bias)
      sources.acc = std::max(sources.acc, shape_.accumulator + std::fabs(static_cast<double>(b)));
    std::vector<char> is_byte;
    for (std::size_t k = 0; k < s_.operands.size(); ++k) {
      sources.operands.push_back(magnitude(k));
      is_byte.push_back(s_.operands[k].ref.dtype == DType::u8 && !s_.constants[k]);
    }
    const std::optional<NearCodes> near = shape_.real ? std::nullopt : near_codes(p);
    Shortened shortened = shorten(near ? near->front : p, sources, is_byte);
    byte_floats_ = shortened.byte_floats;
    p = without_store_clamps(shortened.program);
    if (shortened.acc_offset != 0) {
      out_.bias.resize(static_cast<std::size_t>(s_.space[1]));
      for (std::int32_t& b : out_.bias)
        b = static_cast<std::int32_t>(static_cast<std::uint32_t>(b) + static_cast<std::uint32_t>(shortened.acc_offset));
    }
    kinds_.assign(s_.operands.size(), 0);
    for (const Instr& i : p.code) {
      if (i.op == Op::load_i || i.op == Op::load_f) kinds_[static_cast<std::size_t>(i.imm)] = program::info(i.op).result;
    }
    operands();
    if (shape_.keeps || shape_.keeps_codes || shape_.forwarded >= 0) {
      members_ += "  unsigned char* kept;\n";
      out_.pointers += ", kept";
    }
    if (shape_.keeps_codes) {
      members_ += "  int row, at;\n";
      out_.pointers += ", 0, 0";
    }
    const Program front = p;  // what reads operands
    if (near) p = near->back;
    stores(p);
    const std::optional<NearFloats> near_of_floats = shape_.real ? near_floats(p) : std::nullopt;
    const bool several = near || (shape_.real && !near_of_floats && divides(p));
    const int count = shape_.pairs ? 8 : 4;  // elements side by side
    std::string run, before, behind;         // the program, and what is around it where rows come in pairs
    if (!several) {
      run = "      OCTAVO_UNROLL\n      for (int j = 0; j < 4; ++j) octavo_program(sums[i][q * 4 + j]";
      for (const auto& [k, value] : arguments_) run += ", " + value;
      for (std::size_t j = 0; j < p.outputs.size(); ++j) run += fmt::format(", r{}[j]", j);
      run += ");\n";
    } else {
      std::string arrays, values, names;
      for (const auto& [k, value] : arguments_) {
        arrays += fmt::format("      {} in{}[{}];\n", kinds_[k] == 'i' ? "int" : "float", k, count);
        values += fmt::format("        in{}[e] = {};\n", k, value);
        names += fmt::format(", in{}", k);
      }
      std::string results, parts;
      for (std::size_t j = 0; j < p.outputs.size(); ++j) {
        results += fmt::format("      {} out_of_pair{}[{}];\n", result_type(p, j), j, count);
        parts += fmt::format("      OCTAVO_UNROLL\n      for (int j = 0; j < 4; ++j) r{0}[j] = out_of_pair{0}[i % {1} * 4 + j];\n",
                             j, count / 4);
        names += fmt::format(", out_of_pair{}", j);
      }
      // A row, or two: all elements first, then the stores of each row.
      before = fmt::format(
          "    OCTAVO_UNROLL\n    for (int pair = 0; pair < kRows; pair += {0}) {{\n{1}{2}      {6} sum[{3}];\n      "
          "OCTAVO_UNROLL\n"
          "      for (int e = 0; e < {3}; ++e) {{\n        const int i = pair + e / 4, j = e % 4;\n        sum[e] = sums[i][q * 4 "
          "+ j];\n{4}      }}\n"
          "      octavo_program(sum{5});\n",
          count / 4, arrays, results, count, values, names, shape_.real ? "float" : "int");
      behind = "    }\n";
      run = parts;
    }
    out_.text =
        fmt::format("constexpr int kRows = {}, kRun = {}, kNeighbours = {};\n", shape_.rows, shape_.run, shape_.piece) +
        "OCTAVO_DEVICE constexpr int octavo_channel_step(int e) { return e / kNeighbours * (4 * kNeighbours) + e % kNeighbours; "
        "}\n" +
        std::string(kHelpers) + folds_ +
        (near             ? near_function(*near, front, "octavo_program", count)
         : near_of_floats ? near_floats_function(*near_of_floats, p, "octavo_program")
         : several        ? emit_function_of_several(p, "octavo_program", count)
                          : emit_function(p, "octavo_program")) +
        fmt::format("struct OctavoPointers {{\n  const unsigned char* constants;\n{}}};\n", members_) +
        fmt::format("struct OctavoFetched {{\n{}  int none;\n}};\n", fetched_) +
        fmt::format(
            "OCTAVO_DEVICE void octavo_fetch(OctavoFetched& f, const OctavoPointers& o, const int (&pixel)[kRows], int channel) "
            "{{\n  (void)f, (void)o, (void)pixel, (void)channel;\n{}}}\n",
            fetch_) +
        fmt::format(
            "template <int channels>\nOCTAVO_DEVICE void octavo_look_ahead(const OctavoPointers& o, int p, int channel) {{\n"
            "  (void)o, (void)p, (void)channel;\n{}}}\n",
            ahead_) +
        fmt::format(
            "OCTAVO_DEVICE void octavo_finish(const {9} (&sums)[kRows][kRun], const OctavoFetched& f, const "
            "OctavoPointers& o, const int (&pixel)[kRows], int channel) {{\n"
            "  (void)f;\n{0}"
            "  OCTAVO_UNROLL\n  for (int q = 0; q < kRun / 4; ++q) {{\n"
            "    const int first = channel + octavo_channel_step(q * 4);\n"
            "    if ({1} <= 0) continue;\n"
            "{2}{4}"
            "{10}    OCTAVO_UNROLL\n    for (int i = {11}; i < {12}; ++i) {{\n"
            "      const int p = pixel[i];\n      (void)p;\n"
            "{3}{8}"
            "{5}{6}    }}\n{13}  }}\n"
            "{7}}}\n",
            collected_, valid("first", 4), channel_reads_, results_, row_reads_, run, row_stores_, last_stores_, row_kept_,
            shape_.real ? "float" : "int", before, several ? "pair" : "0", several ? fmt::format("pair + {}", count / 4) : "kRows",
            behind);
    out_.pointers = shape_.prefix + "constants + " + std::to_string(constants_at_) + out_.pointers;
    return out_;
  }

 private:
  [[nodiscard]] static std::string_view result_type(const Program& p, std::size_t output) {
    return program::info(p.code[static_cast<std::size_t>(p.outputs[output].value)].op).result == 'i' ? "int" : "float";
  }
  [[nodiscard]] Reasons why_not() const {
    if (s_.space.size() != 4) return unmet("rank of the result", s_.space.size(), "4");
    if (s_.program.outputs.empty() || s_.stores.empty()) return unmet("program", "none", "one that gives what is stored");
    for (const region::Operand& o : s_.operands) {
      if (!can_hold(o.ref.dtype)) return unmet("type of an operand", ir::name_of(o.ref.dtype), kHeld);
    }
    if (shape_.fold.channels % 16 != 0) return unmet("channels of a folded pixel", shape_.fold.channels, "a multiple of 16");
    for (const program::Output& o : s_.program.outputs) {
      if (!can_hold(o.type)) return unmet("type of a store", ir::name_of(o.type), kHeld);
    }
    if (shape_.keeps && (s_.program.outputs.size() != 1 || s_.program.outputs[0].type != DType::f32))
      return unmet("results to keep", s_.program.outputs.size(), "1 of f32");
    if (shape_.keeps_codes && (s_.program.outputs.size() != 1 || !ir::is_int8(s_.program.outputs[0].type) || shape_.run != 4))
      return unmet("results to keep", s_.program.outputs.size(), "1 of bytes, 4 channels a thread");
    return {};
  }

  /// How many channels exist from channel `first` on, or more than `count`.
  [[nodiscard]] std::string valid(std::string_view first, int count) const {
    if (shape_.fold.stored != 0) return fmt::format("{} - ({}) % {}", shape_.fold.stored, first, shape_.fold.channels);
    if (shape_.stores_padding || (s_.space[1] % shape_.run == 0 && shape_.padded_channels == s_.space[1]))
      return std::to_string(count);
    return fmt::format("{} - ({})", s_.space[1], first);
  }
  /// Are the bytes of a lane's four words exchanged with its neighbours' (see above)?
  [[nodiscard]] bool exchanged(const PixelAccess& a) const {
    return shape_.piece == 4 && shape_.run == 16 && a.element == 1 && contiguous(a) && a.vector > 4;
  }
  /// The first of the neighbouring channels that a lane accesses where words are exchanged.
  [[nodiscard]] std::string exchange_channel() const { return "(channel + (octavo_thread() & 3) * (kRun - kNeighbours))"; }

  [[nodiscard]] double magnitude(std::size_t k) const {
    const region::Operand& o = s_.operands[k];
    constexpr double kUnknown = std::numeric_limits<double>::infinity();
    if (ir::is_int8(o.ref.dtype) || o.ref.dtype == DType::boolean) return 255;
    if (o.ref.dtype == DType::s32) return 2147483648.0;
    if (!s_.constants[k] || o.ref.dtype != DType::f32) return kUnknown;
    double m = 0;
    for (const std::uint32_t bits : *s_.constants[k]) {
      const auto v = std::bit_cast<float>(bits);
      m = std::isfinite(v) ? std::max(m, std::fabs(static_cast<double>(v))) : kUnknown;
    }
    return m;
  }

  [[nodiscard]] std::string element(std::size_t k, const std::string& words, std::string_view j) const {
    if (byte_floats_[k] != 0) return fmt::format("octavo_byte_value({0}[({1}) / 4], ({1}) % 4)", words, j);
    return element_text(s_.operands[k].ref.dtype, words, j);
  }

  /// A number, or where it is open a member of OctavoPointers.
  std::string number(std::int64_t value, bool open) {
    if (!open) return std::to_string(value);
    const std::string name = fmt::format("e{}", open_++), type = value == static_cast<std::int32_t>(value) ? "int" : "long long";
    members_ += fmt::format("  {} {};\n", type, name);
    out_.parameters += fmt::format(", {} {}{}", type, shape_.prefix, name);
    out_.pointers += fmt::format(", {}{}", shape_.prefix, name);
    out_.arguments.push_back({Argument::Kind::number, 0, value});
    return "o." + name;
  }

  std::string offset_of(const PixelAccess& a) {
    if (a.flat) return fmt::format("(octavo_offset)p * {}", number(a.strides[3], a.open[3]));
    const auto part = [](std::string_view index, std::int64_t div, const std::string& stride) {
      return div == 1 ? fmt::format("(octavo_offset){} * {}", index, stride)
                      : fmt::format("(octavo_offset)({} / {}) * {}", index, div, stride);
    };
    const bool open2 = (s_.open >> 2 & 1) != 0, open3 = (s_.open >> 3 & 1) != 0;
    const std::string plane = number(s_.space[2] * s_.space[3], open2 || open3), columns = number(s_.space[3], open3),
                      rows = number(s_.space[2], open2), s0 = number(a.strides[0], a.open[0]), s2 = number(a.strides[2], a.open[2]),
                      s3 = number(a.strides[3], a.open[3]);
    return fmt::format("{} + {} + {}", part(fmt::format("(p / {})", plane), a.div[0], s0),
                       part(fmt::format("(p / {} % {})", columns, rows), a.div[2], s2),
                       part(fmt::format("(p % {})", columns), a.div[3], s3));
  }

  void pointer(std::string_view name, const TensorRef& ref, bool written) {
    const std::string type = written ? "unsigned char*" : "const unsigned char*";
    members_ += fmt::format("  {} {};\n", type, name);
    out_.parameters += fmt::format(", {} {}{}", type, shape_.prefix, name);
    out_.pointers += fmt::format(", {}{}", shape_.prefix, name);
    out_.arguments.push_back({Argument::Kind::buffer, ref.buffer, ref.offset});
  }

  void operands() {
    for (std::size_t k = 0; k < s_.operands.size(); ++k) {
      if (kinds_[k] == 0) continue;
      const region::Operand& o = s_.operands[k];
      const int size = static_cast<int>(ir::size_of(o.ref.dtype));
      if (static_cast<int>(k) == shape_.forwarded) {
        row_kept_ += fmt::format("      unsigned x{0}[4];\n      octavo_read<16>(x{0}, o.kept + (i * (kRun / 4) + q) * {1});\n", k,
                                 16 * shape_.threads);
        arguments_.emplace_back(k, fmt::format("__int_as_float((int)x{}[j])", k));
        continue;
      }
      if (s_.constants[k]) {
        const std::size_t at = out_.constants.size();
        const bool wide = size != 2;
        out_.constants.resize(at + static_cast<std::size_t>(shape_.padded_channels) * 4);
        for (std::int64_t c = 0; c < s_.space[1]; ++c) {
          const std::uint32_t v = (*s_.constants[k])[static_cast<std::size_t>(c)];
          std::memcpy(out_.constants.data() + at + static_cast<std::size_t>(c) * 4, &v, 4);
        }
        std::string word = fmt::format("x{}[j]", k);
        if (shape_.ahead) {
          fetched_ += fmt::format("  unsigned x{}[kRun];\n", k);
          fetch_ += fmt::format(
              "  OCTAVO_UNROLL\n  for (int q = 0; q < kRun / 4; ++q) {{\n    unsigned word[4];\n"
              "    octavo_read<16>(word, o.constants + {1} + 4 * (channel + octavo_channel_step(q * 4)));\n"
              "    OCTAVO_UNROLL\n    for (int w = 0; w < 4; ++w) f.x{0}[q * 4 + w] = word[w];\n  }}\n",
              k, at);
          word = fmt::format("f.x{}[q * 4 + j]", k);
        } else {
          channel_reads_ +=
              fmt::format("    unsigned x{0}[4];\n    octavo_read<16>(x{0}, o.constants + {1} + 4 * first);\n", k, at);
        }
        arguments_.emplace_back(k, kinds_[k] == 'i' ? fmt::format("(int){}", word)
                                   : wide           ? fmt::format("__int_as_float((int){})", word)
                                          : fmt::format("octavo_{}_value((unsigned short){})", ir::name_of(o.ref.dtype), word));
        continue;
      }
      const PixelAccess a = access_of(o.ref, o.div, s_.space, s_.open, shape_.run);
      pointer(fmt::format("operand{}", k), o.ref, false);
      const std::string offset = offset_of(a);
      const std::int64_t step = a.strides[1];
      if (a.div[1] != 1) {
        out_.refusal = unmet("repetition of an operand along the channels", a.div[1], "1");
      } else if (contiguous(a) && a.element * shape_.run <= (shape_.ahead ? 32 : 16)) {
        fetched_ += fmt::format("  unsigned x{}[kRows][{}];\n", k, std::max(1, a.element * shape_.run / 4));
        if (exchanged(a) || shape_.piece == shape_.run) {
          const std::string from = exchanged(a) ? exchange_channel() : "channel";
          fetch_ += fmt::format(
              "  OCTAVO_UNROLL\n  for (int i = 0; i < kRows; ++i) {{\n    const int p = pixel[i];\n"
              "    OCTAVO_UNROLL\n    for (int w = 0; w < {3}; ++w) f.x{2}[i][w] = 0;\n"
              "    if (p >= 0) octavo_read_run<{0}, {1}, kRun>(f.x{2}[i], o.operand{2} + ({4} + (octavo_offset){5} * {0}), {6}, "
              "{0});\n{7}  }}\n",
              a.element, a.vector, k, std::max(1, a.element * shape_.run / 4), offset, from, valid(from, shape_.run),
              exchanged(a) ? fmt::format("    octavo_exchange(f.x{}[i]);\n", k) : "");
        } else {
          fetch_ += fmt::format(
              "  OCTAVO_UNROLL\n  for (int i = 0; i < kRows; ++i) {{\n    const int p = pixel[i];\n"
              "    OCTAVO_UNROLL\n    for (int q = 0; q < kRun / 4; ++q) {{\n      const int first = channel + "
              "octavo_channel_step(q * "
              "4);\n"
              "      unsigned word[{0}] = {{}};\n"
              "      if (p >= 0) octavo_read_run<{0}, {1}, 4>(word, o.operand{2} + ({3} + (octavo_offset)first * {0}), {4}, {0});\n"
              "      OCTAVO_UNROLL\n      for (int w = 0; w < {0}; ++w) f.x{2}[i][q * {0} + w] = word[w];\n    }}\n  }}\n",
              a.element, std::min(a.vector, 4 * a.element), k, offset, valid("first", 4));
        }
        look_ahead(k, a, offset);
        arguments_.emplace_back(k, element(k, fmt::format("f.x{}[i]", k), "q * 4 + j"));
      } else {
        const int vector = std::min(a.vector, 4 * a.element);
        // All rows before the first of them is stored: the compiler may not move a read above a store.
        row_reads_ += fmt::format(
            "    unsigned x{0}[kRows][{1}];\n    OCTAVO_UNROLL\n    for (int i = 0; i < kRows; ++i) {{\n"
            "      const int p = pixel[i];\n"
            "      OCTAVO_UNROLL\n      for (int w = 0; w < {1}; ++w) x{0}[i][w] = 0;\n"
            "      if (p >= 0) octavo_read_run<{2}, {3}, 4>(x{0}[i], o.operand{0} + ({4} + (octavo_offset)first * {5}), {6}, "
            "{5});\n"
            "    }}\n",
            k, std::max(1, a.element), a.element, vector, offset, step, valid("first", 4));
        if (contiguous(a)) look_ahead(k, a, offset);
        arguments_.emplace_back(k, element(k, fmt::format("x{}[i]", k), "j"));
      }
    }
  }

  void look_ahead(std::size_t k, const PixelAccess& a, const std::string& offset) {
    ahead_ += fmt::format(
        "  OCTAVO_UNROLL\n  for (int at = 0; at < channels * {0}; at += 128)\n    if (channel + at / {0} < {3}) "
        "octavo_prefetch(o.operand{1} + ({2} + (octavo_offset)channel * {0} + at));\n",
        a.element, k, offset, s_.space[1]);
  }

  void stores(const Program& p) {
    for (std::size_t j = 0; j < p.outputs.size(); ++j) {
      const DType type = p.outputs[j].type;
      const TensorRef& ref = s_.stores[j];
      ir::Shape space = s_.space;
      if (shape_.stores_padding) space[1] = shape_.padded_channels;
      PixelAccess a = access_of(ref, {}, space, s_.open, shape_.run);
      if (shape_.fold.channels != 0) {
        for (const std::int64_t step : shape_.fold.steps[j]) a.vector = static_cast<int>(std::gcd(std::int64_t{a.vector}, step));
        folds_ += fmt::format(
            "OCTAVO_DEVICE octavo_offset octavo_fold{0}(int c) {{\n  return (octavo_offset)(c % {1}) * {2} + (octavo_offset)(c / "
            "{1} / "
            "{3}) * {4} + (octavo_offset)(c / {1} % {3}) * {5};\n}}\n",
            j, shape_.fold.channels, a.strides[1], shape_.fold.across, shape_.fold.steps[j][0], shape_.fold.steps[j][1]);
      }
      const auto along = [&](std::string_view channel) {  // bytes from the pixel's first channel
        if (shape_.fold.channels != 0) return fmt::format("octavo_fold{}({})", j, channel);
        return fmt::format("(octavo_offset){} * {}", channel, a.strides[1]);
      };
      const bool integer = program::info(p.code[static_cast<std::size_t>(p.outputs[j].value)].op).result == 'i';
      results_ += fmt::format("      {} r{}[4];\n", integer ? "int" : "float", j);
      if (!shape_.keeps && !shape_.keeps_codes) pointer(fmt::format("store{}", j), ref, true);
      std::string words;  // of four results
      switch (type) {
        case DType::u8:
        case DType::boolean: words = fmt::format("octavo_pack_u8(r{0}[0], r{0}[1], r{0}[2], r{0}[3])", j); break;
        case DType::s8: words = fmt::format("octavo_pack_s8(r{0}[0], r{0}[1], r{0}[2], r{0}[3])", j); break;
        case DType::s32:
          words = fmt::format("(unsigned)r{0}[0], (unsigned)r{0}[1], (unsigned)r{0}[2], (unsigned)r{0}[3]", j);
          break;
        case DType::f32:
          words = fmt::format(
              "(unsigned)__float_as_int(r{0}[0]), (unsigned)__float_as_int(r{0}[1]), (unsigned)__float_as_int(r{0}[2]), "
              "(unsigned)__float_as_int(r{0}[3])",
              j);
          break;
        default: {
          const auto name = ir::name_of(type);
          words = fmt::format(
              "octavo_{1}_bits(r{0}[0]) | (unsigned)octavo_{1}_bits(r{0}[1]) << 16, octavo_{1}_bits(r{0}[2]) | "
              "(unsigned)octavo_{1}_bits(r{0}[3]) << 16",
              j, name);
        }
      }
      const std::string offset = offset_of(a);
      if (shape_.keeps) {
        row_stores_ += fmt::format(
            "      const unsigned out0[] = {{{}}};\n      octavo_write<16>(o.kept + (i * (kRun / 4) + q) * {}, out0);\n", words,
            16 * shape_.threads);
      } else if (shape_.keeps_codes) {
        row_stores_ += fmt::format("      octavo_keep(o, i, {});\n", words);
      } else if (a.element == 1 && contiguous(a) && a.vector > 4) {
        collected_ += fmt::format(
            "  unsigned out{}[kRows][kRun / 4];\n  OCTAVO_UNROLL\n  for (int i = 0; i < kRows; ++i) {{\n"
            "    OCTAVO_UNROLL\n    for (int q = 0; q < kRun / 4; ++q) out{}[i][q] = 0;\n  }}\n",
            j, j);
        row_stores_ += fmt::format("      out{}[i][q] = {};\n", j, words);
        if (exchanged(a) || shape_.piece == shape_.run) {
          const std::string from = exchanged(a) ? exchange_channel() : "channel";
          last_stores_ += fmt::format(
              "  OCTAVO_UNROLL\n  for (int i = 0; i < kRows; ++i) {{\n    const int p = pixel[i];\n{4}"
              "    if (p >= 0) octavo_write_run<1, {0}, kRun>(o.store{1} + ({2} + {5}), out{1}[i], {3}, 1);\n  }}\n",
              a.vector, j, offset, valid(from, shape_.run), exchanged(a) ? fmt::format("    octavo_exchange(out{}[i]);\n", j) : "",
              along(from));
        } else {
          last_stores_ += fmt::format(
              "  OCTAVO_UNROLL\n  for (int i = 0; i < kRows; ++i) {{\n    const int p = pixel[i];\n"
              "    OCTAVO_UNROLL\n    for (int q = 0; q < kRun / 4; ++q) {{\n      const int first = channel + "
              "octavo_channel_step(q * "
              "4);\n"
              "      if (p >= 0) octavo_write_run<1, 4, 4>(o.store{0} + ({1} + {3}), &out{0}[i][q], {2}, 1);\n    }}\n  }}\n",
              j, offset, valid("first", 4), along("first"));
        }
      } else {
        row_stores_ += fmt::format(
            "      const unsigned out{0}[] = {{{1}}};\n"
            "      if (p >= 0) octavo_write_run<{2}, {3}, 4>(o.store{0} + ({4} + {7}), out{0}, {6}, {5});\n",
            j, words, a.element, std::min(a.vector, 4 * a.element), offset, a.strides[1], valid("first", 4), along("first"));
      }
    }
  }

  const Tail& s_;
  EpilogueShape shape_;
  std::int64_t constants_at_;
  int open_ = 0;  ///< numbers
  std::vector<char> kinds_, byte_floats_;
  EmittedEpilogue out_;
  std::string folds_, members_, fetched_, fetch_, ahead_, collected_, channel_reads_, results_, row_reads_, row_kept_, row_stores_,
      last_stores_;
  std::vector<std::pair<std::size_t, std::string>> arguments_;  ///< of the program: an operand's index and an element of it
};

}  // namespace

std::string element_text(DType type, std::string_view w, std::string_view j) {
  switch (type) {
    case DType::u8:
    case DType::boolean: return fmt::format("(int)(({0}[({1}) / 4] >> (({1}) % 4 * 8)) & 255u)", w, j);
    case DType::s8: return fmt::format("(int)(signed char)({0}[({1}) / 4] >> (({1}) % 4 * 8))", w, j);
    case DType::s32: return fmt::format("(int){}[{}]", w, j);
    case DType::f16: return fmt::format("octavo_f16_value((unsigned short)({0}[({1}) / 2] >> (({1}) % 2 * 16)))", w, j);
    case DType::bf16: return fmt::format("octavo_bf16_value((unsigned short)({0}[({1}) / 2] >> (({1}) % 2 * 16)))", w, j);
    default: return fmt::format("__int_as_float((int){}[{}])", w, j);
  }
}

Tail tail_of(const region::Stage& stage, const region::Plan& plan) {
  Tail t{stage.space, stage.program, stage.operands, stage.stores, {}, stage.open};
  for (const region::Operand& o : stage.operands) {
    const ir::Tensor* data = stage.space.size() == 4 ? channel_constant(stage, plan, o) : nullptr;
    auto& values = t.constants.emplace_back();
    if (data == nullptr) continue;
    values.emplace();
    if (!can_hold(o.ref.dtype) && ir::size_of(o.ref.dtype) != 4) continue;  // no program reads it
    for (std::int64_t c = 0; c < stage.space[1]; ++c) values->push_back(channel_value(o.ref, *data, c));
  }
  return t;
}

int piece_for(const Tail& tail, int run, int forwarded) {
  const auto wide = [](const TensorRef& r) { return ir::size_of(r.dtype) > 1; };
  bool any = std::any_of(tail.stores.begin(), tail.stores.end(), wide);
  for (std::size_t k = 0; k < tail.operands.size(); ++k)
    any = any || (static_cast<int>(k) != forwarded && wide(tail.operands[k].ref) && !tail.constants[k]);
  return any ? std::min(run, 4) : run;
}

EmittedEpilogue emit_epilogue(const Tail& tail, const EpilogueShape& shape, std::int64_t constants_at) {
  return Emitter(tail, shape, constants_at).run();
}

std::vector<std::int32_t> with_bias(std::span<const std::int32_t> start, const EmittedEpilogue& epilogue) {
  std::vector<std::int32_t> out(start.begin(), start.end());
  for (std::size_t c = 0; c < out.size() && !epilogue.bias.empty(); ++c)
    out[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(out[c]) + static_cast<std::uint32_t>(epilogue.bias[c]));
  return out;
}

ir::Tensor constants_with_start(std::span<const std::int32_t> start, const EmittedEpilogue& epilogue,
                                std::int64_t padded_channels) {
  const std::int64_t at = (padded_channels * 4 + 15) / 16 * 16;
  ir::Tensor out(ir::DType::u8, {at + static_cast<std::int64_t>(epilogue.constants.size())});
  std::byte* to = out.mutable_bytes().data();
  const std::vector<std::int32_t> sums = with_bias(start, epilogue);
  if (!sums.empty()) std::memcpy(to, sums.data(), 4 * sums.size());
  if (!epilogue.constants.empty()) std::memcpy(to + at, epilogue.constants.data(), epilogue.constants.size());
  return out;
}

}  // namespace octavo::cuda
