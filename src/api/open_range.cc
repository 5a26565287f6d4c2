// An open model with a declared range of shapes: plans that cover it, and what its largest shapes take.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "api/open_model.h"
#include "plan/decided.h"

namespace octavo::api {

/// The ends of the range, and the opt shapes with each open dimension at its least end alone.
std::vector<Shapes> OpenModel::corners() const {
  Shapes least, most;
  for (const auto& [name, range] : ranges_) least[name] = range.min, most[name] = range.max;
  std::vector<Shapes> out{complete(most), complete(least)};
  std::map<std::string, std::vector<std::pair<std::string, std::size_t>>> dimensions;  // by symbol
  for (const onnx::InputInfo& in : inputs_) {
    const auto range = ranges_.find(in.name);
    if (range == ranges_.end()) continue;
    for (std::size_t k = 0; k < range->second.min.size(); ++k) {
      const bool named = k < in.symbols.size() && !in.symbols[k].empty();
      dimensions[named ? in.symbols[k] : fmt::format("{}/{}", in.name, k)].emplace_back(in.name, k);
    }
  }
  for (const auto& [symbol, places] : dimensions) {
    for (const bool low : {true, false}) {
      Shapes one = low ? most : least;
      for (const auto& [input, k] : places) one[input][k] = (low ? least : most)[input][k];
      out.push_back(complete(one));
    }
  }
  return out;
}

Status OpenModel::adopt(const Shapes& shapes, const Built& built) const {
  PipelineOptions options = options_;
  const Shapes all = complete(shapes);
  OCTAVO_CHECK(check(all));
  options.import.shapes = all;
  onnx::LateValues given{values_, {}};
  Donor donor = donor_of(options, all, built, given);
  {
    const std::lock_guard lock(fork_safe_mutex());
    Entry& entry = built_[{all, {}}];
    entry.engine = built.engine;
    entry.building = false, entry.tuned = true, entry.used = ++clock_;
    keep_donor(std::move(donor));
    drop_oldest();
  }
  return {};
}

/// A plan for one, of any dimension, may have another form than the others: where a corner of the range follows from no tuned plan, one is planned for it by
/// their decisions, without timing, and others follow from that.
Status OpenModel::cover_range() const {
  if (ranges_.empty()) return {};
  for (const Shapes& corner : corners()) {
    Follow follow;
    bool any = false, there = false;
    {
      const std::lock_guard lock(fork_safe_mutex());
      follow = nearest(corner);
      there = std::any_of(donors_.begin(), donors_.end(), [&](const Donor& d) { return d.shapes == corner; });
      any = std::any_of(donors_.begin(), donors_.end(), [](const Donor& d) { return d.resizers.front() != nullptr; });
    }
    if (!any) return {};  // extents are no functions of the shapes at all
    if (follow.decided == nullptr || there || (follow.resizer != nullptr && follow.resizer->at(corner))) continue;
    PipelineOptions options = options_;
    options.import.shapes = corner;
    options.plan.follow = follow.decided;
    onnx::LateValues given{values_, {}};
    OCTAVO_TRY(const auto session, this->session());
    auto built = session->build(options, given);
    if (!built) continue;  // the model itself ends before its declared range: a run says why
    for (auto& decided : built->decided) {
      plan::Decided own = *decided;
      own.from = follow.decided->from;
      decided = std::make_shared<const plan::Decided>(std::move(own));
    }
    Donor donor = donor_of(options, corner, *built, given);
    if (donor.resizers.front() == nullptr) continue;
    const std::lock_guard lock(fork_safe_mutex());
    keep_donor(std::move(donor));
  }
  return {};
}

std::string OpenModel::why_planned() const {
  std::vector<Donor> donors;
  {
    const std::lock_guard lock(fork_safe_mutex());
    donors = donors_;
  }
  for (const Shapes& corner : corners()) {
    bool follows = false;
    std::string why;
    for (const Donor& d : donors) {
      for (const auto& resizer : d.resizers) follows = follows || (resizer != nullptr && resizer->covers(corner));
      if (!d.why_planned.empty()) why = d.why_planned;
    }
    if (!follows) return why.empty() ? "a plan for the ends of the range is another one than those that were tuned" : why;
  }
  return "";
}

engine::Engines OpenModel::tuned() const {
  const std::lock_guard lock(fork_safe_mutex());
  engine::Engines out;
  for (const Donor& d : donors_) {
    for (const auto& base : d.bases) {
      if (base != nullptr) out.push_back(base);
    }
  }
  return out;
}

void OpenModel::expect_largest(int threads) const {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  if (ranges_.empty()) return;
  Shapes most;
  for (const auto& [name, range] : ranges_) most[name] = range.max;
  most = complete(most);
  std::shared_ptr<const Resizer> resizer;
  {
    const std::lock_guard lock(fork_safe_mutex());
    resizer = nearest(most).resizer;
  }
  if (resizer == nullptr) return;  // nothing is known before the shape is planned
  const auto engine = resizer->at(most);
  if (!engine) return;
  if (const auto context = engine::Context::create(*engine, threads, nullptr, resources_)) (*context)->expect_run(kMost);
}

std::size_t OpenModel::most_arena_bytes() const {
  std::vector<std::shared_ptr<const Resizer>> resizers;
  {
    const std::lock_guard lock(fork_safe_mutex());
    for (const Donor& d : donors_) resizers.insert(resizers.end(), d.resizers.begin(), d.resizers.end());
  }
  std::size_t most = 0;
  for (const auto& r : resizers) most = std::max(most, r == nullptr || ranges_.empty() ? 0 : r->most_arena_bytes());
  return most;
}

}  // namespace octavo::api
