// Images stored plane by plane (channels outermost), read as codes with channels innermost: what networks' float inputs become.
//
// A thread takes four neighbouring pixels of every plane, runs the stage's program on each element and packs the codes. The family
// "pointwise.planar" stores them; first layers (conv_rows.cc) put them where their products read them, so that codes never are in
// memory.
#pragma once

#include <string>

#include "cuda/family.h"
#include "region/region.h"

namespace octavo::cuda {

struct Planar {
  int channels = 0;  ///< 1 to 8
  region::TensorRef source;
  std::int64_t image = 0, plane = 0, row = 0, element = 0;  ///< strides of the source, bytes
  /// OCTAVO_DEVICE void octavo_four_pixels(unsigned (&words)[channels], const unsigned char* from): the codes of four pixels, the first
  /// of which has its element of plane 0 at `from`, as 4 * channels bytes. Uses elements_functions().
  std::string text;
};
/// A stage of rank 4 without an anchor that computes bytes from one tensor whose columns are neighbours in memory, and from constants
/// with a value a channel or one in all. Planes and images begin at
/// multiples of four elements. Error: why the stage is not of this kind, with the values.
[[nodiscard]] Result<Planar> read_planar(const region::Stage& stage, const region::Plan& plan);

/// Quick test of the kind, without a plan: one tensor with neighbouring columns, one store of bytes with neighbouring channels.
[[nodiscard]] bool about_planar(const region::Stage& stage);

}  // namespace octavo::cuda
