// Softmax and norms of rows on a GPU: checks their bits and measures their times. Needs the CUDA driver and NVRTC, no toolkit.
//
//   octavo_gpu_rows check [SEEDS]   random rows, types, layouts and epilogues, three tiles each, against the reference evaluator
//   octavo_gpu_rows time [TILES]    the rows of ViT-B/16 and BERT-base: TILES tiles each (default 8), bits compared with the kernel of the families softmax
//                                   and norm (of softmax alone: that norm adds in another order); the best two are printed
//   octavo_gpu_rows text NAME       the text of the first tile of what is timed as NAME; needs no GPU
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "cuda/families/families.h"
#include "cuda/gpu/scene_on_gpu.h"
#include "cuda/rows_scene.h"

namespace octavo::cuda {
namespace {

using testing::RowCase;
using testing::Scene;

int failures = 0;

std::string text_of(const RowCase& c) {
  return fmt::format("{} of {} {} gap {} {}", ir::name_of(c.op), ir::name_of(c.type), ir::to_string(c.space), c.gap, c.style);
}

void check(const Gpu& gpu, const Target& target, int seeds) {
  constexpr ir::Op kOps[] = {ir::Op::softmax, ir::Op::log_softmax, ir::Op::layer_norm, ir::Op::instance_norm};
  constexpr ir::DType kTypes[] = {ir::DType::f32, ir::DType::f16, ir::DType::bf16};
  constexpr const char* kStyles[] = {"mul", "codes", "types", "residual"};
  std::mt19937 rng(78);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  std::vector<std::unique_ptr<Scene>> scenes;
  std::vector<RowCase> cases;
  std::vector<Attempt> all;
  std::vector<std::size_t> owner;  // of each attempt: its scene
  for (int seed = 0; seed < seeds; ++seed) {
    RowCase c;
    c.op = kOps[seed % 4], c.type = kTypes[pick(0, 2)], c.style = kStyles[pick(0, 3)];
    c.space = {pick(1, 3), pick(1, 9), pick(0, 2) == 0 ? pick(1, 16) * 64 + pick(-1, 1) : pick(1, 1500)};
    if (c.op != ir::Op::instance_norm && pick(0, 1) == 0) c.order = {1, 0, 2};
    c.gap = pick(0, 1) == 0 ? 0 : pick(1, 8);
    c.bias = c.op == ir::Op::instance_norm || pick(0, 2) != 0;
    c.scale = pick(0, 3) == 0 ? 60.0F : 4.0F;
    auto s = std::make_unique<Scene>(static_cast<unsigned>(seed + 1));
    testing::build(*s, c);
    auto some = attempts(*s, testing::family_of(c.op), target, 1000, failures);
    std::shuffle(some.begin(), some.end(), rng);
    if (some.size() > 3) some.resize(3);
    for (Attempt& a : some) all.push_back(std::move(a)), owner.push_back(scenes.size());
    scenes.push_back(std::move(s));
    cases.push_back(c);
  }
  compile_all(all, gpu.architecture);
  int wrong = 0;
  for (std::size_t a = 0; a < all.size(); ++a) {
    Scene& s = *scenes[owner[a]];
    std::string trouble = all[a].trouble.substr(0, 800);
    if (trouble.empty()) trouble = difference(s, results(gpu, s, all[a], nullptr), wanted(s), 0);
    if (trouble.empty()) continue;
    fmt::print("WRONG {}: {}; {}\n", name_of(all[a]), trouble, text_of(cases[owner[a]]));
    ++wrong;
  }
  fmt::print("check: {} kernels of {} shapes, {} wrong\n", all.size(), scenes.size(), wrong);
  failures += wrong;
}

struct Timed {
  const char* name;
  RowCase rows;
};
std::vector<Timed> timed() {
  std::vector<Timed> out;
  const auto add = [&](const char* name, ir::Op op, ir::Shape space, ir::DType type, const char* style) {
    RowCase c;
    c.op = op, c.space = std::move(space), c.type = type, c.style = style;
    out.push_back({name, c});
  };
  for (const char* style : {"codes", "mul"}) {
    add("ViT-B/16 1 softmax", ir::Op::softmax, {12, 197, 197}, ir::DType::f32, style);
    add("ViT-B/16 64 softmax", ir::Op::softmax, {768, 197, 197}, ir::DType::f32, style);
    add("BERT 32 softmax", ir::Op::softmax, {384, 128, 128}, ir::DType::f32, style);
    add("ViT-B/16 1 norm", ir::Op::layer_norm, {197, 768}, ir::DType::f32, style);
    add("ViT-B/16 64 norm", ir::Op::layer_norm, {64 * 197, 768}, ir::DType::f32, style);
    add("BERT 32 norm", ir::Op::layer_norm, {32 * 128, 768}, ir::DType::f32, style);
  }
  add("ViT-B/16 64 softmax bf16", ir::Op::softmax, {768, 197, 197}, ir::DType::bf16, "mul");
  add("ViT-B/16 64 norm f16", ir::Op::layer_norm, {64 * 197, 768}, ir::DType::f16, "codes");
  add("ViT-B/16 1 norm f16", ir::Op::layer_norm, {197, 768}, ir::DType::f16, "codes");
  add("BERT 32 norm f16", ir::Op::layer_norm, {32 * 128, 768}, ir::DType::f16, "codes");
  add("BERT 32 norm + residual", ir::Op::layer_norm, {32 * 128, 768}, ir::DType::f32, "residual");
  return out;
}

void time_one(const Gpu& gpu, const Target& target, const Timed& t, std::size_t tiles) {
  Scene s(5);
  testing::build(s, t.rows);
  std::vector<Attempt> all = attempts(s, testing::family_of(t.rows.op), target, tiles, failures);
  const bool softmax = testing::is_softmax(t.rows.op);
  for (Attempt& a : attempts(s, softmax ? softmax_family() : norm_family(), target, 1, failures)) all.push_back(std::move(a));
  compile_all(all, gpu.architecture);
  std::vector<std::vector<std::byte>> want;
  double before = -1;
  for (std::size_t i = all.size(); i-- > 0;) {
    Attempt& a = all[i];
    const bool old = i + 1 == all.size();
    if (a.trouble.empty()) {
      auto got = results(gpu, s, a, &a.seconds);
      if (want.empty() && (softmax || !old))
        want = std::move(got);
      else if (!want.empty())
        a.trouble = difference(s, got, want, 0);
    }
    if (old) before = a.seconds;
    if (a.trouble.empty()) continue;
    fmt::print("WRONG {}: {}; {}\n", name_of(a), a.trouble.substr(0, 800), text_of(t.rows));
    ++failures;
  }
  all.pop_back();
  std::sort(all.begin(), all.end(), [](const Attempt& a, const Attempt& b) {
    return (a.seconds < 0 ? 1e9 : a.seconds) < (b.seconds < 0 ? 1e9 : b.seconds);
  });
  double bytes = 0;
  for (const auto& b : s.plan().buffers) bytes += static_cast<double>(b.bytes);
  for (std::size_t i = 0; i < std::min<std::size_t>(2, all.size()); ++i) {
    if (all[i].seconds <= 0) continue;
    fmt::print("{:26} {:5} {:8.2f} us (estimate {:8.2f}) {:5.0f} GB/s, before {:9.2f} us  {}\n", i == 0 ? t.name : "", t.rows.style,
               all[i].seconds * 1e6, all[i].estimate * 1e6, bytes * 1e-9 / all[i].seconds, before * 1e6, name_of(all[i]));
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "text") {
    for (const Timed& t : timed()) {
      if (argc < 3 || std::string_view(t.name) != argv[2]) continue;
      Scene s(5);
      testing::build(s, t.rows);
      const auto some = attempts(s, testing::family_of(t.rows.op), {}, 1, failures);
      if (!some.empty()) fmt::print("{}", some[0].text.text);
      return failures == 0 ? 0 : 1;
    }
    return 1;
  }
  Gpu gpu;
  const auto opened = open_and_say(gpu);
  if (!opened) return 3;
  const Target& target = *opened;
  if (mode == "check") check(gpu, target, argc > 2 ? std::atoi(argv[2]) : 120);
  if (mode == "time") {
    for (const Timed& t : timed()) time_one(gpu, target, t, static_cast<std::size_t>(argc > 2 ? std::atoi(argv[2]) : 8));
  }
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
