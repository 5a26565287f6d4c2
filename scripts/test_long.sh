#!/usr/bin/env bash
# test_long.sh BUILD_DIR JOBS [cpp|python]: what OCTAVO_LONG makes longer. cpp: the fuzz tests in C++, 100000 hostile ONNX files and 4000 forgeries of every kind of engine under sanitizers,
# 2000 of every engine for a GPU, and 40000 graphs each for the placement fuzz and the engine. python: the Python package and the examples, 10000 mutated files of each kind, and every third
# operator's case under emulation. Both unless one is named. What is installed (tests/install, 64-bit Arm among it) has stages of its own in test_all.sh. With eight jobs and more, the parts
# of cpp run beside each other.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1 jobs=$2 part=${3:-}
[[ $part =~ ^(cpp|python|)$ ]] || { echo "error: test_long: \"$part\" is neither cpp nor python" >&2; exit 2; }
export OCTAVO_LONG=1
# The tests in C++ that read OCTAVO_LONG (tests/scripts/test_long.py compares).
longer=(Bfloat16.ArbitraryChoicesInArbitraryNetworks EmulatedAmx.RandomNetworksGiveTheBitsOfTheReference EmulatedFloat16.RandomNetworksWithFloat16AllowedAreEqualRegionByRegion
  EmulatedGpu.RandomNetworksGiveTheBitsOfTheReference EngineFile.DamagedPlansUnderRightChecksumsNeverCrash ErfDivision.QuotientsOfEveryFloat ForgedEngine.RefusedOrHarmless
  ForgedGpuEngine.LoadingRefusesOrGivesAnEngine Hostile.MutatedFiles Placement.NoTwoMeaningsShareAHash Placement.SamePlanAndSameBits Plain.RandomRegionsAreTheReferences RowsPool.RandomShapes
  Search.ArbitraryCostsNeverChangeTheBits)
tests() {
  local names
  names=$(IFS='|'; echo "${longer[*]}")
  scripts/run_tests.sh "$build" "$jobs" -R "(^|/)(${names//./\\.})(/|$)"
}
hostile() {
  local tests=build/sanitize/tests status=0
  scripts/build.sh sanitize "$jobs" test_onnx test_engine || return 1
  "$tests/test_onnx" --gtest_brief=1 --gtest_filter='Hostile.*:-Hostile.MutatedFiles' || status=1
  "$tests/test_engine" --gtest_brief=1 --gtest_filter='ForgedEngine.*:-ForgedEngine.RefusedOrHarmless' || status=1
  scripts/fuzz_shares.sh "$tests/test_onnx" Hostile.MutatedFiles OCTAVO_FUZZ_FILES 100000 5000 "$jobs" || status=1
  scripts/fuzz_shares.sh "$tests/test_engine" ForgedEngine.RefusedOrHarmless OCTAVO_FUZZ_ROUNDS 4000 50 "$jobs" || status=1
  return $status
}
unsanitized() {
  local status=0 test
  for test in Placement.SamePlanAndSameBits EngineFuzz.WideNetworksOnAnyThreadsGiveTheReferencesBits; do
    scripts/fuzz_shares.sh "$build/tests/test_api" "$test" OCTAVO_FUZZ_GRAPHS 40000 2000 "$jobs" || status=1
  done
  OCTAVO_FUZZ_RUNS=15 scripts/fuzz_shares.sh "$build/tests/test_api" ForgedGpuEngine.LoadingRefusesOrGivesAnEngine OCTAVO_FUZZ_ROUNDS 2000 100 "$jobs" || status=1
  return $status
}
status=0
if [[ $part != python ]]; then
  pids=()
  for step in hostile unsanitized tests; do
    if ((jobs >= 8)); then
      "$step" &
      pids+=($!)
    else
      "$step" || status=1
    fi
  done
  for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" || status=1; done
fi
if [[ $part != cpp ]]; then
  scripts/run_tests.sh "$build" "$jobs" -R '^(pytest_(python|examples)$|onnx\.)' || status=1
fi
exit $status
