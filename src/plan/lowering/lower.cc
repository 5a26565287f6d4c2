#include "plan/lowering/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/causes/plan_layout.h"
#include "base/causes/plan_regions.h"
#include "plan/layout/layout.h"
#include "plan/lowering/anchor.h"
#include "plan/regions/epilogue.h"
#include "plan/regions/narrow_marks.h"
#include "region/store_results.h"
#include "region/tensor_ref.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Grids;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;
using region::Region;
using region::Stage;
using region::TensorRef;

class Lowerer {
 public:
  Lowerer(const Graph& g, const Grids& grids, const Grouping& grouping, Placement& placement, Memo& memo)
      : g_(g), grids_(grids), grouping_(grouping), placement_(placement), memo_(memo) {}

  Result<std::vector<Region>> run() {
    for (std::size_t k = 0; k < grouping_.groups.size(); ++k) OCTAVO_CHECK(lower_group(static_cast<int>(k)));
    for (const ValueId v : g_.outputs) OCTAVO_CHECK(ensure({v, Repr::raw}));
    return std::move(regions_);
  }

 private:
  // Emits the copies that make a value readable, sources first.
  Status ensure(Key key) {
    if (!ready_.insert(key).second) return {};
    const auto found = placement_.allocations.find(key);
    if (found == placement_.allocations.end()) return {};  // a constant operand of a concat without wishes
    for (const Key& before : found->second.after) OCTAVO_CHECK(ensure(before));
    for (const Copy& c : found->second.copies) {
      OCTAVO_CHECK(ensure(c.source));
      emit_copy(c.from, c.to, key.first, key.first, c.reason, {});
    }
    return {};
  }

  void emit_copy(TensorRef from, const TensorRef& to, ValueId source, ValueId target, Reason reason,
                 std::set<std::string> extra_origin) {
    Region r;
    r.precision = region::Work::move;
    r.reasons.push_back(std::move(reason));
    r.onnx_nodes = g_.producer(target).origin;
    r.onnx_nodes.insert(extra_origin.begin(), extra_origin.end());
    for (const auto& [user, slot] : g_.users(target)) r.onnx_nodes.insert(g_.node(user).origin.begin(), g_.node(user).origin.end());
    const std::string& value = g_.value(target).name;
    r.name = "copy " + (!value.empty() ? value : r.onnx_nodes.empty() ? std::string("tensor") : *r.onnx_nodes.begin());
    r.stages.push_back(copy_stage(std::move(from), to));
    r.graph_inputs = {source};
    r.graph_outputs = {target};
    regions_.push_back(std::move(r));
  }

  // A ref of (v, repr) that readers can use now.
  Result<TensorRef> read(ValueId v, Repr repr) {
    if (g_.is_constant(v)) {
      const Node& c = g_.producer(v);
      const ir::Tensor t = c.quantizer ? decoded(c) : c.payload;
      TensorRef r;
      r.buffer = placement_.add_constant(t, g_.value(v).name);
      r.dtype = t.dtype();
      r.dims = t.shape();
      r.strides = ir::dense_strides(t.shape());
      r.value = g_.value(v).name;
      return r;
    }
    OCTAVO_CHECK(ensure({v, repr}));
    return placement_.allocations.at({v, repr}).refs[0];
  }

  /// Lays a constant that is read element by element in the order that the result is stored in: vectors load neighbours of both.
  void lay_as(const TensorRef& result, TensorRef& constant) {
    const std::size_t rank = result.dims.size();
    if (constant.dims.size() != rank || constant.offset != 0) return;
    ir::Shape own = constant.dims;  // one where an element serves many
    for (std::size_t d = 0; d < rank; ++d) {
      if (constant.strides[d] == 0) own[d] = 1;
    }
    Strides wanted = strides_in_order(own, order_of(result.dims, result.strides));
    const std::vector<int> order = order_of(own, wanted);
    bool same = true;
    for (std::size_t d = 0; d < rank; ++d) {
      if (own[d] == 1) wanted[d] = constant.strides[d];
      same = same && wanted[d] == constant.strides[d];
    }
    if (same) return;
    const ir::Tensor from = placement_.buffers[static_cast<std::size_t>(constant.buffer)].data;
    const std::size_t size = ir::size_of(from.dtype());
    if (from.size() != ir::count(own)) return;
    ir::Shape shape(rank);
    for (std::size_t k = 0; k < rank; ++k) shape[k] = own[static_cast<std::size_t>(order[k])];
    ir::Tensor to(from.dtype(), shape);
    std::vector<std::int64_t> index(rank, 0);
    for (std::int64_t i = 0; i < to.size(); ++i) {
      std::int64_t at = 0;
      for (std::size_t k = 0; k < rank; ++k) at += index[k] * constant.strides[static_cast<std::size_t>(order[k])];
      std::memcpy(to.mutable_bytes().data() + static_cast<std::size_t>(i) * size,
                  from.bytes().data() + static_cast<std::size_t>(at) * size, size);
      for (std::size_t k = rank; k-- > 0 && ++index[k] == shape[k];) index[k] = 0;
    }
    constant.buffer = placement_.add_constant(to, "constant");
    constant.strides = wanted;
  }

