#include "region/hash.h"

#include <map>

#include "base/hash.h"
#include "ir/canonical.h"
#include "region/region.h"
#include "region/store_results.h"

namespace octavo::region {
namespace {

/// Collects the fields of a plan as length-prefixed text, so that no two different plans give the same text.
class Digest {
 public:
  void number(std::int64_t v) {
    text_ += std::to_string(v);
    text_ += ';';
  }
  void word(std::string_view s) {
    number(static_cast<std::int64_t>(s.size()));
    text_ += s;
  }
  template <class T>
  void list(const std::vector<T>& values) {
    number(static_cast<std::int64_t>(values.size()));
    for (const T& v : values) number(static_cast<std::int64_t>(v));
  }
  void quantizer(const std::optional<ir::Quantizer>& q) { word(q ? ir::to_string(*q) : ""); }
  void tensor(const TensorRef& r) {
    number(number_of(r.buffer));
    number(r.offset);
    word(ir::name_of(r.dtype));
    list(r.dims);
    list(r.strides);
    quantizer(r.quantizer);
  }
  void tensors(const std::vector<TensorRef>& refs) {
    number(static_cast<std::int64_t>(refs.size()));
    for (const TensorRef& r : refs) tensor(r);
  }
  void stage(const Stage& s) {
    word(ir::name_of(s.anchor.op));
    number(static_cast<std::int64_t>(ir::hash_attrs(ir::without_defaults(s.anchor.op, attributes_of(s.anchor)))));
    tensors(s.anchor.inputs);
    number(s.anchor.weights ? 1 : 0);
    if (s.anchor.weights) tensor(*s.anchor.weights);
    list(s.anchor.weight_zero);
    if (const auto& codes = s.anchor.weight_codes) {
      for (const std::int64_t n : {std::int64_t{codes->bits}, codes->block, std::int64_t{codes->one_zero ? 1 : 0}}) number(n);
    }
    number(s.anchor.integer ? 1 : 0);
    list(s.space);
    word(program::print(s.program));
    number(static_cast<std::int64_t>(s.operands.size()));
    for (const Operand& o : s.operands) {
      tensor(o.ref);
      list(o.div);
    }
    tensors(s.stores);
  }
  void open(const OpenExtents& o) {
    for (const std::int64_t n : {std::int64_t{o.dims}, std::int64_t{o.strides}, std::int64_t{o.offset ? 1 : 0}}) number(n);
  }
  /// Which extents are open and which are counted: what plan_hash leaves out, or has at another place.
  void open_and_counted(const Stage& s) {
    for (const TensorRef& in : s.anchor.inputs) open(in.open);
    for (const Operand& o : s.operands) open(o.ref.open);
    for (const TensorRef& t : s.stores) open(t.open);
    number(s.open);
    number(s.counted);
    number(s.anchor.weight_sum.value_or(-1));
  }
  void bindings(const std::vector<Binding>& list_of) {
    number(static_cast<std::int64_t>(list_of.size()));
    for (const Binding& b : list_of) {
      word(ir::to_string(b.type));
      quantizer(b.quantizer);
      list(b.strides);
      number(b.bytes);
    }
  }
  void content(std::span<const std::byte> bytes) { word(hash128_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()})); }
  /// Buffers are numbered from here on in the order in which tensors name them; `numbered` has those that were named.
  void number_anew() { anew_ = true; }
  [[nodiscard]] const std::map<BufferId, std::int64_t>& numbered() const { return numbers_; }
  [[nodiscard]] std::string result() const { return hash128_hex(text_); }

 private:
  std::int64_t number_of(BufferId b) {
    return anew_ ? numbers_.emplace(b, static_cast<std::int64_t>(numbers_.size())).first->second : b;
  }

  std::string text_;
  bool anew_ = false;
  std::map<BufferId, std::int64_t> numbers_;
};

}  // namespace

