// Convolution kernels on a GPU: checks their bits and measures their times. Needs the CUDA driver and NVRTC, no toolkit.
//
//   octavo_gpu_conv check [SEEDS]             random small shapes, several tiles each, every byte of memory against the reference
//   octavo_gpu_conv compile [SEEDS] [ARCH]     the same kernels are compiled only; needs no GPU
//   octavo_gpu_conv time NET BATCH [KINDS]    each layer of resnet50, mobilenetv2, yolov8n or unet: KINDS tiles each (default 8), compared
//                                             on the full shape with a plain kernel; the best three are printed
//   octavo_gpu_conv one N C HW O K S STYLE [name=value ... [or name=value ...]]    one layer, every tile that has these settings, or those; with
//                                             OCTAVO_FAMILY and all of its settings: this tile, even if it is not offered
// OCTAVO_ZERO=CODE is the zero point of the one layer's input (default 0). OCTAVO_FAMILY=NAME takes one family, OCTAVO_ONLY=VALUE what has a parameter of that value; OCTAVO_TIMES=FILE gets every time.
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "cuda/conv_scene.h"
#include "cuda/device/library.h"
#include "cuda/device/nvrtc.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/conv/depthwise.h"
#include "cuda/families/families.h"
#include "cuda/gpu/conv_bench_gpu.h"
#include "cuda/gpu/conv_bench_networks.h"
#include "cuda/program_kernel.h"
#include "cuda/text/emit_cuda.h"

namespace octavo::cuda {
namespace {

std::vector<Attempt> attempts(const ConvScene& s, const Target& target, std::size_t kinds, const Parameters& wanted = {}) {
  std::vector<Attempt> out;
  for (const Family* f : {&conv_mma_family(), &conv_rows_family(), &conv_window_family(), &conv_shift_family(),
                          &conv_stream_family(), &conv_im2col_family(), &conv_linear_family(), &depthwise_family()}) {
    const char* family = std::getenv("OCTAVO_FAMILY");
    if (!f->about(s.region) || (family != nullptr && f->name() != family)) continue;
    if (const auto why = f->why_not(s.region, s.plan, target); !why.empty()) {
      if (wanted.empty()) continue;
      fmt::print("{} refuses: {}\n", f->name(), spelled(why));
      continue;
    }
    std::map<std::string, int> taken;
    std::size_t mine = 0;
    auto candidates = f->candidates(s.region, s.plan, target);
    if (family != nullptr && wanted.contains("tile") && wanted.size() == candidates.at(0).parameters.size())
      candidates = {{wanted, 0}};  // all of them: whether offered or not
    for (const EstimatedTactic& c : candidates) {
      bool fits = true;
      if (const char* only = std::getenv("OCTAVO_ONLY")) {  // for example wgmma: one of the values
        fits = std::any_of(c.parameters.begin(), c.parameters.end(), [&](const auto& v) { return v.second == only; });
      }
      for (const auto& [name, value] : wanted) fits &= c.parameters.count(name) != 0 && c.parameters.at(name) == value;
      if (!fits || mine >= kinds) continue;
      // Not many that differ in little.
      std::string group;
      for (const auto& [name, value] : c.parameters) {
        if (name != "stages" && name != "filter" && name != "copies") group += value + " ";
      }
      if (wanted.empty() && taken[group]++ >= (kinds > 12 ? 2 : 1)) continue;
      ++mine;
      Attempt a;
      a.family = f, a.parameters = c.parameters, a.estimate = c.seconds;
      auto text = f->emit(s.region, s.plan, c.parameters, target);
      if (text)
        a.text = std::move(*text);
      else
        a.trouble = text.error().message;
      out.push_back(std::move(a));
    }
  }
  return out;
}

constexpr std::string_view kPlain = R"(
extern "C" __global__ void random_bytes(unsigned char* p, long long n, unsigned seed) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    unsigned h = (unsigned)i * 2654435761u + seed * 40503u + (unsigned)(i >> 32);
    h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;
    p[i] = (unsigned char)(h >> 8);
  }
}
extern "C" __global__ void compare(const unsigned char* a, const unsigned char* b, long long n, unsigned long long* count) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
    if (a[i] != b[i]) atomicAdd(count, 1ull);
}
)";

