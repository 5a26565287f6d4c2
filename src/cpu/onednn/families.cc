#include "cpu/onednn/onednn.h"

namespace octavo::cpu {

#ifdef OCTAVO_HAVE_ONEDNN
const Family& onednn_conv_family();
const Family& onednn_matmul_family();
#endif

const std::vector<const Family*>& onednn_families() {
#ifdef OCTAVO_HAVE_ONEDNN
  static const std::vector<const Family*> list{&onednn_conv_family(), &onednn_matmul_family()};
#else
  static const std::vector<const Family*> list;
#endif
  return list;
}

}  // namespace octavo::cpu
