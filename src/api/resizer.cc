// One class, past 400 lines with resizer_kernels.cc: the base plan as polynomials, its kernels for new numbers and its constants stay in step with each other
// at every new shape.
#include "api/resizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "api/load.h"
#include "base/causes/plan_search.h"
#include "base/first_run.h"
#include "base/fork.h"
#include "base/hash.h"
#include "cpu/cap.h"
#include "cpu/provider.h"
#include "cuda/unknown_weights.h"
#include "engine/cores.h"
#include "engine/thread_pool.h"
#include "onnx/model/graph_nodes.h"
#include "plan/layout/memory.h"
#include "plan/search/by_image.h"
#include "region/verify.h"

namespace octavo::api {
namespace {

constexpr std::int64_t kFarthest = 2048;  // of a dimension without a range
constexpr std::size_t kMostDimensions = 3;

tl::unexpected<Error> no(std::string what) {
  return fail(ErrorKind::unsupported, std::move(what));
}

/// The first node that computes with shapes and whose results may be other polynomials between the points that are tried; empty: none. Sums, products
/// and selections of extents are polynomials everywhere, and where a Slice ends before an extent does, the corners of the range show it.
std::string not_smooth(const onnx::GraphNodes& graph) {
  static const std::set<std::string_view> smooth{
      "Shape", "Size", "Gather", "Unsqueeze", "Squeeze",         "Concat", "Slice",     "Cast",   "Mul",
      "Add",   "Sub",  "Neg",    "Identity",  "ConstantOfShape", "Range",  "Transpose", "Expand", "Reshape"};
  static const std::set<std::string_view> hidden{"If", "Loop", "Scan", "SequenceMap"};
  std::set<std::string> of_shapes, of_data(graph.inputs.begin(), graph.inputs.end());
  for (const onnx::GraphNode& n : graph.nodes) {
    const bool shape = n.op == "Shape" || n.op == "Size";
    bool derived = shape, data = false;
    for (const std::string& in : n.inputs) derived = derived || of_shapes.contains(in), data = data || of_data.contains(in);
    const bool pure = derived && (shape || !data);
    const bool domain = n.op.find('.') != std::string::npos && !n.op.starts_with("com.microsoft.");
    if (hidden.contains(n.op) || domain || (pure && !smooth.contains(n.op))) return n.name;
    for (const std::string& o : n.outputs) {
      if (pure) of_shapes.insert(o);
      if (data && !pure) of_data.insert(o);
    }
  }
  return "";
}

/// No dimension and no size is negative: what comes from a file may be anything.
bool sound(const region::Plan& plan) {
  const auto dims = [](const ir::Shape& shape) {
    return std::all_of(shape.begin(), shape.end(), [](std::int64_t d) { return d >= 0; });
  };
  bool all = true;
  for (const region::Buffer& b : plan.buffers) all = all && b.bytes >= 0;
  for (const auto* list : {&plan.inputs, &plan.outputs}) {
    for (const region::Binding& b : *list) all = all && b.bytes >= 0 && dims(b.type.shape);
  }
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& s : r.stages) {
      all = all && dims(s.space) && (!s.anchor.weights || dims(s.anchor.weights->dims));
      for (const region::TensorRef& t : s.anchor.inputs) all = all && dims(t.dims);
      for (const region::TensorRef& t : s.stores) all = all && dims(t.dims);
      for (const region::Operand& o : s.operands) all = all && dims(o.ref.dims) && dims(o.div);
    }
  }
  return all;
}

std::string text_of(const Shapes& shapes) {
  std::string out;
  for (const auto& [name, shape] : shapes) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, ir::to_string(shape));
  return out;
}

/// A region reads constants that grow, and its packed ones were made of them.
bool packs_growing(const region::Region& r, const std::map<region::BufferId, ir::Tensor>& growing) {
  if (r.packed.empty()) return false;
  return std::any_of(r.stages.begin(), r.stages.end(), [&](const region::Stage& s) {
    return (s.anchor.weights && growing.contains(s.anchor.weights->buffer)) ||
           std::any_of(s.operands.begin(), s.operands.end(),
                       [&](const region::Operand& o) { return growing.contains(o.ref.buffer); });
  });
}

}  // namespace