/// Plain convolution into s32, then the program as written, one element a thread.
class Plain {
 public:
  Plain(const Gpu& gpu, const ConvCase& k, const ConvScene& s) : gpu_(gpu) {
    const region::Stage& st = s.region.stages[0];
    spec_ = {"octavo_plain", st.program, {}};
    for (const auto& o : st.operands) spec_.operand_types.push_back(o.ref.dtype);
    const auto& x = st.anchor.inputs[0];
    std::string text = emit_prelude() + argument_structures() + std::string(kPlain) + emit_kernel(spec_);
    text += fmt::format(R"(
extern "C" __global__ void sums(const unsigned char* x, const signed char* w, int* acc) {{
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const int C = {0}, O = {1}, OH = {2}, OW = {3}, KH = {4}, KW = {5}, G = {6};
  if (i >= (long long){7} * OH * OW * O) return;
  const int o = (int)(i % O); const long long p = i / O;
  const int xx = (int)(p % OW), y = (int)(p / OW % OH), n = (int)(p / OW / OH);
  int sum = 0;
  for (int a = 0; a < KH; ++a) for (int b = 0; b < KW; ++b) {{
    const int iy = y * {8} - {9} + a * {10}, ix = xx * {8} - {9} + b * {10};
    if (iy < 0 || ix < 0 || iy >= {11} || ix >= {12}) continue;
    const unsigned char* px = x + (long long)n * {13} + (long long)iy * {14} + (long long)ix * {15} + o / (O / G) * C;
    for (int c = 0; c < C; ++c) sum += ((int)px[c] - {16}) * (int)w[((o * C + c) * KH + a) * KW + b];
  }}
  acc[i] = sum;
}}
)",
                        k.c / k.groups, k.o, k.out_h(), k.out_w(), k.kh, k.kw, k.groups, k.n, k.stride, k.pad, k.dilation, k.h, k.w,
                        x.strides[0], x.strides[2], x.strides[3], k.zero);
    auto code = compile(text, compile_options(gpu.architecture));
    if (!code) {
      fmt::print("{}\n", code.error().message);
      std::exit(3);
    }
    must(gpu.load(&module_, code->cubin.data()), "plain");
    count_ = static_cast<std::uint64_t>(ir::count(st.space));
    acc_ = gpu.make(4 * count_);
    answer_ = gpu.make(8);
  }
  ~Plain() {
    gpu_.release(acc_), gpu_.release(answer_);
    gpu_.unload(module_);
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  template <class... A>
  void call(const char* name, std::uint64_t threads, A... a) const {
    void* f = nullptr;
    must(gpu_.function(&f, module_, name), name);
    void* arguments[] = {&a...};
    must(gpu_.launch(f, static_cast<unsigned>((threads + 255) / 256), 1, 1, 256, 1, 1, 0, gpu_.queue, arguments, nullptr), name);
  }
  void randomize(std::uint64_t p, std::size_t bytes, unsigned seed) const {
    call("random_bytes", 256 * 1024, p, static_cast<long long>(bytes), seed);
  }
  void run(const ConvScene& s, const std::vector<std::uint64_t>& buffers) const {
    const region::Stage& st = s.region.stages[0];
    const auto at = [&](const region::TensorRef& r) {
      return buffers[static_cast<std::size_t>(r.buffer)] + static_cast<std::uint64_t>(r.offset);
    };
    call("sums", count_, at(st.anchor.inputs[0]), at(*st.anchor.weights), acc_);
    Args args;
    for (std::size_t d = 0; d < 4; ++d) args.dims[d] = st.space[d];
    args.acc.base = acc_;
    args.acc.strides[0] = st.space[1] * st.space[2] * st.space[3], args.acc.strides[1] = 1;
    args.acc.strides[2] = st.space[1] * st.space[3], args.acc.strides[3] = st.space[1];
    std::size_t k = 0;
    const auto put = [&](const region::TensorRef& r) {
      args.arrays[k].base = at(r);
      for (std::size_t d = 0; d < 4; ++d) args.arrays[k].strides[d] = r.strides[d];
      ++k;
    };
    for (const auto& o : st.operands) put(o.ref);
    for (const auto& r : st.stores) put(r);
    call("octavo_plain", count_, args);
  }
  std::uint64_t differences(std::uint64_t a, std::uint64_t b, std::size_t bytes) const {
    must(gpu_.fill(answer_, 0, 8), "zero");
    call("compare", 256 * 1024, a, b, static_cast<long long>(bytes), answer_);
    must(gpu_.synchronize(), "comparing");
    std::uint64_t n = 0;
    must(gpu_.to_host(&n, answer_, 8), "reading");
    return n;
  }

 private:
  const Gpu& gpu_;
  KernelSpec spec_;
  void* module_ = nullptr;
  std::uint64_t count_ = 0, acc_ = 0, answer_ = 0;
};