  // The same, with channels innermost, as the image kernels need it.
  Result<TensorRef> read_channel_last(ValueId v, Repr repr) {
    OCTAVO_TRY(const TensorRef r, read(v, repr));
    if (r.dims.size() < 3 || r.dims[1] == 1 || r.strides[1] == 1) return r;
    return converted({v, repr}, r, 1, channel_last(r.dims));
  }
  /// The same, with the features of a product's rows innermost.
  Result<TensorRef> read_rows(ValueId v, Repr repr) {
    OCTAVO_TRY(const TensorRef r, read(v, repr));
    if (r.dims.size() < 2 || r.dims.back() == 1 || r.strides.back() == 1) return r;
    return converted({v, repr}, r, r.dims.size() - 1, ir::dense_strides(r.dims));
  }
  /// A copy whose dimension `last` is innermost, for all who need it so.
  TensorRef converted(Key key, const TensorRef& r, std::size_t last, Strides strides) {
    const auto found = converted_.find({key, last});
    if (found != converted_.end()) return found->second;
    const auto& [v, repr] = key;
    TensorRef to = r;
    to.offset = 0;
    to.buffer = placement_.add_arena(tensor_bytes(r), g_.value(v).name + (last == 1 ? " (NHWC)" : " (rows)"));
    to.strides = std::move(strides);
    emit_copy(r, to, v, v, because<cause::reader_needs_channels_last>(g_.value(v).name, r.strides[last]), {});
    return converted_[{key, last}] = to;
  }

  Status lower_group(int index) {
    const Group& group = grouping_.groups[static_cast<std::size_t>(index)];
    Region region;
    Stage stage;
    stage.space = group.space;
    std::vector<ValueId> operand_values;
    Status problem;  // first failure inside the callbacks
    const auto load = [&](ValueId v, Repr repr) {
      auto r = read(v, repr);
      if (!r) {
        if (problem) problem = tl::unexpected<Error>(r.error());
        return 0;
      }
      const TensorRef b = broadcast(*r, stage.space);
      for (std::size_t i = 0; i < stage.operands.size(); ++i) {
        if (operand_values[i] == v && stage.operands[i].ref.dtype == b.dtype) return static_cast<int>(i);
      }
      stage.operands.push_back({b, {}});
      operand_values.push_back(v);
      return static_cast<int>(stage.operands.size() - 1);
    };
    const auto constant = [&](const ir::Tensor& t) {
      TensorRef r;
      r.buffer = placement_.add_constant(t, "constant");
      r.dtype = t.dtype();
      r.dims = t.shape();
      r.strides = ir::dense_strides(t.shape());
      const TensorRef b = broadcast(r, stage.space);
      for (std::size_t i = 0; i < stage.operands.size(); ++i) {
        const TensorRef& have = stage.operands[i].ref;
        if (operand_values[i] == ir::kNone && have.buffer == b.buffer && have.strides == b.strides) return static_cast<int>(i);
      }
      stage.operands.push_back({b, {}});
      operand_values.push_back(ir::kNone);
      return static_cast<int>(stage.operands.size() - 1);
    };
    EpilogueBuilder builder(g_, grids_, group.space, load, constant);
    std::vector<ValueId> inputs;
    if (group.anchor != ir::kNone) {
      const AnchorReader reader{
          [&](ValueId v, Repr r) { return read(v, r); }, [&](ValueId v, Repr r) { return read_channel_last(v, r); },
          [&](ValueId v, Repr r) { return read_rows(v, r); },
          [&](const ir::Tensor& t, const std::string& name) { return placement_.add_constant(t, name); }, memo_.weights};
      OCTAVO_CHECK(lower_anchor(g_, grids_, group.anchor, reader, stage, builder, inputs, region));
    } else {
      region.precision = ir::DType::f32;
      builder.may_be_nan = true;
    }
    for (const NodeId id : group.nodes) OCTAVO_CHECK(builder.compute(g_.node(id)));
    collect_stores(group, stage, builder, region);
    if (!problem) return problem;
    for (std::size_t i = 0; i < stage.operands.size() && !stage.stores.empty(); ++i) {
      if (operand_values[i] == ir::kNone) lay_as(stage.stores.front(), stage.operands[i].ref);
    }
    const bool by_library = group.anchor != ir::kNone && stage.program.outputs.empty() && builder.program.code.empty();
    if (!by_library) {
      builder.program.outputs = stage.program.outputs;
      std::vector<bool> is_u8;
      for (const region::Operand& o : stage.operands) is_u8.push_back(o.ref.dtype == ir::DType::u8);
      is_u8.push_back(builder.acc_is_code);
      builder.program.operand_count = static_cast<int>(stage.operands.size());
      OCTAVO_CHECK(program::verify(builder.program));
      stage.program = memo_.simplified.of(builder.program, is_u8);
      drop_unused_operands(stage, operand_values);
    }
    describe(group, stage, region);
    region.graph_inputs = inputs;
    region.graph_inputs.insert(region.graph_inputs.end(), operand_values.begin(), operand_values.end());
    adapt_rank(stage);
    region.stages.push_back(std::move(stage));
    const std::set<ValueId> made(region.graph_outputs.begin(), region.graph_outputs.end());
    regions_.push_back(std::move(region));
    for (const ValueId v : made) {
      for (const Repr repr : {Repr::raw, Repr::codes}) {
        const auto allocation = placement_.allocations.find({v, repr});
        if (allocation == placement_.allocations.end()) continue;
        for (const Copy& c : allocation->second.copies) emit_copy(c.from, c.to, v, v, c.reason, {});
      }
    }
    return {};
  }

