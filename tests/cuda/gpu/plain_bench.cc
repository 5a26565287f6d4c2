// The families that number elements (families/plain) on a real GPU: their bits, and their times on shapes of exported models. Needs the CUDA driver and
// NVRTC, no toolkit.
//
//   octavo_gpu_plain check [SEEDS]   every family on random regions, SEEDS each (default 40) and some of them large, against the reference evaluator
//   octavo_gpu_plain time            shapes of exported models: bits, and times beside what was predicted
// Exit code 0: all equal; 1: differences; 3: no GPU or no compiler.
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string_view>

#include "cuda/families/families.h"
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

struct Timed {
  const char* name;
  const Family& (*family)();
  double predicted;  ///< seconds
  std::function<void(Scene&)> build;
};

region::TensorRef indices(Scene& s, const ir::Shape& dims, int extent) {
  const region::TensorRef r = s.tensor(ir::DType::s64, dims, region::BufferKind::input);
  auto* to = reinterpret_cast<std::int64_t*>(s.memory.back().data() + kGuard);
  for (std::int64_t i = 0; i < ir::count(dims); ++i) to[i] = s.pick(0, extent - 1);
  return r;
}

std::vector<Timed> timed() {
  using ir::DType, ir::Op, ir::Shape;
  using region::BufferKind;
  const auto stage = [](Scene& s, Op op, ir::Facts facts, std::vector<region::TensorRef> inputs,
                        std::vector<std::pair<DType, Shape>> results) {
    region::Stage& st = s.stage();
    st.anchor.op = op, st.anchor.facts = std::move(facts), st.anchor.inputs = std::move(inputs), st.space = results[0].second;
    for (std::size_t r = 0; r < results.size(); ++r) {
      st.stores.push_back(s.tensor(results[r].first, results[r].second, BufferKind::output));
      if (results.size() > 1) st.anchor.store_results.push_back(static_cast<std::int64_t>(r));
    }
  };
  const auto floats = [](Scene& s, const Shape& dims) { return s.tensor(DType::f32, dims, BufferKind::input); };
  const auto top = [=](std::int64_t n, std::int64_t k) {
    return [=](Scene& s) {
      stage(s, Op::top_k, ir::TopK{.axis = 1, .k = k}, {floats(s, {1, n})}, {{DType::f32, {1, k}}, {DType::s64, {1, k}}});
    };
  };
  const auto most = [=](std::int64_t rows, std::int64_t n) {
    return [=](Scene& s) { stage(s, Op::arg_max, ir::ArgMax{1, false, false}, {floats(s, {rows, n})}, {{DType::s64, {rows}}}); };
  };
  const auto sums = [=](DType type, std::int64_t rows, std::int64_t n) {
    return [=](Scene& s) {
      stage(s, Op::cumulate, ir::Cumulate{.axis = 1}, {type == DType::f32 ? floats(s, {rows, n}) : indices(s, {rows, n}, 100)},
            {{type, {rows, n}}});
    };
  };
  const auto recurrent = [=](ir::CellKind cell, std::int64_t states) {
    return [=](Scene& s) {
      ir::Recurrent facts;
      facts.cell = cell, facts.hidden_size = states;
      const std::int64_t rows = states * (cell == ir::CellKind::lstm ? 4 : 3);
      facts.activations = {ir::CellFunction::sigmoid, ir::CellFunction::tanh, ir::CellFunction::tanh};
      if (cell != ir::CellKind::lstm) facts.activations.pop_back();
      std::vector<region::TensorRef> in{floats(s, {100, 1, states})};
      const auto small = [&](const Shape& dims) { in.push_back(s.tensor(DType::f32, dims, BufferKind::input, {}, 0, 0.05F)); };
      small({1, rows, states}), small({1, rows, states}), small({1, 2 * rows});
      in.push_back(indices(s, {1}, 1));
      *reinterpret_cast<std::int64_t*>(s.memory.back().data() + kGuard) = 100;
      small({1, 1, states}), small({1, 1, states}), small({1, 3 * states});
      std::vector<std::pair<DType, Shape>> results{{DType::f32, {100, 1, 1, states}}, {DType::f32, {1, 1, states}}};
      if (cell == ir::CellKind::lstm) results.emplace_back(DType::f32, Shape{1, 1, states});
      stage(s, Op::recurrent, facts, in, results);
    };
  };
  return {
      {"TopK 300 of 8,400", top_k_family, 10e-6, top(8400, 300)},
      {"TopK 1,000 of 120,000", top_k_family, 18e-6, top(120000, 1000)},
      {"TopK 120,000 of 120,000", top_k_family, 60e-6, top(120000, 120000)},
      {"ArgMax 1 x 50,257", arg_max_family, 8e-6, most(1, 50257)},
      {"ArgMax 512 x 512, 21 channels", arg_max_family, 20e-6, most(512 * 512, 21)},
      {"NonZero 100,000", non_zero_family, 8e-6,
       [=](Scene& s) {
         stage(s, Op::non_zero, ir::default_facts(Op::non_zero, 1), {floats(s, {100000})},
               {{DType::s64, {100000}}, {DType::s64, {}}});
       }},
      {"ScatterND 100,000 of 1", scatter_family, 20e-6,
       [=](Scene& s) {
         auto x = floats(s, {1000000}), updates = floats(s, {100000});
         stage(s, Op::scatter, ir::Scatter{.kind = ir::ScatterKind::nd}, {x, indices(s, {100000, 1}, 1000000), updates},
               {{DType::f32, {1000000}}});
       }},
      {"ScatterElements, 100,000 added to 50,000", scatter_family, 25e-6,
       [=](Scene& s) {
         auto x = floats(s, {50000}), updates = floats(s, {100000});
         stage(s, Op::scatter, ir::Scatter{.combine = ir::Combine::add}, {x, indices(s, {100000}, 50000), updates},
               {{DType::f32, {50000}}});
       }},
      {"NonMaxSuppression 8,400, 80", non_max_suppression_family, 150e-6,
       [=](Scene& s) {
         auto boxes = floats(s, {1, 8400, 4}), scores = floats(s, {1, 80, 8400});
         stage(s, Op::non_max_suppression, ir::Suppression{false, 80 * 100},
               {boxes, scores, s.tensor(DType::f32, {1}, BufferKind::input, {}, 0, 0.5F),
                s.tensor(DType::f32, {1}, BufferKind::input, {}, 0, 0.5F)},
               {{DType::s64, {8000, 3}}});
       }},
      {"GridSample 256 x 64 x 64", grid_sample_family, 15e-6,
       [=](Scene& s) {
         auto x = floats(s, {1, 256, 64, 64});
         stage(s, Op::grid_sample, ir::GridSample{}, {x, s.tensor(DType::f32, {1, 64, 64, 2}, BufferKind::input, {}, 0, 1.0F)},
               {{DType::f32, {1, 256, 64, 64}}});
         s.stage().program = {};
       }},
      {"CumSum 64 x 512", cumulate_family, 4e-6, sums(DType::f32, 64, 512)},
      {"CumSum 1 x 1,000,000", cumulate_family, 2.8e-3, sums(DType::f32, 1, 1000000)},
      {"CumSum 1 x 1,000,000 integers", cumulate_family, 15e-6, sums(DType::s64, 1, 1000000)},
      {"DynamicQuantize 128 x 768", dynamic_quantize_family, 6e-6,
       [=](Scene& s) {
         stage(s, Op::dynamic_quantize, ir::default_facts(Op::dynamic_quantize, 2), {floats(s, {128, 768})},
               {{DType::u8, {128, 768}}, {DType::f32, {}}, {DType::u8, {}}});
       }},
      {"LSTM 100 steps, 256 and 256", recurrent_family, 350e-6, recurrent(ir::CellKind::lstm, 256)},
      {"LSTM 100 steps, 64 and 64", recurrent_family, 80e-6, recurrent(ir::CellKind::lstm, 64)},
      {"GRU 100 steps, 256 and 256", recurrent_family, 600e-6, recurrent(ir::CellKind::gru, 256)},
  };
}

