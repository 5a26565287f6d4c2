// Kernels of other devices for open extents: made once for all shapes of the range, and started for one shape by what a table says.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "api/resizer.h"
#include "base/causes/plan_search.h"
#include "base/first_run.h"
#include "base/fork.h"
#include "base/hash.h"
#include "cuda/unknown_weights.h"
#include "engine/thread_pool.h"

namespace octavo::api {
namespace {

constexpr int kRegionsOfEmitter = 8, kMostEmitters = 16;

tl::unexpected<Error> refused(std::string what) {
  return fail(ErrorKind::unsupported, std::move(what));
}

/// Equal for equal packed constants (Provider::restart).
std::string layout_of(const region::Artifact& made) {
  std::string all;
  for (const ir::Tensor& t : made.constants) {
    const auto bytes = t.bytes();
    all += fmt::format("{}:", bytes.size());
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return hash128_hex(all);
}

std::shared_ptr<const engine::AlignedBytes> kept(const std::string& code) {
  auto out = std::make_shared<engine::AlignedBytes>(code.size());
  std::memcpy(out->data(), code.data(), code.size());
  return out;
}

}  // namespace

bool Resizer::on_device(std::size_t region) const {
  return plan_.regions[region].device != region::kHost && extents_.varies(region);
}

/// The plan as providers of other devices emit kernels of it again: open extents are marked, and small constants, which texts may depend on, are there.
Status Resizer::open_regions() {
  constexpr std::int64_t kLargest = 1 << 20;  // bytes of a constant that texts depend on
  region::Plan& plan = plan_;
  bool any = false;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) any = any || on_device(i);
  if (!any) return {};
  extents_.mark(plan);
  if (!extents_.set(plan, *point_of(base_shapes_)))
    return refused("an extent is too large");  // strides of one element, which plans leave open, too
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    region::Region& r = plan.regions[i];
    if (!on_device(i)) continue;
    OCTAVO_CHECK(cuda::give_sums(r));
    for (const region::Stage& s : r.stages) {
      for (const region::Operand& o : s.operands) {
        region::Buffer& b = plan.buffers[static_cast<std::size_t>(o.ref.buffer)];
        if (b.kind != region::BufferKind::constant || !b.data.empty() || b.bytes > kLargest ||
            extents_.growing().contains(o.ref.buffer))
          continue;
        const auto bytes = base_->constant(o.ref.buffer);
        b.data = ir::Tensor(ir::DType::u8, {static_cast<std::int64_t>(bytes.size())});
        std::copy(bytes.begin(), bytes.end(), b.data.mutable_bytes().begin());
      }
    }
  }
  return {};
}

/// The shapes whose launches are tabulated: the whole range where it has few enough points, else its lower part.
LaunchTable Resizer::box() const {
  constexpr std::int64_t kUndeclared = 512;  // points of a range that nobody declared
  const std::int64_t all = declared_ ? static_cast<std::int64_t>(LaunchTable::kMostPoints) : kUndeclared;
  plan::Point least, most;
  for (const Dimension& d : dimensions_) least.push_back(d.least), most.push_back(d.most);
  const auto extent = [&](std::size_t k) { return most[k] - least[k] + 1; };
  for (;;) {
    std::int64_t points = 1;
    std::size_t longest = 0;
    for (std::size_t k = 0; k < most.size(); ++k) {
      points = std::min(points, all + 1) * std::min(extent(k), all + 1);
      if (extent(k) > extent(longest)) longest = k;
    }
    if (points <= all) return LaunchTable(std::move(least), std::move(most));
    most[longest] = least[longest] + std::max<std::int64_t>(extent(longest) / 2, 1) - 1;
  }
}

