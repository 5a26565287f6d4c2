#include "plan/memo.h"

#include "region/hash.h"

namespace octavo::plan {

Memo::~Memo() {
  for (const region::Provider* p : providers_) p->forget();
}

Result<region::Artifact> CompiledRegions::compile(const region::Provider& provider, const region::Region& region,
                                                  const region::Plan& plan, const region::Tactic& tactic) {
  const std::string which = tactic.name() + " " + region::content_hash(region, plan);
  if (const auto found = made_.find(which); found != made_.end()) return found->second;
  OCTAVO_TRY(region::Artifact made, provider.compile(region, plan, tactic));
  if (made.code.empty() && made.source.empty() && made.launch.empty()) made_.emplace(which, made);
  return made;
}

const program::Program& SimplifiedPrograms::of(const program::Program& p, const std::vector<bool>& operand_is_u8) {
  std::string key;
  const auto number = [&](std::int64_t v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  for (const program::Instr& i : p.code) {
    number(static_cast<std::int64_t>(i.op));
    for (const int arg : i.args) number(arg);
    number(i.imm);
  }
  number(-1);  // no operation: what follows are outputs
  for (const program::Output& o : p.outputs) {
    number(o.value);
    number(static_cast<std::int64_t>(o.type));
  }
  number(-1);
  for (const program::Table& t : p.tables) key.append(reinterpret_cast<const char*>(t.data()), t.size());
  number(p.operand_count);
  for (const bool u8 : operand_is_u8) key += u8 ? '1' : '0';
  const auto [at, fresh] = made_.try_emplace(std::move(key));
  if (fresh) at->second = program::simplify(p, operand_is_u8);
  return at->second;
}

ir::Tensor LoweredWeights::of(const ir::Node& constant, const WeightForm& form, const std::function<ir::Tensor()>& make) {
  const ir::Tensor& from = constant.payload;
  Made& made = made_[{from.bytes().data(), form}];
  if (made.from.empty() || made.from.type() != from.type() || made.quantizer != constant.quantizer)
    made = {from, constant.quantizer, make()};
  return made.weights;
}

}  // namespace octavo::plan
