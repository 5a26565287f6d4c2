// The region key: a one-line spelling of what a region's time depends on, and of nothing else. It names the region in the timing
// cache, in the verbose log, in `explain`, and for `octavo bench --region-key`.
//
//   conv u8[1,64,56,56]nhwc w s8[256,64,1,1] : acc_i i2f load_f load_f fma imm_f div ..., f32[1,256,1,1]c f32[...]c >
//   u8[1,256,56,56]nhwc
//
// Anchor (with "float" when it does not compute on codes, and its attributes that are not defaults), its operands, the program,
// further operands, stores. Layouts: nothing for dense row-major, "nhwc" for dense channels last, "c" for one element a channel,
// strides in parentheses otherwise; "io:" for the caller's memory. Further stages follow " ; " (" || " when side by side); what a
// stage reads of an earlier one is marked with its number, "stage0:u8[...]", and with that of the store where it is not the first.
// Weights, scales, tables, names and addresses do not enter; "codes[4,32,1]" behind weights says that they are the values of codes of 4 bits, 32
// channels with a scale, all with one zero point (0: of several).
//
// The program is written as it would be for a machine with a stack: an operation takes the last values that nothing has taken yet.
// Where it takes others, the indices of their instructions follow: "fma(3,4,4)". Loads and tables count from 0, "load_f@2" is out
// of turn; shifts have their width, "shl_i@23". "store(3,7)" where the stored values are not the last ones left. So two programs
// have one spelling only if they differ in nothing but constants, and a region can be made from its key (region/from_key.h).
#pragma once

#include <string>

#include "region/region.h"

namespace octavo::region {

/// Equal for regions that every tactic runs in the same way. Deterministic; no newline, no '|' surrounded by single spaces. A
/// region with a program that is not verified (operands before their definition) has a key like any other.
[[nodiscard]] std::string key(const Region& region, const Plan& plan);
/// Region::key; of a verified plan that took its decisions over from other shapes (Plan::decided_for), where it is left out because no run needs it, it is
/// spelled here.
[[nodiscard]] std::string key_of(const Region& region, const Plan& plan);

}  // namespace octavo::region
