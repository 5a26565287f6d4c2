// The tensors that regions read and store, readable by the host: in its own memory, or as a copy of device memory.
#pragma once

#include <vector>

#include "engine/engine.h"

namespace octavo::api {

class HostView {
 public:
  explicit HostView(const engine::Engine& engine) : engine_(engine), copies_(engine.plan().buffers.size()) {}

  /// `memory` with the buffers of these tensors copied. What cannot be copied reads as zeros.
  [[nodiscard]] region::Memory of(const region::Memory& memory, const std::vector<const region::TensorRef*>& tensors) {
    region::Memory out = memory;
    for (const region::TensorRef* t : tensors) {
      const auto id = static_cast<std::size_t>(t->buffer);
      const region::Buffer& b = engine_.plan().buffers[id];
      if (b.space == region::kHost || b.kind == region::BufferKind::input || b.kind == region::BufferKind::output) continue;
      copies_[id].resize(static_cast<std::size_t>(b.bytes));
      if (!engine_.device(b.space).read(copies_[id], memory.base[id])) copies_[id].assign(copies_[id].size(), std::byte{0});
      out.base[id] = copies_[id].data();
    }
    return out;
  }

 private:
  const engine::Engine& engine_;
  std::vector<std::vector<std::byte>> copies_;  ///< by BufferId
};

}  // namespace octavo::api
