// A network that runs on calibration data and shows tensors inside of it, in float or with its Q/DQ pairs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "onnx/import/import.h"
#include "plan/options.h"
#include "quantize/data/data.h"

namespace octavo::quantize {

/// A tensor that can be looked at: a float32 activation of the imported graph, under its ONNX name.
struct Observable {
  std::string name;
  ir::Shape shape;
  ir::ValueId value = ir::kNone;
  bool output = false;  ///< of the network
};

/// Every float32 activation of `graph` that a region could hand to another: graph inputs and results of nodes, but for results of
/// weighted operators that only a normalization or an activation reads. In the order of the graph.
[[nodiscard]] std::vector<Observable> observables(const ir::Graph& graph);

/// An engine for one thread whose outputs are those of the model and the observed tensors behind them.
class Network {
 public:
  /// Planned at effort 0 for the processor. `observed`: values of model.graph. `options`: ranges and rules of implicit models;
  /// effort and threads are set here.
  [[nodiscard]] static Result<Network> create(const onnx::Model& model, const std::vector<Observable>& observed,
                                              plan::PlanOptions options = {});

  [[nodiscard]] const region::Plan& plan() const { return engine_->plan(); }
  [[nodiscard]] std::size_t outputs() const { return outputs_; }    ///< of the model
  [[nodiscard]] std::size_t observed() const { return observed_; }  ///< behind them
  [[nodiscard]] std::int64_t bytes() const;                         ///< of all outputs of one run

  /// Runs with buffers of its own; not for two threads at once.
  class Runner {
   public:
    [[nodiscard]] Status run(const Sample& sample);
    [[nodiscard]] const ir::Tensor& output(std::size_t i) const { return results_[i]; }
    [[nodiscard]] std::span<const ir::Tensor> outputs() const { return std::span(results_).first(first_); }  ///< of the model
    [[nodiscard]] const ir::Tensor& observed(std::size_t i) const { return results_[first_ + i]; }

   private:
    friend class Network;
    std::unique_ptr<engine::Context> context_;
    std::vector<ir::Tensor> results_;
    std::size_t first_ = 0;
  };
  [[nodiscard]] Result<Runner> runner() const;

 private:
  std::shared_ptr<const engine::Engine> engine_;
  std::size_t outputs_ = 0, observed_ = 0;
};

/// Called with the number of samples done and of all.
using Progress = std::function<void(std::size_t done, std::size_t count)>;

/// Samples spread over `threads`; each thread has one runner for each network, and all of them run on a sample before `visit` sees
/// it. `visit` runs at the same time for different samples; what it returns runs for one sample after the other, in their order. The
/// first error, by sample, ends the run, and so does whoever watches the calling thread.
struct Visit {
  std::size_t sample = 0;
  const Sample* data = nullptr;
  std::span<const Network::Runner> runners;
};
using InOrder = std::function<void()>;  ///< what is left to do with a sample in its turn; may be empty
[[nodiscard]] Status for_each(const Data& data, const std::vector<const Network*>& networks, int threads,
                              const std::function<Result<InOrder>(const Visit&)>& visit, const Progress& progress = {});

}  // namespace octavo::quantize
