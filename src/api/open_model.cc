// One class, a little longer than 400 lines: engines that are built, donors of decisions and the thread that tunes share one table under one mutex.
#include "api/open_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "api/load.h"
#include "engine/cores.h"
#include "plan/decided.h"
#include "plan/effort.h"

namespace octavo::api {
namespace {

bool is_open(const onnx::InputInfo& in) {
  return !in.has_shape || std::any_of(in.dims.begin(), in.dims.end(), [](std::int64_t d) { return d < 0; });
}

/// min <= opt <= max, for an input that is open, along its declared dimensions; and a range for each such input.
Status check_ranges(const std::vector<onnx::InputInfo>& inputs, const ShapeRanges& ranges) {
  if (ranges.empty()) return {};
  for (const auto& [name, range] : ranges) {
    const auto in = std::find_if(inputs.begin(), inputs.end(), [n = &name](const onnx::InputInfo& i) { return i.name == *n; });
    if (in == inputs.end()) return fail(ErrorKind::usage, fmt::format("profiles: the model has no input \"{}\"", name));
    if (!range.sound()) {
      return fail(ErrorKind::usage,
                  fmt::format("profiles: input \"{}\" has min {}, opt {}, max {}; they need one rank, and min <= opt <= max "
                              "in every dimension",
                              name, ir::to_string(range.min), ir::to_string(range.opt), ir::to_string(range.max)));
    }
    bool fits = !in->has_shape || in->dims.size() == range.opt.size();
    for (std::size_t k = 0; fits && in->has_shape && k < in->dims.size(); ++k)
      fits = in->dims[k] < 0 || (range.min[k] == in->dims[k] && range.max[k] == in->dims[k]);
    if (!fits) {
      return fail(ErrorKind::usage,
                  fmt::format("profiles: input \"{}\" is {}, its profile goes from {} to {}; dimensions that are fixed must "
                              "be what they are",
                              name, in->shape_text(), ir::to_string(range.min), ir::to_string(range.max)));
    }
  }
  for (const onnx::InputInfo& in : inputs) {
    if (is_open(in) && !ranges.contains(in.name))
      return fail(ErrorKind::usage,
                  fmt::format("profiles: input \"{}\" {} has open dimensions and no profile", in.name, in.shape_text()));
  }
  return {};
}

/// An open dimension is between its ends.
Status inside(const std::string& name, const ir::Shape& shape, const ShapeRange& range) {
  if (range.min.size() == shape.size()) {
    const auto k = range.outside(shape);
    if (!k) return {};
    return fail(
        ErrorKind::bad_input,
        fmt::format("input \"{}\" has shape {}: dimension {} is {}, its profile goes from {} to {}\n  to do: widen the range "
                    "(`profiles`, or --minShapes and --maxShapes) and build again",
                    name, ir::to_string(shape), *k, shape[*k], range.min[*k], range.max[*k]));
  }
  return fail(ErrorKind::bad_input, fmt::format("input \"{}\" has shape {}, its profile goes from {} to {}", name,
                                                ir::to_string(shape), ir::to_string(range.min), ir::to_string(range.max)));
}

/// What counts as farther than any tuned shapes: that a plan cannot be made by other extents alone.
constexpr double kPlanned = 1e6;

/// How far apart two sets of shapes are: doublings of dimensions.
double distance(const Shapes& a, const Shapes& b) {
  double sum = 0;
  for (const auto& [name, shape] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != shape.size()) {
      sum += 64;
      continue;
    }
    for (std::size_t k = 0; k < shape.size(); ++k)
      sum += std::fabs(std::log2((static_cast<double>(shape[k]) + 1) / (static_cast<double>(other->second[k]) + 1)));
  }
  return sum;
}

/// Image by image every thread is to have work until the end.
bool shares_evenly(std::int64_t images, int threads) {
  constexpr double kMostIdle = 1.15;
  const std::int64_t lanes = std::min<std::int64_t>(images, threads > 0 ? threads : engine::available_cores());
  if (images < 2) return false;
  const std::int64_t rounds = (images + lanes - 1) / lanes;
  return static_cast<double>(rounds * lanes) <= kMostIdle * static_cast<double>(images);
}

}  // namespace