std::vector<plan::Point> Resizer::points_of(const plan::Point& least, const plan::Point& most) {
  const auto at = [&](std::size_t k, std::int64_t beyond) {
    return std::min(least[k] + beyond + static_cast<std::int64_t>(k), most[k]);
  };
  const auto middle = [&](std::size_t k) { return (least[k] + most[k]) / 2; };
  std::vector<plan::Point> out;
  const std::size_t n = least.size();
  out.push_back(most);
  out.push_back(least);
  for (const bool turned : {false, true}) {
    plan::Point ends(n), inner(n);
    for (std::size_t k = 0; k < n; ++k) {
      const bool high = (k % 2 == 0) != turned;
      ends[k] = high ? most[k] : at(k, 1);
      inner[k] = high ? middle(k) : at(k, 2);
    }
    out.push_back(std::move(ends));
    if (n > 1 || !turned) out.push_back(std::move(inner));
  }
  std::vector<plan::Point> unique;
  for (plan::Point& p : out) {
    if (std::find(unique.begin(), unique.end(), p) == unique.end()) unique.push_back(std::move(p));
  }
  return unique;
}

std::optional<plan::Point> Resizer::point_of(const Shapes& shapes) const {
  plan::Point out;
  for (const Dimension& d : dimensions_) {
    for (std::size_t i = 0; i < d.at.size(); ++i) {
      const auto shape = shapes.find(d.at[i].first);
      if (shape == shapes.end() || d.at[i].second >= shape->second.size()) return std::nullopt;
      const std::int64_t value = shape->second[d.at[i].second];
      if (i == 0) out.push_back(value);
      if (value != out.back()) return std::nullopt;
    }
    if (out.back() < d.least || out.back() > d.most) return std::nullopt;
  }
  return out;
}

std::int64_t Resizer::images_of(const Shapes& shapes) const {
  return shapes.at(base_->plan().inputs.front().name).front();
}

Shapes Resizer::shapes_at(const plan::Point& point) const {
  Shapes out = base_shapes_;
  for (std::size_t k = 0; k < point.size(); ++k) {
    for (const auto& [input, axis] : dimensions_[k].at) out[input][axis] = point[k];
  }
  return out;
}

/// The polynomials, for the widest of the ranges that are tried. Their ends are then those of the dimensions.
Result<plan::Parametric> Resizer::fit(const Session& session) const {
  std::vector<std::int64_t> least, most;
  for (const Dimension& d : dimensions_) least.push_back(d.least), most.push_back(d.most);
  const std::vector<plan::Point> points = points_of(least, most);
  std::vector<region::Plan> plans;
  for (const plan::Point& p : points) {
    PipelineOptions there = options_;
    there.import.shapes = shapes_at(p);
    OCTAVO_TRY(plans.emplace_back(), session.outline(there));
  }
  return plan::Parametric::fit(points, plans);
}

