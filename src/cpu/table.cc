#include "cpu/table.h"

namespace octavo::cpu {

const Families& table() {
  static const Families all = [] {
    Families out;
#define OCTAVO_FAMILY(name) out.push_back(&name##_family());
#define OCTAVO_FAMILIES(name) \
  for (const Family* f : name##_families()) out.push_back(f);
#include "cpu/table.def"
#undef OCTAVO_FAMILY
#undef OCTAVO_FAMILIES
    return out;
  }();
  return all;
}

}  // namespace octavo::cpu
