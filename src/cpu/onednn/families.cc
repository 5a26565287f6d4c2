#include "cpu/onednn/onednn.h"

#ifdef OCTAVO_HAVE_ONEDNN
#include <dnnl.h>
#endif
#include <fmt/format.h>

namespace octavo::cpu {

#ifdef OCTAVO_HAVE_ONEDNN
std::vector<const Family*> onednn_conv_families();
const Family& onednn_matmul_family();
#endif

const std::vector<const Family*>& onednn_families() {
#ifdef OCTAVO_HAVE_ONEDNN
  static const std::vector<const Family*> list = [] {
    std::vector<const Family*> all = onednn_conv_families();
    all.push_back(&onednn_matmul_family());
    return all;
  }();
#else
  static const std::vector<const Family*> list;
#endif
  return list;
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