/// Kernels of another device for open extents: at all points of the table, and at the ends of the range, where some may be others. Each text is compiled once,
/// before any shape comes.
Status Resizer::make_kernels() {
  constexpr std::size_t kTogether = 16;  // regions whose launches are there as texts at a time
  constexpr std::size_t kMostTexts = 8;  // of one region: one with more is one whose text has an open extent as a literal
  const region::Plan& plan = plan_;
  std::vector<std::size_t> regions;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (on_device(i)) regions.push_back(i);
  }
  if (regions.empty()) return {};
  for (const std::size_t i : regions) {
    OCTAVO_TRY(const region::Artifact here, provider_of(plan.regions[i]).restart(plan.regions[i], plan));
    layouts_[i] = layout_of(here);
  }
  struct Text {
    std::int32_t number = 0;  ///< in the order in which threads meet them
    const region::Provider* provider = nullptr;
    bool wanted = false;
  };
  std::map<std::string, Text> texts;
  std::vector<std::set<std::int32_t>> own_texts(plan.regions.size());  // by region, those of the table
  std::mutex mutex;                                                    // of both
  /// `wanted`: the text is compiled, whatever the table says.
  const auto start_of = [&](const region::Plan& there, std::size_t i, bool wanted) -> std::optional<LaunchTable::Start> {
    const region::Provider& provider = provider_of(there.regions[i]);
    auto made = provider.restart(there.regions[i], there);
    if (!made || layout_of(*made) != layouts_[i]) return std::nullopt;
    LaunchTable::Start start{std::move(made->launch), -1};
    if (made->source.empty()) return start;
    const std::lock_guard lock(mutex);
    auto at = texts.find(made->source.text);
    if (at == texts.end()) {
      if (!wanted && own_texts[i].size() > kMostTexts) return std::nullopt;
      at = texts.emplace(std::move(made->source.text), Text{static_cast<std::int32_t>(texts.size()), &provider}).first;
    }
    at->second.wanted = at->second.wanted || wanted;
    start.code = at->second.number;
    if (!wanted) own_texts[i].insert(start.code);
    return start;
  };
  std::vector<std::int64_t> least, most;
  for (const Dimension& d : dimensions_) least.push_back(d.least), most.push_back(d.most);
  const plan::Point own = *point_of(base_shapes_);
  std::vector<plan::Point> points = points_of(least, most);
  points.push_back(own);
  for (std::size_t k = 0; k < own.size(); ++k) {  // whatever vectors an extent lets be read
    for (const std::int64_t by : {1, 2, 4, 8, 16}) {
      points.push_back(own);
      points.back()[k] = std::clamp(most[k] / 16 * 16 + by, least[k], most[k]);
      if (most[k] / 16 * 16 + by > most[k]) points.back()[k] = std::clamp((most[k] / 16 - 1) * 16 + by, least[k], most[k]);
    }
  }
  for (const plan::Point& p : points) {
    region::Plan there = plan;
    if (!extents_.set(there, p)) continue;
    for (const std::size_t i : regions) (void)start_of(there, i, true);
  }
  launches_ = box();
  OCTAVO_TRY(const auto pool, engine::ThreadPool::create(std::min(cores_, kMostEmitters)));
  for (std::size_t first = 0; first < regions.size(); first += kTogether) {
    const std::size_t count = std::min(kTogether, regions.size() - first);
    std::vector<std::vector<std::optional<LaunchTable::Start>>> starts(count);
    for (auto& s : starts) s.resize(launches_.points());
    const auto of_many = [&](std::size_t i) {
      const std::lock_guard lock(mutex);
      return own_texts[i].size() > kMostTexts;
    };
    pool->run(static_cast<int>(launches_.points()), [&](int begin, int end, int) {
      region::Plan there = plan;
      for (auto p = static_cast<std::size_t>(begin); p < static_cast<std::size_t>(end); ++p) {
        if (!extents_.set(there, launches_.point(p))) continue;
        for (std::size_t k = 0; k < count; ++k) {
          if (!of_many(regions[first + k])) starts[k][p] = start_of(there, regions[first + k], false);
        }
      }
    });
    for (std::size_t k = 0; k < count; ++k) {
      const std::set<std::int32_t>& numbers = own_texts[regions[first + k]];
      if (numbers.size() > kMostTexts) continue;  // it is emitted when a shape comes
      for (auto& [text, t] : texts) t.wanted = t.wanted || numbers.contains(t.number);
      launches_.put(regions[first + k], starts[k]);
    }
  }
  std::vector<std::pair<std::string_view, const Text*>> list;  // in an order that does not depend on threads
  std::map<std::int32_t, std::int32_t> place;                  // in it, by number
  for (const auto& [text, t] : texts) {
    if (!t.wanted) continue;
    place[t.number] = static_cast<std::int32_t>(list.size());
    list.emplace_back(text, &t);
  }
  launches_.number_codes(place);
  std::vector<Result<std::string>> compiled(list.size(), std::string());
  pool->run(static_cast<int>(list.size()), [&](int begin, int end, int) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
      compiled[k] = list[k].second->provider->code_of({std::string(list[k].first)});
  });
  for (std::size_t k = 0; k < list.size(); ++k) {
    if (!compiled[k]) return tl::unexpected<Error>(compiled[k].error());
    codes_->of.push_back(kept(*compiled[k]));
    codes_->by_source.emplace(hash128_hex(list[k].first), codes_->of.back());
  }
  read_forms();
  hold_kernels();
  return {};
}

