// Linear layers and convolutions of float16 and bfloat16 on a GPU: checks their results and measures their times. Needs the CUDA driver and NVRTC, no
// toolkit.
//
//   octavo_gpu_linear check [SEEDS]            random small shapes and epilogues, tiles at random, against the contract
//   octavo_gpu_linear time [TILES [NAME]]      the layers of ViT-B/16 and BERT-base in float16: the best of TILES tiles of each family (default all)
//   octavo_gpu_linear one ROWS COLUMNS DEPTH TYPE STYLE [TILES]   one layer, every tile: TYPE f16 or bf16, STYLE as in linear_scene.h
//   octavo_gpu_linear ptxas [STYLE]            what NVRTC reports of the tiles of conv.f16.stream; needs no GPU
//   octavo_gpu_linear text [STYLE [NUMBER]]    prelude and text of one of them; needs no GPU
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "cuda/families/families.h"
#include "cuda/gpu/scene_on_gpu.h"
#include "cuda/linear_scene.h"

namespace octavo::cuda {
namespace {

using ir::DType;
using testing::LinearCase;
using testing::Scene;

constexpr std::size_t kAll = 1000;  // tiles
int failures = 0;

std::vector<const Family*> families_of(DType type) {
  if (type == DType::f16) return {&conv_stream_f16_family(), &conv_f16_family()};
  return {&conv_stream_bf16_family(), &conv_bf16_family()};
}

/// Tiles of all families that take the layer.
std::vector<Attempt> all_of(Scene& s, DType type, const Target& target, std::size_t most) {
  std::vector<Attempt> out;
  for (const Family* f : families_of(type)) {
    if (!f->why_not(s.region(), s.plan(), target).empty()) continue;
    for (Attempt& a : attempts(s, *f, target, most, failures)) out.push_back(std::move(a));
  }
  return out;
}

void check(const Gpu& gpu, const Target& target, int seeds) {
  std::mt19937 rng(101);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  std::vector<std::unique_ptr<Scene>> scenes;
  std::vector<LinearCase> cases;
  std::vector<Attempt> all;
  std::vector<std::size_t> owner;
  for (int seed = 0; seed < seeds; ++seed) {
    constexpr const char* kStyles[] = {"bias", "gelu", "residual", "two"};
    LinearCase c{seed % 2 == 0 ? DType::f16 : DType::bf16, pick(1, 200), 8 * pick(1, 40), pick(1, 200), kStyles[seed / 2 % 4]};
    if (pick(0, 2) == 0) {
      c.rows = pick(1, 3), c.h = pick(1, 15), c.w = pick(1, 15), c.kernel = 1 + 2 * pick(0, 2), c.pad = c.kernel / 2,
      c.stride = pick(1, 2);
      c.depth = 8 * pick(1, 8);
    }
    c.gap = pick(0, 3) == 0 ? 8 : 0;
    auto s = std::make_unique<Scene>(static_cast<unsigned>(seed + 1));
    testing::build(*s, c);
    for (const Family* f : families_of(c.type)) {
      auto some = attempts(*s, *f, target, kAll, failures);
      std::shuffle(some.begin(), some.end(), rng);
      if (some.size() > 3) some.resize(3);
      for (Attempt& a : some) all.push_back(std::move(a)), owner.push_back(scenes.size());
    }
    scenes.push_back(std::move(s));
    cases.push_back(c);
  }
  compile_all(all, gpu.architecture);
  fmt::print("check: {} kernels of {} shapes are compiled\n", all.size(), scenes.size());
  std::fflush(stdout);
  int wrong = 0;
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    Scene& s = *scenes[i];
    std::vector<std::vector<std::byte>> want = s.memory;  // what the contract says
    region::Memory at;
    for (auto& bytes : want) at.base.push_back(bytes.data() + kGuard);
    testing::scalar_region(s.region(), at);
    for (auto& bytes : want) bytes.erase(bytes.begin(), bytes.begin() + kGuard);
    for (std::size_t a = 0; a < all.size(); ++a) {
      if (owner[a] != i) continue;
      std::string trouble = all[a].trouble.substr(0, 800);
      if (trouble.empty()) trouble = difference(s, results(gpu, s, all[a], nullptr), want, cases[i].tolerance());
      if (trouble.empty()) continue;
      fmt::print("WRONG {}: {}; {}\n", name_of(all[a]), trouble, cases[i].text());
      ++wrong;
    }
    if (i % 8 == 7) fmt::print("{} shapes, {} wrong\n", i + 1, wrong);
    std::fflush(stdout);
  }
  fmt::print("check: {} kernels of {} shapes, {} wrong\n", all.size(), scenes.size(), wrong);
  failures += wrong;
}

/// The best tiles are printed, `shown` of each family; each is compared with the last family's first one.
void time_layer(const Gpu& gpu, const Target& target, const std::string& name, const LinearCase& c, std::size_t most,
                std::size_t shown) {
  Scene s(5);
  testing::build(s, c);
  std::vector<Attempt> all = all_of(s, c.type, target, most);
  compile_all(all, gpu.architecture);
  std::vector<std::vector<std::byte>> want;
  for (std::size_t k = all.size(); k-- > 0;) {
    Attempt& a = all[k];
    if (a.trouble.empty()) {
      double seconds = -1;
      auto got = results(gpu, s, a, &seconds);
      if (want.empty()) want = got;
      a.trouble = difference(s, got, want, c.tolerance());
      if (a.trouble.empty()) a.seconds = seconds;
    }
    if (a.trouble.empty()) continue;
    fmt::print("WRONG {}: {}\n", name_of(a), a.trouble.substr(0, 800));
    ++failures;
  }
  std::stable_sort(all.begin(), all.end(), [](const Attempt& a, const Attempt& b) {
    return (a.seconds < 0 ? 1e9 : a.seconds) < (b.seconds < 0 ? 1e9 : b.seconds);
  });
  fmt::print("{}: {}\n", name, c.text());
  for (const Family* f : families_of(c.type)) {
    std::size_t n = 0;
    for (const Attempt& a : all) {
      if (a.family != f || a.seconds <= 0 || n == shown) continue;
      ++n;
      fmt::print("  {:9.2f} us (estimate {:9.2f}) {:6.1f} TFLOPS  {}\n", a.seconds * 1e6, a.estimate * 1e6,
                 2 * c.products() * 1e-12 / a.seconds, name_of(a));
    }
  }
  std::fflush(stdout);
}

struct Timed {
  const char* name;
  LinearCase layer;
};
std::vector<Timed> layers() {
  std::vector<Timed> out;
  const auto encoder = [&](const char* q, const char* qkv, const char* o, const char* up, const char* down, std::int64_t rows) {
    out.push_back({q, {DType::f16, rows, 768, 768, "bias"}});
    out.push_back({qkv, {DType::f16, rows, 768, 2304, "bias"}});
    out.push_back({o, {DType::f16, rows, 768, 768, "residual"}});
    out.push_back({up, {DType::f16, rows, 768, 3072, "gelu"}});
    out.push_back({down, {DType::f16, rows, 3072, 768, "residual"}});
  };
  encoder("vit64.q", "vit64.qkv", "vit64.out", "vit64.up", "vit64.down", 64 * 197);
  encoder("bert32.q", "bert32.qkv", "bert32.out", "bert32.up", "bert32.down", 32 * 128);
  encoder("vit1.q", "vit1.qkv", "vit1.out", "vit1.up", "vit1.down", 197);
  out.push_back({"square", {DType::f16, 8192, 8192, 8192, "bias"}});
  out.push_back({"resnet 3x3 64", {DType::f16, 32, 256, 256, "bias", 14, 14, 3, 1, 1}});
  return out;
}

/// What the assembler says of every tile: registers and spills.
int report_registers(const std::string& style) {
  const Target target;
  auto options = compile_options("sm_90a");
  options.emplace_back("--ptxas-options=-v");
  Scene s(5);
  testing::build(s, {DType::f16, 2048, 768, 768, style});
  std::vector<Attempt> all = attempts(s, conv_stream_f16_family(), target, kAll, failures);
  std::vector<std::string> lines(all.size());
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::thread::hardware_concurrency(); ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < all.size();) {
        const auto code = compile(emit_prelude() + all[i].text.text, options);
        std::string log = code ? code->log : code.error().message;
        std::replace(log.begin(), log.end(), '\n', ' ');
        const auto from = log.find("Function");
        lines[i] = fmt::format("{}: {}", name_of(all[i]), log.substr(from == std::string::npos ? 0 : from));
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& line : lines) fmt::print("{}\n", line);
  return failures == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "ptxas") return report_registers(argc > 2 ? argv[2] : "gelu");
  if (mode == "text") {
    Scene s(5);
    testing::build(s, {DType::f16, 2048, 768, 768, argc > 2 ? argv[2] : "gelu"});
    const auto all = attempts(s, conv_stream_f16_family(), {}, kAll, failures);
    fmt::print("{}{}", emit_prelude(), all.at(argc > 3 ? static_cast<std::size_t>(std::atoi(argv[3])) : 0).text.text);
    return 0;
  }
  Gpu gpu;
  const auto opened = open_and_say(gpu);
  if (!opened) return 3;
  const Target& target = *opened;
  if (mode == "check") check(gpu, target, argc > 2 ? std::atoi(argv[2]) : 24);
  if (mode == "time") {
    const std::size_t most = argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : kAll;
    const std::string only = argc > 3 ? argv[3] : "";
    for (const Timed& t : layers()) {
      if (std::string_view(t.name).find(only) != std::string_view::npos) time_layer(gpu, target, t.name, t.layer, most, 3);
    }
  }
  if (mode == "one") {
    LinearCase c{std::string(argv[5]) == "bf16" ? DType::bf16 : DType::f16, std::atoi(argv[2]), std::atoi(argv[4]),
                 std::atoi(argv[3]), argv[6]};
    time_layer(gpu, target, "one", c, argc > 7 ? static_cast<std::size_t>(std::atoi(argv[7])) : kAll, kAll);
  }
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
