// Runs epilogue programs on a GPU and compares every stored element with the oracle, bit for bit (any NaN equals any NaN).
//
//   octavo_gpu_epilogue_check                 compile with NVRTC and run, on a machine with a GPU
//   octavo_gpu_epilogue_check --emit DIR [--arch sm_90a]   compile only; write the text and the machine code to DIR (no GPU needed)
//   octavo_gpu_epilogue_check --load DIR      run the machine code from DIR (no NVRTC needed)
// --programs N: how many random programs (default 200). Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/half.h"
#include "cuda/device/nvrtc.h"
#include "cuda/gpu/driver.h"
#include "cuda/program_kernel.h"
#include "cuda/text/emit_cuda.h"
#include "program/math.h"
#include "program/random_program.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using program::Op;
using program::Program;
using program::Scalar;

constexpr std::int64_t kDims[4] = {4, 32, 16, 16};
constexpr std::int64_t kCount = 4 * 32 * 16 * 16;
constexpr int kKernelsAModule = 50;

std::vector<KernelSpec> all_kernels(int programs) {
  std::vector<KernelSpec> out;
  for (int seed = 0; seed < programs; ++seed) {
    constexpr DType kInts[] = {DType::u8, DType::s8, DType::s32}, kFloats[] = {DType::f32, DType::f16, DType::bf16};
    Program p = program::random_program(static_cast<unsigned>(seed), 30 + seed % 60);
    out.push_back({fmt::format("random_{}", seed), std::move(p), {kInts[seed % 3], kFloats[seed / 3 % 3], DType::f32}});
  }
  const auto named = [&out](std::string name, Program p) { out.push_back({std::move(name), std::move(p), {DType::f32}}); };
  for (int k = static_cast<int>(ir::Op::relu); k <= static_cast<int>(ir::Op::cos); ++k) {
    Program p;
    program::ProgramOps ops{p};
    p.outputs = {
        {program::unary(ops, static_cast<ir::Op>(k), ir::default_facts(static_cast<ir::Op>(k)), p.push(Op::acc_f)), DType::f32}};
    named(fmt::format("unary_{}", k), std::move(p));
  }
  for (const ir::Op op :
       {ir::Op::add, ir::Op::sub, ir::Op::mul, ir::Op::div, ir::Op::pow, ir::Op::max, ir::Op::min, ir::Op::prelu}) {
    Program p;
    program::ProgramOps ops{p};
    const int a = p.push(Op::acc_f);
    const int b = p.load(Op::load_f, 0);
    p.outputs = {{program::binary(ops, op, a, b), DType::f32}};
    named(fmt::format("binary_{}", static_cast<int>(op)), std::move(p));
  }
  return out;
}

std::string module_text(const std::vector<KernelSpec>& kernels, std::size_t from) {
  std::string text = emit_prelude() + argument_structures();
  for (std::size_t i = from; i < std::min(kernels.size(), from + kKernelsAModule); ++i) text += emit_kernel(kernels[i]);
  return text;
}

/// An array on both sides: raw elements, and where each element of the space lives.
struct Buffer {
  DType type = DType::f32;
  std::int64_t strides[4] = {};
  std::vector<std::byte> bytes;
  std::uint64_t device = 0;

