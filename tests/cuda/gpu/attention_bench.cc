// Attention on codes, float16 and bfloat16 on a GPU: checks its results and measures its times. Needs the CUDA driver and NVRTC, no toolkit.
//
//   octavo_gpu_attention check [SEEDS]     random shapes, layouts, zero points and programs, two tiles each, against the reference evaluator
//   octavo_gpu_attention text [u8|warps|f16]   the text of one kernel, of ViT-B/16; needs no GPU
//   octavo_gpu_attention ptxas [ARCH [NAME]]   compiles the kernels that are timed (as NAME), and says what NVRTC reports; needs no GPU
//   octavo_gpu_attention time [u8|halves [NAME]]  the attention of ViT-B/16 and BERT-base, and heads of 64 with 1k, 4k and 16k keys; every tile; the best three; where [NAME] is in the row's name
//   octavo_gpu_attention serve NAME        float16 or bfloat16: milliseconds of the best tile, then again for each line that is read (bench/gpu_attention.py)
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "cpu/attention_scene.h"
#include "cuda/attention_halves_scene.h"
#include "cuda/families/attention/attention.h"
#include "cuda/gpu/scene_on_gpu.h"
#include "cuda/matmul_scene.h"

namespace octavo::cuda {
namespace {

using testing::Scene;

constexpr std::size_t kAll = 1000;  // tiles
int failures = 0;

/// Scenes that are checked: two tiles of each, at random.
struct Checked {
  std::vector<std::unique_ptr<Scene>> scenes;
  std::vector<std::string> texts;
  std::vector<float> tolerances;
  std::vector<Attempt> all;
  std::vector<std::size_t> owner;  // of each attempt: its scene

