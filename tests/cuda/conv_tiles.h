// Sets of parameters with which tests run kernels of convolutions.
#pragma once

#include "cuda/conv_scene.h"
#include "cuda/families/conv/conv_mma.h"
#include "cuda/family.h"

namespace octavo::testing {

/// The set that the family prefers; empty where it refuses the convolution.
inline cuda::Parameters best(const ConvCase& k, const cuda::Family& family, const cuda::Target& target) {
  const ConvScene s(k, 7);
  const auto all = family.candidates(s.region, s.plan, target);
  return all.empty() ? cuda::Parameters{} : all[0].parameters;
}

/// A small tile, so that small shapes have several.
inline cuda::Parameters small_tile(int stages, int splits, bool resident) {
  cuda::ConvTile t;
  t.m = 32, t.n = 32, t.k = 32, t.warps_m = 2, t.warps_n = 1, t.stages = stages, t.splits = splits, t.blocks = 1,
  t.resident = resident;
  return cuda::spell(t);
}

}  // namespace octavo::testing
