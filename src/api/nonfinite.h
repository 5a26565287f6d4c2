// Counts NaN and infinities in the inputs of a plan and in the float tensors that its regions store, while it runs.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/host_view.h"
#include "engine/engine.h"

namespace octavo::api {

struct NonFiniteTensor {
  std::string name;
  std::set<std::string> onnx_nodes;  ///< of the region that stores it
  std::int64_t nan = 0, infinite = 0, elements = 0;
};

class NonFiniteCounter {
 public:
  explicit NonFiniteCounter(const engine::Engine& engine);
  NonFiniteCounter(const NonFiniteCounter&) = delete;
  NonFiniteCounter& operator=(const NonFiniteCounter&) = delete;

  /// To be handed to every run that counts. Not for two runs at once.
  [[nodiscard]] const engine::Observer& observer() const { return observer_; }
  /// Those with any: inputs, then in the order of the regions.
  [[nodiscard]] std::vector<NonFiniteTensor> found() const;

 private:
  struct Watched {
    const region::TensorRef* ref;
    NonFiniteTensor counts;
  };
  static void count(const region::Memory& memory, Watched& w);

  engine::Observer observer_;
  HostView view_;
  std::vector<region::TensorRef> input_refs_;
  std::vector<Watched> inputs_;
  std::vector<std::vector<Watched>> regions_;
};

}  // namespace octavo::api