/// Those of a file.
Status Resizer::read_kernels(const nlohmann::json& j, std::span<const std::byte> data, const KeptCodes& codes) {
  const auto bad = [](const std::string& what) { return fail(ErrorKind::bad_engine, what); };
  try {
    const auto layouts = j.at("layouts").get<std::vector<std::string>>();
    if (layouts.size() != layouts_.size()) return bad(fmt::format("{} layouts of {} regions", layouts.size(), layouts_.size()));
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (on_device(i)) layouts_[i] = layouts[i];
    }
    for (const std::size_t number : j.at("codes").get<std::vector<std::size_t>>()) {
      if (number >= codes.of.size()) return bad(fmt::format("machine code {} of {}", number, codes.of.size()));
      codes_->of.push_back(codes.of[number]);
    }
    const nlohmann::json sources = j.value("sources", nlohmann::json::object());
    for (const auto& [source, number] : sources.items()) {
      const auto n = number.get<std::size_t>();
      if (n >= codes_->of.size()) return bad(fmt::format("machine code {} of {}", n, codes_->of.size()));
      codes_->by_source.emplace(source, codes_->of[n]);
    }
    OCTAVO_TRY(launches_, LaunchTable::from_json(j.at("launches"), data, dimensions_.size(), codes_->of.size()));
  } catch (const nlohmann::json::exception& e) {
    return bad(e.what());
  }
  read_forms();
  // The driver may see the code once it was held against launches of it, as that of every engine is.
  if (const auto checked = at(base_shapes_); !checked) return bad(checked.error().message);
  hold_kernels();
  return {};
}

void Resizer::read_forms() {
  std::vector<std::span<const std::byte>> codes;
  for (const Code& code : codes_->of) codes.emplace_back(code->data(), code->size());
  read_.read(launches_, plan_, providers_, codes);
}

/// Constants whose length depends on shapes are in the memory of their device once: every shape reads a beginning of them. Where there is no memory, engines
/// copy what they need.
void Resizer::place_growing() {
  for (const auto& [id, tensor] : extents_.growing()) {
    const region::DeviceId space = plan_.buffers[static_cast<std::size_t>(id)].space;
    if (space == region::kHost) continue;
    auto memory = base_->device(space).allocate(tensor.bytes().size());
    if (!memory || !base_->device(space).write((*memory)->address(), tensor.bytes())) continue;
    placed_[id] = (*memory)->address();
    keeps_->memory.push_back(std::move(*memory));
  }
}

/// Has the devices load the code. Of a device that is not here nothing can be held: engines are made for it all the same.
void Resizer::hold_kernels() {
  std::set<std::pair<std::size_t, std::int32_t>> used;  // device, code
  for (std::size_t i = 0; i < plan_.regions.size(); ++i) {
    if (!on_device(i)) continue;
    for (std::size_t p = 0; p < launches_.points(); ++p) {
      const std::int32_t code = launches_.code(i, p);
      if (code >= 0) used.emplace(static_cast<std::size_t>(plan_.regions[i].device), code);
    }
  }
  for (const auto& [device, number] : used) {
    const Code& code = codes_->of[static_cast<std::size_t>(number)];
    if (auto held = base_->device(static_cast<region::DeviceId>(device)).hold({code->data(), code->size()}))
      held_.push_back(std::move(*held));
  }
  expect_largest();
}

/// What copies of the largest shapes of a declared range need is there before a run has these shapes.
void Resizer::expect_largest() const {
  if (!declared_) return;
  plan::Point most;
  for (const Dimension& d : dimensions_) most.push_back(d.most);
  const auto plan = plan_at(most, shapes_at(most));
  if (!plan) return;
  std::map<region::DeviceId, std::vector<std::size_t>> bytes;
  for (const region::Region& r : plan->regions) {
    if (!region::is_transfer(r, *plan)) continue;
    const region::TensorRef& t = r.stages[0].stores[0];
    bytes[r.device].push_back(static_cast<std::size_t>(ir::count(t.dims)) * ir::size_of(t.dtype));
  }
  for (const auto& [device, list] : bytes) base_->device(device).expect_transfers(list);
}

