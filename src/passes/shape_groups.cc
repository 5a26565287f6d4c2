#include "passes/shape_groups.h"

namespace octavo::passes {

std::vector<Group> groups_of(const ir::Shape& one, const ir::Shape& other) {
  std::vector<Group> out;
  for (std::size_t i = 0, j = 0; i < one.size() || j < other.size();) {
    Group group{i, i, j, j};
    std::int64_t left = 1, right = 1;
    do {
      const bool takes_left =
          i < one.size() && (left < right || (left == right && (j == other.size() || one[i] == 1 || i == group.from)));
      if (takes_left) {
        left *= one[i++];
      } else {
        right *= other[j++];
      }
    } while (left != right);
    group.to = i, group.end = j;
    out.push_back(group);
  }
  return out;
}

}  // namespace octavo::passes
