#include "base/causes/kernels.h"
#include "cpu/assumed.h"
#include "cpu/onednn/onednn.h"
#include "cpu/table.h"

#ifdef OCTAVO_HAVE_ONEDNN
#include <dnnl.h>
#endif
#include <fmt/format.h>

namespace octavo::cpu {

#ifdef OCTAVO_HAVE_ONEDNN
Families onednn_conv_families();
const Family& onednn_matmul_family();
#endif

// Primitives are created for one thread and run inside the engine's own threads: no other thread is started. Weights are packed as they are and
// reordered at load, so that engine files do not depend on the library's version.
Families onednn_families() {
#ifdef OCTAVO_HAVE_ONEDNN
  Families all = onednn_conv_families();
  all.push_back(&onednn_matmul_family());
  return all;
#else
  return {};
#endif
}

Reasons why_no_onednn() {
  if (best_isa() == detected_isa() && !assumes_processor()) return {};
  return {because<cause::capability_not_allowed>(name_of(detected_isa()), "OCTAVO_CPU", name_of(best_isa()))};
}

std::string onednn_version() {
#ifdef OCTAVO_HAVE_ONEDNN
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
#else
  return {};
#endif
}

}  // namespace octavo::cpu
