#!/usr/bin/env bash
# test_long.sh BUILD_DIR JOBS [cpp|python]: long fuzzing (OCTAVO_LONG). cpp: the C++ tests, 100000 hostile ONNX files and forged engines under sanitizers, then 40000 graphs of placement
# fuzz. python: the Python package and the examples, 10000 mutated files of each kind, and every third operator's case under emulation. Both unless one is named.
# What is installed (tests/install, 64-bit Arm among it) has stages of its own in test_all.sh.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1 jobs=$2 part=${3:-}
[[ $part =~ ^(cpp|python|)$ ]] || { echo "error: test_long: \"$part\" is neither cpp nor python" >&2; exit 2; }
export OCTAVO_LONG=1
status=0
if [[ $part != python ]]; then
  scripts/run_tests.sh "$build" "$jobs" -E '^(pytest_|onnx\.)' || status=1
  scripts/build.sh sanitize "$jobs" test_onnx test_engine || exit 1
  build/sanitize/tests/test_onnx --gtest_filter='Hostile.*' || status=1
  build/sanitize/tests/test_engine --gtest_filter='ForgedEngine.*' || status=1
  scripts/fuzz_placements.sh "$build" "$jobs" || status=1
fi
if [[ $part != cpp ]]; then
  scripts/run_tests.sh "$build" "$jobs" -R '^(pytest_(python|examples)$|onnx\.)' || status=1
fi
exit $status
