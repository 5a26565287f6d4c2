#include "cpu/provider.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/causes/kernels.h"
#include "cpu/stages/parts.h"
#include "cpu/table.h"
#include "region/kernel_version.h"
#include "region/restarts.h"

namespace octavo::cpu {
namespace {

constexpr std::string_view kProvider = "cpu";

std::vector<const Family*> families_for(const Region& r) {
  if (stores_nothing(r)) return {&nothing_family()};
  std::vector<const Family*> out;
  std::copy_if(table().begin(), table().end(), std::back_inserter(out), [&](const Family* f) { return f->about(r); });
  return out;
}

std::string name_of(const Family& f, const Region& r, Isa isa) {
  return f.row().has_levels() ? fmt::format("{}.{}", f.name_for(r), name_of(isa)) : f.name_for(r);
}

/// The family's tactic for a level. What the tactic says of itself follows from the family, the level and the parts, on any machine.
Tactic tactic_of(const Family& f, const Region& r, Isa isa, Parameters parameters = {}, std::vector<Tactic> parts = {}) {
  const Row& row = f.row();
  Tactic t;
  t.provider = kProvider;
  t.family = name_of(f, r, isa);
  t.version = row.version;
  t.required = region::required_by(parts);
  if (isa != Isa::portable) t.required.emplace_back(name_of(isa));
  t.required.insert(t.required.end(), row.required.begin(), row.required.end());
  std::ranges::move(f.required_by(parameters), std::back_inserter(t.required));
  std::ranges::sort(t.required);
  t.vector = parts.empty() ? row.vector && (isa != Isa::portable || !row.has_levels())
                           : std::all_of(parts.begin(), parts.end(), [](const Tactic& p) { return p.vector; });
  t.reference = row.reference;
  t.stores_in_place = row.stores_in_place;
  t.forwards_stages = row.forwards_stages;
  t.parameters = std::move(parameters);
  t.parts = std::move(parts);
  return t;
}

/// Why the tactic cannot run now, whatever the region is.
Reasons why_not_now(const Family& f, Isa isa, const Tactic& tactic) {
  if (kernel_table(isa) == nullptr) return {because<cause::capability_missing>(name_of(isa), capabilities())};
  Reasons why = why_lacking(tactic.required);
  return why.empty() ? f.why_not_here() : why;
}

/// The tactic of an engine file is the one that this version makes of its parameters. Errors: `unsupported` for another version of the
/// family, `bad_engine` for anything else that differs.
Status check_tactic(const Tactic& stored, const Family& f, const Region& r, Isa isa) {
  if (stored.version != f.row().version) return region::other_version(stored, f.row().version);
  if (const Reasons why = region::why_not_described(stored.parameters, f.row().parameters); !why.empty())
    return fail(ErrorKind::bad_engine, fmt::format("region \"{}\", tactic {}: {}", r.name, stored.name(), spelled(why)));
  const Tactic own = tactic_of(f, r, isa, stored.parameters, f.row().composed ? stored.parts : std::vector<Tactic>());
  if (stored == own) return {};
  if (stored.name() != own.name())
    return fail(ErrorKind::bad_engine, fmt::format("tactic {}: for this region it is {}", stored.name(), own.name()));
  return fail(
      ErrorKind::bad_engine,
      fmt::format(
          "tactic {}: the file states other properties than this tactic has (it states that it requires {}; it requires {})",
          stored.name(), fmt::join(stored.required, ", "),
          own.required.empty() ? "nothing" : fmt::format("{}", fmt::join(own.required, ", "))));
}

/// The row and level of a tactic.
struct Found {
  const Family* family;
  Isa isa;
};
Result<Found> find(const Region& r, const Tactic& tactic) {
  for (const Family* f : families_for(r)) {
    for (const Isa isa : f->row().levels) {
      if (tactic.provider != kProvider || name_of(*f, r, isa) != tactic.family) continue;
      OCTAVO_CHECK(check_tactic(tactic, *f, r, isa));
      return Found{f, isa};
    }
  }
  return fail(ErrorKind::unsupported,
              fmt::format("region \"{}\": no tactic \"{}\" for this kind of region in this build", r.name, tactic.name()));
}

/// The setting of a region for the tactic. `doing`: "loading".
Result<std::unique_ptr<Matched>> match(const Found& found, const Region& r, const Plan& plan, const Tactic& tactic,
                                       std::string_view doing) {
  auto matched = found.family->matched({r, plan, found.isa, tactic.parameters, tactic.parts});
  if (matched) return matched;
  return fail(matched.error().kind, fmt::format("{} region \"{}\" with tactic {}: {}", doing, r.name, tactic.name(),
                                                spelled(refusal_of(matched.error()))));
}

/// The constants that a region has are those that its tactic makes: kernels read them without looking. `more`: further ones may follow.
Status check_packed(const Region& r, const Tactic& tactic, Packed packed, const std::vector<std::int64_t>& bytes, bool more) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("region \"{}\", tactic \"{}\": {}", r.name, tactic.name(), what));
  };
  if (packed.size() < bytes.size() || (!more && packed.size() != bytes.size()))
    return bad(fmt::format("{} packed constants, needs {}{}", packed.size(), more ? "at least " : "", bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (static_cast<std::int64_t>(packed[i].size()) != bytes[i])
      return bad(fmt::format("packed constant {} has {} bytes, the tactic reads {}", i, packed[i].size(), bytes[i]));
  }
  return {};
}

