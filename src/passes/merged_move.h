// What a tensor between two moves leaves behind when both become one: it goes, but its elements stay.
#pragma once

#include <utility>

#include "ir/graph.h"

namespace octavo::passes {

/// `between` is `source` moved. Its range holds for the same elements; its name, if no one else reads it, names them in rules, tables and messages.
inline void keep_name_and_range(ir::Graph& g, ir::ValueId between, ir::ValueId source) {
  ir::Value& stays = g.value(source);
  if (!stays.range) stays.range = g.value(between).range;
  if (stays.name.empty() && g.users(between).size() == 1 && g.output_uses(between) == 0)
    std::swap(stays.name, g.value(between).name);
}

}  // namespace octavo::passes
