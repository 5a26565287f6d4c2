// What the other side of bench/layers.py and bench/peers.py needs from this machine:
//   octavo_layer_bench --peak THREADS     one line of JSON: GMAC/s of back-to-back vpdpbusd and, where there is AMX, tdpbusd
//   octavo_layer_bench < LAYERS           oneDNN's time for 8-bit convolutions, one thread; a line a layer, one line of JSON each:
//     N C H W O KH KW STRIDE_H STRIDE_W DILATION_H DILATION_W TOP LEFT BOTTOM RIGHT GROUPS TRANSPOSED ADD
// u8 data, s8 weights, u8 results, scales per output channel, float bias, Relu; ADD: a u8 tensor is added in front of it. The
// library chooses all formats; reorders are not timed. Without oneDNN each layer answers {"why": ...}.
#define XBYAK_NO_OP_NAMES
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xbyak/xbyak.h>
#include <xbyak/xbyak_util.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#ifdef OCTAVO_BENCH_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#include <unordered_map>
#endif

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

constexpr int kLoops = 20000;

/// 96 vpdpbusd a loop on 24 accumulators: the reads and the additions of one never wait for another.
struct Vnni : Xbyak::CodeGenerator {
  static constexpr double kMacs = 96.0 * 64 * kLoops;
  Vnni() {
    mov(rax, kLoops);
    align(32);
    Xbyak::Label again;
    L(again);
    for (int u = 0; u < 4; ++u) {
      for (int r = 0; r < 24; ++r) vpdpbusd(Xbyak::Zmm(r), Xbyak::Zmm(24 + r % 4), Xbyak::Zmm(28 + r % 4));
    }
    dec(rax);
    jnz(again, T_NEAR);
    vzeroupper();
    ret();
  }
};

/// 16 tdpbusd a loop on 4 accumulators, rdi: the tile configuration.
struct Amx : Xbyak::CodeGenerator {
  static constexpr double kMacs = 16.0 * 16 * 16 * 64 * kLoops;
  Amx() {
    ldtilecfg(ptr[rdi]);
    mov(rax, kLoops);
    align(32);
    Xbyak::Label again;
    L(again);
    for (int u = 0; u < 4; ++u) {
      for (int r = 0; r < 4; ++r) tdpbusd(Xbyak::Tmm(r), Xbyak::Tmm(4 + r / 2), Xbyak::Tmm(6 + r % 2));
    }
    dec(rax);
    jnz(again, T_NEAR);
    tilerelease();
    ret();
  }
};

