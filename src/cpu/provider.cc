#include "cpu/provider.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/family.h"
#include "cpu/onednn/onednn.h"
#if defined(__x86_64__) && __has_include("cpu/avx512/provider.h")
#include "cpu/avx512/provider.h"
#define OCTAVO_HAVE_AVX512_PROVIDER 1
#endif

namespace octavo::cpu {
namespace {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> list = [] {
    std::vector<const Family*> all{&copy_family(),          &pointwise_family(), &conv_family(),     &depthwise_family(),
                                   &depthwise_f32_family(), &conv_f32_family(),  &max_pool_family(), &avg_pool_family(),
                                   &reduce_family(),        &softmax_family(),   &resize_family()};
    all.insert(all.end(), onednn_families().begin(), onednn_families().end());
    all.insert(all.end(), move_families().begin(), move_families().end());
    all.push_back(&staged_family());
    all.push_back(&together_family());
    all.push_back(&reference_family());
    return all;
  }();
  return list;
}

const std::vector<const Family*>& families_for(const Region& r) {
  static const std::vector<const Family*> nothing{&nothing_family()};
  return stores_nothing(r) ? nothing : families();
}

std::string tactic_name(const Family& f, const Region& r, const Plan& plan, Isa isa) {
  return f.per_isa() ? fmt::format("{}.{}", f.name_for(r, plan), name_of(isa)) : f.name_for(r, plan);
}

struct Found {
  const Family* family;
  Isa isa;
};
Result<Found> find_tactic(const Region& r, const Plan& plan, std::string_view tactic) {
  for (const Family* f : families_for(r)) {
    if (!f->about(r)) continue;
    for (const Isa isa : kBlockIsas) {
      if (f->matches(tactic, r, plan, isa)) return Found{f, f->per_isa() ? isa : Isa::portable};
    }
  }
  return fail(ErrorKind::unsupported,
              fmt::format("region \"{}\": no tactic \"{}\" for this kind of region in this build", r.name, tactic));
}

}  // namespace

Status check_packed(const Region& region, const Plan& plan, std::size_t packed, std::span<const std::int64_t> bytes, bool more) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("region \"{}\", tactic \"{}\": {}", region.name, region.tactic, what));
  };
  if (region.packed.size() != packed || packed < bytes.size() || (!more && packed != bytes.size()))
    return bad(fmt::format("{} packed constants, needs {}{}", packed, more ? "at least " : "", bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::int64_t has = plan.buffers[static_cast<std::size_t>(region.packed[i])].bytes;
    if (has != bytes[i]) return bad(fmt::format("packed constant {} has {} bytes, the tactic reads {}", i, has, bytes[i]));
  }
  return {};
}

namespace {

class CpuProvider final : public region::Provider {
 public:
  std::string_view name() const override { return "cpu"; }

  std::vector<Offer> offers(const Region& region, const Plan& plan) const override {
    std::vector<Offer> out;
    for (const Family* f : families_for(region)) {
      if (!f->about(region)) continue;
      const std::string refusal = f->why_not(region, plan);
      for (const Isa isa : kBlockIsas) {
        Offer o;
        o.tactic = tactic_name(*f, region, plan, isa);
        o.refusal = refusal;
        if (o.refusal.empty() && f->per_isa()) o.refusal = why_not_here(isa);
        if (o.refusal.empty()) o.cost = f->cost(region, plan, isa);
        o.vector = f->per_isa() ? f->vector(isa) : f->vector(Isa::avx512);
        out.push_back(std::move(o));
        if (!f->per_isa()) break;
      }
    }
    return out;
  }

  Result<std::vector<ir::Tensor>> pack(const Region& region, const Plan& plan, std::string_view tactic) const override {
    OCTAVO_TRY(const Found found, find_tactic(region, plan, tactic));
    Region named = region;
    named.tactic = tactic;
    OCTAVO_TRY(std::vector<ir::Tensor> packed, found.family->pack(named, plan, found.isa));
    OCTAVO_TRY(const std::vector<std::int64_t> bytes, found.family->packed_bytes(named, plan, found.isa));
    bool same = packed.size() == bytes.size() || (found.family->packs_parts() && packed.size() > bytes.size());
    for (std::size_t i = 0; same && i < bytes.size(); ++i) same = static_cast<std::int64_t>(packed[i].bytes().size()) == bytes[i];
    if (!same) return fail(ErrorKind::internal, fmt::format("packing for {}: not the sizes that loading expects", tactic));
    return packed;
  }

  Result<std::unique_ptr<Kernel>> instantiate(const Region& region, const Plan& plan, Packed packed) const override {
    OCTAVO_TRY(const Found found, find_tactic(region, plan, region.tactic));
    const std::string refusal = found.family->per_isa() ? why_not_here(found.isa) : std::string();
    if (!refusal.empty()) {
      return fail(ErrorKind::unsupported,
                  fmt::format("loading region \"{}\" with tactic {}: {}\n  build the engine again on this machine", region.name,
                              region.tactic, refusal));
    }
    if (const std::string why = found.family->why_not(region, plan); !why.empty()) {
      return fail(ErrorKind::unsupported, fmt::format("loading region \"{}\" with tactic {}: {}", region.name, region.tactic, why));
    }
    OCTAVO_TRY(const std::vector<std::int64_t> bytes, found.family->packed_bytes(region, plan, found.isa));
    OCTAVO_CHECK(check_packed(region, plan, packed.size(), bytes, found.family->packs_parts()));
    return found.family->instantiate(region, plan, found.isa, packed);
  }

 private:
  static std::string why_not_here(Isa isa) {
    if (kernel_table(isa) == nullptr) return fmt::format("this build has no {} kernels", name_of(isa));
    return why_not(isa);
  }
};

}  // namespace

const region::Provider& cpu_provider() {
  static const CpuProvider provider;
  return provider;
}

const std::vector<const region::Provider*>& providers() {
#ifdef OCTAVO_HAVE_AVX512_PROVIDER
  static const std::vector<const region::Provider*> list{&avx512_provider(), &cpu_provider()};
#else
  static const std::vector<const region::Provider*> list{&cpu_provider()};
#endif
  return list;
}

}  // namespace octavo::cpu
