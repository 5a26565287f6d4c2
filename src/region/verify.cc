// Everything that kernels rely on without looking: indices, ranks, and that no address they can form leaves its buffer.
// One class, past 400 lines: each check relies on those before it.
#include "region/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/canonical.h"
#include "ir/infer.h"
#include "region/check_shape.h"
#include "region/in_place.h"
#include "region/region.h"
#include "region/sizes.h"
#include "region/stage_graph.h"
#include "region/store_results.h"
#include "region/weight_codes.h"

namespace octavo::region {
namespace {

using Wide = __int128;  // strides and extents come from files: products of two of them stay exact
constexpr std::int64_t kMaxWindow = std::int64_t{1} << 31;
constexpr std::size_t kMostDevices = 16;
constexpr std::int64_t kMostAlignment = 1 << 20;

using detail::bad;
using detail::check_shape;
using detail::kMaxBytes;
using detail::What;
using detail::what_text;

class Verifier {
 public:
  /// `like`: verified; null: none.
  explicit Verifier(const Plan& plan, const Plan* like = nullptr) : plan_(plan), like_(like), uses_(plan.buffers.size()) {}

  Status run() {
    if (plan_.threads < 1) return bad(fmt::format("the plan is for {} threads", plan_.threads));
    if (plan_.images < 1 || plan_.lanes < 1 || plan_.lanes > plan_.images)
      return bad(fmt::format("{} images, {} at a time", plan_.images, plan_.lanes));
    OCTAVO_CHECK(devices());
    OCTAVO_CHECK(bindings(plan_.inputs, "input"));
    OCTAVO_CHECK(bindings(plan_.outputs, "output"));
    for (std::size_t i = 0; i < plan_.regions.size(); ++i) {
      region_ = static_cast<int>(i);
      const bool known = like_ != nullptr && like_->regions.size() == plan_.regions.size();
      if (auto status = region(plan_.regions[i], known ? &like_->regions[i] : nullptr); !status) {
        return bad(fmt::format("region {} \"{}\": {}", i, plan_.regions[i].name, status.error().message));
      }
    }
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) OCTAVO_CHECK(buffer(i));
    OCTAVO_CHECK(every_binding_once());
    OCTAVO_CHECK(sizes());
    return arena();
  }

 private:
  Status sizes() const {
    const std::size_t shown = shown_outputs(plan_);
    for (const ir::OutputSize& s : plan_.sizes) {
      const auto output = static_cast<std::size_t>(s.output), count = static_cast<std::size_t>(s.count);
      const bool of_output = s.output >= 0 && output < shown && s.axis >= 0 &&
                             static_cast<std::size_t>(s.axis) < plan_.outputs[output].type.shape.size() &&
                             plan_.outputs[output].strides.empty();
      const bool there = (of_output || ((ir::is_bound(s) || ir::is_counter(s)) && s.axis >= 0)) && s.count >= 0 && count >= shown &&
                         count < plan_.outputs.size() && plan_.outputs[count].type == ir::TensorType{ir::DType::s64, {}} &&
                         plan_.images == 1;
      if (!there) return bad(fmt::format("size {} {} {} of {} outputs", s.output, s.axis, s.count, plan_.outputs.size()));
    }
    return {};
  }

  Status devices() const {
    if (plan_.devices.empty() || plan_.devices.size() > kMostDevices)
      return bad(fmt::format("{} devices, needs 1 to {}", plan_.devices.size(), kMostDevices));
    std::set<std::string> names;
    for (const DeviceUse& d : plan_.devices) {
      if (d.name.empty() || !names.insert(d.name).second) return bad(fmt::format("device \"{}\" has no name of its own", d.name));
      if (d.arena_bytes < 0 || d.arena_bytes > kMaxBytes) return bad(fmt::format("arena of {} bytes", d.arena_bytes));
    }
    return {};
  }
  [[nodiscard]] bool is_device(DeviceId d) const { return d >= 0 && static_cast<std::size_t>(d) < plan_.devices.size(); }
  [[nodiscard]] const Buffer& buffer_of(BufferId id) const { return plan_.buffers[static_cast<std::size_t>(id)]; }