void Resizer::expect_arenas(engine::DeviceArenas& arenas) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (!declared_ || plan_.devices.size() < 2) return;
  plan::Point most;
  for (const Dimension& d : dimensions_) most.push_back(d.most);
  const auto plan = plan_at(most, shapes_at(most));
  for (std::size_t d = 1; plan && d < plan->devices.size(); ++d) {
    if (plan->devices[d].arena_bytes > kMost) continue;
    arenas.expect(base_->device(static_cast<region::DeviceId>(d)), static_cast<std::size_t>(plan->devices[d].arena_bytes));
  }
}

/// Launches of regions that are not in the table for these extents, by emission; texts that are new are compiled. `codes`: by region.
Status Resizer::emit_again(region::Plan& plan, const std::vector<std::size_t>& regions, std::vector<Code>& codes) const {
  OCTAVO_CHECK(verify(plan));
  std::vector<Result<region::Artifact>> made(regions.size());
  const int count = static_cast<int>(regions.size());
  OCTAVO_TRY(const auto pool,
             engine::ThreadPool::create(std::clamp(count / kRegionsOfEmitter, 1, std::min(cores_, kMostEmitters))));
  pool->run(count, [&](int begin, int end, int) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
      made[k] = provider_of(plan.regions[regions[k]]).restart(plan.regions[regions[k]], plan);
  });
  for (std::size_t k = 0; k < regions.size(); ++k) {
    region::Region& r = plan.regions[regions[k]];
    if (!made[k]) return refused(fmt::format("region \"{}\": {}", r.name, made[k].error().message));
    if (layout_of(*made[k]) != layouts_[regions[k]])
      return refused(fmt::format("region \"{}\": its constants are packed in another way for these extents", r.name));
    r.launch = std::move(made[k]->launch);
    if (made[k]->source.empty()) continue;
    Code& code = codes[regions[k]];
    const std::string source = hash128_hex(made[k]->source.text);
    {
      const std::lock_guard lock(fork_safe_mutex());
      if (const auto known = codes_->by_source.find(source); known != codes_->by_source.end()) code = known->second;
    }
    if (code != nullptr) continue;
    OCTAVO_TRY(const std::string compiled, provider_of(r).code_of(made[k]->source));
    const std::lock_guard lock(fork_safe_mutex());
    code = codes_->by_source.emplace(source, kept(compiled)).first->second;
    r.alternatives[0].reasons.push_back(because<cause::kernel_of_one_shape>());
  }
  return {};
}

/// Puts launches for the plan's extents into it, and the code that they start.
Status Resizer::restart(region::Plan& plan, const plan::Point& point,
                        std::map<region::BufferId, std::span<const std::byte>>& others) const {
  const RunPartTimer timer(RunPart::starts);
  const std::optional<std::size_t> index = launches_.index_of(point);
  std::vector<Code> codes(plan.regions.size());
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (!on_device(i)) continue;
    auto start = index ? launches_.find(i, *index) : std::nullopt;
    if (!start) {
      missing.push_back(i);
      continue;
    }
    plan.regions[i].launch = std::move(start->launch);
    if (start->code >= 0) codes[i] = codes_->of[static_cast<std::size_t>(start->code)];
  }
  if (!missing.empty()) OCTAVO_CHECK(emit_again(plan, missing, codes));
  for (region::Buffer& b : plan.buffers) b.data = ir::Tensor();
  std::map<const engine::AlignedBytes*, region::BufferId> buffers;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (codes[i] == nullptr) continue;
    const auto [at, fresh] = buffers.try_emplace(codes[i].get(), static_cast<region::BufferId>(plan.buffers.size()));
    if (fresh) {
      region::Buffer& b = plan.buffers.emplace_back();
      b.kind = region::BufferKind::constant;
      b.name = plan.regions[i].name + " (code)";
      b.bytes = static_cast<std::int64_t>(codes[i]->size());
      others[at->second] = {codes[i]->data(), codes[i]->size()};
    }
    plan.regions[i].code = at->second;
  }
  return {};
}

}  // namespace octavo::api
