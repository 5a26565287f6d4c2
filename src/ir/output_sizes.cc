#include "ir/output_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace octavo::ir {

std::size_t shown_outputs(std::size_t outputs, std::span<const OutputSize> sizes) {
  auto first = static_cast<int>(outputs);
  for (const OutputSize& s : sizes) first = std::min(first, s.count);
  return static_cast<std::size_t>(first);
}

std::vector<NodeId> count_nodes(const Graph& g) {
  std::vector<NodeId> out;
  for (const OutputSize& s : g.sizes) {
    if (is_counter(s)) out.push_back(g.value(g.outputs[static_cast<std::size_t>(s.count)]).producer);
  }
  return out;
}

void drop_conditions(Graph& g) {
  const std::size_t shown = shown_outputs(g.outputs.size(), g.sizes);
  const auto is_condition = [&](const OutputSize& s) {
    if (!is_counter(s)) return false;
    const Node& n = g.producer(g.outputs[static_cast<std::size_t>(s.count)]);
    return n.op == Op::cast && g.type(n.inputs[0]).dtype == DType::boolean;
  };
  std::erase_if(g.sizes, is_condition);
  std::vector<int> place(g.outputs.size(), -1);  // of the outputs that stay
  std::size_t kept = 0;
  for (std::size_t i = 0; i < g.outputs.size(); ++i) {
    const auto says = [&](const OutputSize& s) { return static_cast<std::size_t>(s.count) == i; };
    if (i >= shown && std::none_of(g.sizes.begin(), g.sizes.end(), says)) continue;
    place[i] = static_cast<int>(kept);
    g.outputs[kept] = g.outputs[i];
    if (kept != i) g.output_names[kept] = std::move(g.output_names[i]);
    ++kept;
  }
  g.outputs.resize(kept);
  g.output_names.resize(kept);
  for (OutputSize& s : g.sizes) s.count = place[static_cast<std::size_t>(s.count)];
}

Shape shape_after(Shape shape, std::size_t output, std::span<const OutputSize> sizes, std::size_t shown,
                  std::span<const std::int64_t> counts) {
  for (const OutputSize& s : sizes) {
    if (static_cast<std::size_t>(s.output) != output) continue;
    std::int64_t& extent = shape[static_cast<std::size_t>(s.axis)];
    extent = std::clamp<std::int64_t>(counts[static_cast<std::size_t>(s.count) - shown], 0, extent);
  }
  return shape;
}

Status within_bounds(std::span<const OutputSize> sizes, std::size_t shown, std::span<const std::int64_t> counts,
                     const std::function<const std::string&(std::size_t)>& name_of) {
  for (const OutputSize& s : sizes) {
    if (!is_bound(s)) continue;
    const auto at = static_cast<std::size_t>(s.count);
    const std::int64_t count = counts[at - shown], most = s.axis;
    if (count >= 0 && count <= most) continue;
    const std::string& tensor = name_of(at);
    if (count < 0)
      return fail(ErrorKind::bad_input,
                  fmt::format("run: the data make the size of \"{}\" {}, which is less than 0", tensor, count));
    return fail(
        ErrorKind::bad_input,
        fmt::format(
            "run: the data make the size of \"{0}\" {1}, the engine was built for at most {2}\n  to do: build with a greater "
            "bound, as --max-elements {0}={1} (max_elements of octavo.build), or change the data",
            tensor, count, most));
  }
  return {};
}

void move_together(std::byte* data, std::size_t element_bytes, const Shape& room, const Shape& shape) {
  if (room == shape || count(shape) == 0) return;
  std::size_t inner = room.size();  // dimensions from here on are whole
  while (room[inner - 1] == shape[inner - 1]) --inner;
  std::size_t whole = element_bytes;
  for (std::size_t d = inner; d < room.size(); ++d) whole *= static_cast<std::size_t>(room[d]);
  const std::size_t run = whole * static_cast<std::size_t>(shape[inner - 1]),
                    step = whole * static_cast<std::size_t>(room[inner - 1]);
  const Shape outer(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(inner) - 1);
  std::byte* to = data;
  Shape at(outer.size(), 0);
  for (std::int64_t rows = count(outer); rows > 0; --rows, to += run) {
    std::size_t from = 0;
    for (std::size_t d = 0; d < outer.size(); ++d)
      from = from * static_cast<std::size_t>(room[d]) + static_cast<std::size_t>(at[d]);
    std::memmove(to, data + from * step, run);  // `to` is never behind its source
    for (std::size_t d = outer.size(); d-- > 0 && ++at[d] == outer[d];) at[d] = 0;
  }
}

void cut_results(std::vector<Tensor>& results, std::span<const OutputSize> sizes) {
  const std::size_t shown = shown_outputs(results.size(), sizes);
  std::vector<std::int64_t> counts;
  for (std::size_t i = shown; i < results.size(); ++i) counts.push_back(results[i].data<std::int64_t>()[0]);
  results.resize(shown);
  for (std::size_t i = 0; i < shown; ++i) {
    Tensor& whole = results[i];
    const Shape shape = shape_after(whole.shape(), i, sizes, shown, counts);
    if (shape == whole.shape()) continue;
    Tensor moved = whole.clone();
    move_together(moved.mutable_bytes().data(), size_of(whole.dtype()), whole.shape(), shape);
    Tensor cut(whole.dtype(), shape);
    if (cut.size() != 0) std::copy_n(moved.bytes().begin(), cut.bytes().size(), cut.mutable_bytes().begin());
    whole = std::move(cut);
  }
}

}  // namespace octavo::ir