namespace {

/// `content`: of a constant buffer, by its number, into the digest.
template <class Content>
std::string hash_of(const Plan& plan, const Content& content) {
  Digest d;
  d.bindings(plan.inputs);
  d.bindings(plan.outputs);
  d.number(static_cast<std::int64_t>(plan.buffers.size()));
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    // A plan is what it is before and after its code is compiled.
    const BufferKind kind = b.kind == BufferKind::source ? BufferKind::constant : b.kind;
    d.number(static_cast<std::int64_t>(kind));
    d.number(b.space);
    d.number(b.alignment);
    d.number(b.bytes);
    d.number(b.kind == BufferKind::arena ? b.arena_offset : b.binding);
    if (kind == BufferKind::constant) content(i, d);
  }
  d.number(static_cast<std::int64_t>(plan.regions.size()));
  for (const Region& r : plan.regions) {
    d.number(static_cast<std::int64_t>(r.stages.size()));
    d.number(r.independent ? 1 : 0);
    for (const Stage& s : r.stages) d.stage(s);
    d.number(r.device);
    d.word(r.tactic.name());
    d.list(r.packed);
    d.number(r.code);
    d.word(r.launch);
    if (r.count >= 0) {
      for (const std::int32_t n : {r.count, r.count_times, r.count_per}) d.number(n);
      for (const Stage& s : r.stages) d.number(s.counted);
    }
  }
  for (const DeviceUse& u : plan.devices) {
    d.word(u.name);
    d.number(u.arena_bytes);
  }
  d.number(plan.threads);
  if (plan.images > 1) {
    d.number(plan.images);
    d.number(plan.lanes);
  }
  for (const ir::OutputSize& s : plan.sizes) {
    for (const int n : {s.output, s.axis, s.count}) d.number(n);
  }
  return d.result();
}

}  // namespace

std::string plan_hash(const Plan& plan) {
  return hash_of(plan, [&](std::size_t i, Digest& d) {
    if (!plan.buffers[i].data.empty()) d.content(plan.buffers[i].data.bytes());
  });
}

std::string plan_hash(const Plan& plan, std::span<const std::span<const std::byte>> constants) {
  return hash_of(plan, [&](std::size_t i, Digest& d) { d.content(constants[i]); });
}

std::string content_hash(const Region& region, const Plan& plan) {
  Digest d;
  d.number_anew();
  d.number(static_cast<std::int64_t>(region.stages.size()));
  d.number(region.independent ? 1 : 0);
  d.number(region.device);
  for (const Stage& s : region.stages) d.stage(s);
  for (const Stage& s : region.stages) d.open_and_counted(s);
  for (const std::int32_t n : {region.count >= 0 ? 1 : 0, region.count_times, region.count_per}) d.number(n);
  std::map<std::int64_t, BufferId> by_number;
  for (const auto& [buffer, number] : d.numbered()) by_number[number] = buffer;
  for (const auto& [number, buffer] : by_number) {
    if (buffer < 0 || static_cast<std::size_t>(buffer) >= plan.buffers.size()) continue;
    const Buffer& b = plan.buffers[static_cast<std::size_t>(buffer)];
    d.number(number);
    d.number(static_cast<std::int64_t>(b.kind));
    d.number(b.space);
    d.number(b.alignment);
    d.number(b.bytes);
    if (b.kind == BufferKind::constant && !b.data.empty()) d.content(b.data.bytes());
    const auto* bindings = b.kind == BufferKind::input ? &plan.inputs : b.kind == BufferKind::output ? &plan.outputs : nullptr;
    if (bindings == nullptr || b.binding < 0 || static_cast<std::size_t>(b.binding) >= bindings->size()) continue;
    d.bindings({(*bindings)[static_cast<std::size_t>(b.binding)]});
  }
  for (const DeviceUse& u : plan.devices) d.word(u.name);
  d.number(plan.threads);
  d.number(plan.images);
  d.number(plan.lanes);
  return d.result();
}

}  // namespace octavo::region