  Buffer(DType t, int layout) : type(t) {
    const std::int64_t n = kDims[0], c = kDims[1], h = kDims[2], w = kDims[3];
    std::int64_t elements = kCount;
    switch (layout) {
      case 0: set(c * h * w, h * w, w, 1); break;     // N C H W
      case 1: set(h * w * c, 1, w * c, c); break;     // channels innermost
      case 2: set(c * h * w, h * w, 1, h); break;     // H and W exchanged
      case 3: set(0, 1, 0, 0), elements = c; break;   // one element a channel
      default: set(0, 0, 0, 0), elements = 1; break;  // one element
    }
    (void)n;
    bytes.resize(static_cast<std::size_t>(elements) * ir::size_of(t));
  }
  void set(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    strides[0] = a, strides[1] = b, strides[2] = c, strides[3] = d;
  }
  template <class T>
  [[nodiscard]] T get(std::int64_t at) const {
    T v;
    std::memcpy(&v, bytes.data() + static_cast<std::size_t>(at) * sizeof(T), sizeof(T));
    return v;
  }
  template <class T>
  void put(std::int64_t at, T v) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(at) * sizeof(T), &v, sizeof(T));
  }
  [[nodiscard]] std::int64_t offset(std::int64_t flat) const {
    std::int64_t at = 0;
    for (int d = 3; d >= 0; --d) {
      at += flat % kDims[d] * strides[d];
      flat /= kDims[d];
    }
    return at;
  }
  [[nodiscard]] Scalar load(std::int64_t at) const {
    Scalar s{};
    switch (type) {
      case DType::u8: s.i = get<std::uint8_t>(at); break;
      case DType::s8: s.i = get<std::int8_t>(at); break;
      case DType::s32: s.i = get<std::int32_t>(at); break;
      case DType::f16: s.f = f16_to_f32(get<std::uint16_t>(at)); break;
      case DType::bf16: s.f = bf16_to_f32(get<std::uint16_t>(at)); break;
      default: s.f = get<float>(at);
    }
    return s;
  }
  void fill(std::mt19937& rng) {
    const bool is_int = !ir::is_float(type);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(bytes.size() / ir::size_of(type)); ++i) {
      const Scalar s = program::random_scalar(is_int ? 'i' : 'f', rng);
      switch (type) {
        case DType::u8:
        case DType::boolean: put(i, static_cast<std::uint8_t>(s.i)); break;
        case DType::s8: put(i, static_cast<std::int8_t>(s.i)); break;
        case DType::s32: put(i, s.i); break;
        case DType::f16: put(i, f32_to_f16(s.f)); break;
        case DType::bf16: put(i, f32_to_bf16(s.f)); break;
        default: put(i, s.f);
      }
    }
  }
  /// True if the stored element is what the scalar narrows to.
  [[nodiscard]] bool holds(std::int64_t at, Scalar s) const {
    const auto nan16 = [](std::uint16_t v, std::uint16_t inf) { return (v & 0x7fff) > inf; };
    switch (type) {
      case DType::u8:
      case DType::boolean: return get<std::uint8_t>(at) == static_cast<std::uint8_t>(s.i);
      case DType::s8: return get<std::int8_t>(at) == static_cast<std::int8_t>(s.i);
      case DType::s32: return get<std::int32_t>(at) == s.i;
      case DType::f16: {
        const auto v = get<std::uint16_t>(at), e = f32_to_f16(s.f);
        return v == e || (nan16(v, 0x7c00) && nan16(e, 0x7c00));
      }
      case DType::bf16: {
        const auto v = get<std::uint16_t>(at), e = f32_to_bf16(s.f);
        return v == e || (nan16(v, 0x7f80) && nan16(e, 0x7f80));
      }
      default: return get<std::int32_t>(at) == s.i || (std::isnan(get<float>(at)) && std::isnan(s.f));
    }
  }
};

struct Tally {
  std::int64_t elements = 0, different = 0;
  std::map<std::string, std::int64_t> operations;  ///< instructions that a store depends on
};

Status check_kernel(const Device& gpu, void* module, const KernelSpec& spec, unsigned seed, Tally& tally) {
  std::mt19937 rng(seed);
  const Program& p = spec.program;
  const bool float_acc = program::uses(p, Op::acc_f);
  std::vector<Buffer> buffers;
  buffers.emplace_back(float_acc ? DType::f32 : DType::s32, static_cast<int>(seed % 3));
  for (int k = 0; k < p.operand_count; ++k)
    buffers.emplace_back(spec.operand_types[static_cast<std::size_t>(k)], static_cast<int>((seed + static_cast<unsigned>(k)) % 5));
  for (std::size_t j = 0; j < p.outputs.size(); ++j) buffers.emplace_back(p.outputs[j].type, static_cast<int>((seed + j) % 3));
  Args args;
  std::copy(std::begin(kDims), std::end(kDims), args.dims);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    Buffer& buffer = buffers[b];
    buffer.fill(rng);
    OCTAVO_TRY(buffer.device, gpu.allocate(buffer.bytes.size()));
    OCTAVO_CHECK(gpu.copy_in(buffer.device, buffer.bytes.data(), buffer.bytes.size()));
    Array& array = b == 0 ? args.acc : args.arrays[b - 1];
    array.base = buffer.device;
    std::copy(std::begin(buffer.strides), std::end(buffer.strides), array.strides);
  }
  OCTAVO_CHECK(gpu.run(module, spec.name, kCount, args));
  const std::size_t first_store = 1 + static_cast<std::size_t>(p.operand_count);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (b >= first_store) OCTAVO_CHECK(gpu.copy_out(buffers[b].bytes.data(), buffers[b].device, buffers[b].bytes.size()));
    gpu.release(buffers[b].device);
  }
  std::vector<Scalar> operands(static_cast<std::size_t>(p.operand_count)), results(p.outputs.size()), scratch;
  int shown = 0;
  for (std::int64_t flat = 0; flat < kCount; ++flat) {
    for (std::size_t k = 0; k < operands.size(); ++k) operands[k] = buffers[1 + k].load(buffers[1 + k].offset(flat));
    program::interpret(p, buffers[0].load(buffers[0].offset(flat)), operands, results, scratch);
    for (std::size_t j = 0; j < results.size(); ++j) {
      const Buffer& store = buffers[first_store + j];
      ++tally.elements;
      if (store.holds(store.offset(flat), results[j])) continue;
      ++tally.different;
      if (++shown <= 3) fmt::print("  {} element {} store {}: oracle {} ({:#x})\n", spec.name, flat, j, results[j].f, results[j].i);
    }
  }
  std::vector<char> live(p.code.size(), 0);
  for (const program::Output& out : p.outputs) live[static_cast<std::size_t>(out.value)] = 1;
  for (std::size_t i = p.code.size(); i-- > 0;) {
    if (!live[i]) continue;
    tally.operations[std::string(program::info(p.code[i].op).name)] += 1;
    for (const int arg : p.code[i].args) {
      if (arg >= 0) live[static_cast<std::size_t>(arg)] = 1;
    }
  }
  return {};
}

