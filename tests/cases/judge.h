// What the cases assert about a compiled network.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/pipeline.h"
#include "cases/net.h"

namespace octavo::cases {

/// A compiled network in numbers. Edges are the regions without an anchor that read a network input or write a network output: type
/// and layout of the outside world, which no case is about.
struct Facts {
  int layers = 0;  ///< regions that are no edges
  int copies = 0;  ///< of these: regions that only move data
  int loose = 0;   ///< of these: regions without an anchor that compute (a quantizer, an add on its own)
  int edges = 0;
  int floats = 0;  ///< convolutions computed in float
  std::string hash, listing;
  region::Plan plan;
  std::string difference;  ///< from the reference on the given graph, bit for bit; "" when equal
  std::vector<ir::Tensor> outputs;
};

struct Options {
  std::set<std::string, std::less<>> disabled;
  int effort = 0;                        ///< above 0 the search runs with estimated costs: nothing is measured in tests
  const ir::Graph* reference = nullptr;  ///< judge against this graph instead of the network's own
  /// Choices taken whatever they cost, with effort above 0: what estimates prefer depends on the processor.
  std::set<std::string, std::less<>> forced = {};
};

/// Compiles for the CPU with one thread and runs on seeded data. A failure of build or run is a test failure and gives empty facts.
[[nodiscard]] Facts judge(const Net& net, const Options& options = {});

/// Does the explicit form round where the counterpart may not: between two nodes of one region? Then the plans differ by that rounding
/// alone.
enum class Inner { none, rounding };

/// `make(form)` builds one network in any form: all compile to one plan, or to as many regions where the explicit form demands an
/// inner rounding. Gives the explicit facts.
template <class Make>
Facts same_as_counterpart(const Make& make, Inner inner = Inner::none) {
  const Net written = make(Form::explicit_qdq), counterpart = make(Form::counterpart);
  const Facts e = judge(written);
  for (const Form form : {Form::exported, Form::fake_quant}) {
    const Facts k = judge(make(form), {.reference = &written.graph});
    EXPECT_EQ(e.hash, k.hash) << "weights as coded constants:\n" << e.listing << "weights behind nodes:\n" << k.listing;
  }
  const Facts t = judge(counterpart, {.reference = &written.graph});
  const std::string both = "explicit:\n" + e.listing + "counterpart:\n" + t.listing;
  if (inner == Inner::none) {
    EXPECT_EQ(e.hash, t.hash) << both;
    EXPECT_EQ(t.difference, "") << "the counterpart's outputs\n" << both;
  } else {
    EXPECT_NE(e.hash, t.hash) << both;
    EXPECT_EQ(e.layers, t.layers) << both;
    EXPECT_EQ(e.edges, t.edges) << both;
    EXPECT_EQ(t.copies + t.loose + t.floats, 0) << both;
  }
  return e;
}

/// The decision of a kind, as printed in the listing: nullptr when there was none.
[[nodiscard]] const region::Decision* decision(const Facts& facts, const std::string& kind);

/// The reasons, precisions and decisions that `explain` prints, as one text.
[[nodiscard]] std::string reasons(const region::Plan& plan);

}  // namespace octavo::cases
