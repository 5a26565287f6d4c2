#!/usr/bin/env bash
# fuzz.sh [SECONDS] [TARGET...]: builds each libFuzzer program and runs it for that long (default 120 s each, all), as many at a time as JOBS (default: the cores), from
# fuzz/corpus and what earlier runs found (build/fuzz/found). Limits: 2 GiB and 20 s an input (5 s without sanitizers). A finding lies in build/fuzz/found/TARGET-crash-*.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-120}
targets=("${@:2}")
((${#targets[@]})) || targets=(onnx engine table timing image npy)
jobs=${JOBS:-$(nproc)}
scripts/build.sh fuzz "$jobs" "${targets[@]/#/fuzz_}" || exit 1
mkdir -p build/fuzz/found
one() {  # TARGET SECONDS
  local t=$1 seconds=$2 found=build/fuzz/found/$1 log=build/fuzz/found/$1.log
  mkdir -p "$found"
  if ASAN_OPTIONS="allocator_may_return_null=0:${ASAN_OPTIONS:-}" build/fuzz/fuzz/fuzz_"$t" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 \
      -max_len=65536 -print_final_stats=1 -artifact_prefix="build/fuzz/found/$t-" "$found" "fuzz/corpus/$t" >"$log" 2>&1 </dev/null; then
    echo "fuzz $t: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, nothing found"
  else
    echo "fuzz $t: FAILED; see $log: $(grep -E '^==|ERROR|SUMMARY|Test unit written' "$log" | tail -n 8)"
    return 1
  fi
}
export -f one
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'one "$@"' one {} "$seconds" || exit 1
