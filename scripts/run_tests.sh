#!/usr/bin/env bash
# run_tests.sh BUILD_DIR JOBS [CTEST OPTIONS...]: runs the tests through CTest (the Python tests too) and closes with "N passed, N failed, N skipped".
# OCTAVO_TEST_DATA (default ../shared) holds real models; tests that need it skip, counted, when it is absent. A skip that tests/skips.txt does not expect on
# this machine fails the run; without CTEST OPTIONS, in a build without sanitizers, a test that is missing does too.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
jobs=$2
export OCTAVO_TEST_DATA="${OCTAVO_TEST_DATA:-$PWD/../shared}"
rm -rf "$build/junit" && mkdir -p "$build/junit"
sanitized=
grep -qsE '^OCTAVO_SANITIZE:[A-Z]+=.' "$build/CMakeCache.txt" && sanitized=1
# Seconds for one CTest test, after which it counts as hanging. Here alone: what a test does depends on the environment, and a time in a CMakeLists.txt would not.
limit=900
[[ -z ${OCTAVO_FULL:-}$sanitized ]] || limit=3600
[[ -z ${OCTAVO_LONG:-} ]] || limit=21600  # fuzz tests of half an hour; pytest_install compiles everything three times
# One test more than there are cores: those of the server wait more than they compute.
ctest --test-dir "$build" -j "$((jobs + 1))" --timeout "$limit" --output-on-failure --output-junit junit/ctest.xml --no-tests=error "${@:3}" </dev/null
status=$?
python=.venv/bin/python
[[ -x $python ]] || python=python3
whole=()
(($# > 2)) || [[ -n $sanitized ]] || whole=(whole)
"$python" scripts/test_summary.py "$build/junit" "$OCTAVO_TEST_DATA" "$build" "${whole[@]}" || status=1
exit $status
