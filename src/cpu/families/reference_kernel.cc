// cpu.reference.<op>: whatever has no kernel of its own, computed by the reference evaluator on dense copies of the inputs. Slow,
// always right; regions that use it say so (`vector` is false).
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "cpu/constant.h"
#include "cpu/family.h"
#include "cpu/table.h"
#include "reference/evaluate.h"
#include "region/store_results.h"
#include "region/tensor_ref.h"

namespace octavo::cpu {
namespace {

using ir::Op;
using ir::Tensor;
using region::TensorRef;

// Calls fn(byte offset) for each element in row-major order.
template <class Fn>
void each_element(const TensorRef& r, Fn fn) {
  const auto size = element_bytes(r);
  std::vector<std::int64_t> index(r.dims.size(), 0);
  const std::int64_t n = ir::count(r.dims);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    fn(at * size);
    for (std::size_t k = r.dims.size(); k-- > 0;) {
      at += r.strides[k];
      if (++index[k] < r.dims[k]) break;
      at -= r.strides[k] * r.dims[k];
      index[k] = 0;
    }
  }
}

bool coded(const TensorRef& r) {
  return r.quantizer && r.quantizer->per_tensor() && r.dtype == ir::DType::u8;
}

// An operator that moves or selects codes of one grid is evaluated on the codes: not every quantizer gives a value's code back.
bool on_codes(const Stage& s) {
  return s.anchor.integer && coded(s.anchor.inputs[0]) && s.anchor.op != Op::pad && ir::has_trait(s.anchor.op, ir::kMove);
}

// Codes become the floats they stand for, as the evaluator's operators are defined on values; or floats that are the codes.
Tensor gather(const Memory& m, const TensorRef& r, bool as_codes = false) {
  Tensor out(coded(r) ? ir::DType::f32 : r.dtype, r.dims);
  std::byte* to = out.mutable_bytes().data();
  const std::byte* base = m.at(r);
  if (coded(r)) {
    const ir::Quantizer& q = *r.quantizer;
    auto* floats = reinterpret_cast<float*>(to);
    each_element(r, [&](std::int64_t at) {
      const auto code = std::to_integer<std::int32_t>(base[at]);
      *floats++ = as_codes ? static_cast<float>(code) : ir::dequantize_one(code, q.scale[0], q.zero_point[0], q.arith);
    });
    return out;
  }
  const std::size_t size = ir::size_of(r.dtype);
  each_element(r, [&](std::int64_t at) {
    std::memcpy(to, base + at, size);
    to += size;
  });
  return out;
}

void scatter(const Memory& m, const TensorRef& r, const Tensor& t) {
  const std::byte* from = t.bytes().data();
  const std::size_t size = ir::size_of(r.dtype);
  std::byte* base = m.at(r);
  each_element(r, [&](std::int64_t at) {
    std::memcpy(base + at, from, size);
    from += size;
  });
}

// Matrix products are planned as images of one pixel: the trailing dimensions of one go away again.
Tensor without_pixels(const Tensor& t) {
  ir::Shape shape = t.shape();
  for (int i = 0; i < 2 && !shape.empty() && shape.back() == 1; ++i) shape.pop_back();
  return t.reshaped(shape);
}

struct Node {
  ir::Graph graph;
  ir::NodeId id = -1;
};
Result<Node> node_of(const Stage& s, const std::vector<ir::TensorType>& types) {
  Node n;
  ir::Node node;
  node.op = s.anchor.op;
  node.attrs = region::attributes_of(s.anchor);
  node.name = std::string(ir::name_of(s.anchor.op));
  for (const auto& t : types) node.inputs.push_back(n.graph.add_input("", t));
  OCTAVO_TRY(const auto results, ir::infer(n.graph, node));
  n.id = n.graph.add_node(std::move(node), results);
  return n;
}
std::vector<ir::TensorType> input_types(const Stage& s) {
  std::vector<ir::TensorType> types;
  const auto add = [&](const TensorRef& r) {
    ir::TensorType t{coded(r) ? ir::DType::f32 : r.dtype, r.dims};
    if (s.anchor.op == Op::gemm) {
      for (int i = 0; i < 2 && !t.shape.empty() && t.shape.back() == 1; ++i) t.shape.pop_back();
    }
    types.push_back(std::move(t));
  };
  for (const TensorRef& r : s.anchor.inputs) add(r);
  if (s.anchor.weights) add(*s.anchor.weights);
  return types;
}

/// The evaluator takes nodes of graphs, made of stages: the stage is kept.
struct ReferenceKernelSetting {
  Stage stage = {};
  Node node = {};
  Constant weights = {};
  std::optional<BlockEpilogue> epilogue = {};
};

class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(ReferenceKernelSetting t, Tensor weights)
      : stage_(std::move(t.stage)), node_(std::move(t.node)), epilogue_(std::move(t.epilogue)), weights_(std::move(weights)) {}

