#include "plan/candidates/registry.h"

#include <algorithm>

#include "plan/effort.h"

namespace octavo::plan {
namespace {

constexpr auto kFusion = ChoiceInfo::DecidedBy::fusion;
constexpr auto kTimes = ChoiceInfo::DecidedBy::region_times;
constexpr auto kPlans = ChoiceInfo::DecidedBy::whole_plans;

constexpr int kEvery = 0, kSearched = first_effort(&Effort::searches), kCompared = first_effort(&Effort::compares_plans);

// scripts/rules_page.py reads the names, efforts and forceable marks of this table: one entry opens with {"NAME", DECIDED_BY, EFFORT,.
constexpr ChoiceInfo kChoices[] = {
    {"fuse-epilogue",
     kFusion,
     kEvery,
     "",
     false,
     {{{"fused", "in the region that makes an operand"}, {"own-region", "a region of its own"}}}},
    {"join-operand",
     kFusion,
     kEvery,
     "",
     false,
     {{{"joined", "in the region that reads it"}, {"own-region", "a region of its own"}}}},
    {"fuse-conv-pool", kTimes, kSearched, "", true, {{{"row-tiles", "one region, in row tiles"}, {"separate", "two regions"}}}},
    {"stages", kTimes, kSearched, "", true, {{{"separate", "two regions"}, {"row-tiles", "one region, in row tiles"}}}},
    {"stage-operand",
     kTimes,
     kSearched,
     "",
     true,
     {{{"separate", "two regions"}, {"row-tiles", "one region: the operand is read from cache, in row tiles"}}}},
    {"stage-store",
     kTimes,
     kSearched,
     "",
     true,
     {{{"separate", "read again from memory"}, {"row-tiles", "one region: stored, and read from cache, in row tiles"}}}},
    {"block",
     kTimes,
     kSearched,
     "",
     true,
     {{{"separate", "a region each"}, {"row-tiles", "the whole block as one region, in row tiles"}}}},
    {"attention",
     kTimes,
     kSearched,
     "",
     false,
     {{{"query-tiles", "one region, in tiles of queries"}, {"separate", "three regions"}}}},
    {"horizontal", kTimes, kSearched, "", true, {{{"separate", "a region each"}, {"side-by-side", "one region, side by side"}}}},
    {"one-pass", kTimes, kSearched, "", true, {{{"separate", "a region each"}, {"side-by-side", "one region, side by side"}}}},
    {"concat",
     kTimes,
     kSearched,
     "",
     true,
     {{{"quantized-above", "every producer stores int8 into its slice"}, {"quantized-below", "one pass over the stored parts"}}}},
    {"stores",
     kTimes,
     kSearched,
     "",
     true,
     {{{"stored-twice", "stored by the producer as well"}, {"own-pass", "requantized by a pass of its own"}}}},
    {"epilogue-pass",
     kTimes,
     kSearched,
     "",
     true,
     {{{"fused", "in the region of its operand"}, {"own-pass", "a pass of its own"}}}},
    {"segments",
     kTimes,
     kSearched,
     "",
     true,
     {{{"float-whole", "a float convolution over the whole"}, {"int8-by-parts", "int8, part by part"}}}},
    {"direct-store",
     kTimes,
     kSearched,
     "",
     true,
     {{{"copied", "stored channels last and copied"}, {"direct", "stored where it is wanted"}}}},
    {"row-order",
     kTimes,
     kSearched,
     "",
     true,
     {{{"rows-together", "stored so that products read neighbours"}, {"as-made", "stored in the order of what it is made from"}}}},
    {"split-views",
     kTimes,
     kSearched,
     "",
     true,
     {{{"store-per-scale", "stored once a scale"}, {"scale-per-channel", "stored once, a scale a channel"}}}},
    {"split-conv",
     kTimes,
     kSearched,
     "",
     true,
     {{{"whole", "one convolution"}, {"by-parts", "a convolution for each part of the channels"}}}},
    {"above-moves",
     kTimes,
     kSearched,
     "",
     true,
     {{{"behind-moves", "behind the moves of a linear layer's result"}, {"in-front", "in the layer's epilogue, part by part"}}}},
    {"precision",
     kTimes,
     kSearched,
     "ranges, or bfloat16 among the allowed types",
     false,
     {{{"int8", ""}, {"float32", ""}, {"bfloat16", ""}, {"float16", ""}}}},
    {"inner-view",
     kTimes,
     kSearched,
     "ranges, and --force=inner-view or --max-error",
     true,
     {{{"arithmetic", "the activation in float"}, {"table", "the activation through the range of its input"}}}},
    {"pairs",
     kPlans,
     kEvery,
     "--qdq permit",
     true,
     {{{"as-they-stand", "every pair where it stands"},
       {"permitted", "pairs as permissions"},
       {"permitted-but-inner", "pairs as permissions, but for those between a layer and its activation"}}}},
    {"by-image",
     kPlans,
     kCompared,
     "a batch of 2 or more",
     false,
     {{{"whole-batch", "the whole batch at once"}, {"image-by-image", "one image after the other, each on one thread"}}}},
    {"tactics",
     kPlans,
     kCompared,
     "times of whole plans",
     false,
     {{{"measured", "tactics measured region by region"}, {"estimated", "the plan of effort 0"}}}},
};

}  // namespace

std::span<const ChoiceInfo> choices() {
  return kChoices;
}

const ChoiceInfo* find_choice(std::string_view name) {
  const auto found = std::find_if(std::begin(kChoices), std::end(kChoices), [&](const ChoiceInfo& c) { return c.name == name; });
  return found == std::end(kChoices) ? nullptr : &*found;
}

std::string_view description_of(std::string_view choice, std::string_view candidate) {
  const ChoiceInfo* info = find_choice(choice);
  if (info == nullptr) return candidate;
  for (const CandidateInfo& c : info->candidates) {
    if (c.name == candidate && !c.description.empty()) return c.description;
  }
  return candidate;
}

std::vector<std::string> choice_names() {
  std::vector<std::string> out;
  for (const ChoiceInfo& c : kChoices) out.emplace_back(c.name);
  return out;
}

std::vector<std::string> forceable_choices() {
  std::vector<std::string> out;
  for (const ChoiceInfo& c : kChoices) {
    if (c.can_be_forced) out.emplace_back(c.name);
  }
  return out;
}

}  // namespace octavo::plan
