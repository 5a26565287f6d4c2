#include "engine/memory_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "region/counted.h"
#include "region/stage_graph.h"
#include "region/tensor_ref.h"

namespace octavo::engine {
namespace {

using region::BufferKind;
using region::kHost;

constexpr auto kFirst = std::byte{0xFF}, kSecond = std::byte{0x5A};  // floats of the first are NaN, of the second large

/// Memory that regions write: an arena, or an output of the caller.
struct Block {
  region::DeviceId space = kHost;
  std::byte* at = nullptr;
  std::size_t bytes = 0;
  region::BufferId output = -1;  ///< -1: the arena of `space`
};
using Contents = std::vector<std::vector<std::byte>>;  ///< by block

/// Calls f(byte offset from the tensor's first element, index) for each element, in row-major order.
template <class F>
void each_element(const region::TensorRef& t, const F& f) {
  const std::int64_t size = region::element_bytes(t), count = ir::count(t.dims);
  std::vector<std::int64_t> index(t.dims.size(), 0);
  for (std::int64_t n = 0, at = 0; n < count; ++n) {
    f(at, index);
    for (std::size_t d = index.size(); d-- > 0;) {
      at += t.strides[d] * size;
      if (++index[d] < t.dims[d]) break;
      at -= t.strides[d] * size * t.dims[d];
      index[d] = 0;
    }
  }
}

class Checker {
 public:
  Checker(Context& context, std::span<void* const> outputs) : context_(context), plan_(context.engine().plan()) {
    for (std::size_t d = 0; d < plan_.devices.size(); ++d) {
      const auto id = static_cast<region::DeviceId>(d);
      blocks_.push_back({id, context.arena(id), static_cast<std::size_t>(plan_.devices[d].arena_bytes), -1});
    }
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const region::Buffer& buffer = plan_.buffers[b];
      if (buffer.kind != BufferKind::output || buffer.space != kHost) continue;
      blocks_.push_back({kHost, static_cast<std::byte*>(outputs[static_cast<std::size_t>(buffer.binding)]),
                         static_cast<std::size_t>(buffer.bytes), static_cast<region::BufferId>(b)});
    }
  }

  Status fill_everything() {
    context_.fill_scratch(kFirst);
    for (const Block& b : blocks_) {
      if (b.output < 0) OCTAVO_CHECK(write(b, std::vector<std::byte>(b.bytes, kFirst)));
    }
    return {};
  }

  void before(std::size_t region, const region::Memory& memory) {
    if (!status_) return;
    status_ = prepare(region, memory);
  }
  void after(std::size_t region, const region::Memory& memory) {
    if (!status_) return;
    status_ = judge(region, memory);
  }

  [[nodiscard]] Status status() const { return status_; }
  MemoryReport report;

 private:
  /// Elements of a result: block and byte offset of each, -1 for those that are not judged.
  struct JudgedElements {
    const region::TensorRef* tensor = nullptr;
    std::size_t block = 0;
    std::vector<std::int64_t> at;
  };

