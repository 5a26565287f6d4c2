// The families that number elements (families/plain) on a real GPU: their bits, and their times on shapes of exported models. Needs the CUDA driver and
// NVRTC, no toolkit.
//
//   octavo_gpu_plain check [SEEDS]   every family on random regions, SEEDS each (default 40) and some of them large, against the reference evaluator
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "cuda/gpu/scene_on_gpu.h"
#include "cuda/plain_scene.h"

namespace octavo::cuda {
namespace {

using testing::PlainCase;
using testing::Scene;

int failures = 0;

void check(const Gpu& gpu, const Target& target, const PlainCase& c, int seeds) {
  std::vector<std::unique_ptr<Scene>> scenes;
  std::vector<Attempt> all;
  for (int seed = 1; seed <= seeds; ++seed) {
    auto s = std::make_unique<Scene>(static_cast<unsigned>(seed));
    c.build(*s, seed % 8 == 0 ? 12 : 3);
    auto some = attempts(*s, c.family(), target, 1, failures);
    if (some.empty()) continue;
    all.push_back(std::move(some[0]));
    scenes.push_back(std::move(s));
  }
  compile_all(all, gpu.architecture);
  int wrong = 0;
  double longest = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string trouble = all[i].trouble.substr(0, 800);
    double seconds = 0;
    if (trouble.empty())
      trouble = difference(*scenes[i], results(gpu, *scenes[i], all[i], &seconds), wanted(*scenes[i]), c.tolerance);
    longest = std::max(longest, seconds);
    if (trouble.empty()) continue;
    fmt::print("WRONG {} seed {}: {}\n", c.name, scenes[i]->seed(), trouble);
    ++wrong;
  }
  fmt::print("{:22} {} regions, {} wrong, the longest {:.1f} us\n", c.name, all.size(), wrong, longest * 1e6);
  std::fflush(stdout);
  failures += wrong;
}

int run(int argc, char** argv) {
  Gpu gpu;
  const auto opened = open_and_say(gpu);
  if (!opened) return 3;
  for (const PlainCase& c : testing::plain_cases()) check(gpu, *opened, c, argc > 2 ? std::atoi(argv[2]) : 40);
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