void time_one(const Gpu& gpu, const Target& target, const Timed& t) {
  Scene s(3);
  t.build(s);
  std::vector<Attempt> all = attempts(s, t.family(), target, 1, failures);
  if (all.empty()) return;
  compile_all(all, gpu.architecture);
  double seconds = -1;
  std::string trouble = all[0].trouble.substr(0, 800);
  if (trouble.empty()) trouble = difference(s, results(gpu, s, all[0], &seconds), wanted(s), 0);
  fmt::print("{:32} {:9.1f} us, predicted {:9.1f}, estimate {:9.1f}{}\n", t.name, seconds * 1e6, t.predicted * 1e6,
             all[0].estimate * 1e6, trouble.empty() ? "" : "  WRONG " + trouble);
  std::fflush(stdout);
  failures += trouble.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  Gpu gpu;
  const auto opened = open_and_say(gpu);
  if (!opened) return 3;
  if (argc > 1 && std::string_view(argv[1]) == "time") {
    for (const Timed& t : timed()) time_one(gpu, *opened, t);
  } else {
    for (const PlainCase& c : testing::plain_cases()) check(gpu, *opened, c, argc > 2 ? std::atoi(argv[2]) : 40);
  }
  fmt::print("{} failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda

int main(int argc, char** argv) {
  return octavo::cuda::run(argc, argv);
}