Result<Late> late_named(std::string_view word) {
  if (word == "nearest") return Late::nearest;
  if (word == "tune") return Late::tune;
  if (word == "background") return Late::background;
  return fail(ErrorKind::usage, fmt::format("late \"{}\": known are nearest, tune and background", word));
}

OpenModel::~OpenModel() {
  stopping_ = true;
  if (worker_ == nullptr) return;
  if (worker_generation_ != fork_generation()) {
    (void)new std::shared_ptr<std::thread>(std::move(worker_));
    return;
  }
  if (worker_->joinable()) worker_->join();
}

Result<std::unique_ptr<OpenModel>> OpenModel::create(std::shared_ptr<const Session> session,
                                                     std::shared_ptr<const std::vector<std::byte>> bytes, PipelineOptions options,
                                                     ShapeRanges ranges, std::map<std::string, ir::Tensor> values,
                                                     std::optional<std::size_t> most, Late mode) {
  std::unique_ptr<OpenModel> m(new OpenModel);
  m->mode_ = mode;
  const onnx::Parsed& model = session->parsed();
  m->values_ = std::move(values);
  if (most) m->most_ = std::max<std::size_t>(*most, 1);
  OCTAVO_TRY(m->inputs_, session->inputs());
  m->description_ = onnx::description_of(model);
  if (auto outputs = onnx::outputs_of(model)) m->outputs_ = std::move(*outputs);  // files need not declare them well
  OCTAVO_CHECK(session->check_ranges(options));
  auto bound = onnx::bind_inputs(m->inputs_, options.import, /*partly=*/true);
  if (!bound) {
    OCTAVO_CHECK(onnx::check_model(model, options.import));  // what no shape would cure
    return tl::unexpected<Error>(std::move(bound).error());
  }
  m->inputs_ = std::move(*bound);
  OCTAVO_CHECK(check_ranges(m->inputs_, ranges));
  m->ranges_ = std::move(ranges);
  m->open_ = std::any_of(m->inputs_.begin(), m->inputs_.end(), is_open);
  if (m->open_) OCTAVO_CHECK(onnx::check_model(model, options.import));
  m->session_ = std::move(session);
  m->bytes_ = std::move(bytes);
  m->options_ = std::move(options);
  return m;
}

Status OpenModel::check(const Shapes& shapes) const {
  for (const auto& [name, shape] : shapes) {
    const auto in = std::find_if(inputs_.begin(), inputs_.end(), [n = &name](const onnx::InputInfo& i) { return i.name == *n; });
    if (in == inputs_.end()) return fail(ErrorKind::bad_input, fmt::format("the model has no input \"{}\"", name));
    bool fits = !in->has_shape || in->dims.size() == shape.size();
    for (std::size_t k = 0; fits && in->has_shape && k < shape.size(); ++k) fits = in->dims[k] < 0 || in->dims[k] == shape[k];
    for (const std::int64_t d : shape) fits = fits && d >= 0;
    if (!fits)
      return fail(ErrorKind::bad_input,
                  fmt::format("input \"{}\" has shape {}, the model wants {}", name, ir::to_string(shape), in->shape_text()));
    if (const auto range = ranges_.find(name); range != ranges_.end()) OCTAVO_CHECK(inside(name, shape, range->second));
  }
  for (const onnx::InputInfo& in : inputs_) {
    if (is_open(in) && !shapes.contains(in.name)) {
      return fail(ErrorKind::bad_input,
                  fmt::format("input \"{}\" {} has open dimensions and no shape was given", in.name, in.shape_text()));
    }
  }
  return {};
}

std::set<std::string> OpenModel::late() const {
  const std::lock_guard lock(fork_safe_mutex());
  return late_;
}

std::set<const engine::Engine*> OpenModel::kept() const {
  std::set<const engine::Engine*> out;
  for (const auto& [key, entry] : built_) out.insert(entry.engine.get());
  return out;
}

std::shared_ptr<const engine::Engine> OpenModel::find_or_claim(const Key& key) const {
  std::unique_lock lock(fork_safe_mutex());
  for (;;) {
    const auto [entry, mine] = built_.try_emplace(key);
    entry->second.used = ++clock_;
    if (mine) return nullptr;
    if (!entry->second.building) return entry->second.engine;
    if (entry->second.generation != fork_generation()) {  // the thread that builds it is one of the parent process: it never ends
      (void)new Entry(std::exchange(entry->second, {}));  // a condition variable with sleepers cannot be destroyed
      return nullptr;
    }
    const auto done = entry->second.done;  // a failed build removes its entry; then look again
    done->wait(lock);
  }
}