  void add(std::unique_ptr<Scene> s, const Family& family, const Target& target, float tolerance, std::string text,
           std::mt19937& rng) {
    auto some = attempts(*s, family, target, kAll, failures);
    std::shuffle(some.begin(), some.end(), rng);
    if (some.size() > 2) some.resize(2);
    for (Attempt& a : some) all.push_back(std::move(a)), owner.push_back(scenes.size());
    scenes.push_back(std::move(s));
    texts.push_back(std::move(text)), tolerances.push_back(tolerance);
  }
  void run(const Gpu& gpu, const char* name) {
    compile_all(all, gpu.architecture);
    int wrong = 0;
    for (std::size_t a = 0; a < all.size(); ++a) {
      Scene& s = *scenes[owner[a]];
      std::string trouble = all[a].trouble.substr(0, 800);
      if (trouble.empty()) trouble = difference(s, results(gpu, s, all[a], nullptr), wanted(s), tolerances[owner[a]]);
      if (trouble.empty()) continue;
      fmt::print("WRONG {}: {}; {}\n", name_of(all[a]), trouble, texts[owner[a]]);
      ++wrong;
    }
    fmt::print("check: {}, {} kernels of {} shapes, {} wrong\n", name, all.size(), scenes.size(), wrong);
    failures += wrong;
  }
};

void check(const Gpu& gpu, const Target& target, int seeds) {
  std::mt19937 rng(79);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  Checked checked, by_warps;
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
    const std::string text = fmt::format("{} x {} matrices, {} queries, {} keys, {} features, {} columns", n.batch, n.heads,
                                         n.queries, n.keys, n.features, n.columns);
    checked.add(std::move(s), attention_family(), target, 0, text, rng);

    // Again, as attention.u8.warps takes it.
    const testing::attention::Sizes even{n.batch, n.heads, n.queries, n.keys, pick(1, 4) * 32, pick(1, 8) * 16};
    forms.unit = 0.03F / static_cast<float>(even.features), forms.scaled = false;
    forms.probability = std::array{1.0F / 255, 0.0004F, 0.03F}[static_cast<std::size_t>(pick(0, 2))];
    s = std::make_unique<Scene>(static_cast<unsigned>(seed + 1));
    testing::attention::set(*s, even, forms, true);
    testing::whole_words(*s);
    by_warps.add(std::move(s), attention_warps_family(), target, 0,
                 fmt::format("{}; {} features, {} columns", text, even.features, even.columns), rng);
  }
  checked.run(gpu, "codes");
  by_warps.run(gpu, "codes by warps");
}

const Family& family_of(ir::DType type) {
  return type == ir::DType::f16 ? attention_f16_family() : attention_bf16_family();
}

void check_halves(const Gpu& gpu, const Target& target, int seeds) {
  std::mt19937 rng(97);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  Checked checked;
  for (int seed = 0; seed < seeds; ++seed) {
    testing::halves::Forms forms;
    forms.type = pick(0, 1) == 0 ? ir::DType::f16 : ir::DType::bf16;
    forms.scores = pick(0, 1) == 0 ? ir::DType::f32 : forms.type;
    forms.stored = pick(0, 2) == 0 ? ir::DType::f32 : forms.type;
    forms.layout = static_cast<testing::halves::Layout>(pick(0, 4));
    forms.mask = static_cast<testing::halves::Mask>(pick(0, 4));
    forms.counted = pick(0, 4) == 0;
    forms.lost = pick(0, 1) == 0, forms.scaled = pick(0, 3) == 0, forms.zeros = pick(0, 1) == 0, forms.divides = pick(0, 1) == 0;
    testing::halves::Sizes n{pick(1, 3),
                             pick(1, 4),
                             pick(1, 200),
                             pick(1, 4) == 1 ? pick(1, 1500) : pick(1, 300),
                             8 * (pick(1, 2) == 1 ? pick(1, 32) : 8),
                             8 * (pick(1, 2) == 1 ? pick(1, 32) : 8)};
    if (forms.layout == testing::halves::Layout::one_row) n.keys = n.queries;
    forms.scale = 1 / std::sqrt(static_cast<float>(n.features));
    auto s = std::make_unique<Scene>(static_cast<unsigned>(seed + 1));
    testing::halves::set(*s, n, forms);
    checked.add(std::move(s), family_of(forms.type), target, forms.tolerance(n),
                fmt::format("seed {}: {} x {} matrices, {} queries, {} keys, {} features, {} columns, layout {}, mask {}", seed + 1,
                            n.batch, n.heads, n.queries, n.keys, n.features, n.columns, static_cast<int>(forms.layout),
                            static_cast<int>(forms.mask)),
                rng);
  }
  checked.run(gpu, "float16 and bfloat16");
}

/// Every tile of the family; the best three are printed.
void time_all(const Gpu& gpu, const Target& target, Scene& s, const Family& family, const char* name, double products,
              float tolerance) {
  std::vector<Attempt> all = attempts(s, family, target, kAll, failures);
  compile_all(all, gpu.architecture);
  std::vector<std::vector<std::byte>> want;
  for (Attempt& a : all) {
    if (a.trouble.empty()) {
      auto got = results(gpu, s, a, &a.seconds);
      if (want.empty()) want = got;
      a.trouble = difference(s, got, want, tolerance);
    }
    if (a.trouble.empty()) continue;
    fmt::print("WRONG {}: {}\n", name_of(a), a.trouble.substr(0, 800));
    ++failures;
  }
  std::sort(all.begin(), all.end(), [](const Attempt& a, const Attempt& b) {
    return (a.seconds < 0 ? 1e9 : a.seconds) < (b.seconds < 0 ? 1e9 : b.seconds);
  });
  for (std::size_t i = 0; i < std::min<std::size_t>(3, all.size()); ++i) {
    if (all[i].seconds <= 0) continue;
    fmt::print("{:28} {:9.2f} us (estimate {:9.2f}) {:6.1f} TOPS  {}\n", i == 0 ? name : "", all[i].seconds * 1e6,
               all[i].estimate * 1e6, products * 1e-12 / all[i].seconds, name_of(all[i]));
  }
  std::fflush(stdout);
}

void time_one(const Gpu& gpu, const Target& target, std::string_view only, const std::string& name,
              const testing::attention::Sizes& n, bool mask, bool far = false) {
  for (const bool rounded : {false, true}) {  // the scores
    if ((name + (rounded ? ", rounded" : "")).find(only) == std::string::npos) continue;
    Scene s(5);
    testing::attention::Forms forms;
    forms.unit = far ? 0.0005F : 0.00003F, forms.mask = mask;  // far: most exponentials are subnormal
    if (rounded) forms.step = 0.02F, forms.probability = 0.0004F;
    testing::attention::set(s, n, forms, true);
    for (const Family* family : {&attention_family(), &attention_warps_family()})
      time_all(gpu, target, s, *family, (name + (rounded ? ", rounded" : "")).c_str(),
               2.0 * static_cast<double>(n.batch * n.heads * n.queries * n.keys * (n.features + n.columns)), 0);
  }
}

void time_codes(const Gpu& gpu, const Target& target, std::string_view only) {
  time_one(gpu, target, only, "ViT-B/16 1", {1, 12, 197, 197, 64, 64}, false);
  time_one(gpu, target, only, "ViT-B/16 64", {64, 12, 197, 197, 64, 64}, false);
  time_one(gpu, target, only, "ViT-B/16 64, far scores", {64, 12, 197, 197, 64, 64}, false, true);
  time_one(gpu, target, only, "BERT 128, 1, mask", {1, 12, 128, 128, 64, 64}, true);
  time_one(gpu, target, only, "BERT 128, 32, mask", {32, 12, 128, 128, 64, 64}, true);
  time_one(gpu, target, only, "BERT 384, 8", {8, 12, 384, 384, 64, 64}, false);
  time_one(gpu, target, only, "keys 1024", {4, 12, 512, 1024, 64, 64}, false);
}

/// What is timed in float16 or bfloat16.
struct TimedHalves {
  const char* name;
  testing::halves::Sizes sizes;
  testing::halves::Forms forms;
};
std::vector<TimedHalves> timed_halves() {
  using ir::DType;
  using testing::halves::Layout;
  using testing::halves::Mask;
  testing::halves::Forms plain, stored_scores, whole, keys, bf16, causal;
  plain.layout = stored_scores.layout = Layout::one_row;
  plain.whole_sums = whole.whole_sums = true;
  stored_scores.scores = DType::f16;  // a float16 model: products, factors and sums are rounded
  whole.mask = Mask::whole, keys.mask = Mask::keys, keys.scores = DType::f16;
  bf16.type = bf16.stored = DType::bf16;
  causal.mask = Mask::causal, causal.whole_sums = true;
  for (testing::halves::Forms* f : {&plain, &stored_scores, &whole, &keys, &bf16, &causal}) f->unwritten = true;
  return {{"ViT-B/16 1", {1, 12, 197, 197, 64, 64}, plain},
          {"ViT-B/16 64", {64, 12, 197, 197, 64, 64}, plain},
          {"ViT-B/16 64, f16 scores", {64, 12, 197, 197, 64, 64}, stored_scores},
          {"BERT 128, 1, f16, mask", {1, 12, 128, 128, 64, 64}, keys},
          {"BERT 128, 32, f16, mask", {32, 12, 128, 128, 64, 64}, keys},
          {"BERT 384, 8, mask", {8, 12, 384, 384, 64, 64}, whole},
          {"head 64, 1k keys", {16, 16, 1024, 1024, 64, 64}, plain},
          {"head 64, 4k keys", {4, 16, 4096, 4096, 64, 64}, plain},
          {"head 64, 16k keys", {1, 16, 16384, 16384, 64, 64}, plain},
          {"head 64, 4k keys, bf16", {4, 16, 4096, 4096, 64, 64}, bf16},
          {"head 64, 4k keys, f16 scores", {4, 16, 4096, 4096, 64, 64}, stored_scores},
          {"head 64, 4k keys, causal", {4, 16, 4096, 4096, 64, 64}, causal},
          {"head 128, 4k keys", {4, 16, 4096, 4096, 128, 128}, plain},
          {"head 256, 1k keys", {4, 16, 1024, 1024, 256, 256}, plain}};
}
void time_halves(const Gpu& gpu, const Target& target, std::string_view only) {
  for (const TimedHalves& t : timed_halves()) {
    if (std::string_view(t.name).find(only) == std::string_view::npos) continue;
    Scene s(5);
    testing::halves::set(s, t.sizes, t.forms);
    const auto& n = t.sizes;
    time_all(gpu, target, s, family_of(t.forms.type), t.name,
             2.0 * static_cast<double>(n.batch * n.heads * n.queries * n.keys * (n.features + n.columns)), t.forms.tolerance(n));
  }
}

/// Milliseconds of the best tile of the row of this name, then again for every line of the standard input.
int serve(const Gpu& gpu, const Target& target, const std::string& name) {
  for (const TimedHalves& t : timed_halves()) {
    if (t.name != name) continue;
    Scene s(5);
    testing::halves::set(s, t.sizes, t.forms);
    std::vector<Attempt> all = attempts(s, family_of(t.forms.type), target, kAll, failures);
    compile_all(all, gpu.architecture);
    Attempt* best = nullptr;
    for (Attempt& a : all) {
      if (!a.trouble.empty()) continue;
      results(gpu, s, a, &a.seconds);
      if (a.seconds > 0 && (best == nullptr || a.seconds < best->seconds)) best = &a;
    }
    if (best == nullptr) return 1;
    fmt::print("{} {}\n", best->seconds * 1e3, name_of(*best));
    std::fflush(stdout);
    for (int c; (c = std::getchar()) != EOF;) {
      if (c != '\n') continue;
      results(gpu, s, *best, &best->seconds);
      fmt::print("{}\n", best->seconds * 1e3);
      std::fflush(stdout);
    }
    return 0;
  }
  fmt::print(stderr, "no such row: {}\n", name);
  return 1;
}

/// What the assembler says of every kernel that is timed in float16 or bfloat16: registers and spills.
int report_registers(Architecture architecture, const std::string& only) {
  Target target;
  target.architecture = architecture;
  auto options = compile_options(architecture);
  options.emplace_back("--ptxas-options=-v");
  std::vector<Attempt> all;
  std::vector<std::string> lines;
  for (const TimedHalves& t : timed_halves()) {
    if (std::string_view(t.name).find(only) == std::string_view::npos) continue;
    Scene s(5);
    testing::halves::Sizes small = t.sizes;
    small.batch = 1, small.heads = 1, small.queries = std::min<std::int64_t>(small.queries, 512);
    small.keys = std::min<std::int64_t>(small.keys, 512);
    testing::halves::set(s, small, t.forms);
    for (Attempt& a : attempts(s, family_of(t.forms.type), target, kAll, failures)) {
      lines.push_back(fmt::format("{:28} {} {} threads, {} bytes shared: ", t.name, name_of(a), a.text.launches[0].block[0],
                                  a.text.launches[0].shared_bytes));
      all.push_back(std::move(a));
    }
  }
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::thread::hardware_concurrency(); ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < all.size();) {
        const auto code = compile(emit_prelude() + all[i].text.text, options);
        std::string log = code ? code->log : code.error().message;
        std::replace(log.begin(), log.end(), '\n', ' ');
        const auto from = log.find("Function");
        lines[i] += log.substr(from == std::string::npos ? 0 : from);
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& line : lines) fmt::print("{}\n", line);
  return failures == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "text") {
    Scene s(5);
    const std::string which = argc > 2 ? argv[2] : "u8";
    testing::attention::Forms forms;
    forms.unit = 0.0001F, forms.step = 0.021509863F, forms.probability = 0.00037904532F;
    if (which == "f16")
      testing::halves::set(s, {1, 12, 197, 197, 64, 64}, {});
    else
      testing::attention::set(s, {64, 12, 197, 197, 64, 64}, forms, true);
    const Family& family = which == "f16"     ? attention_f16_family()
                           : which == "warps" ? attention_warps_family()
                                              : attention_family();
    const auto all = attempts(s, family, {}, kAll, failures);
    if (!all.empty()) fmt::print("{}", all[0].text.text);
    return failures == 0 ? 0 : 1;
  }
  if (mode == "ptxas") return report_registers(parse_architecture(argc > 2 ? argv[2] : "sm_90a").value(), argc > 3 ? argv[3] : "");
  Gpu gpu;
  const auto opened = open_and_say(gpu);
  if (!opened) return 3;
  const Target& target = *opened;
  if (mode == "serve") return serve(gpu, target, argc > 2 ? argv[2] : "");
  if (mode == "check") {
    check(gpu, target, argc > 2 ? std::atoi(argv[2]) : 60);
    check_halves(gpu, target, argc > 2 ? std::atoi(argv[2]) : 60);
  }
  const std::string what = argc > 2 ? argv[2] : "all";
  if (mode == "time" && what != "u8") time_halves(gpu, target, argc > 3 ? argv[3] : "");
  if (mode == "time" && what != "halves") time_codes(gpu, target, argc > 3 ? argv[3] : "");
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
