// What a planning decided, apart from the extents of tensors: data that a planning of the same model for other shapes takes over, so that it
// searches and times nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/out_of_line.h"
#include "ir/graph.h"
#include "plan/candidates/choices.h"
#include "plan/options.h"
#include "plan/precision/permit.h"
#include "region/region.h"
#include "region/tactic.h"

namespace octavo::plan {

struct Decided {
  std::string from;  ///< the shapes that it was decided for, as people read them: "ids [2,128], mask [2,128]"; the caller's
  // What becomes of the model's Q/DQ pairs (plan/precision/choose_pairs.h) and of permitted layers.
  bool permit_pairs = false, inner_pairs = false;
  /// Nothing is taken over. Of tactics that are about equally fast, those are preferred that pack the model's constants as these do: one file keeps them once.
  bool prefers = false;
  PermitChoices choices;
  std::string form;     ///< form_of the normalized graph whose ids `selection` has
  Selection selection;  ///< which candidates were taken
  /// By identity: region::identity. Tactics of regions that are not in it: by kind.
  std::map<std::string, region::Tactic> tactics, of_kinds;
  std::string cost_source;  ///< region::Plan::cost_source
  std::int64_t images = 1;  ///< region::Plan::images of the plan that it was decided for: more than 1: image by image
  int threads = 1;          ///< that the regions were planned for
  OCTAVO_OUT_OF_LINE(Decided);
};

/// The decisions that a planning takes over, and those by which it prefers tactics. Null: none.
[[nodiscard]] const Decided* followed(const PlanOptions& options);
[[nodiscard]] const Decided* preferred(const PlanOptions& options);

/// A graph without extents: operators and how they are connected, by ids. Equal for two shapes of a model: ids mean the same.
[[nodiscard]] std::string form_of(const ir::Graph& g);

/// Which region of a model this is, whatever the shapes: its ONNX nodes and the tensor that it stores first.
[[nodiscard]] std::string identity_of(const region::Region& region);
/// What its tactic depends on beside extents: operators, programs, types, and the shapes of weights.
[[nodiscard]] std::string kind_of(const region::Region& region, const region::Plan& plan);

/// Fills tactics, of_kinds, cost_source, images and threads from a finished plan.
void keep_tactics(const region::Plan& plan, Decided& decided);
/// The tactic of the same region, else of one of its kind. It may refuse the region.
[[nodiscard]] const region::Tactic* tactic_for(const Decided& decided, const region::Region& region, const region::Plan& plan);

}  // namespace octavo::plan