/// Engines that somebody runs live on with their handles.
void OpenModel::drop_oldest() const {
  for (const bool resized : {false, true}) {
    for (;;) {
      auto oldest = built_.end();
      std::size_t count = 0, regions = 0;
      for (auto b = built_.begin(); b != built_.end(); ++b) {
        const Entry& e = b->second;
        const bool counts = most_ || (e.engine != nullptr && e.engine->is_resized()) == resized;
        if (!counts) continue;
        ++count;
        if (e.building) continue;
        const region::Plan& plan = e.engine->plan();
        regions += plan.regions.size() * (plan.devices.size() > 1 ? kRegionsOfDevice : 1);
        if (oldest == built_.end() || e.used < oldest->second.used) oldest = b;
      }
      const std::size_t most = most_ ? *most_ : resized ? kResizedKept : kEnginesKept;
      if (oldest == built_.end() || (count <= most && (most_ || !resized || regions <= kRegionsKept))) break;
      built_.erase(oldest);
    }
    if (most_) return;
  }
}

/// Every way of asking for the same shapes finds the same engine.
Shapes OpenModel::complete(const Shapes& shapes) const {
  Shapes out = shapes;
  for (const onnx::InputInfo& in : inputs_) {
    if (!is_open(in)) out.insert_or_assign(in.name, in.dims);
  }
  return out;
}

/// Of the nearest donor what suits these shapes; null: nothing was tuned. Under fork_safe_mutex().
OpenModel::Follow OpenModel::nearest(const Shapes& shapes) const {
  const auto batch = [&](const Shapes& of) {
    const auto first = inputs_.empty() ? of.end() : of.find(inputs_.front().name);
    return first == of.end() || first->second.empty() ? std::int64_t{1} : first->second.front();
  };
  const std::int64_t images = batch(shapes);
  // A plan for one image does not say how threads share several.
  const bool several = std::any_of(donors_.begin(), donors_.end(), [&](const Donor& d) { return batch(d.shapes) > 1; });
  Follow best;
  double least = 0;
  for (const Donor& donor : donors_) {
    if (several && (images > 1) != (batch(donor.shapes) > 1)) continue;
    for (std::size_t i = 0; i < donor.decided.size(); ++i) {
      const auto& decided = donor.decided[i];
      if (decided->images > 1 && !shares_evenly(images, options_.plan.threads)) continue;
      const bool covered = donor.resizers[i] != nullptr && donor.resizers[i]->covers(shapes);
      const double far = distance(shapes, donor.shapes) + (covered ? 0 : kPlanned);
      if (best.decided == nullptr || far < least) best = {decided, donor.resizers[i]}, least = far;
      break;
    }
  }
  if (best.decided == nullptr && !donors_.empty()) best = {donors_.back().decided.back(), donors_.back().resizers.back()};
  return best;
}

/// What is tuned anew prefers the packed constants of the nearest shapes that were tuned. Null: there are none.
std::shared_ptr<const plan::Decided> OpenModel::preferences(const Shapes& shapes) const {
  const std::lock_guard lock(fork_safe_mutex());
  if (mode_ == Late::tune || !plan::effort_at(options_.plan.effort).measures) return nullptr;
  const auto decided = nearest(shapes).decided;
  if (decided == nullptr) return nullptr;
  auto out = std::make_shared<plan::Decided>(*decided);
  out->prefers = true;
  return out;
}

/// What others took over from donors that are farther away is made anew when it is asked for.
void OpenModel::keep_donor(Donor donor) const {
  std::erase_if(donors_, [&](const Donor& d) { return d.shapes == donor.shapes; });
  donors_.push_back(std::move(donor));
  std::erase_if(built_, [&](const auto& b) {
    if (b.second.building || b.second.tuned) return false;
    const auto now = nearest(b.first.first).decided;
    return now != nullptr && now->from == donors_.back().decided.front()->from;
  });
}

Result<std::shared_ptr<const engine::Engine>> OpenModel::at(const Shapes& shapes, const ValueOf& value_of) const {
  return find(shapes, value_of, false);
}