  void collect_stores(const Group& group, Stage& stage, EpilogueBuilder& builder, Region& region) {
    std::vector<ValueId> made;
    if (group.anchor != ir::kNone) {
      const auto& outs = g_.node(group.anchor).outputs;
      made.insert(made.end(), outs.begin(), outs.end());
    }
    for (const NodeId id : group.nodes) made.push_back(g_.node(id).outputs[0]);
    std::vector<std::int64_t> results;  // which result of the anchor each store takes, where a program does not say it
    for (const ValueId v : made) {
      for (const Repr repr : {Repr::raw, Repr::codes}) {
        const auto allocation = placement_.allocations.find({v, repr});
        if (allocation == placement_.allocations.end()) continue;
        const bool typed_result = !program_result(v, group) ||
                                  (group.anchor != ir::kNone && g_.value(v).producer == group.anchor && raw_codes(v, builder));
        const int value = typed_result ? -1 : builder.stored(v, repr);
        for (const TensorRef& ref : allocation->second.refs) {
          if (!typed_result) stage.program.outputs.push_back({value, ref.dtype});
          stage.stores.push_back(ref);
          region.graph_outputs.push_back(v);
          results.push_back(g_.value(v).output_index);
        }
        ready_.insert({v, repr});
      }
    }
    const bool several = group.anchor != ir::kNone && (g_.node(group.anchor).outputs.size() > 1 || stage.stores.size() > 1);
    if (several && stage.program.outputs.empty()) stage.anchor.store_results = results;
  }

  // True for 8-bit and storage-only results of an anchor that the program does not hold (integer arithmetic): the anchor writes
  // them.
  bool raw_codes(ValueId v, const EpilogueBuilder& builder) const {
    const ir::DType t = g_.type(v).dtype;
    return !builder.holds(v) && (ir::is_int8(t) || t > ir::DType::boolean || t == ir::DType::f16 || t == ir::DType::bf16);
  }

  // False for results of anchors that are not float or 8-bit (arg_max, integer gather): the anchor writes them itself.
  bool program_result(ValueId v, const Group& group) const {
    if (group.anchor == ir::kNone || g_.value(v).producer != group.anchor) return true;
    const ir::DType t = g_.type(v).dtype;
    const Node& n = g_.producer(v);
    const bool sums = (n.op == Op::conv || n.op == Op::gemm) && g_.type(n.inputs[0]).dtype == ir::DType::f32;
    if (sums && t == ir::DType::s32) return true;  // of whole numbers: the accumulators
    const bool shape_like = t == ir::DType::s64 || t == ir::DType::u64 || t == ir::DType::boolean || t == ir::DType::f64 ||
                            t == ir::DType::s16 || t == ir::DType::u16 || t == ir::DType::u32 || t == ir::DType::s32;
    return !shape_like && g_.producer(v).outputs.size() == 1;
  }

