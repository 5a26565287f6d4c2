// Text tests of rewrite rules (.irt files): one file a rule, cases of graph text before and after.
//
//   # tests/quant/rules/merge_view.irt          run: merge-view
//   case equal pairs                            anything; the name is printed on failure
//     in                                        graph text (ir/text.h), types after operators may be left out
//       x = input : f32[2]
//       a = view x q=u8(0.1,3)
//       b = view a q=u8(0.1,3)
//       output b as "y"
//     out                                       what print() gives afterwards, without origins; `out same` when nothing changes
//       ...
//     why ...                                   one line a refusal, in node order; none when there are none
//   Before `in`, a case may say:
//     unverified               the graph breaks a rule of ir::verify on purpose; nothing is evaluated
//     scales negated           all scales are negated after reading (the reader refuses them); unverified
//     values differ: REASON    the reference computes other bits, on purpose
//
// For each case four things are checked: the text and the reasons; that a second run changes nothing; that ir::verify accepts the
// result; that reference::evaluate gives the same bytes before and after on seeded data with extremes and ties (rules that claim to
// be exact). OCTAVO_UPDATE=1 in the environment rewrites `out` and `why` in the file; review the difference.
#pragma once

#include <string>
#include <vector>

#include "rewrite/rule.h"

namespace octavo::testing {

/// Runs one file, relative to the repository root. The rules named after `run:` are looked up in `rules`. Failures are GoogleTest
/// failures.
void run_irt(const std::string& path, const std::vector<const rewrite::Rule*>& rules);

/// The .irt files of a folder ("tests/quant/rules"), sorted, relative to the repository root; for INSTANTIATE_TEST_SUITE_P.
[[nodiscard]] std::vector<std::string> irt_files(const std::string& folder);

}  // namespace octavo::testing