Result<std::shared_ptr<const engine::Engine>> OpenModel::tune(const Shapes& shapes, const ValueOf& value_of) const {
  return find(shapes, value_of, true);
}

/// Where a plan runs image by image, the engine of the whole batch is made too: numbers of images that threads cannot share follow it.
OpenModel::Donor OpenModel::donor_of(const PipelineOptions& options, const Shapes& shapes, const Built& built,
                                     onnx::LateValues& given) const {
  Donor out{shapes, built.decided, {}, {}, {}};
  const auto session = this->session();
  if (!session) {
    out.resizers.resize(out.decided.size()), out.bases.resize(out.decided.size());
    return out;
  }
  for (const auto& decided : out.decided) {
    out.resizers.emplace_back();
    out.bases.emplace_back(decided == out.decided.front() ? built.engine : nullptr);
    if (!given.given.empty()) continue;
    PipelineOptions like = options;
    like.plan.follow = decided;
    std::shared_ptr<const engine::Engine> base = built.engine;
    if (decided != out.decided.front()) {
      auto made = (*session)->build(like, given);
      if (!made) continue;
      out.bases.back() = base = std::move(made->engine);
    }
    if (auto made = Resizer::create(**session, like, inputs_, ranges_, shapes, std::move(base), decided)) {
      (*made)->expect_arenas(resources_->devices);
      out.resizers.back() = std::move(*made);
    } else {
      out.why_planned = made.error().message;
    }
  }
  return out;
}

/// By other extents where that is possible, else by planning.
Result<Built> OpenModel::build(const PipelineOptions& options, const Follow& follow, onnx::LateValues& given) const {
  if (follow.resizer != nullptr && given.given.empty()) {
    if (auto resized = follow.resizer->at(options.import.shapes)) {
      Built out;
      out.engine = std::move(*resized);
      return out;
    }
  }
  auto session = this->session();
  if (!session) return tl::unexpected<Error>(std::move(session).error());
  return (*session)->build(options, given);
}

/// The model; of a file it is parsed when it is wanted first.
Result<std::shared_ptr<const Session>> OpenModel::session() const {
  {
    const std::lock_guard lock(fork_safe_mutex());
    if (session_ != nullptr) return session_;
  }
  if (source_ == nullptr) {
    return fail(
        ErrorKind::unsupported,
        fmt::format("engine \"{}\": none of its tuned plans can be adapted to these shapes, and it holds no model to plan them "
                    "from (it was built with --no-model)\n  to do: build it with the model, or with these "
                    "shapes among --shapes",
                    file_));
  }
  OCTAVO_TRY(KeptModel kept, kept_model(source_, file_));
  const std::lock_guard lock(fork_safe_mutex());
  if (session_ == nullptr) session_ = std::move(kept.session), holds_ = std::move(kept.holds);
  return session_;
}

