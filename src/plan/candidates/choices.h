// The planner's open questions. A plan is a function of the normalized graph and of the answers: `realize` makes it, `search` asks.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/grid.h"
#include "plan/options.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Answers, by ids of the normalized graph. Empty: the default choices, but for `staged`, which `find_default_stages` fills.
struct Choices {
  std::set<ir::ValueId> staged;              ///< the region that reads this value is a further stage of the one that makes it
  std::set<std::set<ir::ValueId>> together;  ///< the regions that make these values run side by side as one
  std::set<ir::NodeId> apart;                ///< pointwise nodes that get a pass of their own
  std::set<ir::NodeId> segments;             ///< anchors computed part by part of the concatenation that they read
  std::set<ir::ValueId> split_views;         ///< values whose channels are read at several scales: one view per channel
  std::set<ir::NodeId> split_convs;          ///< convolutions computed part by part of their output channels
  std::set<ir::ValueId> direct;              ///< stored where it is wanted although channels do not lie side by side there
  friend bool operator==(const Choices&, const Choices&) = default;
};

/// One question: what it is about and its answers, the default first. An answer changes Choices.
struct Question {
  std::string kind;   ///< the planner switch
  std::string where;  ///< ONNX node or tensor
  std::set<std::string> onnx_nodes;
  struct Answer {
    std::string name, note;
    std::function<void(Choices&)> apply;  ///< from the default choices; the first answer's does nothing
  };
  std::vector<Answer> answers;
};

/// A plan without tactics and memory, and the graph that it computes (segments change it).
struct Realized {
  ir::Graph graph;
  region::Plan plan;
  std::string refusal;  ///< why an answer had no effect, if one had none (the last heard)
};

[[nodiscard]] Result<Realized> realize(const ir::Graph& normalized, const Choices& choices,
                                       const std::vector<const region::Provider*>& providers, const PlanOptions& options);

/// Every question that the plan of the default choices raises, in a canonical order (graph order). Switched-off kinds are left out.
[[nodiscard]] std::vector<Question> find_questions(const Realized& base, const Choices& defaults, const PlanOptions& options);

/// Stages that are joined without asking for times: a convolution and the pooling that alone reads it; large results that an
/// epilogue alone reads.
[[nodiscard]] std::set<ir::ValueId> find_default_stages(const region::Plan& unfused, const PlanOptions& options);

}  // namespace octavo::plan
