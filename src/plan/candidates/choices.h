// The planner's choices. A plan is a function of the normalized graph and of a selection among their candidates: `realize` makes the
// plan, plan/search/search.h looks for the best selection. The names of choices and candidates are in plan/candidates/registry.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/out_of_line.h"
#include "base/reason.h"
#include "base/result.h"
#include "ir/graph.h"
#include "ir/grid.h"
#include "plan/candidates/attention.h"
#include "plan/context.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// What was selected, by ids of the normalized graph. Empty: the defaults, but for `staged` and `attention`, which have functions for theirs.
struct Selection {
  std::set<ir::ValueId> staged;             ///< the first region that reads this value is a further stage of the one that makes it
  std::set<AttentionValues> attention;      ///< what makes these values and what reads the second one are one region
  std::set<std::set<ir::ValueId>> grouped;  ///< the regions that make these values run side by side as one
  std::map<ir::NodeId, std::string> apart;  ///< pointwise nodes that get a pass of their own, with the choice that gives it to them
  std::set<ir::NodeId> segments;            ///< anchors computed part by part of the concatenation that they read
  std::set<ir::ValueId> split_views;        ///< values whose channels are read at several scales: one view per channel
  std::set<ir::NodeId> split_convs;         ///< convolutions computed part by part of their output channels
  std::set<ir::NodeId> above_moves;         ///< linear layers whose epilogues compute what follows moves of their results
  std::optional<std::set<ir::NodeId>> small;  ///< small_nodes of the shape that it was selected for; nothing: those of the graph
  std::set<ir::ValueId> direct;               ///< stored where it is wanted although channels do not lie side by side there
  std::set<ir::ValueId> as_made;              ///< stored in the order of what they are made from, whatever products read
  OCTAVO_OUT_OF_LINE(Selection);
  bool operator==(const Selection&) const;
};

/// One choice: what it is about and its candidates, the default first. A candidate changes a Selection.
struct Choice {
  std::string name;   ///< the planner switch
  std::string where;  ///< ONNX node or tensor
  std::set<std::string> onnx_nodes;
  std::string kind;  ///< of "stages": what is joined ("depthwise-pointwise"); otherwise empty
  struct Candidate {
    std::string name;
    Reasons notes;
    std::function<void(Selection&)> apply;  ///< from the defaults; the first candidate's does nothing
  };
  std::vector<Candidate> candidates;
};

/// A plan without tactics and memory, and the graph that it computes (segments change it).
struct Realized {
  ir::Graph graph;
  region::Plan plan;
  std::set<ir::ValueId> in_rows;  ///< Placement::in_rows
  Reasons refusal;                ///< why a candidate had no effect, if one had none (the last heard)
  OCTAVO_OUT_OF_LINE(Realized);
};

[[nodiscard]] Result<Realized> realize(const ir::Graph& normalized, const Selection& selection, const PlanContext& context);

/// Every choice that the plan of the defaults raises, in a canonical order (graph order). Disabled ones are left out. `all`: also those
/// that are asked for with Effort::small_choices alone, because so little lies between the regions that it stays in cache anyway.
[[nodiscard]] std::vector<Choice> find_choices(const Realized& base, const Selection& defaults, const PlanOptions& options,
                                               bool all = false);

/// Stages that are joined without asking for times: a convolution and the pooling that alone reads it; large results that an
/// epilogue alone reads.
[[nodiscard]] std::set<ir::ValueId> find_default_stages(const region::Plan& unfused, const PlanOptions& options);

/// All attention of a plan for the host, unless it is disabled.
[[nodiscard]] std::set<AttentionValues> find_default_attention(const region::Plan& unfused, const PlanOptions& options);

/// The selection without anything that times decide, and its plan.
struct Defaults {
  Selection selection;
  Realized made;
};
[[nodiscard]] Result<Defaults> realize_defaults(const ir::Graph& normalized, const PlanContext& context);

}  // namespace octavo::plan