Result<std::shared_ptr<const engine::Engine>> OpenModel::find(const Shapes& shapes, const ValueOf& value_of, bool tune) const {
  OCTAVO_CHECK(check(shapes));
  const Shapes all = complete(shapes);
  Follow follow;
  // A build that lacks the value of an input says so; it is then part of what engines are built for, and the next try has it.
  for (;;) {
    Key key{all, {}};
    onnx::LateValues given{values_, {}};
    for (const std::string& name : late()) {
      if (values_.contains(name)) continue;
      std::optional<ir::Tensor> value = value_of ? value_of(name) : std::nullopt;
      if (!value) {
        return fail(ErrorKind::bad_input,
                    fmt::format("shapes depend on the value of input \"{}\", and none is given (in the memory of the "
                                "host)\n  to do: run with arrays, or give `values`",
                                name));
      }
      const auto bytes = value->bytes();
      key.second[name] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      given.given[name] = std::move(*value);
    }
    if (!tune) {
      if (auto known = find_or_claim(key)) {
        if (mode_ == Late::background) tune_later(key);
        return known;
      }
    }
    PipelineOptions options = options_;
    options.import.shapes = all;
    if (!tune) {
      const std::lock_guard lock(fork_safe_mutex());
      // Estimates follow from the shapes alone: such plans are the same whatever came before.
      const bool follows = mode_ != Late::tune && (!file_.empty() || plan::effort_at(options_.plan.effort).measures);
      if (follows) follow = nearest(all);
      options.plan.follow = follow.decided;
    }
    if (options.plan.follow == nullptr) options.plan.follow = preferences(all);
    const bool own = plan::followed(options.plan) == nullptr;
    Result<Built> built = build(options, follow, given);
    Donor donor;
    if (built && own && mode_ != Late::tune && (!file_.empty() || plan::effort_at(options_.plan.effort).measures))
      donor = donor_of(options, all, *built, given);
    const std::lock_guard lock(fork_safe_mutex());
    if (built) {
      Entry& entry = built_[key];
      if (entry.building || tune) {
        entry.engine = built->engine;
        entry.tuned = own;
        entry.used = ++clock_;
      }
      entry.building = false;
      entry.done->notify_all();
      ++builds_;
      const auto engine = entry.engine;
      if (!donor.decided.empty()) keep_donor(std::move(donor));
      drop_oldest();
      return engine;
    }
    if (!tune) {
      built_[key].done->notify_all();
      built_.erase(key);
    }
    late_.insert(given.needed.begin(), given.needed.end());
    const bool known =
        std::all_of(given.needed.begin(), given.needed.end(), [&](const auto& n) { return given.given.contains(n); });
    if (known || !value_of) return tl::unexpected<Error>(std::move(built).error());
  }
}

/// Counts a run; the thread is started when there is something to do for it.
void OpenModel::tune_later(const Key& key) const {
  const std::lock_guard lock(fork_safe_mutex());
  const auto entry = built_.find(key);
  if (entry == built_.end() || entry->second.tuned || ++entry->second.runs != kOften) return;
  to_tune_.push_back(key);
  if (working_ && worker_generation_ == fork_generation()) return;
  if (worker_ != nullptr && worker_generation_ != fork_generation()) {
    (void)new std::shared_ptr<std::thread>(std::move(worker_));  // of the parent process: it can neither be joined nor destroyed
  } else if (worker_ != nullptr && worker_->joinable()) {
    worker_->detach();  // it has said that it ends
  }
  working_ = true;
  worker_generation_ = fork_generation();
  worker_ = std::make_shared<std::thread>([this] { tune_in_background(); });
}

void OpenModel::tune_in_background() const {
  const TaskScope task([this](std::string_view) { return !stopping_; });
  for (;;) {
    Key key;
    {
      const std::lock_guard lock(fork_safe_mutex());
      if (to_tune_.empty() || stopping_) {
        to_tune_.clear();
        working_ = false;  // the last that this thread does with the model
        return;
      }
      key = to_tune_.front();
    }
    const ValueOf value_of = [&](const std::string& name) -> std::optional<ir::Tensor> {
      const auto bytes = key.second.find(name);
      const auto in = std::find_if(inputs_.begin(), inputs_.end(), [&](const onnx::InputInfo& i) { return i.name == name; });
      const auto shape = key.first.find(name);
      if (bytes == key.second.end() || in == inputs_.end() || shape == key.first.end()) return std::nullopt;
      ir::Tensor value(in->dtype, shape->second);
      if (value.bytes().size() != bytes->second.size()) return std::nullopt;
      std::memcpy(value.mutable_bytes().data(), bytes->second.data(), bytes->second.size());
      return value;
    };
    (void)tune(key.first, value_of);  // what fails stays as it is
    const std::lock_guard lock(fork_safe_mutex());
    std::erase(to_tune_, key);
  }
}

void OpenModel::wait_for_background() const {
  for (;;) {
    {
      const std::lock_guard lock(fork_safe_mutex());
      if (!working_ || worker_generation_ != fork_generation()) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::uint64_t OpenModel::builds() const {
  const std::lock_guard lock(fork_safe_mutex());
  return builds_;
}

Shapes OpenModel::opt() const {
  Shapes out;
  for (const auto& [name, range] : ranges_) out[name] = range.opt;
  return out;
}

engine::Engines OpenModel::all() const {
  const std::lock_guard lock(fork_safe_mutex());
  engine::Engines out;
  for (const auto& [key, entry] : built_) {
    if (!entry.building) out.push_back(entry.engine);
  }
  return out;
}

}  // namespace octavo::api