Result<std::shared_ptr<const Resizer>> Resizer::create(const Session& session, const PipelineOptions& options,
                                                       const std::vector<onnx::InputInfo>& inputs, const ShapeRanges& ranges,
                                                       const Shapes& shapes, std::shared_ptr<const engine::Engine> base,
                                                       std::shared_ptr<const plan::Decided> decided, engine::Providers given) {
  std::shared_ptr<Resizer> out(new Resizer);
  Resizer& r = *out;
  if (const std::string node = not_smooth(session.nodes()); !node.empty())
    return no(fmt::format("shapes are computed by node \"{}\", whose results are no polynomials", node));
  r.options_ = options;
  r.options_.plan.follow = decided;
  r.base_shapes_ = shapes;
  r.base_ = std::move(base);
  r.decided_ = std::move(decided);
  r.providers_ = std::move(given);
  if (r.providers_.empty()) {
    OCTAVO_TRY(r.providers_, providers(options.device));
  }
  std::map<std::string, std::size_t> named;
  bool open_ended = false;
  for (const onnx::InputInfo& in : inputs) {
    if (!in.has_shape) return no(fmt::format("input \"{}\" has no rank", in.name));
    for (std::size_t axis = 0; axis < in.dims.size(); ++axis) {
      if (in.dims[axis] >= 0) continue;
      const std::string symbol =
          axis < in.symbols.size() && !in.symbols[axis].empty() ? in.symbols[axis] : fmt::format("{}/{}", in.name, axis);
      const auto [at, fresh] = named.try_emplace(symbol, r.dimensions_.size());
      if (fresh) r.dimensions_.emplace_back();
      Dimension& d = r.dimensions_[at->second];
      d.at.emplace_back(in.name, axis);
      const std::int64_t here = shapes.at(in.name)[axis];
      const auto range = ranges.find(in.name);
      d.least = range == ranges.end() ? 1 : range->second.min[axis];
      d.most = range == ranges.end() ? std::max(kFarthest, here) : range->second.max[axis];
      open_ended = open_ended || range == ranges.end();
    }
  }
  if (r.dimensions_.empty() || r.dimensions_.size() > kMostDimensions)
    return no(fmt::format("{} open dimensions", r.dimensions_.size()));
  int left = 4;  // tries with plans that are not alike
  const auto here_of = [&](const Dimension& d) { return shapes.at(d.at.front().first)[d.at.front().second]; };
  // A plan for one, of any dimension, may be another one; without given ranges the model says itself where it ends.
  for (;;) {
    auto extents = r.fit(session);
    if (extents) {
      r.extents_ = std::move(*extents);
      break;
    }
    if (extents.error().kind == ErrorKind::internal) return tl::unexpected<Error>(extents.error());
    bool changed = false;
    if (extents.error().kind == ErrorKind::unsupported && --left == 0) return tl::unexpected<Error>(extents.error());
    const bool too_far = extents.error().kind != ErrorKind::unsupported;  // the model itself ends before
    for (Dimension& d : r.dimensions_) {
      if (d.least != 1 || d.most == 1 || (too_far && open_ended)) continue;
      (here_of(d) == 1 ? d.most : d.least) = here_of(d) == 1 ? 1 : 2;
      changed = true;
    }
    if (!changed && open_ended) {  // the one that goes farthest beyond the base
      const auto beyond = [&](const Dimension& d) { return d.most / std::max<std::int64_t>(here_of(d), 4); };
      const auto far = std::max_element(r.dimensions_.begin(), r.dimensions_.end(),
                                        [&](const Dimension& x, const Dimension& y) { return beyond(x) < beyond(y); });
      if (beyond(*far) >= 2) far->most /= 2, changed = true;
    }
    if (!changed) return tl::unexpected<Error>(extents.error());
  }
  r.declared_ = !open_ended;
  OCTAVO_CHECK(r.prepare());
  OCTAVO_CHECK(r.make_kernels());
  return std::shared_ptr<const Resizer>(std::move(out));
}

/// What `at` needs of the base, its decisions and the extents.
Status Resizer::prepare() {
  plan_ = base_->plan();
  cores_ = engine::available_cores();
  region::Plan& plan = plan_;
  if (plan.images > 1) {
    for (auto* list : {&plan.inputs, &plan.outputs}) {
      for (region::Binding& b : *list) b.type.shape[0] /= plan.images, b.bytes /= plan.images;
    }
    plan.images = 1, plan.lanes = 1;
  }
  const auto own = point_of(base_shapes_);
  if (!own || !extents_.agrees(plan, *own)) return no("the tuned plan is another one than its decisions make");
  plan.decisions.clear();
  plan.decided_for = decided_->from;
  std::size_t bytes = engine::kAlignment;
  for (const auto& [id, tensor] : extents_.growing()) {
    growing_at_[id] = bytes;
    bytes += engine::round_up(tensor.bytes().size()) + engine::kAlignment;
  }
  auto memory = std::make_shared<engine::AlignedBytes>(bytes);
  for (const auto& [id, tensor] : extents_.growing())
    std::memcpy(memory->data() + growing_at_[id], tensor.bytes().data(), tensor.bytes().size());
  growing_ = std::move(memory);
  keeps_ = std::make_shared<Keeps>(Keeps{growing_, codes_, {}});
  place_growing();
  OCTAVO_TRY(const cpu::Isa most, cpu::cap_named(options_.cpu));
  const cpu::CapScope cap(most);
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    region::Region& region = plan.regions[i];
    region.seconds = -1;
    if (extents_.varies(i)) region.key.clear();  // region::key_of spells it when it is asked for
    region.alternatives = {{region.tactic.name(), {because<cause::tactic_of_other_shapes>(decided_->from)}}};
    if (packs_growing(region, extents_.growing()))
      return no(fmt::format("region \"{}\" packs constants that depend on shapes", region.name));
    layouts_.emplace_back();
    if (region.device != region::kHost || region.packed.empty() || !extents_.varies(i)) continue;
    const auto layout = cpu::packed_layout(region, plan);
    if (!layout)
      return no(fmt::format("region \"{}\", tactic {}: how constants are packed is not known", region.name, region.tactic.name()));
    layouts_.back() = *layout;
  }
  return open_regions();
}

