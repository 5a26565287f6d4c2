#!/usr/bin/env bash
# fuzz_shares.sh PROGRAM TEST VARIABLE COUNT SHARE JOBS: one fuzz test COUNT times in shares, each a process on one core with seeds that no other test uses. VARIABLE says to the test
# how many a process tries, OCTAVO_FUZZ_SEED from which seed on. Example, 40000 graphs of the placement fuzz:
#   scripts/fuzz_shares.sh build/release/tests/test_api Placement.SamePlanAndSameBits OCTAVO_FUZZ_GRAPHS 40000 2000 2
set -uo pipefail
(($# == 6)) || { sed -n '2,4p' "$0"; exit 2; }
program=$1 test=$2 variable=$3 count=$4 share=$5 jobs=$6
[[ -x $program ]] || { echo "error: no $program; build first" >&2; exit 2; }
logs=$(dirname "$program")/../fuzz_shares
mkdir -p "$logs"
one() {  # PROGRAM TEST VARIABLE SHARE LOGS SEED
  local log=$5/$2.$6.log status=0
  env "$3=$4" OCTAVO_FUZZ_SEED="$6" "$1" --gtest_filter="$2" >"$log" 2>&1 || status=$?
  grep -q '\[  PASSED  \] 1 test' "$log" || ((status)) || status=3  # nothing ran
  ((status == 0)) || { echo "FAILED: $3=$4 OCTAVO_FUZZ_SEED=$6 $1 --gtest_filter=$2; see $log"; return 1; }
}
export -f one
start=1000001
seq "$start" "$share" $((start + count - 1)) | xargs -P "$jobs" -I{} bash -c 'one "$@"' one "$program" "$test" "$variable" "$share" "$logs" {} || exit 1
echo "$test: $count passed, from seed $start on"
