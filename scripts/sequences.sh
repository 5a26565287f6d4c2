#!/bin/sh
# Random sequences of shapes in four threads a process (tests/api/open_shapes_test.cc), several processes at a time: many sequences under a sanitizer in minutes.
#   scripts/sequences.sh TEST_API [SEQUENCES] [PROCESSES]   TEST_API: as build/tsan/tests/test_api; 10000 sequences and a process for every four cores unless said otherwise
# Each process has a seed of its own, which is printed if it fails, with the end of what it said. Exit code 1: one failed.
set -eu
program=${1:?usage: sequences.sh TEST_API [SEQUENCES] [PROCESSES]}
sequences=${2:-10000}
cores=$(nproc)
processes=${3:-$(((cores + 3) / 4))}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
each=$(((sequences + processes - 1) / processes))
begin=$(date +%s)
for part in $(seq 1 "$processes"); do
  (code=0
   OCTAVO_SEQUENCES=$each OCTAVO_SEED=$part "$program" --gtest_filter=OpenShapes.FourThreadsWithAnyShapes >"$work/$part.txt" 2>&1 || code=$?
   echo $code >"$work/$part.code") &
done
wait
failed=0
for part in $(seq 1 "$processes"); do
  code=$(cat "$work/$part.code")
  grep -q '\[  PASSED  \] 1 test' "$work/$part.txt" || [ "$code" -ne 0 ] || code=3  # nothing ran
  [ "$code" -eq 0 ] && continue
  failed=1
  echo "exit code $code: OCTAVO_SEQUENCES=$each OCTAVO_SEED=$part $program --gtest_filter=OpenShapes.FourThreadsWithAnyShapes"
  tail -n 40 "$work/$part.txt"
done
echo "$((each * processes)) sequences in $processes processes: $(($(date +%s) - begin)) s, $([ $failed -eq 0 ] && echo passed || echo failed)"
exit $failed
