// The margins by which a candidate must win. Differences below the noise of measurements must not change plans.
#pragma once

namespace octavo::plan {

/// Another candidate or tactic is taken if its time is below this part of that of the default candidate or preferred tactic. Times of single regions.
inline constexpr double kPart = 0.98;
/// The same for whole plans that run in turn.
inline constexpr double kWhole = 0.99;
/// The plan of effort 0 is taken if the measured plan takes more than this part of its time, whole plans in turn.
inline constexpr double kSlower = 1.005;
/// For a model's second set of shapes: a tactic that shares the packed constants of the first may take so much more than the fastest.
inline constexpr double kShared = 1.05;
inline constexpr int kSharedPercent = 5;
/// The first two in percent, as reasons print them.
inline constexpr int kPartPercent = 2, kWholePercent = 1;

}  // namespace octavo::plan