  std::size_t scratch_bytes() const override { return epilogue_ ? epilogue_->scratch_bytes() : 0; }

  void run(const Memory& memory, int, int, const Worker& worker) const override {
    std::vector<Tensor> inputs;
    for (const TensorRef& r : stage_.anchor.inputs) inputs.push_back(gather(memory, r, on_codes(stage_)));
    if (stage_.anchor.weights) inputs.push_back(weights_);
    if (stage_.anchor.op == Op::gemm) {
      for (Tensor& t : inputs) t = without_pixels(t);
    }
    const auto results = reference::evaluate_node(node_.graph, ir::Grids{}, node_.id, inputs);
    if (!results) return fill_stores(memory);
    if (!epilogue_) {
      for (std::size_t i = 0; i < stage_.stores.size(); ++i) {
        const std::size_t k = region::result_of_store(stage_.anchor, i);
        if (k < results->size()) scatter(memory, stage_.stores[i], (*results)[k]);
      }
      return;
    }
    run_program(memory, worker.scratch, (*results)[0]);
  }

 private:
  // The evaluator refuses values it cannot index with (they are known only now): the stores must not keep an earlier run's data.
  void fill_stores(const Memory& memory) const {
    for (const TensorRef& r : stage_.stores) {
      each_element(r, [&](std::int64_t at) { std::memset(memory.at(r) + at, 0, ir::size_of(r.dtype)); });
    }
  }

  void run_program(const Memory& memory, std::byte* scratch, const Tensor& t) const {
    const std::int64_t cols = stage_.space.empty() ? 1 : stage_.space.back();
    const std::int64_t rows = cols == 0 ? 0 : ir::count(stage_.space) / cols;
    epilogue_->prepare(scratch);
    std::int32_t* acc = BlockEpilogue::acc(scratch);
    for (std::int64_t r = 0; r < rows; ++r) {
      Index origin{};
      std::int64_t rest = r;
      for (std::size_t k = stage_.space.size(); k-- > 1;) {
        origin[k - 1] = rest % stage_.space[k - 1];
        rest /= stage_.space[k - 1];
      }
      for (std::int64_t c = 0; c < cols; c += kBlock) {
        const std::int64_t n = std::min<std::int64_t>(kBlock, cols - c);
        for (std::int64_t i = 0; i < n; ++i) acc[i] = value(t, r * cols + c + i);
        if (!stage_.space.empty()) origin[stage_.space.size() - 1] = c;
        epilogue_->run(memory, scratch, origin, 1, static_cast<int>(n));
      }
    }
  }

  // acc_i is the code (of the input's grid, which the operator keeps), acc_f the float.
  [[nodiscard]] std::int32_t value(const Tensor& t, std::int64_t i) const {
    const TensorRef& in = stage_.anchor.inputs[0];
    if (on_codes(stage_)) return static_cast<std::int32_t>(t.at(i));
    if (stage_.anchor.integer && coded(in)) {  // pad: its value is a float
      const ir::Quantizer& q = *in.quantizer;
      return ir::quantize_one(static_cast<float>(t.at(i)), q.scale[0], q.zero_point[0], 0, 255, q.arith);
    }
    return std::bit_cast<std::int32_t>(static_cast<float>(t.at(i)));
  }

