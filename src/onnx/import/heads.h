// Parts that the standard attention operators and those of com.microsoft share.
#pragma once

#include "onnx/import/compose.h"

namespace octavo::onnx {

/// [b,t,h*d] -> [b,h,t,d]
[[nodiscard]] ValueId heads_apart(Compose& c, ValueId v, std::int64_t heads);
/// [b,h,t,d] -> [b,t,h*d]
[[nodiscard]] ValueId heads_together(Compose& c, ValueId v);

/// The angles of rotary embedding: tables [b or 1, 1, t, dim/2]. The first `dim` entries of a head are turned, pairs of them side by side
/// (interleaved) or half of `dim` apart; dim is even.
struct Rotation {
  ValueId cosine, sine;
  bool interleaved;
  std::int64_t dim;
};
/// x is [b,h,t,d] with d of at least `dim`.
[[nodiscard]] ValueId rotated(Compose& c, ValueId x, const Rotation& by);

/// The rows of a table [n, ..] that ids of any shape name: [ids.., ..]. Looked up one after the other, as kernels take it.
[[nodiscard]] ValueId looked_up(Compose& c, ValueId table, ValueId ids);

}  // namespace octavo::onnx
