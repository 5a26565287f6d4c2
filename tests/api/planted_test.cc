// Would the placement suite notice? Four kinds of mistake are planted, one at a time, and the suite's own judgements (bits against
// the reference, hashes of placements) must catch each.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "reference/evaluate.h"
#include "reference/oracle_provider.h"
#include "region/host_kernel.h"
#include "support/feeds.h"
#include "support/placement.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

constexpr std::uint64_t kGraphs = 120;

// f2i(x) becomes f2i(floor(x + 0.5)): half up instead of half to even.
bool plant_wrong_rounding(region::Plan& plan) {
  bool planted = false;
  for (region::Region& r : plan.regions) {
    for (region::Stage& s : r.stages) {
      program::Program out = s.program;
      out.code.clear();
      std::vector<int> renamed;
      for (program::Instr i : s.program.code) {
        for (int& a : i.args) a = a < 0 ? a : renamed[static_cast<std::size_t>(a)];
        if (i.op == program::Op::f2i) {
          i.args[0] = out.push(program::Op::floor, out.push(program::Op::add, i.args[0], out.imm_f(0.5F)));
          planted = true;
        }
        out.code.push_back(i);
        renamed.push_back(static_cast<int>(out.code.size()) - 1);
      }
      for (program::Output& o : out.outputs) o.value = renamed[static_cast<std::size_t>(o.value)];
      s.program = out;
    }
  }
  return planted;
}

// One of several writers of a concat buffer stores one channel too far.
bool plant_wrong_offset(region::Plan& plan) {
  for (region::Region& r : plan.regions) {
    for (region::Stage& s : r.stages) {
      for (region::TensorRef& ref : s.stores) {
        const auto& buffer = plan.buffers[static_cast<std::size_t>(ref.buffer)];
        const auto own = ir::count(ref.dims) * static_cast<std::int64_t>(ir::size_of(ref.dtype));
        if (buffer.kind != region::BufferKind::arena || own >= buffer.bytes) continue;
        ref.offset += static_cast<std::int64_t>(ir::size_of(ref.dtype));
        return true;
      }
    }
  }
  return false;
}

// A convolution that pads with code 0 where the real number 0 (the zero point) is meant.
class WrongPadding final : public region::Provider {
 public:
  std::string_view name() const override { return "reference"; }
  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& p) const override {
    return reference::oracle_provider().offers(r, p);
  }
  Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    return region::Artifact{};
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& plan,
                                               const region::ArtifactView& artifact) const override {
    region::Region changed = r;
    region::Stage& s = changed.stages[0];
    if (s.anchor.op == ir::Op::conv && s.anchor.integer) {
      // The same sum over a padded copy of the input, as a kernel would make it, filled with the wrong byte.
      return std::make_unique<Padded>(s);
    }
    return reference::oracle_provider().load(r, plan, artifact);
  }

 private:
  struct Padded final : region::HostKernel {
    explicit Padded(const region::Stage& stage) : s(stage) {}
    void run(const region::Memory& m, int, int, const region::Worker&) const override {
      const region::TensorRef& x = s.anchor.inputs[0];
      const auto& pads = s.anchor.as<ir::Window>().pads;
      region::Plan plan;
      region::TensorRef wide = x;
      wide.dims[2] += pads[0] + pads[2];
      wide.dims[3] += pads[1] + pads[3];
      wide.strides = {wide.dims[1] * wide.dims[2] * wide.dims[3], 1, wide.dims[3] * wide.dims[1], wide.dims[1]};
      wide.offset = 0;
      std::vector<std::byte> copy(static_cast<std::size_t>(ir::count(wide.dims)), std::byte{0});
      const auto at = [](const region::TensorRef& r, std::int64_t n, std::int64_t c, std::int64_t i, std::int64_t j) {
        return n * r.strides[0] + c * r.strides[1] + i * r.strides[2] + j * r.strides[3];
      };
      for (std::int64_t n = 0; n < x.dims[0]; ++n) {
        for (std::int64_t c = 0; c < x.dims[1]; ++c) {
          for (std::int64_t i = 0; i < x.dims[2]; ++i) {
            for (std::int64_t j = 0; j < x.dims[3]; ++j) {
              copy[static_cast<std::size_t>(at(wide, n, c, i + pads[0], j + pads[1]))] = m.at(x)[at(x, n, c, i, j)];
            }
          }
        }
      }
      region::Region r;
      r.tactic = reference::oracle_provider().offers({}, {}).front().tactic;
      r.stages.push_back(s);
      region::Memory memory = m;
      wide.buffer = static_cast<region::BufferId>(memory.base.size());
      memory.base.push_back(copy.data());
      r.stages[0].anchor.inputs[0] = wide;
      r.stages[0].anchor.as<ir::Window>().pads = {0, 0, 0, 0};
      auto kernel = region::as_host_kernel(reference::oracle_provider().load(r, plan, {}));
      (*kernel)->run(memory, 0, 1, {});
    }
    region::Stage s;
  };
};

