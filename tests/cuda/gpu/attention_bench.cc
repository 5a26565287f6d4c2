// Attention on codes on a GPU: checks its bits and measures its times. Needs the CUDA driver and NVRTC, no toolkit.
//
//   octavo_gpu_attention check [SEEDS]   random shapes, layouts, zero points and programs, two tiles each, against the reference evaluator
//   octavo_gpu_attention text            the text of one kernel; needs no GPU
//   octavo_gpu_attention time            the attention of ViT-B/16 and BERT-base, every tile; the best three are printed
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "cpu/attention_scene.h"
#include "cuda/families/attention/attention.h"
#include "cuda/gpu/scene_on_gpu.h"
#include "cuda/matmul_scene.h"

namespace octavo::cuda {
namespace {

using testing::Scene;

constexpr std::size_t kAll = 1000;  // tiles
int failures = 0;

void check(const Gpu& gpu, const Target& target, int seeds) {
  std::mt19937 rng(79);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  std::vector<std::unique_ptr<Scene>> scenes;
  std::vector<std::string> texts;
  std::vector<Attempt> all;
  std::vector<std::size_t> owner;  // of each attempt: its scene
  for (int seed = 0; seed < seeds; ++seed) {
    const testing::attention::Sizes n{pick(1, 3),
                                      pick(1, 4),
                                      pick(1, 140),
                                      pick(1, 4) == 1 ? pick(1, 600) : pick(1, 200),
                                      pick(1, 3) == 1 ? pick(1, 200) : 64,
                                      pick(1, 3) == 1 ? pick(1, 128) : 64};
    testing::attention::Forms forms;
    forms.unit = 0.03F / static_cast<float>(n.features);
    forms.step = pick(0, 1) == 0 ? 0 : 0.05F;
    forms.after = pick(0, 1) == 0 ? testing::attention::Forms::nothing : testing::attention::Forms::quotient;
    forms.by = 8, forms.mask = pick(0, 2) == 0, forms.scaled = pick(0, 3) == 0;
    for (auto& z : forms.zero) z = pick(0, 2) == 0 ? pick(0, 255) : 128;
    if (pick(0, 1) == 0) forms.zero[2] = 0;
    auto s = std::make_unique<Scene>(static_cast<unsigned>(seed + 1));
    testing::attention::set(*s, n, forms, pick(0, 1) == 0);
    testing::whole_words(*s);
    auto some = attempts(*s, attention_family(), target, kAll, failures);
    std::shuffle(some.begin(), some.end(), rng);
    if (some.size() > 2) some.resize(2);
    for (Attempt& a : some) all.push_back(std::move(a)), owner.push_back(scenes.size());
    scenes.push_back(std::move(s));
    texts.push_back(fmt::format("{} x {} matrices, {} queries, {} keys, {} features, {} columns", n.batch, n.heads, n.queries,
                                n.keys, n.features, n.columns));
  }
  compile_all(all, gpu.architecture);
  int wrong = 0;
  for (std::size_t a = 0; a < all.size(); ++a) {
    Scene& s = *scenes[owner[a]];
    std::string trouble = all[a].trouble.substr(0, 800);
    if (trouble.empty()) {
      trouble = difference(s, results(gpu, s, all[a], nullptr), wanted(s), 0);
    }
    if (trouble.empty()) continue;
    fmt::print("WRONG {}: {}; {}\n", name_of(all[a]), trouble, texts[owner[a]]);
    ++wrong;
  }
  fmt::print("check: {} kernels of {} shapes, {} wrong\n", all.size(), scenes.size(), wrong);
  failures += wrong;
}

void time_one(const Gpu& gpu, const Target& target, const char* name, const testing::attention::Sizes& n, bool mask,
              bool far = false) {
  Scene s(5);
  testing::attention::Forms forms;
  forms.unit = far ? 0.0005F : 0.00003F, forms.zero[2] = 0, forms.mask = mask;  // far: most exponentials are subnormal
  testing::attention::set(s, n, forms, true);
  std::vector<Attempt> all = attempts(s, attention_family(), target, kAll, failures);
  compile_all(all, gpu.architecture);
  std::vector<std::vector<std::byte>> want;
  for (Attempt& a : all) {
    if (a.trouble.empty()) {
      auto got = results(gpu, s, a, &a.seconds);
      if (want.empty()) want = got;
      a.trouble = difference(s, got, want, 0);
    }
    if (a.trouble.empty()) continue;
    fmt::print("WRONG {}: {}\n", name_of(a), a.trouble.substr(0, 800));
    ++failures;
  }
  std::sort(all.begin(), all.end(), [](const Attempt& a, const Attempt& b) {
    return (a.seconds < 0 ? 1e9 : a.seconds) < (b.seconds < 0 ? 1e9 : b.seconds);
  });
  const double products = 2.0 * static_cast<double>(n.batch * n.heads * n.queries * n.keys * (n.features + n.columns));
  for (std::size_t i = 0; i < std::min<std::size_t>(3, all.size()); ++i) {
    if (all[i].seconds <= 0) continue;
    fmt::print("{:24} {:9.2f} us (estimate {:9.2f}) {:6.1f} TOPS  {}\n", i == 0 ? name : "", all[i].seconds * 1e6,
               all[i].estimate * 1e6, products * 1e-12 / all[i].seconds, name_of(all[i]));
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "text") {
    Scene s(5);
    testing::attention::set(s, {1, 12, 197, 197, 64, 64}, {}, true);
    const auto all = attempts(s, attention_family(), {}, kAll, failures);
    if (!all.empty()) fmt::print("{}", all[0].text.text);
    return failures == 0 ? 0 : 1;
  }
  Gpu gpu;
  if (!gpu.open()) {
    fmt::print(stderr, "no GPU, or its driver lacks a function\n");
    return 3;
  }
  if (const auto version = compiler_version(); !version) {
    fmt::print(stderr, "{}\n", version.error().message);
    return 3;
  }
  Target target;
  target.architecture = gpu.architecture, target.multiprocessors = gpu.processors;
  fmt::print("{} ({}, {} multiprocessors), driver {}\n", gpu.name, gpu.architecture, gpu.processors, gpu.driver_version);
  if (mode == "check") check(gpu, target, argc > 2 ? std::atoi(argv[2]) : 60);
  if (mode == "time") {
    time_one(gpu, target, "ViT-B/16 1", {1, 12, 197, 197, 64, 64}, false);
    time_one(gpu, target, "ViT-B/16 64", {64, 12, 197, 197, 64, 64}, false);
    time_one(gpu, target, "ViT-B/16 64, far scores", {64, 12, 197, 197, 64, 64}, false, true);
    time_one(gpu, target, "BERT 128, 1, mask", {1, 12, 128, 128, 64, 64}, true);
    time_one(gpu, target, "BERT 128, 32, mask", {32, 12, 128, 128, 64, 64}, true);
    time_one(gpu, target, "BERT 384, 8", {8, 12, 384, 384, 64, 64}, false);
    time_one(gpu, target, "keys 1024", {4, 12, 512, 1024, 64, 64}, false);
  }
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
