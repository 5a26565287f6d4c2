// Products of two computed matrices on a GPU: checks their results and measures their times. Needs the CUDA driver and NVRTC, no toolkit.
//
//   octavo_gpu_matmul check [SEEDS]     random small shapes, layouts, types and epilogues, several tiles each, against the reference evaluator
//   octavo_gpu_matmul compile [SEEDS] [ARCH]   the same kernels are compiled only; needs no GPU
//   octavo_gpu_matmul time [TILES]      the products of attention in ViT-B/16 and BERT-base: TILES tiles each (default 8), compared on the full shape with
//                                       the kernel of a thread an element; the best two are printed
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>

#include "base/half.h"
#include "cuda/device/nvrtc.h"
#include "cuda/families/families.h"
#include "cuda/families/matmul/matmul_mma.h"
#include "cuda/family_scene.h"
#include "cuda/gpu/conv_bench_gpu.h"
#include "cuda/gpu/scene_on_gpu.h"
#include "cuda/matmul_scene.h"

namespace octavo::cuda {
namespace {

using testing::ProductCase;
using testing::Scene;

int failures = 0;

constexpr ProductType kTypes[] = {ProductType::u8, ProductType::bf16, ProductType::f16, ProductType::tf32, ProductType::f32};

struct Small {
  std::vector<std::unique_ptr<Scene>> scenes;
  std::vector<ProductCase> cases;
  std::vector<Attempt> all;
  std::vector<std::size_t> owner;  ///< of each attempt: its scene
};

Small small_shapes(const Target& target, int seeds) {
  Small out;
  std::mt19937 rng(77);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  const auto extent = [&] { return pick(0, 2) == 0 ? pick(1, 8) * 16 + pick(-1, 1) : pick(1, 150); };
  for (int seed = 0; seed < seeds; ++seed) {
    constexpr const char *kLayouts[] = {"rows", "columns", "heads", "heads-columns"},
                         *kStyles[] = {"float", "codes", "channel", "residual", "sums"},
                         *kStored[] = {"rows", "rows", "heads", "columns"};
    constexpr int kZeros[] = {0, 128, 255, 3, 77};
    ProductCase c;
    c.type = kTypes[seed % 5];
    for (int d = pick(0, 2); d > 0; --d) c.batch.push_back(pick(1, 3));
    c.m = extent(), c.n = extent(), c.k = pick(0, 3) == 0 ? pick(1, 700) : extent();
    c.left = kLayouts[pick(0, 3)], c.right = kLayouts[pick(0, 3)], c.stored = kStored[pick(0, 3)], c.style = kStyles[pick(0, 4)];
    c.zero_left = kZeros[pick(0, 4)], c.zero_right = kZeros[pick(0, 4)];
    c.gap = pick(0, 2) == 0 ? 0 : pick(1, 16);
    c.shared_left = pick(0, 7) == 0, c.shared_right = !c.shared_left && pick(0, 5) == 0;
    auto s = std::make_unique<Scene>(static_cast<unsigned>(seed + 1));
    testing::build(*s, c);
    auto some = attempts(*s, matmul_mma_family(c.type), target, 1000, failures);
    std::shuffle(some.begin(), some.end(), rng);
    if (some.size() > 3) some.resize(3);
    for (Attempt& a : some) out.all.push_back(std::move(a)), out.owner.push_back(out.scenes.size());
    out.scenes.push_back(std::move(s));
    out.cases.push_back(c);
  }
  return out;
}

void check(const Gpu& gpu, const Target& target, int seeds) {
  Small small = small_shapes(target, seeds);
  compile_all(small.all, gpu.architecture);
  int wrong = 0, kernels = 0;
  std::map<std::string, int> families;
  for (std::size_t i = 0; i < small.scenes.size(); ++i) {
    Scene& s = *small.scenes[i];
    const std::vector<std::vector<std::byte>> want = wanted(s);
    for (std::size_t a = 0; a < small.all.size(); ++a) {
      const Attempt& x = small.all[a];
      if (small.owner[a] != i) continue;
      ++kernels, ++families[std::string(x.family->name())];
      std::string trouble = x.trouble.substr(0, 800);
      if (trouble.empty()) {
        const OnDevice device(gpu, s.plan(), s.memory, kGuard, 1);
        const Loaded kernel(gpu, x);
        kernel.launch(device.sets[0]);
        must(gpu.synchronize(), name_of(x).c_str());
        trouble = difference(s, read(gpu, device), want, testing::tolerance_of(small.cases[i]));
      }
      if (trouble.empty()) continue;
      fmt::print("WRONG {}: {}; {}\n", name_of(x), trouble, small.cases[i].text());
      ++wrong;
    }
  }
  for (const auto& [name, n] : families) fmt::print("{}: {} kernels\n", name, n);
  fmt::print("check: {} kernels of {} shapes, {} wrong\n", kernels, small.scenes.size(), wrong);
  failures += wrong;
}

struct Timed {
  const char* name;
  std::int64_t batch, heads, queries, keys, size;
};
constexpr Timed kTimed[] = {{"ViT-B/16 1", 1, 12, 197, 197, 64},
                            {"ViT-B/16 64", 64, 12, 197, 197, 64},
                            {"BERT-base 128 32", 32, 12, 128, 128, 64},
                            {"BERT-base 384 8", 8, 12, 384, 384, 64}};

ProductCase case_of(const Timed& t, ProductType type, bool scores) {
  ProductCase c;
  c.type = type, c.batch = {t.batch, t.heads}, c.m = t.queries;
  c.zero_left = scores ? 128 : 0, c.zero_right = 128;  // queries and keys are symmetric, probabilities are not
  c.n = scores ? t.keys : t.size, c.k = scores ? t.size : t.keys;
  c.left = scores ? "heads" : "rows", c.right = scores ? "heads-columns" : "heads", c.stored = scores ? "rows" : "heads";
  c.style = type == ProductType::u8 ? "codes" : "float";
  return c;
}

void time_one(const Gpu& gpu, const Target& target, const ProductCase& c, const std::string& name, std::size_t tiles) {
  Scene s(5);
  testing::build(s, c);
  std::vector<Attempt> all = attempts(s, matmul_mma_family(c.type), target, tiles, failures);
  Attempt plain;
  plain.family = &matmul_family();
  if (auto text = plain.family->emit(s.region(), s.plan(), {}, target))
    plain.text = std::move(*text);
  else
    plain.trouble = text.error().message;
  all.push_back(std::move(plain));
  compile_all(all, gpu.architecture);
  std::vector<std::vector<std::byte>> want;
  double before = -1;
  for (std::size_t i = all.size(); i-- > 0;) {
    Attempt& a = all[i];
    if (a.trouble.empty()) {
      const OnDevice device(gpu, s.plan(), s.memory, kGuard, 1);
      const Loaded kernel(gpu, a);
      kernel.launch(device.sets[0]);
      must(gpu.synchronize(), name_of(a).c_str());
      auto got = read(gpu, device);
      if (i + 1 == all.size())
        want = std::move(got);
      else
        a.trouble = difference(s, got, want, testing::tolerance_of(c));
      if (a.trouble.empty()) a.seconds = time_of(gpu, kernel, device);
    }
    if (i + 1 == all.size()) before = a.seconds;
    if (a.trouble.empty()) continue;
    fmt::print("WRONG {}: {}; {}\n", name_of(a), a.trouble.substr(0, 800), c.text());
    ++failures;
  }
  all.pop_back();
  std::sort(all.begin(), all.end(), [](const Attempt& a, const Attempt& b) {
    return (a.seconds < 0 ? 1e9 : a.seconds) < (b.seconds < 0 ? 1e9 : b.seconds);
  });
  double bytes = 0;
  for (const auto& b : s.plan().buffers) bytes += static_cast<double>(b.bytes);
  const double products = 2.0 * static_cast<double>(ir::count(s.stage().space) * c.k);
  for (std::size_t i = 0; i < std::min<std::size_t>(2, all.size()); ++i) {
    if (all[i].seconds <= 0) continue;
    fmt::print("{:24} {:8.2f} us (estimate {:8.2f}) {:6.1f} TFLOPS {:5.0f} GB/s, a thread an element {:9.2f} us  {}\n",
               i == 0 ? name : "", all[i].seconds * 1e6, all[i].estimate * 1e6, products * 1e-12 / all[i].seconds,
               bytes * 1e-9 / all[i].seconds, before * 1e6, name_of(all[i]));
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "compile") {  // no GPU needed
    Small small = small_shapes({}, argc > 2 ? std::atoi(argv[2]) : 25);
    compile_all(small.all, parse_architecture(argc > 3 ? argv[3] : "sm_90a").value());
    for (std::size_t i = 0; i < small.all.size(); ++i) {
      const Attempt& a = small.all[i];
      if (a.trouble.empty()) continue;
      fmt::print("{}: {}\n{}\n", name_of(a), small.cases[small.owner[i]].text(), a.trouble.substr(0, 1500));
      ++failures;
    }
    fmt::print("{} kernels, {} failures\n", small.all.size(), failures);
    return failures == 0 ? 0 : 1;
  }
  Gpu gpu;
  const auto opened = open_and_say(gpu);
  if (!opened) return 3;
  const Target& target = *opened;
  if (mode == "check") check(gpu, target, argc > 2 ? std::atoi(argv[2]) : 200);
  if (mode == "time") {
    const auto tiles = static_cast<std::size_t>(argc > 2 ? std::atoi(argv[2]) : 8);
    for (const Timed& t : kTimed) {
      for (const ProductType type : kTypes) {
        for (const bool scores : {true, false}) {
          const ProductCase c = case_of(t, type, scores);
          time_one(gpu, target, c, fmt::format("{} {} {}", t.name, scores ? "QK" : "PV", matmul_mma_family(type).name().substr(7)),
                   tiles);
        }
      }
    }
  }
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