/// The plan of one image, with its memory.
Result<region::Plan> Resizer::plan_at(const plan::Point& point, const Shapes& shapes) const {
  region::Plan plan = plan_;
  if (!extents_.set(plan, point)) return no("an extent is too large");
  if (of_file_ && !sound(plan)) return fail(ErrorKind::bad_engine, fmt::format("an extent for {} is negative", text_of(shapes)));
  plan::plan_memory(plan);
  return plan;
}

/// Before kernels are emitted for extents that a file gave; an engine verifies what it gets in any case.
Status Resizer::verify(const region::Plan& plan) const {
  return of_file_ ? region::verify_resized(plan, base_->plan()) : Status();
}

std::size_t Resizer::most_arena_bytes() const {
  plan::Point most;
  for (const Dimension& d : dimensions_) most.push_back(d.most);
  const Shapes shapes = shapes_at(most);
  const auto plan = plan_at(most, shapes);
  if (!plan) return 0;
  std::size_t lanes = 1;
  if (decided_->images > 1) {
    const int threads = options_.plan.threads > 0 ? options_.plan.threads : engine::available_cores();
    lanes = static_cast<std::size_t>(std::clamp<std::int64_t>(images_of(shapes), 1, threads));
  }
  return lanes * engine::round_up(static_cast<std::size_t>(plan->devices[region::kHost].arena_bytes));
}

nlohmann::json Resizer::to_json(std::vector<std::byte>& data, KeptCodes& codes) const {
  nlohmann::json dimensions = nlohmann::json::array();
  for (const Dimension& d : dimensions_) dimensions.push_back({{"at", d.at}, {"least", d.least}, {"most", d.most}});
  nlohmann::json out{{"shapes", base_shapes_}, {"dimensions", std::move(dimensions)}, {"extents", extents_.to_json(data)}};
  if (launches_.points() == 0) return out;
  std::vector<std::size_t> numbers;
  for (const Code& code : codes_->of) numbers.push_back(codes.add(code));
  nlohmann::json& kernels = out["kernels"];
  kernels = {{"at", data.size()}, {"codes", numbers}, {"layouts", layouts_}};
  {
    const std::lock_guard lock(fork_safe_mutex());
    for (const auto& [source, code] : codes_->by_source) {
      const auto known = std::find(codes_->of.begin(), codes_->of.end(), code);
      if (known != codes_->of.end()) kernels["sources"][source] = known - codes_->of.begin();
    }
  }
  kernels["launches"] = launches_.to_json(data);
  return out;
}

std::size_t KeptCodes::add(const std::shared_ptr<const engine::AlignedBytes>& code) {
  const auto same = [&](const auto& c) {
    return c == code || (c->size() == code->size() && std::memcmp(c->data(), code->data(), c->size()) == 0);
  };
  const auto at = std::find_if(of.begin(), of.end(), same);
  if (at != of.end()) return static_cast<std::size_t>(at - of.begin());
  of.push_back(code);
  return of.size() - 1;
}