  /// Everything that a region names is in the memory of its device. A transfer has one end there and one in the host's memory.
  Status spaces(const Region& r) const {
    if (!is_device(r.device)) return bad(fmt::format("device {} of {}", r.device, plan_.devices.size()));
    if (is_transfer(r, plan_)) return {};
    const auto check = [&](const TensorRef& t, std::string_view what) -> Status {
      const DeviceId space = buffer_of(t.buffer).space;
      if (space == r.device) return {};
      return bad(fmt::format("{} is in the memory of device {}, the region runs on device {}", what, space, r.device));
    };
    for (const Stage& s : r.stages) {
      for (const TensorRef& t : s.anchor.inputs) OCTAVO_CHECK(check(t, "an input"));
      for (const Operand& o : s.operands) OCTAVO_CHECK(check(o.ref, "an operand"));
      for (const TensorRef& t : s.stores) OCTAVO_CHECK(check(t, "a store"));
      if (s.anchor.weights && r.packed.empty()) OCTAVO_CHECK(check(*s.anchor.weights, "the weights"));
    }
    return {};
  }

  Status artifact(const Region& r) const {
    const auto constant = [&](BufferId id) {
      return id >= 0 && static_cast<std::size_t>(id) < plan_.buffers.size() && buffer_of(id).kind == BufferKind::constant;
    };
    for (const BufferId id : r.packed) {
      if (!constant(id)) return bad(fmt::format("packed buffer {} is not a constant", id));
      if (buffer_of(id).space != r.device) return bad(fmt::format("packed buffer {} is not in the region's memory", id));
    }
    if (r.code == -1) return {};
    const bool source =
        r.code >= 0 && static_cast<std::size_t>(r.code) < plan_.buffers.size() && buffer_of(r.code).kind == BufferKind::source;
    if ((!source && !constant(r.code)) || buffer_of(r.code).space != kHost)
      return bad(fmt::format("code buffer {} is not a constant in host memory", r.code));
    return {};
  }

  Status bindings(const std::vector<Binding>& list, std::string_view kind) const {
    for (const Binding& b : list) {
      const std::string what = fmt::format("{} \"{}\"", kind, b.name);
      OCTAVO_CHECK(check_shape(b.type.shape, what));
      if (plan_.images > 1 && (b.type.shape.empty() || b.type.shape[0] % plan_.images != 0))
        return bad(fmt::format("{} is {}, which is not {} equal parts", what, ir::to_string(b.type), plan_.images));
      if (b.quantizer) {
        if (auto status = ir::detail::check_quantizer(*b.quantizer, b.type.shape); !status)
          return bad(what + ": " + status.error().message);
      }
    }
    return {};
  }

  Status buffer(std::size_t i) const {
    const Buffer& b = plan_.buffers[i];
    const auto at = [&](std::string what) { return bad(fmt::format("buffer {} \"{}\": {}", i, b.name, what)); };
    if (b.bytes < 0 || b.bytes > kMaxBytes) return at(fmt::format("{} bytes", b.bytes));
    if (!is_device(b.space)) return at(fmt::format("in the memory of device {}, there are {}", b.space, plan_.devices.size()));
    if (b.alignment < 64 || b.alignment > kMostAlignment || (b.alignment & (b.alignment - 1)) != 0)
      return at(fmt::format("alignment {} is not a power of two from 64 to {}", b.alignment, kMostAlignment));
    switch (b.kind) {
      case BufferKind::input:
      case BufferKind::output: {
        const auto& list = b.kind == BufferKind::input ? plan_.inputs : plan_.outputs;
        if (b.binding < 0 || static_cast<std::size_t>(b.binding) >= list.size())
          return at(fmt::format("binding {} of {}", b.binding, list.size()));
        const ir::TensorType& type = list[static_cast<std::size_t>(b.binding)].type;
        const Wide needed = Wide{ir::count(type.shape)} / plan_.images * static_cast<std::int64_t>(ir::size_of(type.dtype));
        if (needed != b.bytes)
          return at(fmt::format("{} bytes, its binding {} has another size{}", b.bytes, ir::to_string(type),
                                plan_.images > 1 ? fmt::format(" in {} parts", plan_.images) : ""));
        return {};
      }
      case BufferKind::source:
      case BufferKind::constant:
        if (!b.data.empty() && static_cast<std::int64_t>(b.data.bytes().size()) != b.bytes) {
          return at(fmt::format("says {} bytes, holds {}", b.bytes, b.data.bytes().size()));
        }
        return {};
      case BufferKind::arena: {
        if (uses_[i].last < 0) return {};  // the memory planner gives a place to what is used
        const std::int64_t arena = plan_.devices[static_cast<std::size_t>(b.space)].arena_bytes;
        if (b.arena_offset < 64 || b.arena_offset % b.alignment != 0 || b.arena_offset > arena - b.bytes - 64) {
          return at(fmt::format("{} bytes at {} of an arena of {}: must be {}-byte aligned with 64 bytes before and after it",
                                b.bytes, b.arena_offset, arena, b.alignment));
        }
        return {};
      }
    }
    return at("unknown kind");
  }

