#!/usr/bin/env bash
# test_all.sh [--only STAGE,...] [--again] [--jobs N] [--list]: everything that can be tested on this machine, in stages. A stage that fails does not stop the next ones. A stage that passed
# in this folder at this commit (build/test-all/passed.txt) does not run again without --again or --only: after an interruption the same command goes on, and builds go on where they stopped.
# Each stage's output is in build/test-all/STAGE.log. Ends with a table of the stages, and writes it to build/test-all/summary.txt, what passed to the record, and the record
# to docs/releases.md (scripts/stage_record.py). Exit code 1: a stage failed. A stage that ends with 77 was skipped: its last line says why.
set -uo pipefail
cd "$(dirname "$0")/.."
build=build/release
out=${OCTAVO_TEST_ALL_OUT:-build/test-all}
jobs=$(nproc)
only=
again=
export OCTAVO_FULL=1  # all rounds of fuzz tests, all architectures: tests/support/fuzz_setting.h

stage_tests() { scripts/run_tests.sh "$build" "$jobs"; }
stage_serving() { scripts/test_serving.sh "$build" "--junit-xml=$junit/pytest.xml" && by_list build/serving-venv/bin/python; }
stage_ray() { scripts/test_ray.sh "$build" "--junit-xml=$junit/pytest.xml" && by_list build/ray-venv/bin/python; }
stage_exports() {
  scripts/venv.sh requirements-exports.txt build/exports-venv &&
    OCTAVO_BUILD=$PWD/$build judged build/exports-venv/bin/python tests/exports
}
# Runs tests under pytest with this Python; a skip that tests/skips.txt does not expect fails here as in `make test`.
judged() { PYTHONPATH=$PWD/$build/python PYTHONDONTWRITEBYTECODE=1 "$1" -m pytest -q -p no:cacheprovider "--junit-xml=$junit/pytest.xml" "${@:2}" && by_list "$1"; }
by_list() { "$1" scripts/test_summary.py "$junit" "${OCTAVO_TEST_DATA:-../shared}" "$build"; }
installed() { OCTAVO_LONG=1 OCTAVO_BUILD=$PWD/$build judged .venv/bin/python "$@"; }
stage_wheels() {
  local wheel
  JOBS=$jobs scripts/wheel.sh || return 1
  wheel=$(ls -t dist/octavo-*x86_64.whl | head -n 1)
  OCTAVO_WHEEL=$PWD/$wheel installed tests/install/test_wheel.py || return 1
  [[ $(id -u) == 0 ]] || { echo "skipped: the wheel was not tried in a bare root, which needs root"; return 77; }
  scripts/wheel_in_root.sh "$wheel"
}
stage_install() { installed tests/install/test_install.py; }
# Each sanitizer makes the tests several times slower, and qemu ten times: the rounds of `make test`. The long stage runs hostile files under both sanitizers.
sanitizer() { scripts/build.sh "$1" "$jobs" && env -u OCTAVO_FULL scripts/run_tests.sh "build/$1" "$jobs"; }
stage_asan() { sanitizer asan; }
stage_ubsan() { sanitizer ubsan; }
stage_tsan() {
  scripts/build.sh tsan "$jobs" test_engine test_api && scripts/sequences.sh build/tsan/tests/test_api 10000 &&
    env -u OCTAVO_FULL scripts/run_tests.sh build/tsan "$jobs" -L '^(engine|api)$'
}
# As on processors with fewer vector instructions: what needs a level is skipped there as tests/skips.txt says, and all else passes. Not the tests that do not ask for the level.
stage_caps() {
  local cap status=0
  for cap in portable avx2 avx512; do
    echo "OCTAVO_CPU=$cap"
    env -u OCTAVO_FULL OCTAVO_CPU=$cap scripts/run_tests.sh "$build" "$jobs" -LE '^(cuda|caps)$' -E '^(pytest_|check_|onnx\.|aarch64$)' || status=1
  done
  return $status
}
stage_long() { scripts/test_long.sh "$build" "$jobs" cpp; }
stage_long_python() { scripts/test_long.sh "$build" "$jobs" python; }
stage_fuzz() { JOBS=$jobs scripts/fuzz.sh "${FUZZ_SECONDS:-600}"; }
stage_aarch64() { env -u OCTAVO_FULL scripts/aarch64.sh "$jobs" all && installed tests/install/test_wheel_aarch64.py; }
# Every program for a machine with a GPU (targets octavo_gpu_NAME) is compiled and linked, and packed as scripts/gpu_check.sh carries it there.
stage_gpu_programs() {
  local programs
  mapfile -t programs < <(cmake --build "$build" --target help | grep -oE '\boctavo_gpu_[a-z_]+: phony' | cut -d: -f1 | sort -u)
  ((${#programs[@]} >= 8)) || { echo "error: only ${#programs[@]} programs octavo_gpu_NAME are known to $build: ${programs[*]}"; return 1; }
  cmake --build "$build" -j "$jobs" --target "${programs[@]}" && scripts/gpu_check.sh build build/test-all/gpu &&
    echo "${#programs[@]} programs: ${programs[*]#octavo_gpu_}"
}
stage_gpu() {
  compgen -G '/dev/nvidia[0-9]*' >/dev/null || { echo "skipped: no GPU"; return 77; }
  local unpacked=$PWD/build/test-all/gpu/unpacked
  rm -rf "$unpacked" && mkdir -p "$unpacked" && tar -C "$unpacked" -xJf build/test-all/gpu/octavo-gpu.tar.xz && scripts/gpu_check.sh run build/test-all/gpu &&
    OCTAVO_BUILD=$unpacked LD_LIBRARY_PATH=$unpacked/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} judged python3 tests/python/test_gpu.py tests/cli/test_float16.py
}
stages=(tests serving ray exports wheels install aarch64 caps gpu_programs gpu long long_python asan ubsan tsan fuzz)

while (($#)); do
  case $1 in
    --only) only=${2:?--only needs names of stages}; again=1; shift 2 ;;
    --again) again=1; shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    --list) printf '%s\n' "${stages[@]}"; exit 0 ;;
    *) echo "error: test_all: \"$1\" is no option; known are --only STAGE,..., --again, --jobs N and --list" >&2; exit 2 ;;
  esac