/// A family's offers on this machine, one a level.
void offer(const Family& f, const Region& r, const Plan& plan, std::vector<Offer>& out) {
  const Row& row = f.row();
  const auto refused = [&](Isa isa, Reasons why) { out.push_back({tactic_of(f, r, isa), std::move(why), 0, row.rank}); };
  // Settings of generated code take long: they are not made in vain.
  const Isa only_level = row.levels.front();
  if (Reasons why = row.rank == 0 ? why_not_now(f, only_level, tactic_of(f, r, only_level)) : f.why_not_here(); !why.empty())
    return refused(only_level, std::move(why));
  const Parameters here = f.parameters_here();
  const auto matched = f.matched({r, plan, row.levels.back(), here});
  for (const Isa isa : row.levels) {
    if (!matched) {
      refused(isa, refusal_of(matched.error()));
      continue;
    }
    Offer o{tactic_of(f, r, isa, (*matched)->parameters(), (*matched)->parts()), {}, 0, row.rank};
    o.refusal = why_not_now(f, isa, o.tactic);
    if (o.refusal.empty()) o.cost = (*matched)->cost(isa);
    out.push_back(std::move(o));
  }
}

/// Does the family run the region here? Where it does, its variants.
bool add_variants(const Family& f, const Region& r, const Plan& plan, std::vector<Offer>& out) {
  const auto isa = std::ranges::find_if(f.row().levels, [&](Isa i) { return why_not_now(f, i, tactic_of(f, r, i)).empty(); });
  if (isa == f.row().levels.end()) return false;
  const auto usual = f.matched({r, plan, *isa, f.parameters_here()});
  if (!usual || !why_lacking(tactic_of(f, r, *isa, {}, (*usual)->parts()).required).empty()) return false;
  for (const Parameters& parameters : (*usual)->variants()) {
    const auto matched = f.matched({r, plan, *isa, parameters});
    if (!matched) continue;
    Offer o{tactic_of(f, r, *isa, (*matched)->parameters(), (*matched)->parts()), {}, (*matched)->cost(*isa), f.row().rank};
    if (why_lacking(o.tactic.required).empty()) out.push_back(std::move(o));
  }
  return true;
}

class CpuProvider final : public region::Provider, public region::LoadsAs {
 public:
  std::string_view name() const override { return kProvider; }

  /// A family's name may begin with that of another: the longest one is meant.
  std::vector<ParameterRow> parameters_of(const Tactic& tactic) const override {
    const Family* found = nullptr;
    for (const Family* f : table()) {
      const std::string_view name = f->row().name;
      const bool fits =
          tactic.family.starts_with(name) && (tactic.family.size() == name.size() || tactic.family[name.size()] == '.');
      if (fits && (found == nullptr || found->row().name.size() < name.size())) found = f;
    }
    if (found == nullptr || tactic.provider != name()) return {};
    return {found->row().parameters.begin(), found->row().parameters.end()};
  }

  std::vector<Offer> offers(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    for (const Family* f : families_for(region)) {
      if (!f->outdated_here()) offer(*f, region, plan, out);
    }
    return out;
  }

  /// Generated code is faster by more than a set of parameters makes of anything else.
  std::vector<Offer> variants(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    bool generated = false;
    for (const Family* f : families_for(region)) {
      if (f->outdated_here() || (generated && f->row().rank > 0 && !f->row().composed)) continue;
      const bool runs = add_variants(*f, region, plan, out);
      generated = generated || (runs && f->row().rank == 0);
    }
    return out;
  }

  std::optional<std::string> packed_layout(const Region& region, const Plan& plan) const override {
    return cpu::packed_layout(region, plan);
  }