double bytes_of(const ConvScene& s) {
  double total = 0;
  const region::Stage& st = s.region.stages[0];
  const auto add = [&](const region::TensorRef& r) {
    total += static_cast<double>(s.plan.buffers[static_cast<std::size_t>(r.buffer)].bytes);
  };
  add(st.anchor.inputs[0]), add(*st.anchor.weights);
  for (const auto& o : st.operands) add(o.ref);
  for (const auto& o : st.stores) add(o);
  return total;
}

int failures = 0;
std::FILE* all_times = nullptr;

/// Checks and times attempts on one layer; returns the best time.
double measure(const Gpu& gpu, const ConvCase& k, ConvScene& s, std::vector<Attempt>& all) {
  const double bytes = bytes_of(s), macs = k.macs();
  const int sets = k.n == 1 ? 1 : static_cast<int>(std::clamp(1.5e8 / bytes + 1, 2.0, 6.0));
  OnDevice device(gpu, s, sets);
  const Plain plain(gpu, k, s);
  const region::Stage& st = s.region.stages[0];
  std::set<int> written, reads{st.anchor.inputs[0].buffer};
  for (const auto& r : st.stores) written.insert(r.buffer);
  for (const auto& o : st.operands) {
    if (s.plan.buffers[static_cast<std::size_t>(o.ref.buffer)].kind == region::BufferKind::arena) reads.insert(o.ref.buffer);
  }
  for (int i = 0; i < sets; ++i) {
    for (const int b : reads)
      plain.randomize(device.sets[static_cast<std::size_t>(i)][static_cast<std::size_t>(b)],
                      device.bytes[static_cast<std::size_t>(b)], 7U + static_cast<unsigned>(b));
  }
  std::vector<std::uint64_t> expected = device.sets[0];
  for (const int b : written) {
    expected[static_cast<std::size_t>(b)] = gpu.make(device.bytes[static_cast<std::size_t>(b)]);
    must(gpu.fill(expected[static_cast<std::size_t>(b)], 0xA5, device.bytes[static_cast<std::size_t>(b)]), "fill");
  }
  plain.run(s, expected);
  must(gpu.synchronize(), "plain kernel");
  for (Attempt& a : all) {
    if (!a.trouble.empty()) {
      fmt::print("  TROUBLE {}: {}\n", name_of(a), a.trouble.substr(0, 600));
      ++failures;
      continue;
    }
    const Loaded kernel(gpu, a);
    for (int run = 0; run < 2; ++run) {  // the second finds what the first left in its workspace
      for (const int b : written)
        must(gpu.fill(device.sets[0][static_cast<std::size_t>(b)], 0xA5, device.bytes[static_cast<std::size_t>(b)]), "fill");
      must(gpu.synchronize(), "fill");
      kernel.launch(device.sets[0]);
      must(gpu.synchronize(), name_of(a).c_str());
      for (const int b : written) {
        const auto d = plain.differences(device.sets[0][static_cast<std::size_t>(b)], expected[static_cast<std::size_t>(b)],
                                         device.bytes[static_cast<std::size_t>(b)]);
        if (d != 0 && a.trouble.empty()) {
          a.trouble = fmt::format("{} bytes differ in run {}", d, run);
          fmt::print("  WRONG {}: {}; {}\n", name_of(a), a.trouble, k.text());
          ++failures;
        }
      }
    }
    if (!a.trouble.empty()) continue;
    a.seconds = time_of(gpu, kernel, device);
    if (all_times)
      fmt::print(all_times, "{}\t{}\t{}\t{:.2f}\t{:.2f}\n", k.name, k.text(), name_of(a), a.seconds * 1e6, a.estimate * 1e6);
  }
  for (const int b : written) gpu.release(expected[static_cast<std::size_t>(b)]);
  std::sort(all.begin(), all.end(), [](const Attempt& a, const Attempt& b) {
    return (a.seconds < 0 ? 1e9 : a.seconds) < (b.seconds < 0 ? 1e9 : b.seconds);
  });
  if (all.empty() || all[0].seconds < 0) return -1;
  const double roof = std::max(macs * 2 / 1294e12, bytes / (k.n == 1 ? 4.5e12 : 2.8e12));
  fmt::print("{:22} {:9.2f} us {:5.0f} TOPS {:5.0f} GB/s {:3.0f} %  {}\n", k.name, all[0].seconds * 1e6,
             macs * 2e-12 / all[0].seconds, bytes * 1e-9 / all[0].seconds, 100 * roof / all[0].seconds, name_of(all[0]));
  for (std::size_t i = 1; i < std::min<std::size_t>(all.size(), 2); ++i) {
    if (all[i].seconds > 0) fmt::print("{:22} {:9.2f}      {}\n", "", all[i].seconds * 1e6, name_of(all[i]));
  }
  std::fflush(stdout);
  return all[0].seconds;
}