struct Options {
  std::string emit, load;
  Architecture architecture = "sm_90a";
  int programs = 200;
};

std::string module_path(const std::string& folder, std::size_t from, std::string_view suffix) {
  return fmt::format("{}/epilogues_{}.{}", folder, from / kKernelsAModule, suffix);
}

int report(const Error& e) {
  fmt::print(stderr, "error: {}\n", e.message);
  return e.kind == ErrorKind::unsupported ? 3 : 1;
}

int emit_only(const Options& o, const std::vector<KernelSpec>& kernels) {
  for (std::size_t from = 0; from < kernels.size(); from += kKernelsAModule) {
    const std::string text = module_text(kernels, from);
    const auto code = compile(text, compile_options(o.architecture));
    if (!code) return report(code.error());
    std::ofstream(module_path(o.emit, from, "cu")) << text;
    std::ofstream(module_path(o.emit, from, "cubin"), std::ios::binary) << code->cubin;
  }
  fmt::print("{} kernels compiled for {} into {}\n", kernels.size(), o.architecture.text(), o.emit);
  return 0;
}

Result<std::string> machine_code(const Options& o, const Device& gpu, const std::vector<KernelSpec>& kernels, std::size_t from) {
  if (o.load.empty()) {
    OCTAVO_TRY(Compiled code, compile(module_text(kernels, from), compile_options(gpu.architecture())));
    return code.cubin;
  }
  std::ifstream file(module_path(o.load, from, "cubin"), std::ios::binary);
  if (!file) return fail(ErrorKind::io, "reading machine code: no " + module_path(o.load, from, "cubin") + "; make it with --emit");
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

int run(const Options& o) {
  const std::vector<KernelSpec> kernels = all_kernels(o.programs);
  if (!o.emit.empty()) return emit_only(o, kernels);
  const auto gpu = Device::open();
  if (!gpu) return report(gpu.error());
  const auto version = compiler_version();
  fmt::print("GPU: {} ({}); {}\n", gpu->name(), gpu->architecture().text(),
             o.load.empty() ? "NVRTC " + version.value_or("none") : "machine code from " + o.load);
  Tally tally;
  void* module = nullptr;
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    if (k % kKernelsAModule == 0) {
      const auto code = machine_code(o, *gpu, kernels, k);
      if (!code) return report(code.error());
      const auto loaded = gpu->load(*code);
      if (!loaded) return report(loaded.error());
      module = *loaded;
    }
    if (const auto ok = check_kernel(*gpu, module, kernels[k], static_cast<unsigned>(k), tally); !ok) return report(ok.error());
  }
  for (const program::OpInfo& row : program::all_ops()) {
    fmt::print("  {:8} in {} stored instructions\n", row.name, tally.operations[std::string(row.name)]);
    if (tally.operations[std::string(row.name)] == 0) {
      fmt::print("operation {} was never used: nothing is proved for it\n", row.name);
      return 1;
    }
  }
  fmt::print("{} programs, {} stored elements compared with the oracle, {} different\n", kernels.size(), tally.elements,
             tally.different);
  return tally.different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  octavo::cuda::Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--emit") {
      o.emit = value;
    } else if (key == "--load") {
      o.load = value;
    } else if (key == "--arch") {
      o.architecture = octavo::cuda::parse_architecture(value).value();
    } else if (key == "--programs") {
      o.programs = std::atoi(value.c_str());
    } else {
      fmt::print(stderr, "unknown option {}; see the head of tests/cuda/gpu/run_on_gpu.cc\n", key);
      return 2;
    }
  }
  return octavo::cuda::run(o);
}