  Status write(const Block& b, std::span<const std::byte> from) const {
    if (b.bytes == 0) return {};
    if (b.space != kHost) return context_.engine().device(b.space).write(b.at, from);
    std::memcpy(b.at, from.data(), b.bytes);
    return {};
  }
  Result<Contents> read() const {
    Contents all;
    for (const Block& b : blocks_) {
      auto& to = all.emplace_back(b.bytes);
      if (b.bytes == 0) continue;
      if (b.space != kHost) {
        OCTAVO_CHECK(context_.engine().device(b.space).read(to, b.at));
      } else {
        std::memcpy(to.data(), b.at, b.bytes);
      }
    }
    return all;
  }
  Status write(const Contents& all) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) OCTAVO_CHECK(write(blocks_[i], all[i]));
    return {};
  }

  /// Where the tensor's first element is; nothing for constants and inputs.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::int64_t>> place(const region::TensorRef& t) const {
    const region::Buffer& buffer = plan_.buffers[static_cast<std::size_t>(t.buffer)];
    if (buffer.kind == BufferKind::arena) return std::pair(static_cast<std::size_t>(buffer.space), buffer.arena_offset + t.offset);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (buffer.kind == BufferKind::output && blocks_[i].output == t.buffer) return std::pair(i, t.offset);
    }
    return std::nullopt;
  }

  Status prepare(std::size_t index, const region::Memory& memory) {
    const region::Region& r = plan_.regions[index];
    for (Block& b : blocks_) {  // of the image that runs
      if (b.output >= 0) b.at = memory.base[static_cast<std::size_t>(b.output)];
    }
    OCTAVO_TRY(saved_, read());
    std::vector<std::vector<bool>> read_by(blocks_.size());
    for (std::size_t i = 0; i < blocks_.size(); ++i) read_by[i].resize(blocks_[i].bytes);
    for (const region::TensorRef* t : region::reads_of(r)) {
      const auto from = place(*t);
      if (!from) continue;
      auto& bytes = read_by[from->first];
      each_element(*t, [&](std::int64_t at, const auto&) {
        for (std::int64_t b = 0; b < region::element_bytes(*t); ++b) bytes[static_cast<std::size_t>(from->second + at + b)] = true;
      });
    }
    targets_.clear();
    for (const region::TensorRef* t : region::results_of(r)) {
      const auto to = place(*t);
      if (!to) continue;
      const auto count = counted(r, *t, memory);
      const auto dim = count.first;
      const auto extent = count.second;
      JudgedElements target{t, to->first, {}};
      target.at.reserve(static_cast<std::size_t>(ir::count(t->dims)));
      each_element(*t, [&](std::int64_t at, const auto& index) {
        const bool own = !read_by[to->first][static_cast<std::size_t>(to->second + at)];
        const bool counts = (dim < 0 ? 0 : index[static_cast<std::size_t>(dim)]) < extent;
        target.at.push_back(own && counts ? to->second + at : -1);
        if (counts) (own ? report.elements : report.in_place) += 1;
      });
      targets_.push_back(std::move(target));
    }
    filled_ = saved_;
    fill(filled_, kFirst);
    return write(filled_);
  }

  /// The counted dimension of a result and how many elements it has in this run; -1: all of it is one element.
  [[nodiscard]] static std::pair<int, std::int64_t> counted(const region::Region& r, const region::TensorRef& t,
                                                            const region::Memory& memory) {
    if (r.count < 0 || r.device != region::kHost) return {-1, 1};
    for (std::size_t s = 0; s < r.stages.size(); ++s) {
      for (const region::TensorRef& store : r.stages[s].stores) {
        if (&store == &t && t.dims.empty() && region::searches_counted(r)) return {-1, 1};
        if (&store == &t)
          return {r.stages[s].counted,
                  std::max<std::int64_t>(region::counted_extent(r, memory), region::searches_counted(r) ? 1 : 0)};
      }
    }
    return {-1, 1};
  }

  void fill(Contents& all, std::byte pattern) const {
    for (const JudgedElements& t : targets_) {
      const auto size = static_cast<std::size_t>(region::element_bytes(*t.tensor));
      for (const std::int64_t at : t.at) {
        if (at >= 0) std::memset(all[t.block].data() + at, static_cast<int>(pattern), size);
      }
    }
  }

  /// Does the element hold nothing but the pattern?
  [[nodiscard]] static bool holds(const Contents& all, const JudgedElements& t, std::int64_t at, std::byte pattern) {
    const std::byte* from = all[t.block].data() + at;
    return std::all_of(from, from + region::element_bytes(*t.tensor), [&](std::byte b) { return b == pattern; });
  }

  Status judge(std::size_t index, const region::Memory& memory) {
    OCTAVO_TRY(Contents now, read());
    std::vector<std::vector<std::size_t>> doubtful;
    bool any = false;
    for (const JudgedElements& t : targets_) {
      auto& list = doubtful.emplace_back();
      for (std::size_t n = 0; n < t.at.size(); ++n) {
        if (t.at[n] >= 0 && holds(now, t, t.at[n], kFirst)) list.push_back(n);
      }
      any = any || !list.empty();
    }
    find_outside(index, now);
    if (!any) return {};
    Contents again = saved_;
    fill(again, kSecond);
    OCTAVO_CHECK(write(again));
    OCTAVO_CHECK(context_.repeat(index, memory));
    OCTAVO_TRY(now, read());
    for (std::size_t k = 0; k < targets_.size(); ++k) {
      const JudgedElements& t = targets_[k];
      MemoryFault fault{MemoryFault::Kind::unwritten, index, t.tensor->value, 0, static_cast<std::int64_t>(t.at.size()), {}};
      for (const std::size_t n : doubtful[k]) {
        if (!holds(now, t, t.at[n], kSecond)) continue;
        if (fault.count++ == 0) fault.first = index_of(*t.tensor, n);
      }
      if (fault.count > 0) report.faults.push_back(std::move(fault));
    }
    return {};
  }

  [[nodiscard]] static std::vector<std::int64_t> index_of(const region::TensorRef& t, std::size_t n) {
    std::vector<std::int64_t> index(t.dims.size());
    auto rest = static_cast<std::int64_t>(n);
    for (std::size_t d = index.size(); d-- > 0; rest /= t.dims[d]) index[d] = rest % t.dims[d];
    return index;
  }

  /// Bytes of arenas that changed and belong to no buffer that the region's stages store to.
  void find_outside(std::size_t index, const Contents& now) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].output >= 0) continue;
      std::vector<std::pair<std::int64_t, std::int64_t>> own;
      for (const region::Stage& s : plan_.regions[index].stages) {
        for (const region::TensorRef& t : s.stores) {
          const region::Buffer& b = plan_.buffers[static_cast<std::size_t>(t.buffer)];
          if (b.kind == BufferKind::arena && static_cast<std::size_t>(b.space) == i)
            own.emplace_back(b.arena_offset - static_cast<std::int64_t>(kAlignment),
                             b.arena_offset + b.bytes + static_cast<std::int64_t>(kAlignment));
        }
      }
      MemoryFault fault{MemoryFault::Kind::outside, index, {}, 0, 0, {}};
      const auto bytes = static_cast<std::int64_t>(blocks_[i].bytes);
      for (std::int64_t at = 0; at < bytes; ++at) {
        if (now[i][static_cast<std::size_t>(at)] == filled_[i][static_cast<std::size_t>(at)]) continue;
        if (std::any_of(own.begin(), own.end(), [&](const auto& o) { return at >= o.first && at < o.second; })) continue;
        if (fault.count++ == 0) fault.first = {at};
      }
      if (fault.count > 0) report.faults.push_back(std::move(fault));
    }
  }

  Context& context_;
  const region::Plan& plan_;
  std::vector<Block> blocks_;
  std::vector<JudgedElements> targets_;  ///< of the region that runs
  Contents saved_, filled_;              ///< before it: as it was, and with the pattern in its results
  Status status_;
};

}  // namespace

