#!/usr/bin/env bash
# test_all.sh [--only STAGE,...] [--jobs N] [--list]: everything that can be tested on this machine, in stages. A stage that fails does not stop the next ones.
# Each stage's output is in build/test-all/STAGE.log. Ends with a table of the stages, and writes it to build/test-all/summary.txt; if every
# stage passed or had nothing to run on, the line for docs/releases.md too. Exit code 1: a stage failed. A stage that ends with 77 was skipped: its last line says why.
set -uo pipefail
cd "$(dirname "$0")/.."
build=build/release
out=${OCTAVO_TEST_ALL_OUT:-build/test-all}
jobs=$(nproc)
only=
export OCTAVO_FULL=1  # all rounds of fuzz tests, all architectures: tests/support/fuzz_setting.h

stage_tests() { scripts/run_tests.sh "$build" "$jobs"; }
stage_serving() { scripts/test_serving.sh "$build"; }
stage_ray() { scripts/test_ray.sh "$build"; }
stage_exports() {
  scripts/venv.sh requirements-exports.txt build/exports-venv &&
    OCTAVO_BUILD=$PWD/$build PYTHONPATH=$PWD/$build/python PYTHONDONTWRITEBYTECODE=1 build/exports-venv/bin/python -m pytest -q -p no:cacheprovider tests/exports
}
stage_wheels() {
  JOBS=$jobs scripts/wheel.sh && .venv/bin/python -m pytest -q -p no:cacheprovider tests/install/test_wheel.py || return 1
  [[ $(id -u) == 0 ]] || { echo "skipped: the wheel was not tried in a bare root, which needs root"; return 77; }
  scripts/wheel_in_root.sh "$(ls -t dist/octavo-*x86_64.whl | head -n 1)"
}
sanitizer() { scripts/build.sh "$1" "$jobs" "${@:2}" && scripts/run_tests.sh "build/$1" "$jobs"; }
stage_asan() { sanitizer asan; }
stage_ubsan() { sanitizer ubsan; }
stage_tsan() { scripts/build.sh tsan "$jobs" test_engine test_api && scripts/run_tests.sh build/tsan "$jobs" -L '^(engine|api)$'; }
stage_long() { make --no-print-directory test-long JOBS="$jobs"; }
stage_fuzz() { make --no-print-directory fuzz JOBS="$jobs" FUZZ_SECONDS="${FUZZ_SECONDS:-600}"; }
stage_aarch64() { scripts/aarch64.sh "$jobs" all; }
# Every program of tests/cuda/gpu is compiled and linked, and packed as scripts/gpu_check.sh carries it to a machine with a GPU.
stage_gpu_programs() {
  cmake --build "$build" -j "$jobs" --target octavo_gpu_epilogue_check octavo_gpu_conv octavo_gpu_engine octavo_gpu_networks octavo_gpu_matmul &&
    scripts/gpu_check.sh build build/test-all/gpu
}
stage_gpu() {
  compgen -G '/dev/nvidia[0-9]*' >/dev/null || { echo "skipped: no GPU"; return 77; }
  scripts/gpu_check.sh run build/test-all/gpu && PYTHONPATH=$PWD/$build/python python3 -m pytest -q -p no:cacheprovider tests/python/test_gpu.py
}
stages=(tests serving ray exports wheels aarch64 gpu_programs gpu long asan ubsan tsan fuzz)

while (($#)); do
  case $1 in
    --only) only=${2:?--only needs names of stages}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    --list) printf '%s\n' "${stages[@]}"; exit 0 ;;
    *) echo "error: test_all: \"$1\" is no option; known are --only STAGE,..., --jobs N and --list" >&2; exit 2 ;;
  esac
done
chosen=("${stages[@]}")
if [[ -n $only ]]; then
  IFS=, read -ra chosen <<<"$only"
  for name in "${chosen[@]}"; do
    [[ " ${stages[*]} " == *" $name "* ]] || { echo "error: test_all: \"$name\" is no stage; known are ${stages[*]}" >&2; exit 2; }
  done
fi

# What a log counts: "N passed, N failed, N skipped" of scripts/test_summary.py, or pytest's last line.
counts_of() {
  grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$|([0-9]+ (failed|passed|skipped|deselected|errors?|warnings?)(, )?)+ in [0-9.]+s' "$1" | tail -n 1 | sed -E 's/ in [0-9.]+s$//'
}
mkdir -p "$out"
summary=$out/summary.txt
commit=$(git rev-parse --short HEAD)$([[ -z $(git status --porcelain --untracked-files=no) ]] || echo ' with changes that are not committed')
machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | grep . || echo "no GPU")"
has=$(.venv/bin/python scripts/skips.py "$build" | sed -n 's/^has: //p')
printf 'test-all of %s on %s (%s)\n%-14s %-8s %8s  %s\n' "$commit" "$machine" "$has" stage result seconds counts | tee "$summary"
failed=0 skipped=()
for name in "${chosen[@]}"; do
  began=$SECONDS
  code=0
  (set -e; "stage_$name") >"$out/$name.log" 2>&1 </dev/null || code=$?
  result=passed counts=$(counts_of "$out/$name.log")
  if ((code == 77)); then
    result=skipped counts=$(tail -n 1 "$out/$name.log")
    skipped+=("$name")
  elif ((code)); then
    result=FAILED counts="${counts:+$counts; }exit code $code, $out/$name.log"
    failed=1
  fi
  printf '%-14s %-8s %8d  %s\n' "$name" "$result" $((SECONDS - began)) "$counts" | tee -a "$summary"
  ((code == 0 || code == 77)) || tail -n 15 "$out/$name.log" | sed 's/^/    /'
done
if ((failed)); then
  echo "test-all: failed" | tee -a "$summary"
elif [[ -z $only ]]; then
  echo "for docs/releases.md: | $commit | $(date +%F) | $machine | $has | all${skipped[*]:+ but ${skipped[*]}} |" | tee -a "$summary"
else
  echo "test-all: the chosen stages passed; a release needs all of them" | tee -a "$summary"
fi
exit $failed
