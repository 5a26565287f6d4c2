// By how much a candidate must win: what measurements cannot tell apart must not change plans.
#pragma once

namespace octavo::plan {

/// Of what the default candidate, or the preferred tactic, costs: another one is taken below this part. Times of regions alone.
inline constexpr double kPart = 0.98;
/// The same for whole plans that run in turn.
inline constexpr double kWhole = 0.99;
/// What was measured gives way to the plan of effort 0 beyond this part of its time, whole plans in turn.
inline constexpr double kSlower = 1.005;
/// The first two as reasons say them.
inline constexpr int kPartPercent = 2, kWholePercent = 1;

}  // namespace octavo::plan