  Status every_binding_once() const {
    std::vector<int> in(plan_.inputs.size(), 0), out(plan_.outputs.size(), 0);
    for (const Buffer& b : plan_.buffers) {
      if (b.kind == BufferKind::input) ++in[static_cast<std::size_t>(b.binding)];
      if (b.kind == BufferKind::output) ++out[static_cast<std::size_t>(b.binding)];
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i] > 1) return bad(fmt::format("input \"{}\" has {} buffers, needs at most 1", plan_.inputs[i].name, in[i]));
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] != 1) return bad(fmt::format("output \"{}\" has {} buffers, needs 1", plan_.outputs[i].name, out[i]));
    }
    return {};
  }

  /// Does one of two buffers take the place of the other in the region where one ends and the other begins?
  [[nodiscard]] bool takes_place(std::size_t a, std::size_t b) const {
    const std::size_t from = uses_[a].first <= uses_[b].first ? a : b, to = from == a ? b : a;
    return uses_[from].last == uses_[to].first && uses_[from].first < uses_[to].first &&
           plan_.buffers[from].arena_offset == plan_.buffers[to].arena_offset &&
           plan_.buffers[from].bytes == plan_.buffers[to].bytes &&
           in_place(plan_.regions[static_cast<std::size_t>(uses_[to].first)], static_cast<BufferId>(from),
                    static_cast<BufferId>(to));
  }

  /// Buffers that are in use at the same time do not share bytes, but for results in the place of an operand. In use: from the
  /// first region that names one to the last.
  Status arena() const {
    std::vector<std::size_t> by_offset;
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
      if (plan_.buffers[i].kind == BufferKind::arena && uses_[i].last >= 0 && plan_.buffers[i].bytes > 0) by_offset.push_back(i);
    }
    std::stable_sort(by_offset.begin(), by_offset.end(),
                     [&](std::size_t a, std::size_t b) { return plan_.buffers[a].arena_offset < plan_.buffers[b].arena_offset; });
    for (std::size_t k = 0; k < by_offset.size(); ++k) {
      const std::size_t i = by_offset[k];
      const std::int64_t end = plan_.buffers[i].arena_offset + plan_.buffers[i].bytes;
      for (std::size_t l = k + 1; l < by_offset.size() && plan_.buffers[by_offset[l]].arena_offset < end; ++l) {
        const std::size_t j = by_offset[l];
        const int first = std::max(uses_[i].first, uses_[j].first), last = std::min(uses_[i].last, uses_[j].last);
        if (plan_.buffers[i].space != plan_.buffers[j].space || first > last || takes_place(i, j)) continue;
        return bad(fmt::format("buffers {} \"{}\" and {} \"{}\" share bytes of the arena and are both in use in region {}", i,
                               plan_.buffers[i].name, j, plan_.buffers[j].name, first));
      }
    }
    return {};
  }

  /// Every element of `extents` addressed through `r` lies in the buffer.
  Status reach(const TensorRef& r, const ir::Shape& extents, const What& what) {
    if (r.buffer < 0 || static_cast<std::size_t>(r.buffer) >= plan_.buffers.size()) {
      return bad(fmt::format("{} names buffer {} of {}", what_text(what), r.buffer, plan_.buffers.size()));
    }
    if (!kept_.contains(r.buffer)) {
      Use& use = uses_[static_cast<std::size_t>(r.buffer)];
      use.first = use.last < 0 ? region_ : use.first;
      use.last = region_;
    }
    if (r.strides.size() != extents.size() || r.dims.size() != extents.size()) {
      return bad(fmt::format("{} has {} dimensions and {} strides, needs {}", what_text(what), r.dims.size(), r.strides.size(),
                             extents.size()));
    }
    OCTAVO_CHECK(check_shape(r.dims, what));
    OCTAVO_CHECK(check_shape(extents, what));
    const auto size = static_cast<std::int64_t>(ir::size_of(r.dtype));
    const Buffer& b = plan_.buffers[static_cast<std::size_t>(r.buffer)];
    if (r.offset < 0 || r.offset > b.bytes || r.offset % size != 0) {
      return bad(fmt::format("{}: offset {} in a buffer of {} bytes, elements of {}", what_text(what), r.offset, b.bytes, size));
    }
    Wide lo = r.offset, hi = Wide{r.offset} + size;
    for (std::size_t k = 0; k < extents.size(); ++k) {
      if (extents[k] == 0) return {};  // no element, no access
      if (r.strides[k] < -kMaxBytes || r.strides[k] > kMaxBytes)
        return bad(fmt::format("{}: stride {}", what_text(what), r.strides[k]));
      const Wide span = Wide{extents[k] - 1} * r.strides[k] * size;
      (span < 0 ? lo : hi) += span;
    }
    if (lo < 0 || hi > b.bytes) {
      return bad(fmt::format("{}: dims {} strides {} at offset {} leave buffer {} \"{}\" of {} bytes", what_text(what),
                             ir::to_string(extents), ir::to_string(r.strides), r.offset, r.buffer, b.name, b.bytes));
    }
    return {};
  }

  /// No two indices name one element: dimension by dimension, the steps outgrow what the smaller ones reach. Tasks of a kernel
  /// write side by side, and a buffer's bytes bound the elements of a space.
  static Status once(const TensorRef& r, const What& what) {
    std::vector<std::size_t> order;
    for (std::size_t k = 0; k < r.dims.size(); ++k) {
      if (r.dims[k] == 0) return {};
      if (r.dims[k] > 1) order.push_back(k);
    }
    const auto step = [&](std::size_t k) { return std::abs(r.strides[k]); };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return step(a) < step(b); });
    Wide reached = 0;
    for (const std::size_t k : order) {
      if (step(k) <= reached) {
        return bad(fmt::format("{}: dims {} strides {} write an element more than once (dimension {})", what_text(what),
                               ir::to_string(r.dims), ir::to_string(r.strides), k));
      }
      reached += Wide{r.dims[k] - 1} * step(k);
    }
    return {};
  }

  Status tensor(const TensorRef& r, const What& what) {
    OCTAVO_CHECK(reach(r, r.dims, what));
    if (!r.quantizer) return {};
    const ir::Quantizer& q = *r.quantizer;
    // An axis other than its own would be caught by no address check, so the entries must fit the dimension they name.
    if (auto status = ir::detail::check_quantizer(q, r.dims); !status)
      return bad(fmt::format("{}: {}", what_text(what), status.error().message));
    return {};
  }

  /// Weights that the tactic has packed for itself are not kept: only their type and shape remain.
  Status weights(const TensorRef& r) {
    const bool known = r.buffer >= 0 && static_cast<std::size_t>(r.buffer) < plan_.buffers.size();
    if (!known || !packed_ || plan_.buffers[static_cast<std::size_t>(r.buffer)].bytes != 0) return tensor(r, "weights");
    return check_shape(r.dims, What("weights"));
  }

  static bool has_facts_of(const Anchor& a, const Stage* like) {
    if (like == nullptr || like->anchor.op != a.op || like->anchor.inputs.size() != a.inputs.size()) return false;
    if (!a.inputs.empty() && like->anchor.inputs[0].dims.size() != a.inputs[0].dims.size()) return false;
    return like->anchor.facts == a.facts;
  }
  /// All that decides whether a program is sound.
  static bool has_program_of(const Stage& s, const Stage* like) {
    return like != nullptr && like->anchor.op == s.anchor.op && like->anchor.integer == s.anchor.integer &&
           like->program == s.program &&
           std::equal(s.operands.begin(), s.operands.end(), like->operands.begin(), like->operands.end(),
                      [](const Operand& x, const Operand& y) { return x.ref.dtype == y.ref.dtype; });
  }

  Status anchor(const Stage& s, const Stage* like) {
    const Anchor& a = s.anchor;
    if (a.none()) {
      if (!a.inputs.empty() || a.weights) return bad("a stage without an anchor has anchor inputs");
      return {};
    }
    for (std::size_t i = 0; i < a.inputs.size(); ++i) OCTAVO_CHECK(tensor(a.inputs[i], {"anchor input", i}));
    if (!has_facts_of(a, like)) OCTAVO_CHECK(facts(a));
    if (a.weights) {
      OCTAVO_CHECK(weights(*a.weights));
      if (plan_.buffers[static_cast<std::size_t>(a.weights->buffer)].kind != BufferKind::constant)
        return bad("the weights are not in a constant buffer");
    }
    const bool weighted = a.op == ir::Op::conv || a.op == ir::Op::conv_transpose;
    if (weighted && a.weights && a.inputs.size() != 1)
      return bad(fmt::format("{} with weights needs one input", ir::name_of(a.op)));
    if (weighted && !a.weights && (a.integer || a.inputs.size() < 2))  // weights computed at run time are inputs, and float
      return bad(fmt::format("{} needs one input and weights", ir::name_of(a.op)));
    if (a.integer) {  // weighted: codes are multiplied; others select, move or add them
      if (a.inputs.empty()) return bad(fmt::format("{} is marked integer and has no input", ir::name_of(a.op)));
      const TensorRef& x = a.inputs[0];
      if (x.dtype != ir::DType::u8 || !x.quantizer) return bad("an integer anchor reads u8 codes of a quantizer");
      const auto& zero =
          x.quantizer->zero_point;  // depthwise convolutions read codes with a scale a channel, which is in the program
      const bool one_zero = std::all_of(zero.begin(), zero.end(), [&](std::int32_t z) { return z == zero[0]; });
      if (!x.quantizer->per_tensor() && !(a.op == ir::Op::conv && x.quantizer->axis == 1 && one_zero))
        return bad("an integer anchor reads codes of a quantizer per tensor, or of a depthwise convolution's with one zero point");
      if (weighted && a.weights->dtype != ir::DType::s8)
        return bad(fmt::format("an integer anchor has {} weights, needs s8", ir::name_of(a.weights->dtype)));
    }
    if (a.weight_codes) {
      if (const Status ok = check_weight_codes(a); !ok) return bad(ok.error().message);
    }
    const auto channels = s.space.size() > 1 ? s.space[1] : 0;
    if (!a.weight_zero.empty() && a.weight_zero.size() != 1 && static_cast<std::int64_t>(a.weight_zero.size()) != channels) {
      return bad(fmt::format("{} weight zero points for {} output channels", a.weight_zero.size(), channels));
    }
    return shapes(s);
  }

  /// Kernels read facts without looking: they are those of the operator, and every list has an entry for each dimension.
  static Status facts(const Anchor& a) {
    const ir::Attrs said = ir::attrs_of(a.facts);
    const auto whole = ir::facts_of(a.op, said, a.inputs.empty() ? 0 : a.inputs[0].dims.size());
    if (!whole) return bad(whole.error().message);
    if (!ir::fit(a.op, a.facts) || ir::hash_attrs(ir::attrs_of(*whole)) != ir::hash_attrs(said))
      return bad(fmt::format("the facts of {} are not complete", ir::name_of(a.op)));
    return {};
  }

  /// Kernels compute offsets inside the padded input in 64 bits: it stays as small as tensors must be.
  static Status window(const Anchor& a) {
    if (a.inputs.empty() || a.inputs[0].dims.size() < 3) return {};
    ir::Shape padded = a.inputs[0].dims;
    if (const auto* w = std::get_if<ir::Window>(&a.facts)) {
      const std::pair<const char*, const ir::Shape*> lists[] = {
          {"pads", &w->pads}, {"strides", &w->strides}, {"dilations", &w->dilations}, {"kernel", &w->kernel}};
      for (const auto& [name, list] : lists) {
        for (const std::int64_t v : *list) {
          if (v < -kMaxWindow || v > kMaxWindow) return bad(fmt::format("attribute {} is {}, at most {}", name, v, kMaxWindow));
        }
      }
      for (std::size_t k = 0; k + 2 < padded.size(); ++k) padded[k + 2] += w->before(k) + w->after(k);
    } else if (const auto* p = std::get_if<ir::Pad>(&a.facts)) {
      for (const std::int64_t v : p->pads) {
        if (v < -kMaxWindow || v > kMaxWindow) return bad(fmt::format("attribute pads is {}, at most {}", v, kMaxWindow));
      }
    }
    return check_shape(padded, What("the padded input"));
  }

  /// The attributes, the operands' shapes and the results' shapes agree by the rules of the IR: kernels walk windows by them.
  static Status shapes(const Stage& s) {
    const Anchor& a = s.anchor;
    if (a.op == ir::Op::reshape) {  // a plain copy
      if (a.inputs.size() != 1 || a.inputs[0].dims != s.space) return bad("a copy needs one input of the stage's shape");
      if (!s.program.outputs.empty()) return {};
      if (s.stores.size() != 1 || s.stores[0].dims != s.space || s.stores[0].dtype != a.inputs[0].dtype)
        return bad("a copy needs one store of its input's type and shape");
      return {};
    }
    OCTAVO_CHECK(window(a));
    ir::Graph g;
    ir::Node n;
    n.op = a.op;
    n.attrs = attributes_of(a);
    const auto add = [&](const TensorRef& r) {
      const bool coded = r.quantizer && r.dtype == ir::DType::u8;  // codes stand for floats
      n.inputs.push_back(g.add_input("", {coded ? ir::DType::f32 : r.dtype, r.dims}));
    };
    if (a.inputs.empty()) return bad(fmt::format("{} has no input", ir::name_of(a.op)));
    for (const TensorRef& r : a.inputs) add(r);
    if (a.weights) n.inputs.push_back(g.add_input("", {ir::DType::f32, a.weights->dims}));
    const auto types = ir::infer(g, n);
    if (!types) return bad(types.error().message);
    if ((*types)[0].shape != s.space) {
      return bad(
          fmt::format("the anchor's result is {}, the stage's space {}", ir::to_string((*types)[0].shape), ir::to_string(s.space)));
    }
    if (!s.program.outputs.empty()) return {};
    for (std::size_t i = 0; i < s.stores.size(); ++i) {
      const std::size_t k = result_of_store(a, i);
      if (k >= types->size()) return bad(fmt::format("store {} takes result {} of {}", i, k, types->size()));
      const ir::TensorType& result = (*types)[k];
      if (s.stores[i].dims != result.shape)
        return bad(fmt::format("store {} is {}, the result {}", i, ir::to_string(s.stores[i].dims), ir::to_string(result.shape)));
      const ir::DType type = s.stores[i].dtype;
      const bool codes = a.inputs[0].quantizer && type == a.inputs[0].dtype && type == ir::DType::u8;  // moved as they are
      if (type != result.dtype && !codes)
        return bad(fmt::format("store {} holds {}, the result is {}", i, ir::name_of(type), ir::name_of(result.dtype)));
    }
    return {};
  }

  /// `like`: the same stage of the verified plan; null: there is none.
  Status stage(const Stage& s, const Stage* like) {
    OCTAVO_CHECK(check_shape(s.space, What("the space")));
    OCTAVO_CHECK(anchor(s, like));
    const program::Program& p = s.program;
    const bool known = has_program_of(s, like);
    if (!known) OCTAVO_CHECK(program::verify(p));
    if (p.operand_count != static_cast<int>(s.operands.size()))
      return bad(fmt::format("the program reads {} operands, there are {}", p.operand_count, s.operands.size()));
    for (const program::Instr& i : p.code) {
      if (!known) OCTAVO_CHECK(instruction(s, i));
    }
    for (std::size_t k = 0; k < s.operands.size(); ++k) OCTAVO_CHECK(operand(s, k));
    if (s.stores.empty()) return bad("the stage stores nothing");
    const bool by_anchor = p.outputs.empty();  // results that a program cannot hold
    if (by_anchor && s.anchor.none()) return bad("neither an anchor nor a program makes the result");
    if (!by_anchor && p.outputs.size() != s.stores.size())
      return bad(fmt::format("{} program outputs, {} stores", p.outputs.size(), s.stores.size()));
    for (std::size_t j = 0; j < s.stores.size(); ++j) {
      const TensorRef& r = s.stores[j];
      const What what("store", j);
      OCTAVO_CHECK(tensor(r, what));
      OCTAVO_CHECK(once(r, what));
      const BufferKind kind = plan_.buffers[static_cast<std::size_t>(r.buffer)].kind;
      if (kind != BufferKind::arena && kind != BufferKind::output)
        return bad(what_text(what) + " writes to an input or a constant");
      if (by_anchor) continue;
      if (r.dims != s.space)
        return bad(fmt::format("{} is {}, the space {}", what_text(what), ir::to_string(r.dims), ir::to_string(s.space)));
      if (r.dtype != p.outputs[j].type)
        return bad(fmt::format("{} holds {}, the program makes {}", what_text(what), ir::name_of(r.dtype),
                               ir::name_of(p.outputs[j].type)));
    }
    return {};
  }

  static Status instruction(const Stage& s, const program::Instr& i) {
    const bool acc = i.op == program::Op::acc_i || i.op == program::Op::acc_f;
    if (acc && s.anchor.none()) return bad("the program reads an accumulator, but there is no anchor");
    const bool weighted = s.anchor.op == ir::Op::conv || s.anchor.op == ir::Op::conv_transpose;
    if (acc && weighted && s.anchor.integer != (i.op == program::Op::acc_i))
      return bad("the program reads the accumulator in the wrong type");
    if (i.op != program::Op::load_i && i.op != program::Op::load_f) return {};
    if (i.imm < 0 || static_cast<std::size_t>(i.imm) >= s.operands.size())
      return bad(fmt::format("the program loads operand {} of {}", i.imm, s.operands.size()));
    const ir::DType t = s.operands[static_cast<std::size_t>(i.imm)].ref.dtype;
    const bool real = t == ir::DType::f32 || t == ir::DType::f16 || t == ir::DType::bf16;
    const bool whole = ir::is_int8(t) || t == ir::DType::s32 || t == ir::DType::boolean;
    if (i.op == program::Op::load_f ? !real : !whole)
      return bad(fmt::format("{} of operand {}, which is {}", program::info(i.op).name, i.imm, ir::name_of(t)));
    return {};
  }

  Status operand(const Stage& s, std::size_t k) {
    const Operand& o = s.operands[k];
    const What what("operand", k);
    if (!o.div.empty() && o.div.size() != s.space.size())
      return bad(fmt::format("{} has {} divisors for rank {}", what_text(what), o.div.size(), s.space.size()));
    ir::Shape extents = s.space;
    for (std::size_t d = 0; d < o.div.size(); ++d) {
      if (o.div[d] < 1) return bad(fmt::format("{} divides by {}", what_text(what), o.div[d]));
      extents[d] = extents[d] == 0 ? 0 : (extents[d] - 1) / o.div[d] + 1;
    }
    return reach(o.ref, extents, what);
  }

  static bool stored_by(const Stage& s, const TensorRef& t) {
    return std::any_of(s.stores.begin(), s.stores.end(), [&](const TensorRef& out) { return out.buffer == t.buffer; });
  }

  /// `like`: the same region of the verified plan; null: there is none.
  Status region(const Region& r, const Region* like) {
    if (r.stages.empty() || r.stages.size() > kMostStages)
      return bad(r.stages.empty() ? "it has no stage" : fmt::format("{} stages, at most {}", r.stages.size(), kMostStages));
    packed_ = !r.packed.empty();
    kept_ = kept_from_memory(r);
    for (std::size_t i = 0; i < r.stages.size(); ++i) {
      const bool known = like != nullptr && like->stages.size() == r.stages.size();
      if (auto status = stage(r.stages[i], known ? &like->stages[i] : nullptr); !status)
        return bad(fmt::format("stage {}: {}", i, status.error().message));
    }
    OCTAVO_CHECK(check_stages(r));
    for (const StageEdge& e : edges_of(r)) {
      const BufferId id = r.stages[e.from.stage].stores[e.from.store].buffer;
      if (buffer_of(id).kind != BufferKind::arena)
        return bad(
            fmt::format("stage {} forwards buffer {} to stage {}, and it is not an arena buffer", e.from.stage, id, e.reader));
    }
    for (const Stage& a : r.stages) {  // nothing between independent stages
      if (!r.independent) break;
      for (const Stage& b : r.stages) {
        const bool reads =
            std::any_of(b.anchor.inputs.begin(), b.anchor.inputs.end(), [&](const TensorRef& t) { return stored_by(a, t); }) ||
            std::any_of(b.operands.begin(), b.operands.end(), [&](const Operand& o) { return stored_by(a, o.ref); });
        if (reads) return bad("a stage of independent stages reads a buffer that one of them stores to");
      }
    }
    OCTAVO_CHECK(spaces(r));
    if (r.count >= 0) OCTAVO_CHECK(counted(r));
    return artifact(r);
  }

  /// The count is an output that an earlier region names, or what becomes one in the memory of the region's device. What it says is not trusted when it is read
  /// (counted_extent).
  Status counted(const Region& r) {
    const BufferKind kind = r.device == kHost ? BufferKind::output : BufferKind::arena;
    if (static_cast<std::size_t>(r.count) >= plan_.buffers.size() || buffer_of(r.count).kind != kind ||
        buffer_of(r.count).space != r.device || buffer_of(r.count).bytes != static_cast<std::int64_t>(sizeof(std::int64_t)))
      return bad(fmt::format("its count is in buffer {}, which is no output of one number", r.count));
    Use& use = uses_[static_cast<std::size_t>(r.count)];
    if (use.last < 0 || use.first >= region_)
      return bad(fmt::format("its count is in buffer {}, which no earlier region stores", r.count));
    if (plan_.images != 1) return bad("its elements are counted, and it runs for each image");
    use.last = region_;
    if (r.count_times < 1 || r.count_per < 1) return bad(fmt::format("a count times {} / {}", r.count_times, r.count_per));
    if (std::all_of(r.stages.begin(), r.stages.end(), [](const Stage& s) { return s.counted == -1; })) return {};  // all or nothing
    const auto extent = [](const Stage& s) {
      return s.counted < 0 || static_cast<std::size_t>(s.counted) >= s.space.size() ? -1
                                                                                    : s.space[static_cast<std::size_t>(s.counted)];
    };
    for (std::size_t s = 0; s < r.stages.size(); ++s) {
      if (extent(r.stages[s]) < 0 || extent(r.stages[s]) != extent(r.stages[0]))
        return bad(fmt::format("its counted dimension of stage {} is {}", s, r.stages[s].counted));
    }
    return {};
  }

  friend Status region::check_shapes(const Stage& s);
  const Plan& plan_;
  const Plan* like_;
  struct Use {
    int first = 0, last = -1;  ///< regions; last -1: in none
  };
  std::vector<Use> uses_;
  int region_ = 0;           ///< the region under check
  bool packed_ = false;      ///< it has packed constants
  std::set<BufferId> kept_;  ///< what it does not use in memory
};

}  // namespace

bool is_transfer(const Region& r, const Plan& plan) {
  if (r.device == kHost || r.stages.size() != 1) return false;
  const Stage& s = r.stages.front();
  if (s.anchor.op != ir::Op::reshape || !s.program.outputs.empty() || s.anchor.inputs.size() != 1 || s.stores.size() != 1)
    return false;
  const auto space = [&](const TensorRef& t) { return plan.buffers[static_cast<std::size_t>(t.buffer)].space; };
  const DeviceId from = space(s.anchor.inputs[0]), to = space(s.stores[0]);
  return (from == kHost && to == r.device) || (from == r.device && to == kHost);
}

Status check_shapes(const Stage& s) {
  return s.anchor.none() ? Status() : Verifier::shapes(s);
}

namespace {
Status verify(const Plan& plan, const Plan* like) {
  if (auto status = Verifier(plan, like).run(); !status) {
    return fail(status.error().kind, fmt::format("verifying the plan of \"{}\": {}", plan.model_name, status.error().message));
  }
  return {};
}
}  // namespace

Status verify(const Plan& plan) {
  return verify(plan, nullptr);
}

Status verify_resized(const Plan& plan, const Plan& verified) {
  return verify(plan, &verified);
}

}  // namespace octavo::region
