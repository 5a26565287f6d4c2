#include "plan/candidates/blocks.h"

#include <algorithm>
#include <map>
#include <optional>

#include "plan/candidates/stages.h"
#include "region/tensor_ref.h"

namespace octavo::plan {
namespace {

using region::Plan;
using region::Region;

constexpr std::size_t kMostBlockStages = 5;

bool can_be_in_a_block(const Region& r) {
  return !r.independent && std::all_of(r.stages.begin(), r.stages.end(), [](const region::Stage& s) { return in_row_tiles(s); });
}

std::int64_t weights_of(const Region& r) {
  std::int64_t bytes = 0;
  for (const region::Stage& s : r.stages) {
    const auto& w = s.anchor.weights;
    if (w) bytes += tensor_bytes(*w);
  }
  return bytes;
}

class Grower {
 public:
  Grower(const Plan& plan, const std::vector<Link>& links, std::vector<char>& taken) : plan_(plan), links_(links), taken_(taken) {}

  std::optional<Block> from(std::size_t last) {
    members_ = {last};
    block_.last = last;
    stages_ = plan_.regions[last].stages.size();
    while (const Link* link = next()) take(*link);
    if (members_.size() < 2) return std::nullopt;
    for (const std::size_t m : members_) {
      taken_[m] = 1;
      block_.weight_bytes += weights_of(plan_.regions[m]);
    }
    return std::move(block_);
  }

 private:
  /// The nearest region before the members that one of them alone reads.
  [[nodiscard]] const Link* next() const {
    const Link* best = nullptr;
    for (const Link& l : links_) {
      const Region& r = plan_.regions[l.first];
      if (l.kind == LinkKind::stage_store || !members_.contains(l.second) || members_.contains(l.first) || taken_[l.first] != 0)
        continue;
      if (r.graph_outputs.size() != 1 || !can_be_in_a_block(r) || stages_ + r.stages.size() > kMostBlockStages) continue;
      if (members_.size() >= 3 && l.bytes < narrowest_) continue;
      if (best == nullptr || l.first > best->first) best = &l;
    }
    return best;
  }

  void take(const Link& link) {
    members_.insert(link.first);
    stages_ += plan_.regions[link.first].stages.size();
    block_.values.insert(link.value);
    block_.between_bytes += link.bytes;
    narrowest_ = members_.size() == 2 ? link.bytes : std::min(narrowest_, link.bytes);
  }

  const Plan& plan_;
  const std::vector<Link>& links_;
  std::vector<char>& taken_;
  std::set<std::size_t> members_;
  std::size_t stages_ = 0;
  std::int64_t narrowest_ = 0;
  Block block_;
};

}  // namespace

std::vector<Block> find_blocks(const Plan& plan) {
  const std::vector<Link> links = find_links(plan);
  std::vector<char> taken(plan.regions.size(), 0);
  std::vector<Block> out;
  for (std::size_t j = plan.regions.size(); j-- > 0;) {
    if (taken[j] != 0 || !can_be_in_a_block(plan.regions[j])) continue;
    if (auto block = Grower(plan, links, taken).from(j)) out.push_back(std::move(*block));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

bool worth_pricing(const Block& block, std::int64_t l2_bytes) {
  return block.between_bytes >= l2_bytes / 2 && block.weight_bytes <= l2_bytes / 2;
}

}  // namespace octavo::plan