  Stage stage_;
  Node node_;
  std::optional<BlockEpilogue> epilogue_;
  Tensor weights_;
};

Result<ReferenceKernelSetting> reference_kernel_setting(const Request& q) {
  const Stage& s = only(q.region);
  const region::Anchor& a = s.anchor;
  // Asked for because it is fast: not computed one product at a time for it.
  if (a.op == Op::matmul &&
      std::any_of(a.inputs.begin(), a.inputs.end(), [](const TensorRef& t) { return t.dtype == ir::DType::bf16; }))
    return refuse("type of a matrix", "bf16", "another type: products of bf16 need a processor with instructions for bf16");
  if (a.weights && a.weights->dtype == ir::DType::bf16)
    return refuse("type of the weights", "bf16", "another type: products of bf16 need a processor with instructions for bf16");
  ReferenceKernelSetting t{s, {}, a.weights ? Constant(*a.weights, q.plan) : Constant(), {}};
  OCTAVO_TRY(t.node, node_of(s, input_types(s)));
  if (s.program.outputs.empty()) return t;
  const std::size_t col = s.space.empty() ? 0 : s.space.size() - 1;
  OCTAVO_TRY(t.epilogue, block_epilogue(s, best_isa(), col == 0 ? 1 : 0, col));
  return t;
}

class ReferenceFamily final : public FamilyOf<ReferenceKernelSetting> {
 public:
  ReferenceFamily() : FamilyOf({.name = "reference", .levels = kAnyIsa, .vector = false, .reference = true}) {}
  std::string name_for(const Region& r) const override { return "reference." + std::string(ir::name_of(only(r).anchor.op)); }
  bool about(const Region& r) const override {
    const Stage& s = only(r);
    // Integer sums (conv, pooling, reductions) are defined by the contract, not by a float operator: they have kernels of their
    // own.
    const Op op = s.anchor.op;
    const bool sums = s.anchor.integer &&
                      (s.anchor.weights || op == Op::matmul || op == Op::avg_pool || op == Op::reduce_mean || op == Op::reduce_sum);
    return r.stages.size() == 1 && !s.anchor.none() && op != Op::reshape && !sums && !s.anchor.inputs.empty() && !s.stores.empty();
  }
  Match<ReferenceKernelSetting> match(const Request& q) const override { return reference_kernel_setting(q); }
  double cost(const ReferenceKernelSetting& t, Isa) const override {
    const region::Anchor& a = t.stage.anchor;
    double work = static_cast<double>(ir::count(t.stage.space));
    for (const TensorRef& x : a.inputs) work += static_cast<double>(ir::count(x.dims));
    if (a.weights) work *= static_cast<double>(ir::count(a.weights->dims));
    return 20e-9 * work + 20e-6;
  }
  std::vector<std::int64_t> packed_bytes(const ReferenceKernelSetting& t) const override {
    const auto& w = t.stage.anchor.weights;
    return w ? std::vector<std::int64_t>{tensor_bytes(*w)} : std::vector<std::int64_t>{};
  }
  Result<std::vector<Tensor>> pack(const ReferenceKernelSetting& t) const override {
    const auto& w = t.stage.anchor.weights;
    return w ? t.weights.copied(*w) : std::vector<Tensor>{};
  }
  std::optional<std::string> layout(const ReferenceKernelSetting&) const override { return "plain"; }
  Result<std::unique_ptr<Kernel>> load(ReferenceKernelSetting t, Packed packed) const override {
    Tensor weights;
    if (const auto& w = t.stage.anchor.weights) {
      weights = Tensor(w->dtype, w->dims);
      std::memcpy(weights.mutable_bytes().data(), packed[0].data(), weights.bytes().size());
    }
    return std::make_unique<ReferenceKernel>(std::move(t), std::move(weights));
  }
};

}  // namespace

OCTAVO_DEFINE_FAMILY(reference, ReferenceFamily)

}  // namespace octavo::cpu