/// Whether the kernel lets this process use tiles.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// The most of `rounds` rounds in which all threads run at once: a busy machine only ever slows a round down.
double most(int threads, double macs, const std::function<void()>& once) {
  constexpr int kRounds = 60;
  std::vector<double> rate(kRounds, 0);
  std::barrier together(threads);
  Clock::time_point start;
  const auto work = [&](int self) {
    for (double& r : rate) {
      together.arrive_and_wait();
      if (self == 0) start = Clock::now();
      once();
      together.arrive_and_wait();
      if (self == 0) r = macs * threads / seconds(start, Clock::now()) / 1e9;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (auto& t : others) t.join();
  return *std::max_element(rate.begin(), rate.end());
}

int peak(int threads) {
  const Xbyak::util::Cpu cpu;
  double vnni = 0, amx = 0;
  if (cpu.has(Xbyak::util::Cpu::tAVX512_VNNI)) {
    Vnni code;
    vnni = most(threads, Vnni::kMacs, code.getCode<void (*)()>());
  }
  if (cpu.has(Xbyak::util::Cpu::tAMX_INT8) && may_use_tiles()) {
    Amx code;
    alignas(64) std::array<std::uint8_t, 64> config{};
    config[0] = 1;
    for (int t = 0; t < 8; ++t) {
      config[static_cast<std::size_t>(16 + 2 * t)] = 64;  // bytes of a row
      config[static_cast<std::size_t>(48 + t)] = 16;      // rows
    }
    amx = most(threads, Amx::kMacs, [&] { code.getCode<void (*)(const void*)>()(config.data()); });
  }
  fmt::print("{{\"threads\": {}, \"vnni\": {:.1f}, \"amx\": {:.1f}}}\n", threads, vnni, amx);
  return 0;
}

#ifdef OCTAVO_BENCH_ONEDNN
using dnnl::memory;
using Dims = memory::dims;

constexpr std::size_t kBeyondL2 = std::size_t{8} << 20;

/// The primitive as oneDNN likes it best, in a network's conditions: its data is where the last run left it, its weights are one of
/// several copies in turn, more than a core's second level of cache holds. Throws dnnl::error where it cannot.
std::string measure(const std::array<std::int64_t, 18>& l) {
  const auto [n, c, h, w, o, kh, kw, sh, sw, dh, dw, top, left, bottom, right, groups, backwards, add] = l;
  const bool transposed = backwards != 0;  // clang 14 captures no structured bindings
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto out = [&](std::int64_t in, std::int64_t k, std::int64_t s, std::int64_t d, std::int64_t pads) {
    return transposed ? (in - 1) * s + (k - 1) * d + 1 - pads : (in + pads - (k - 1) * d - 1) / s + 1;
  };
  const Dims x{n, c, h, w}, y{n, o, out(h, kh, sh, dh, top + bottom), out(w, kw, sw, dw, left + right)};
  const Dims k = groups > 1 ? Dims{groups, o / groups, c / groups, kh, kw} : Dims{o, c, kh, kw};
  const auto any = memory::format_tag::any;
  const memory::desc xd(x, memory::data_type::u8, any), kd(k, memory::data_type::s8, any), yd(y, memory::data_type::u8, any),
      bd({o}, memory::data_type::f32, memory::format_tag::a);
  dnnl::primitive_attr attr;
  attr.set_output_scales(2, std::vector<float>(static_cast<std::size_t>(o), 0.001F));
  dnnl::post_ops post;
  if (add != 0) post.append_sum(0.5F);
  post.append_eltwise(1.F, dnnl::algorithm::eltwise_relu, 0.F, 0.F);
  attr.set_post_ops(post);
  const Dims strides{sh, sw}, dilations{dh - 1, dw - 1}, before{top, left}, after{bottom, right};
  const auto kind = dnnl::prop_kind::forward_inference;
  std::unordered_map<int, memory> args;
  const auto give = [&](int id, const memory::desc& d) {
    memory m(d, engine);
    std::memset(m.get_data_handle(), 1, d.get_size());
    args.emplace(id, std::move(m));
  };
  const auto bind = [&](const auto& pd) {
    give(DNNL_ARG_SRC, pd.src_desc());
    give(DNNL_ARG_WEIGHTS, pd.weights_desc());
    give(DNNL_ARG_BIAS, pd.bias_desc());
    give(DNNL_ARG_DST, pd.dst_desc());
    return std::string(pd.impl_info_str());
  };
  std::string name;
  dnnl::primitive primitive;
  if (transposed) {
    using Deconv = dnnl::deconvolution_forward;
    const Deconv::primitive_desc pd(
        Deconv::desc(kind, dnnl::algorithm::deconvolution_direct, xd, kd, bd, yd, strides, dilations, before, after), attr, engine);
    name = bind(pd);
    primitive = Deconv(pd);
  } else {
    using Conv = dnnl::convolution_forward;
    const Conv::primitive_desc pd(
        Conv::desc(kind, dnnl::algorithm::convolution_direct, xd, kd, bd, yd, strides, dilations, before, after), attr, engine);
    name = bind(pd);
    primitive = Conv(pd);
  }
  std::vector<memory> copies{args.at(DNNL_ARG_WEIGHTS)};
  for (std::size_t all = 0; all < kBeyondL2 && copies.size() < 32; all += copies[0].get_desc().get_size()) {
    memory& m = copies.emplace_back(copies[0].get_desc(), engine);
    std::memset(m.get_data_handle(), 1, m.get_desc().get_size());
  }
  for (int i = 0; i < 3; ++i) primitive.execute(stream, args);
  std::vector<double> times;
  const auto begun = Clock::now();
  while (times.size() < 15 || (seconds(begun, Clock::now()) < 0.02 && times.size() < 2000)) {
    args.at(DNNL_ARG_WEIGHTS) = copies[times.size() % copies.size()];
    const auto start = Clock::now();
    primitive.execute(stream, args);
    stream.wait();
    times.push_back(seconds(start, Clock::now()));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return fmt::format("{{\"seconds\": {:.9f}, \"implementation\": \"{}\"}}", times[times.size() / 2], name);
}
#endif

int layers() {
#ifdef OCTAVO_BENCH_ONEDNN
  omp_set_num_threads(1);
#endif
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::array<std::int64_t, 18> layer{};
    for (auto& v : layer) in >> v;
    if (!in) {
      fmt::print(stderr, "octavo_layer_bench: 18 numbers expected, found \"{}\"\n", line);
      return 2;
    }
#ifdef OCTAVO_BENCH_ONEDNN
    try {
      fmt::print("{}\n", measure(layer));
    } catch (const dnnl::error& e) {
      fmt::print("{{\"why\": \"{}\"}}\n", e.message);
    }
#else
    fmt::print("{{\"why\": \"this program was built without oneDNN\"}}\n");
#endif
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--peak" && std::atoi(argv[2]) > 0) return peak(std::atoi(argv[2]));
  if (argc == 1) return layers();
  fmt::print(stderr, "usage: octavo_layer_bench --peak THREADS | octavo_layer_bench < LAYERS\n");
  return 2;
}