  static void drop_unused_operands(Stage& stage, std::vector<ValueId>& values) {
    std::vector<int> renumber(stage.operands.size(), -1);
    std::vector<region::Operand> kept;
    std::vector<ValueId> kept_values;
    for (program::Instr& instr : stage.program.code) {
      if (instr.op != program::Op::load_i && instr.op != program::Op::load_f) continue;
      int& slot = renumber[static_cast<std::size_t>(instr.imm)];
      if (slot < 0) {
        slot = static_cast<int>(kept.size());
        kept.push_back(stage.operands[static_cast<std::size_t>(instr.imm)]);
        kept_values.push_back(values[static_cast<std::size_t>(instr.imm)]);
      }
      instr.imm = slot;
    }
    stage.operands = std::move(kept);
    stage.program.operand_count = static_cast<int>(stage.operands.size());
    values = std::move(kept_values);
  }

  void describe(const Group& group, const Stage& stage, Region& region) {
    std::vector<std::string> names;
    const auto take = [&](NodeId id) {
      const Node& n = g_.node(id);
      region.onnx_nodes.insert(n.origin.begin(), n.origin.end());
      names.push_back(n.origin.empty() ? std::string(ir::name_of(n.op)) : *n.origin.begin());
    };
    if (group.anchor != ir::kNone) take(group.anchor);
    for (const NodeId id : group.nodes) {
      if ((g_.node(id).op == Op::view || is_narrow_cast(g_.node(id))) &&
          group.nodes.size() + (group.anchor != ir::kNone ? 1 : 0) > 1) {
        region.onnx_nodes.insert(g_.node(id).origin.begin(), g_.node(id).origin.end());
        continue;
      }
      if (is_round_trip(g_, g_.node(id))) {
        const Node& there = g_.producer(g_.node(id).inputs[0]);
        region.onnx_nodes.insert(there.origin.begin(), there.origin.end());
      }
      take(id);
    }
    names.erase(std::unique(names.begin(), names.end()), names.end());
    region.name = fmt::format("{}", fmt::join(names, " + "));
    std::vector<std::string> members;
    for (const NodeId id : group.nodes) members.emplace_back(ir::name_of(g_.node(id).op));
    if (group.anchor == ir::kNone) {
      region.reasons.push_back(because<cause::pointwise_pass>(members));
      add(region.reasons, grouping_.notes[static_cast<std::size_t>(group.nodes.front())]);
      const bool all_codes =
          std::all_of(stage.stores.begin(), stage.stores.end(), [](const TensorRef& r) { return ir::is_int8(r.dtype); });
      if (all_codes)
        region.precision =
            std::any_of(stage.operands.begin(), stage.operands.end(),
                        [](const region::Operand& o) { return o.ref.dtype == ir::DType::f32 && !o.ref.value.empty(); })
                ? region::Work::quantize
                : region::Work::int8;
      if (std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId id) { return is_narrow_cast(g_.node(id)); }))
        region.precision = region::Precision::narrowing_to(g_.type(g_.node(group.nodes.front()).outputs[0]).dtype);
    } else if (!members.empty()) {
      region.reasons.push_back(because<cause::epilogue_fused>(members));
    }
  }

  const Graph& g_;
  const Grids& grids_;
  const Grouping& grouping_;
  Placement& placement_;
  Memo& memo_;
  std::vector<Region> regions_;
  std::set<Key> ready_;
  std::map<std::pair<Key, std::size_t>, TensorRef> converted_;  ///< by the dimension that is innermost
};

}  // namespace

Result<std::vector<Region>> lower(const Graph& g, const Grids& grids, const Grouping& grouping, Placement& placement, Memo& memo) {
  return Lowerer(g, grids, grouping, placement, memo).run();
}

region::Stage copy_stage(region::TensorRef from, const region::TensorRef& to) {
  Stage stage;
  stage.space = to.dims;
  const bool integer = !ir::is_float(from.dtype);
  const int v = stage.program.load(integer ? program::Op::load_i : program::Op::load_f, 0);
  stage.program.outputs.push_back({v, to.dtype});
  stage.operands.push_back({std::move(from), {}});
  stage.stores.push_back(to);
  const bool held = integer ? ir::is_int8(to.dtype) || to.dtype == ir::DType::s32 : to.dtype != ir::DType::f64;
  if (!held) {  // s64, bool, f64, ...: a program cannot hold them
    stage.anchor.op = Op::reshape;
    stage.anchor.facts = ir::Reshape{};
    stage.anchor.inputs.push_back(stage.operands[0].ref);
    stage.operands.clear();
    stage.program = {};
  }
  return stage;
}

}  // namespace octavo::plan