done
chosen=("${stages[@]}")
if [[ -n $only ]]; then
  IFS=, read -ra chosen <<<"$only"
  for name in "${chosen[@]}"; do
    [[ " ${stages[*]} " == *" $name "* ]] || { echo "error: test_all: \"$name\" is no stage; known are ${stages[*]}" >&2; exit 2; }
  done
fi

# What a log counts: "N passed, N failed, N skipped" of scripts/test_summary.py, or pytest's last line; without either, its last line.
counts_of() {
  grep -oE '[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$|([0-9]+ (failed|passed|skipped|deselected|errors?|warnings?)(, )?)+ in [0-9.]+s' "$1" | tail -n 1 | sed -E 's/ in [0-9.]+s$//' | grep . ||
    tail -n 1 "$1" | cut -c 1-150
}
mkdir -p "$out"
summary=$out/summary.txt
python=.venv/bin/python
[[ -x $python ]] || python=python3
record() { "$python" scripts/stage_record.py "$@"; }
has=$("$python" scripts/skips.py "$build" | sed -n 's/^has: //p')
tested=$(record commit)
printf 'test-all of %s (%s)\n%-14s %-8s %8s  %s\n' "$tested" "$has" stage result seconds counts | tee "$summary"
failed=0 skipped=()
for name in "${chosen[@]}"; do
  began=$SECONDS
  code=0
  junit=$PWD/build/test-all/junit.$name
  rm -rf "$junit"
  if [[ -z $again ]] && grep -qsxF "$name $tested $has" "$out/passed.txt"; then
    printf '%-14s %-8s %8d  %s\n' "$name" before 0 "passed here at this commit before" | tee -a "$summary"
    continue
  fi
  "stage_$name" >"$out/$name.log" 2>&1 </dev/null || code=$?
  result=passed counts=$(counts_of "$out/$name.log")
  # A stage that skips every test has tested nothing, whatever its exit code.
  if ((code == 0)) && [[ $counts =~ [0-9]\ skipped && ! $counts =~ [1-9][0-9]*\ passed ]]; then
    code=1
    echo "error: no test of this stage passed: $counts" >>"$out/$name.log"
  fi
  if ((code == 77)); then
    result=skipped counts=$(tail -n 1 "$out/$name.log")
    skipped+=("$name")
  elif ((code)); then
    result=FAILED counts="${counts:+$counts; }exit code $code, $out/$name.log"
    failed=1
  fi
  # A tree with changes has no commit to go on at.
  [[ $result != passed || $tested == *";"* ]] || echo "$name $tested $has" >>"$out/passed.txt"
  # The page too: a later stage tests that it shows the record. Of the tree alone: a record elsewhere is merged into it first.
  [[ $result != passed ]] || { record add "$name" $((SECONDS - began)) "$counts" "$has" "${tested%%;*}" && { [[ -n ${OCTAVO_TEST_RECORD:-} ]] || record page; }; }
  printf '%-14s %-8s %8d  %s\n' "$name" "$result" $((SECONDS - began)) "$counts" | tee -a "$summary"
  ((code == 0 || code == 77)) || tail -n 15 "$out/$name.log" | sed 's/^/    /'
done
if ((failed)); then
  echo "test-all: failed" | tee -a "$summary"
elif [[ -n $only ]]; then
  echo "test-all: the chosen stages passed; a release needs all of them" | tee -a "$summary"
else
  echo "test-all: all stages passed${skipped[*]:+ but ${skipped[*]}, which this machine cannot run}" | tee -a "$summary"
fi
exit $failed
