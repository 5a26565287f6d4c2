#include "api/read_launches.h"

#include <algorithm>
#include <optional>
#include <string>

#include "cpu/code_shelf.h"

namespace octavo::api {

/// Loads regions of one plan: by what was read of their launches, where it was, and as the layout of their constants wants it.
class ReadProvider final : public region::Provider {
 public:
  ReadProvider(const region::Provider& inner, const ReadLaunches& read, const ReadLaunches::Shape& shape)
      : inner_(inner),
        restarts_(dynamic_cast<const region::Restarts*>(&inner)),
        loads_as_(dynamic_cast<const region::LoadsAs*>(&inner)),
        read_(read),
        shape_(shape) {}
  std::string_view name() const override { return inner_.name(); }
  bool knows(const region::Tactic& tactic) const override { return inner_.knows(tactic); }
  std::string_view device() const override { return inner_.device(); }
  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& plan) const override {
    return inner_.offers(r, plan);
  }
  Result<region::Artifact> compile(const region::Region& r, const region::Plan& plan, const region::Tactic& t) const override {
    return inner_.compile(r, plan, t);
  }
  std::optional<std::string> packed_layout(const region::Region& r, const region::Plan& plan) const override {
    return inner_.packed_layout(r, plan);
  }

  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& plan,
                                               const region::ArtifactView& artifact) const override {
    std::optional<cpu::ShelfScope> sharing;
    if (shape_.shelf != nullptr) sharing.emplace(*shape_.shelf);
    const region::Region* const first = plan.regions.data();
    const bool of_plan = &r >= first && &r < first + plan.regions.size();  // not a part of one
    if (!of_plan) return inner_.load(r, plan, artifact);
    const auto i = static_cast<std::size_t>(&r - first);
    if (const std::string* layout = shape_.layouts[i]; layout != nullptr) {
      if (loads_as_ != nullptr) return loads_as_->load_as(r, plan, artifact, *layout);
      if (inner_.packed_layout(r, plan) != *layout)
        return fail(ErrorKind::unsupported, "its constants are packed in another way for these extents");
    }
    const auto row = read_.rows_.find(i);
    if (restarts_ == nullptr || !shape_.point || row == read_.rows_.end()) return inner_.load(r, plan, artifact);
    std::vector<std::int64_t> numbers;
    const auto form = shape_.table->numbers(i, *shape_.point, numbers);
    if (!form || row->second[*form].launch == nullptr) return inner_.load(r, plan, artifact);
    const ReadLaunches::Form& known = row->second[*form];
    return restarts_->load_read(r, plan, *known.launch, numbers, known.code.get());
  }

 private:
  const region::Provider& inner_;
  const region::Restarts* restarts_;
  const region::LoadsAs* loads_as_;
  const ReadLaunches& read_;
  const ReadLaunches::Shape& shape_;
};

void ReadLaunches::read(const LaunchTable& table, const region::Plan& plan, const engine::Providers& providers,
                        std::span<const std::span<const std::byte>> codes) {
  std::map<std::pair<const region::Restarts*, std::int32_t>, std::shared_ptr<const region::Read>> read_codes;
  rows_.clear();
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const auto knows = [&](const region::Provider* p) { return p->knows(plan.regions[i].tactic); };
    const auto found = std::find_if(providers.begin(), providers.end(), knows);
    const auto* restarts = found == providers.end() ? nullptr : dynamic_cast<const region::Restarts*>(*found);
    if (restarts == nullptr) continue;
    std::vector<Form> forms;
    for (const LaunchTable::Indexed& f : table.forms(i)) {
      Form& form = forms.emplace_back();
      if (f.text.empty()) continue;
      if (f.code >= 0) {
        const auto [at, fresh] = read_codes.try_emplace({restarts, f.code});
        if (fresh) {
          if (auto code = restarts->read_code(codes[static_cast<std::size_t>(f.code)])) at->second = std::move(*code);
        }
        if (at->second == nullptr) continue;
        form.code = at->second;
      }
      if (auto launch = restarts->read_launch(f.text)) form.launch = std::move(*launch);
    }
    if (!forms.empty()) rows_.emplace(i, std::move(forms));
  }
}

std::vector<std::unique_ptr<const region::Provider>> ReadLaunches::at(const Shape& shape,
                                                                      const engine::Providers& providers) const {
  std::vector<std::unique_ptr<const region::Provider>> out;
  for (const region::Provider* p : providers) out.push_back(std::make_unique<ReadProvider>(*p, *this, shape));
  return out;
}

}  // namespace octavo::api