void time_network(const Gpu& gpu, const Target& target, const std::string& net, int batch, std::size_t kinds) {
  fmt::print("== {} batch {}\n", net, batch);
  auto layers = network(net);
  std::vector<std::unique_ptr<ConvScene>> scenes;
  std::vector<Attempt> all;
  std::vector<std::size_t> first;
  for (Layer& l : layers) {
    l.shape.n = batch;
    scenes.push_back(std::make_unique<ConvScene>(l.shape, 1, false));
    first.push_back(all.size());
    for (Attempt& a : attempts(*scenes.back(), target, kinds)) all.push_back(std::move(a));
  }
  first.push_back(all.size());
  compile_all(all, gpu.architecture);
  double total = 0, roofs = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<Attempt> mine(std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(first[i])),
                              std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(first[i + 1])));
    if (mine.empty()) {
      fmt::print("{:22} no family takes it\n", layers[i].shape.name);
      continue;
    }
    const double t = measure(gpu, layers[i].shape, *scenes[i], mine);
    total += t * layers[i].count;
    roofs +=
        layers[i].count * std::max(layers[i].shape.macs() * 2 / 1294e12, bytes_of(*scenes[i]) / (batch == 1 ? 4.5e12 : 2.8e12));
  }
  fmt::print("-- {} batch {}: sum of the best {:.1f} us ({:.0f} img/s); roofline {:.1f} us\n", net, batch, total * 1e6,
             batch / total, roofs * 1e6);
}

/// Random small shapes with a few tiles each.
struct Small {
  std::vector<std::unique_ptr<ConvScene>> scenes;
  std::vector<ConvCase> cases;
  std::vector<Attempt> all;
  std::vector<std::size_t> owner;  ///< of each attempt: its scene
  int refused = 0;
};

Small small_shapes(const Target& target, int seeds) {
  Small out;
  std::mt19937 rng(99);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  for (int seed = 0; seed < seeds; ++seed) {
    constexpr const char* kStyles[] = {"relu", "bias", "residual", "float", "silu", "rest"};
    ConvCase k;
    k.style = kStyles[seed % 6];
    k.n = pick(1, 3), k.h = pick(1, 19), k.w = pick(1, 19);
    const int kinds[] = {1, 3, 1, 5, 3, 2};
    k.kh = kinds[pick(0, 5)], k.kw = pick(0, 3) == 0 ? kinds[pick(0, 5)] : k.kh;
    k.stride = pick(1, 2), k.dilation = pick(0, 4) == 0 ? 2 : 1, k.pad = pick(0, 2);
    k.c = pick(0, 2) == 0 ? pick(1, 70) : pick(1, 5) * (pick(0, 1) ? 16 : 4), k.o = pick(0, 1) ? pick(1, 10) * 16 : pick(1, 150);
    if (pick(0, 4) == 0) k.groups = k.c, k.o = k.c;
    k.zero = pick(0, 2) == 0 ? 0 : pick(0, 255), k.gap = pick(0, 2) == 0 ? pick(1, 3) * 8 : 0;
    if (k.out_h() < 1 || k.out_w() < 1) continue;
    auto s = std::make_unique<ConvScene>(k, static_cast<unsigned>(seed));
    auto some = attempts(*s, target, 1000);
    if (some.empty()) {
      ++out.refused;
      continue;
    }
    std::shuffle(some.begin(), some.end(), rng);
    if (some.size() > 4) some.resize(4);
    for (Attempt& a : some) out.all.push_back(std::move(a)), out.owner.push_back(out.scenes.size());
    out.scenes.push_back(std::move(s));
    out.cases.push_back(k);
  }
  return out;
}