Result<std::shared_ptr<const Resizer>> Resizer::from_json(const nlohmann::json& j, const Kept& kept, const PipelineOptions& options,
                                                          std::shared_ptr<const engine::Engine> base,
                                                          std::shared_ptr<const plan::Decided> decided) {
  std::shared_ptr<Resizer> out(new Resizer);
  Resizer& r = *out;
  r.of_file_ = true;
  r.options_ = options;
  r.base_ = std::move(base);
  r.decided_ = std::move(decided);
  const auto bad = [](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("how a plan follows from shapes cannot be read: {}", what));
  };
  r.declared_ = true;
  r.providers_ = kept.providers.empty() ? cpu::providers() : kept.providers;
  std::size_t kernels_at = kept.data.size();
  try {
    r.base_shapes_ = j.at("shapes").get<Shapes>();
    for (const region::Binding& b : r.base_->plan().inputs) {
      const auto shape = r.base_shapes_.find(b.name);
      if (shape == r.base_shapes_.end() || shape->second != b.type.shape)
        return bad(fmt::format("it has other shapes of input \"{}\"", b.name));
    }
    for (const nlohmann::json& d : j.at("dimensions")) {
      Dimension& to = r.dimensions_.emplace_back();
      to.at = d.at("at").get<decltype(to.at)>();
      to.least = d.at("least").get<std::int64_t>(), to.most = d.at("most").get<std::int64_t>();
      if (to.at.empty() || to.least < 0 || to.most < to.least) return bad("a dimension without a place or a range");
      for (const auto& [input, axis] : to.at) {
        const auto shape = r.base_shapes_.find(input);
        if (shape == r.base_shapes_.end() || axis >= shape->second.size())
          return bad(fmt::format("dimension {} of \"{}\"", axis, input));
      }
    }
    if (r.dimensions_.empty() || r.dimensions_.size() > kMostDimensions)
      return bad(fmt::format("{} dimensions", r.dimensions_.size()));
    if (j.contains("kernels")) kernels_at = j.at("kernels").at("at").get<std::size_t>();
    if (kernels_at > kept.data.size()) return bad("its launches begin behind its data");
    OCTAVO_TRY(r.extents_, plan::Parametric::from_json(j.at("extents"), kept.data.first(kernels_at), r.dimensions_.size()));
  } catch (const nlohmann::json::exception& e) {
    return bad(e.what());
  }
  if (const Status ready = r.prepare(); !ready) return bad(ready.error().message);
  const bool on_device = r.base_->plan().devices.size() > 1;
  if (on_device && !j.contains("kernels")) return bad("a plan of another device than the host has no kernels");
  const Status kernels = on_device && kept.codes != nullptr
                             ? r.read_kernels(j["kernels"], kept.data.subspan(kernels_at), *kept.codes)
                             : r.make_kernels();
  if (!kernels) return bad(kernels.error().message);
  return std::shared_ptr<const Resizer>(std::move(out));
}

const region::Provider& Resizer::provider_of(const region::Region& region) const {
  const auto found = std::find_if(providers_.begin(), providers_.end(), [&](const auto* p) { return p->knows(region.tactic); });
  return found == providers_.end() ? *providers_.front() : **found;  // which refuses it
}

/// By region: how constants of the host are packed, where the extents might ask for another way.
std::vector<const std::string*> Resizer::wanted_layouts() const {
  std::vector<const std::string*> out(plan_.regions.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const region::Region& r = plan_.regions[i];
    if (r.device == region::kHost && !r.packed.empty() && extents_.varies(i)) out[i] = &layouts_[i];
  }
  return out;
}

Result<std::shared_ptr<const engine::Engine>> Resizer::at(const Shapes& shapes) const {
  const auto point = point_of(shapes);
  if (!point) return no("the shapes are outside of what was found to be alike");
  OCTAVO_TRY(const cpu::Isa most, cpu::cap_named(options_.cpu));
  const cpu::CapScope cap(most);
  const RunPartTimer timer(RunPart::extents);
  OCTAVO_TRY(region::Plan plan, plan_at(*point, shapes));
  std::map<region::BufferId, std::span<const std::byte>> others;
  for (const auto& [id, begin] : growing_at_) {
    const auto bytes = static_cast<std::size_t>(plan.buffers[static_cast<std::size_t>(id)].bytes);
    if (bytes > extents_.growing().at(id).bytes().size()) return no("a constant would be longer than any that there was");
    others[id] = {growing_->data() + begin, bytes};
  }
  if (decided_->images > 1) {
    const std::int64_t images = images_of(shapes);
    const int threads = options_.plan.threads > 0 ? options_.plan.threads : cores_;
    if (images > 1) plan::repeat(plan, images, threads);
  }
  PipelineOptions said = options_;
  said.import.shapes = shapes;
  said.plan.follow = nullptr;
  if (said.plan.threads == 0) said.plan.threads = cores_;
  engine::Origin origin = base_->origin();
  if (origin.model != nullptr) origin.build = build_text(said, {});
  OCTAVO_CHECK(restart(plan, *point, others));
  const RunPartTimer load(RunPart::load);
  const ReadLaunches::Shape shape{&launches_, launches_.index_of(*point), wanted_layouts(), &shelf_};
  const auto reading = read_.at(shape, providers_);
  engine::Providers loading;
  for (const auto& p : reading) loading.push_back(p.get());
  auto made = engine::Engine::resized(base_, std::move(plan), loading, others, keeps_, std::move(origin), placed_);
  if (made) return made;
  return no(made.error().message);  // a tactic that refuses these extents: they are planned
}

}  // namespace octavo::api
