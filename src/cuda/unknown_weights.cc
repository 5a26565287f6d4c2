#include "cuda/unknown_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "ir/tensor.h"

namespace octavo::cuda {
namespace {

using nlohmann::json;

bool has_sums(const region::Stage& s) {
  return s.anchor.weights && s.anchor.weights->dtype == ir::DType::s8 && s.anchor.weights->dims.size() == 4 &&
         s.anchor.weights->strides.size() == 4 && (s.anchor.op == ir::Op::conv || s.anchor.op == ir::Op::conv_transpose);
}

/// The bytes of each channel's weights: of a convolution by output channel; of a transposed one, which is computed as a convolution of its phases, by output
/// channel and tap. `f`: channel, place.
template <class F>
void each_place(const region::Anchor& a, const F& f) {
  const region::TensorRef& w = *a.weights;
  const bool transposed = a.op == ir::Op::conv_transpose;
  std::int64_t at[4];
  for (at[0] = 0; at[0] < w.dims[0]; ++at[0]) {
    for (at[1] = 0; at[1] < w.dims[1]; ++at[1]) {
      for (at[2] = 0; at[2] < w.dims[2]; ++at[2]) {
        for (at[3] = 0; at[3] < w.dims[3]; ++at[3]) {
          std::int64_t place = w.offset;
          for (std::size_t d = 0; d < 4; ++d) place += at[d] * w.strides[d];
          f(transposed ? (at[1] * w.dims[2] + at[2]) * w.dims[3] + at[3] : at[0], transposed ? at[1] : at[0], place);
        }
      }
    }
  }
}

std::int64_t zero_of(const region::Anchor& a, std::int64_t channel) {
  const auto& z = a.weight_zero;
  if (z.empty()) return 0;
  return z.size() == 1 ? z[0] : channel < static_cast<std::int64_t>(z.size()) ? z[static_cast<std::size_t>(channel)] : 0;
}

/// Codes of zero, but for the first channel, whose distances from it sum up to `sum`. False: they cannot.
bool fill(const region::Anchor& a, std::int64_t sum, std::span<std::byte> to) {
  bool fits = true;
  each_place(a, [&](std::int64_t group, std::int64_t channel, std::int64_t place) {
    const std::int64_t zero = zero_of(a, channel);
    fits = fits && zero >= -128 && zero <= 127 && place >= 0 && place < static_cast<std::int64_t>(to.size());
    if (!fits) return;
    const bool down = zero >= 0;
    const std::int64_t step = group == 0 ? std::min<std::int64_t>(sum, down ? std::min<std::int64_t>(128, zero + 128) : 127) : 0;
    to[static_cast<std::size_t>(place)] = static_cast<std::byte>(down ? zero - step : zero + step);
    sum -= step;
  });
  return fits && sum == 0;
}

/// Of a convolution: the largest sum of a channel's distances from its zero. It is asked for every kernel that is timed.
std::int64_t largest_sum(const region::Anchor& a, std::span<const std::byte> data) {
  const region::TensorRef& w = *a.weights;
  const auto* codes = reinterpret_cast<const std::int8_t*>(data.data()) + w.offset;
  std::int64_t largest = 0;
  for (std::int64_t o = 0; o < w.dims[0]; ++o) {
    const std::int64_t zero = zero_of(a, o);
    std::int64_t sum = 0;
    for (std::int64_t y = 0; y < w.dims[2]; ++y) {
      for (std::int64_t x = 0; x < w.dims[3]; ++x) {
        const std::int8_t* at = codes + o * w.strides[0] + y * w.strides[2] + x * w.strides[3];
        for (std::int64_t c = 0; c < w.dims[1]; ++c) sum += std::abs(at[c * w.strides[1]] - zero);
      }
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace

std::vector<std::int64_t> weight_sums(const region::Region& region, const region::Plan& plan) {
  std::vector<std::int64_t> out;
  for (const region::Stage& s : region.stages) {
    out.push_back(s.anchor.weight_sum.value_or(0));
    if (!has_sums(s) || s.anchor.weight_sum) continue;
    const auto data = plan.buffers[static_cast<std::size_t>(s.anchor.weights->buffer)].data;
    if (data.empty()) continue;
    if (s.anchor.op == ir::Op::conv) {
      out.back() = largest_sum(s.anchor, data.bytes());
      continue;
    }
    std::vector<std::int64_t> sums;
    each_place(s.anchor, [&](std::int64_t group, std::int64_t channel, std::int64_t place) {
      if (static_cast<std::size_t>(group) >= sums.size()) sums.resize(static_cast<std::size_t>(group) + 1);
      const auto code = static_cast<std::int8_t>(data.bytes()[static_cast<std::size_t>(place)]);
      sums[static_cast<std::size_t>(group)] += std::abs(code - zero_of(s.anchor, channel));
    });
    if (!sums.empty()) out.back() = *std::max_element(sums.begin(), sums.end());
  }
  return out;
}

namespace {

/// `f(mask)` for each that a region has.
template <class Region, class F>
void each_mark(Region& r, const F& f) {
  const auto tensor = [&](auto& t) {
    f(t.open.dims);
    f(t.open.strides);
  };
  for (auto& s : r.stages) {
    f(s.open);
    for (auto& t : s.anchor.inputs) tensor(t);
    for (auto& o : s.operands) tensor(o.ref);
    for (auto& t : s.stores) tensor(t);
  }
}

}  // namespace

std::vector<std::int64_t> open_marks(const region::Region& region) {
  std::vector<std::int64_t> out;
  each_mark(region, [&](std::uint32_t mask) { out.push_back(mask); });
  if (std::all_of(out.begin(), out.end(), [](std::int64_t v) { return v == 0; })) out.clear();
  return out;
}

Status set_open_marks(region::Region& region, const std::vector<std::int64_t>& marks) {
  std::size_t count = 0;
  each_mark(region, [&](std::uint32_t&) { ++count; });
  if (!marks.empty() && marks.size() != count)
    return fail(ErrorKind::bad_engine,
                fmt::format("region \"{}\": {} marks of open extents, of {}", region.name, marks.size(), count));
  std::size_t i = 0;
  each_mark(region, [&](std::uint32_t& mask) { mask = marks.empty() ? 0 : static_cast<std::uint32_t>(marks[i++]); });
  return {};
}

std::string with_facts(const std::string& launch, const TextFacts& facts) {
  json j = json::parse(launch);
  j["sums"] = facts.sums, j["texts"] = facts.texts;
  if (!facts.open.empty()) j["open"] = facts.open;
  return j.dump();
}

Result<TextFacts> read_facts(std::string_view launch) {
  const json j = json::parse(launch, nullptr, /*allow_exceptions=*/false);
  TextFacts out;
  bool fits = j.is_object() && j.contains("sums") && j["sums"].is_array() && j.contains("texts") && j["texts"].is_string();
  for (std::size_t i = 0; fits && i < j["sums"].size(); ++i) {
    fits = j["sums"][i].is_number_integer() && j["sums"][i] >= 0;
    if (fits) out.sums.push_back(j["sums"][i]);
  }
  if (fits && j.contains("open")) {
    fits = j["open"].is_array();
    for (std::size_t i = 0; fits && i < j["open"].size(); ++i) {
      fits = j["open"][i].is_number_integer() && j["open"][i] >= 0 && j["open"][i] <= UINT32_MAX;
      if (fits) out.open.push_back(j["open"][i]);
    }
  }
  if (!fits) return fail(ErrorKind::bad_engine, "it does not say what its kernels were made for");
  out.texts = j["texts"];
  return out;
}

Status give_sums(region::Region& r) {
  OCTAVO_TRY(const TextFacts facts, read_facts(r.launch));
  if (facts.sums.size() != r.stages.size())
    return fail(ErrorKind::bad_engine,
                fmt::format("region \"{}\": {} sums of weights, {} stages", r.name, facts.sums.size(), r.stages.size()));
  for (std::size_t i = 0; i < r.stages.size(); ++i) {
    if (r.stages[i].anchor.weights) r.stages[i].anchor.weight_sum = facts.sums[i];
  }
  return {};
}

Status give_weights(const region::Region& r, region::Plan& plan, const std::vector<std::int64_t>& sums) {
  constexpr std::int64_t kMostTimes = 64, kSome = 1 << 16;
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("region \"{}\": {}", r.name, what));
  };
  if (sums.size() != r.stages.size()) return bad(fmt::format("{} sums of weights, {} stages", sums.size(), r.stages.size()));
  std::int64_t packed = 0;
  for (const region::BufferId id : r.packed) packed += plan.buffers[static_cast<std::size_t>(id)].bytes;
  for (std::size_t i = 0; i < r.stages.size(); ++i) {
    const region::Stage& s = r.stages[i];
    if (!s.anchor.weights) continue;
    const region::TensorRef& w = *s.anchor.weights;
    region::Buffer& b = plan.buffers[static_cast<std::size_t>(w.buffer)];
    if (b.kind != region::BufferKind::constant || b.bytes > 0) continue;
    const std::int64_t most = packed * kMostTimes + kSome, size = static_cast<std::int64_t>(ir::size_of(w.dtype));
    std::int64_t last = 0, count = 1;
    bool fits = w.offset >= 0 && w.offset <= most && w.dims.size() == w.strides.size();
    for (std::size_t d = 0; fits && d < w.dims.size(); ++d) {
      fits = w.dims[d] >= 1 && w.dims[d] <= most && w.strides[d] >= 0 && w.strides[d] <= most &&
             (w.dims[d] == 1 || w.strides[d] <= most / (w.dims[d] - 1));
      if (fits) last += (w.dims[d] - 1) * w.strides[d], count *= w.dims[d];
      fits = fits && last <= most && count <= most;
    }
    const std::int64_t bytes = fits ? w.offset + (last + 1) * size : 0;
    if (!fits || bytes > most) return bad(fmt::format("its weights do not fit its {} bytes of packed constants", packed));
    b.data = ir::Tensor(ir::DType::u8, {bytes});
    if (has_sums(s) && !fill(s.anchor, sums[i], b.data.mutable_bytes()))
      return bad(fmt::format("weights whose largest sum is {} do not fit it", sums[i]));
  }
  return {};
}

Status check_packed(const region::Region& r, const region::Plan& plan, std::span<const PackedConstant> made) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_engine,
                fmt::format("region \"{}\", tactic {}: {}\n  octavo rebuild builds the engine again from its model", r.name,
                            r.tactic.name(), what));
  };
  const bool lacks_weights = std::any_of(r.stages.begin(), r.stages.end(), [&](const region::Stage& s) {
    return s.anchor.weights && plan.buffers[static_cast<std::size_t>(s.anchor.weights->buffer)].bytes == 0;
  });
  if (made.size() != r.packed.size())
    return bad(fmt::format("it has {} packed constants, its kernels read {}", r.packed.size(), made.size()));
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto has = plan.buffers[static_cast<std::size_t>(r.packed[i])].data.bytes(), reads = made[i].bytes();
    if (has.size() != reads.size())
      return bad(fmt::format("packed constant {} has {} bytes, its kernels read {}", i, has.size(), reads.size()));
    if (made[i].weights && lacks_weights) continue;
    const auto at = std::mismatch(has.begin(), has.end(), reads.begin()).first;
    if (at == has.end()) continue;
    const auto byte = static_cast<std::size_t>(at - has.begin());
    return bad(fmt::format("byte {} of packed constant {} is {}, its kernels are made for {}", byte, i, static_cast<int>(has[byte]),
                           static_cast<int>(reads[byte])));
  }
  return {};
}

}  // namespace octavo::cuda