void check(const Gpu& gpu, const Target& target, int seeds) {
  auto [scenes, cases, all, owner, refused] = small_shapes(target, seeds);
  compile_all(all, gpu.architecture);
  std::size_t compared = 0;
  int wrong = 0;
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    ConvScene expected = *scenes[i];
    expected.run_reference();
    for (std::size_t a = 0; a < all.size(); ++a) {
      if (owner[a] != i) continue;
      if (!all[a].trouble.empty()) {
        fmt::print("TROUBLE {}: {}; {}\n", name_of(all[a]), all[a].trouble.substr(0, 600), cases[i].text());
        ++wrong;
        continue;
      }
      OnDevice device(gpu, *scenes[i], 1);
      const Loaded kernel(gpu, all[a]);
      kernel.launch(device.sets[0]);
      kernel.launch(device.sets[0]);
      must(gpu.synchronize(), name_of(all[a]).c_str());
      std::size_t differences = 0;
      for (std::size_t b = 0; b < expected.memory.size(); ++b) {
        std::vector<std::byte> got(device.bytes[b]);
        must(gpu.to_host(got.data(), device.sets[0][b], got.size()), "reading");
        for (std::size_t j = 0; j < got.size(); ++j) differences += got[j] != expected.memory[b][j];
        compared += got.size();
      }
      if (differences != 0) {
        fmt::print("WRONG {}: {} bytes differ; {}\n", name_of(all[a]), differences, cases[i].text());
        ++wrong;
      }
    }
  }
  fmt::print("check: {} kernels of {} shapes, {} shapes that no family takes, {} bytes compared, {} wrong\n", all.size(),
             scenes.size(), refused, compared, wrong);
  failures += wrong;
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "compile") {  // no GPU needed
    Small small = small_shapes({}, argc > 2 ? std::atoi(argv[2]) : 40);
    compile_all(small.all, parse_architecture(argc > 3 ? argv[3] : "sm_90a").value());
    std::map<std::string, int> families;
    for (std::size_t i = 0; i < small.all.size(); ++i) {
      const Attempt& a = small.all[i];
      ++families[std::string(a.family->name())];
      if (!a.trouble.empty())
        fmt::print("{}: {}\n{}\n", name_of(a), small.cases[small.owner[i]].text(), a.trouble.substr(0, 1500)), ++failures;
    }
    for (const auto& [name, n] : families) fmt::print("{}: {} kernels\n", name, n);
    fmt::print("{} failures, {} shapes refused\n", failures, small.refused);
    return failures == 0 ? 0 : 1;
  }
  Gpu gpu;
  const auto opened = open_and_say(gpu);
  if (!opened) return 3;
  const Target& target = *opened;
  if (const char* out = std::getenv("OCTAVO_TIMES")) all_times = std::fopen(out, "a");
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "check") check(gpu, target, argc > 2 ? std::atoi(argv[2]) : 120);
  if (mode == "time")
    time_network(gpu, target, argv[2], std::atoi(argv[3]), argc > 4 ? static_cast<std::size_t>(std::atoi(argv[4])) : 8);
  if (mode == "one") {
    ConvCase k =
        conv("one", std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]), std::atoi(argv[6]), std::atoi(argv[7]), argv[8]);
    k.n = std::atoi(argv[2]);
    if (const char* zero = std::getenv("OCTAVO_ZERO")) k.zero = std::atoi(zero);
    std::vector<Parameters> wanted(1);
    for (int i = 9; i < argc; ++i) {
      const std::string a = argv[i];
      if (a == "or")
        wanted.emplace_back();
      else
        wanted.back()[a.substr(0, a.find('='))] = a.substr(a.find('=') + 1);
    }
    ConvScene s(k, 1, false);
    std::vector<Attempt> all;
    for (const Parameters& one : wanted) {
      for (Attempt& a : attempts(s, target, 64, one)) all.push_back(std::move(a));
    }
    compile_all(all, gpu.architecture);
    measure(gpu, k, s, all);
    for (const Attempt& a : all) fmt::print("  {:8.2f} us (estimate {:8.2f}) {}\n", a.seconds * 1e6, a.estimate * 1e6, name_of(a));
  }
  if (all_times) std::fclose(all_times);
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