  Result<region::Artifact> compile(const Region& region, const Plan& plan, const Tactic& tactic) const override {
    region::Artifact made;
    OCTAVO_TRY(made.constants, pack_part(region, plan, tactic));
    return made;
  }

  Result<std::unique_ptr<region::Kernel>> load(const Region& region, const Plan& plan,
                                               const region::ArtifactView& artifact) const override {
    OCTAVO_TRY(const auto packed, packed_of(region, plan, artifact));
    return load_part(region, plan, region.tactic, packed);
  }

  Result<std::unique_ptr<region::Kernel>> load_as(const Region& region, const Plan& plan, const region::ArtifactView& artifact,
                                                  std::string_view layout) const override {
    OCTAVO_TRY(const auto packed, packed_of(region, plan, artifact));
    return load_part(region, plan, region.tactic, packed, layout);
  }

 private:
  static Result<std::vector<std::span<const std::byte>>> packed_of(const Region& region, const Plan& plan,
                                                                   const region::ArtifactView& artifact) {
    if (region.packed.size() != artifact.constants.size())
      return fail(ErrorKind::bad_engine, fmt::format("region \"{}\": {} packed constants, {} are there", region.name,
                                                     region.packed.size(), artifact.constants.size()));
    std::vector<std::span<const std::byte>> packed;
    for (std::size_t i = 0; i < region.packed.size(); ++i) {
      const std::int64_t bytes = plan.buffers[static_cast<std::size_t>(region.packed[i])].bytes;
      packed.emplace_back(artifact.constants[i], static_cast<std::size_t>(bytes));
    }
    return packed;
  }
};

}  // namespace

std::vector<Offer> offers_of_rank(const Region& region, const Plan& plan, int rank) {
  std::vector<Offer> out;
  for (const Family* f : families_for(region)) {
    if (f->row().rank == rank && !f->outdated_here()) offer(*f, region, plan, out);
  }
  return out;
}

Result<std::vector<ir::Tensor>> pack_part(const Region& region, const Plan& plan, const Tactic& tactic) {
  OCTAVO_TRY(const Found found, find(region, tactic));
  OCTAVO_TRY(const auto matched, match(found, region, plan, tactic, "packing for"));
  OCTAVO_TRY(auto packed, matched->pack());
  const std::vector<std::int64_t> bytes = matched->packed_bytes();
  bool same = packed.size() == bytes.size() || (found.family->row().composed && packed.size() > bytes.size());
  for (std::size_t i = 0; same && i < bytes.size(); ++i) same = static_cast<std::int64_t>(packed[i].bytes().size()) == bytes[i];
  if (!same) return fail(ErrorKind::internal, fmt::format("packing for {}: not the sizes that loading expects", tactic.name()));
  return packed;
}

std::optional<std::string> layout_of_part(const Region& region, const Plan& plan, const Tactic& tactic) {
  const auto found = find(region, tactic);
  if (!found) return std::nullopt;
  const auto matched = match(*found, region, plan, tactic, "packing for");
  return matched ? (*matched)->layout() : std::nullopt;
}

std::optional<std::string> packed_layout(const Region& region, const Plan& plan) {
  return layout_of_part(region, plan, region.tactic);
}

Result<std::unique_ptr<Kernel>> load_part(const Region& region, const Plan& plan, const Tactic& tactic, Packed packed,
                                          std::optional<std::string_view> layout) {
  OCTAVO_TRY(const Found found, find(region, tactic));
  if (const Reasons why = why_not_now(*found.family, found.isa, tactic); !why.empty()) {
    return fail(ErrorKind::unsupported,
                fmt::format("loading region \"{}\" with tactic {}: {}\n  build the engine again on this machine", region.name,
                            tactic.name(), in_words(why)));
  }
  OCTAVO_TRY(const auto matched, match(found, region, plan, tactic, "loading"));
  if (layout && matched->layout() != *layout)
    return fail(ErrorKind::unsupported,
                fmt::format("region \"{}\": its constants are packed in another way for these extents", region.name));
  OCTAVO_CHECK(check_packed(region, tactic, packed, matched->packed_bytes(), found.family->row().composed));
  return matched->load(packed);
}

bool divides(const Region& region) {
  return std::any_of(region.stages.begin(), region.stages.end(), [](const Stage& s) {
    return std::any_of(s.program.code.begin(), s.program.code.end(),
                       [](const program::Instr& i) { return i.op == program::Op::div; });
  });
}

const region::Provider& cpu_provider() {
  static const CpuProvider provider;
  return provider;
}

const std::vector<const region::Provider*>& providers() {
  static const std::vector<const region::Provider*> list{&cpu_provider()};
  return list;
}

}  // namespace octavo::cpu
