#include "quantize/data/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/task.h"
#include "cpu/provider.h"
#include "plan/plan.h"
#include "quantize/data/parallel.h"

namespace octavo::quantize {
namespace {

bool weighted(ir::Op op) {
  return op == ir::Op::conv || op == ir::Op::conv_transpose || op == ir::Op::gemm;
}

/// Reads the accumulator of the operator before it, in every plan.
bool joins(ir::Op op) {
  return op == ir::Op::affine || op == ir::Op::relu || op == ir::Op::clip || op == ir::Op::leaky_relu || op == ir::Op::sigmoid ||
         op == ir::Op::hard_swish || op == ir::Op::hard_sigmoid || op == ir::Op::tanh;
}

}  // namespace

std::vector<Observable> observables(const ir::Graph& graph) {
  std::vector<Observable> out;
  for (const ir::NodeId id : graph.order()) {
    const ir::Node& n = graph.node(id);
    if (n.op == ir::Op::constant) continue;
    for (const ir::ValueId v : n.outputs) {
      const ir::Value& value = graph.value(v);
      if (value.name.empty() || value.type.dtype != ir::DType::f32 || ir::count(value.type.shape) == 0) continue;
      const auto& users = graph.users(v);
      const bool output = graph.output_uses(v) > 0;
      const bool inside = (weighted(n.op) || n.op == ir::Op::affine) && users.size() == 1 && joins(graph.node(users[0].first).op);
      if (!output && (users.empty() || inside)) continue;
      out.push_back({value.name, value.type.shape, v, output});
    }
  }
  return out;
}

Result<Network> Network::create(const onnx::Model& model, const std::vector<Observable>& observed, plan::PlanOptions options) {
  ir::Graph graph = model.graph;
  Network net;
  net.outputs_ = graph.outputs.size();
  net.observed_ = observed.size();
  for (const Observable& o : observed) {
    graph.outputs.push_back(o.value);
    std::string name = o.name;
    for (const std::string& have : graph.output_names) {
      if (have == name) name += " (observed)";
    }
    graph.output_names.push_back(name);
  }
  graph.touch();
  options.effort = 0;
  options.threads = 1;
  OCTAVO_TRY(plan::Planned planned, plan::make_plan(std::move(graph), cpu::providers(), options));
  OCTAVO_TRY(net.engine_, engine::Engine::create(std::move(planned.plan), cpu::providers()));
  return net;
}

std::int64_t Network::bytes() const {
  std::int64_t sum = 0;
  for (const region::Binding& b : plan().outputs)
    sum += ir::count(b.type.shape) * static_cast<std::int64_t>(ir::size_of(b.type.dtype));
  return sum;
}

Result<Network::Runner> Network::runner() const {
  Runner r;
  OCTAVO_TRY(r.context_, engine::Context::create(engine_, 1));
  for (const region::Binding& b : plan().outputs) r.results_.emplace_back(b.type);
  r.first_ = outputs_;
  return r;
}

Status Network::Runner::run(const Sample& sample) {
  const region::Plan& plan = context_->engine().plan();
  std::vector<const void*> in;
  for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
    const region::Binding& b = plan.inputs[i];
    if (i >= sample.inputs.size() || sample.inputs[i].empty() || sample.inputs[i].type() != b.type) {
      return fail(
          ErrorKind::bad_input,
          fmt::format("sample {}: input \"{}\" is {}, the model takes {}", sample.name, b.name,
                      i < sample.inputs.size() && !sample.inputs[i].empty() ? ir::to_string(sample.inputs[i].type()) : "missing",
                      ir::to_string(b.type)));
    }
    in.push_back(sample.inputs[i].bytes().data());
  }
  std::vector<void*> out;
  for (ir::Tensor& t : results_) out.push_back(t.mutable_bytes().data());
  return context_->run(in, out);
}

Status for_each(const Data& data, const std::vector<const Network*>& networks, int threads,
                const std::function<Result<InOrder>(const Visit&)>& visit, const Progress& progress) {
  const std::size_t count = data.size();
  std::mutex mutex;
  std::condition_variable turned;
  std::size_t turn = 0;                                 // the sample whose turn comes next
  std::optional<std::pair<std::size_t, Error>> failed;  // of the first sample that failed
  std::atomic<std::size_t> next{0};
  const auto stop = [&](std::size_t at, Error error) {
    const std::lock_guard lock(mutex);
    if (!failed || at < failed->first) failed = {at, std::move(error)};
    turned.notify_all();
  };
  const auto work = [&] {
    std::vector<Network::Runner> runners;
    for (const Network* n : networks) {
      auto runner = n->runner();
      if (!runner) return stop(0, std::move(runner).error());
      runners.push_back(std::move(*runner));
    }
    for (;;) {
      const std::size_t i = next.fetch_add(1);
      if (i >= count) return;
      {
        const std::lock_guard lock(mutex);
        if (failed) return;
      }
      if (auto wanted = check_cancelled(); !wanted) return stop(i, std::move(wanted).error());
      auto sample = data.at(i);
      if (!sample) return stop(i, std::move(sample).error());
      for (Network::Runner& r : runners) {
        if (auto done = r.run(*sample); !done) return stop(i, std::move(done).error());
      }
      const auto in_order = visit({i, &*sample, runners});
      if (!in_order) return stop(i, in_order.error());
      std::unique_lock lock(mutex);
      turned.wait(lock, [&] { return turn == i || failed; });
      if (failed) return;
      if (*in_order) (*in_order)();
      ++turn;
      if (progress) progress(turn, count);
      turned.notify_all();
    }
  };
  OCTAVO_CHECK(together(std::max(1, std::min<int>(threads, static_cast<int>(count))), work));
  if (failed) return tl::unexpected<Error>(std::move(failed->second));
  return {};
}

}  // namespace octavo::quantize