struct Verdict {
  int planted = 0, caught = 0;
};

// `plant` changes the plan (false: nothing to change there); `provider` runs it.
template <class Plant>
Verdict judge(const region::Provider& provider, Plant&& plant) {
  Verdict v;
  const std::vector<const region::Provider*> providers{&provider};
  for (std::uint64_t seed = 1; seed <= kGraphs; ++seed) {
    const ir::Graph g = testing::random_network(seed);
    auto planned = plan::make_plan(g, providers, {});
    if (!planned || !plant(planned->plan)) continue;
    ++v.planted;
    const auto feeds = testing::seeded_feeds(g, seed);
    const auto want = reference::evaluate(g, feeds);
    const auto got = testing::run_plan(planned->plan, providers, feeds);
    v.caught += !want || !got || !testing::first_difference(*want, *got).empty();
  }
  return v;
}

TEST(PlantedBugs, NothingPlantedIsClean) {
  const Verdict v = judge(reference::oracle_provider(), [](region::Plan&) { return true; });
  EXPECT_EQ(v.planted, static_cast<int>(kGraphs));
  EXPECT_EQ(v.caught, 0);
}

TEST(PlantedBugs, WrongRoundingIsCaught) {
  const Verdict v = judge(reference::oracle_provider(), plant_wrong_rounding);
  EXPECT_GE(v.planted, 50);
  EXPECT_GE(v.caught, 5) << "of " << v.planted;  // exact ties are rare, though the feeds hold some
}

TEST(PlantedBugs, WrongZeroPointPaddingIsCaught) {
  const WrongPadding wrong;
  const Verdict v = judge(wrong, [](region::Plan& plan) {
    for (const region::Region& r : plan.regions) {
      const region::Anchor& a = r.stages[0].anchor;
      if (a.op != ir::Op::conv) continue;
      const auto& pads = a.as<ir::Window>().pads;
      const bool padded = std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p > 0; });
      if (a.integer && padded && a.inputs[0].quantizer->zero_point[0] != 0) return true;
    }
    return false;
  });
  EXPECT_GE(v.planted, 20);
  EXPECT_GE(v.caught * 2, v.planted) << v.caught << " of " << v.planted;
}

TEST(PlantedBugs, WrongConcatOffsetIsCaught) {
  const Verdict v = judge(reference::oracle_provider(), plant_wrong_offset);
  EXPECT_GE(v.planted, 20);
  EXPECT_GE(v.caught * 2, v.planted) << v.caught << " of " << v.planted;
}

// Through the whole compiler for some laws; tests/quant does it for every law on the normal form.
class SkippedLaw : public ::testing::TestWithParam<const char*> {};

TEST_P(SkippedLaw, IsCaught) {
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  testing::PlacementCounts moves;
  plan::PlanOptions skip;
  skip.disabled.insert(GetParam());
  int caught = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const ir::Graph g = testing::random_network(seed);
    const auto a = plan::make_plan(g, providers, skip);
    const auto b = plan::make_plan(testing::place_otherwise(g, seed * 31, 16, moves), providers, skip);
    caught += !a || !b || region::plan_hash(a->plan) != region::plan_hash(b->plan);
  }
  EXPECT_GE(caught, 1) << "of 60 networks, with --disable=" << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Laws, SkippedLaw,
                         ::testing::Values("pair-quantize-dequantize", "code-constant", "merge-view", "drop-relu",
                                           "move-view-concat", "move-view-slice", "move-view-relu", "move-view-max-pool"));

}  // namespace
}  // namespace octavo
