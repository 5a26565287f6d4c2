#!/usr/bin/env bash
# fuzz_placements.sh BUILD_DIR JOBS [GRAPHS]: the placement fuzz in shares of 4000 graphs, one core each, on seeds that no other test uses.
set -uo pipefail
build=$1 jobs=$2 graphs=${3:-40000} share=4000
[[ -x $build/tests/test_api ]] || { echo "error: no $build/tests/test_api; build first" >&2; exit 2; }
logs=$build/fuzz_placements
mkdir -p "$logs"
one() {
  OCTAVO_FUZZ_GRAPHS=$3 OCTAVO_FUZZ_SEED=$2 "$1/tests/test_api" --gtest_filter=Placement.SamePlanAndSameBits >"$4/$2.log" 2>&1
  local status=$?
  [[ $status == 0 ]] || { echo "FAILED: seeds $2 to $(($2 + $3 - 1)); see $4/$2.log"; return 1; }
}
export -f one
start=1000001
seq "$start" "$share" $((start + graphs - 1)) | xargs -P "$jobs" -I{} bash -c 'one "$@"' one "$build" {} "$share" "$logs"
status=$?
[[ $status == 0 ]] && echo "placement fuzz: $graphs graphs, 5 placements each: same plans, same bits"
exit $((status != 0))