Result<MemoryReport> check_memory(Context& context, std::span<const void* const> inputs, std::span<void* const> outputs) {
  if (outputs.size() != context.engine().plan().outputs.size()) return tl::unexpected(context.run(inputs, outputs).error());
  Checker checker(context, outputs);
  OCTAVO_CHECK(checker.fill_everything());
  Observer observer;
  observer.before = [&](std::size_t region, const region::Memory& memory) { checker.before(region, memory); };
  observer.after = [&](std::size_t region, const region::Memory& memory) { checker.after(region, memory); };
  OCTAVO_CHECK(context.run(inputs, outputs, &observer));
  OCTAVO_CHECK(checker.status());
  return std::move(checker.report);
}

std::string describe(const MemoryFault& fault, const region::Plan& plan) {
  const region::Region& r = plan.regions[fault.region];
  const std::string who = fmt::format("region {} \"{}\" ({})", fault.region, r.name, r.tactic.name());
  if (fault.kind == MemoryFault::Kind::unwritten) {
    return fmt::format("{}: {} of {} elements of its result \"{}\" were not written, the first is [{}]", who, fault.count, fault.of,
                       fault.value, fmt::join(fault.first, ", "));
  }
  return fmt::format("{}: {} bytes outside of its results were written, the first is byte {} of the arena", who, fault.count,
                     fault.first.front());
}

}  // namespace octavo::engine
