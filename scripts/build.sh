#!/usr/bin/env bash
# build.sh PRESET JOBS [TARGET...]: configures build/PRESET once and builds it. The compiler's full output is shown when it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
jobs=$2
targets=("${@:3}")
log=build/$preset.log
mkdir -p build
exec 9>build/$preset.lock  # two builds of one folder at once would spoil it
flock 9
started=$SECONDS
[[ -f build/$preset/build.ninja ]] || echo "build: compiling into build/$preset with $jobs jobs; some minutes the first time"
# The command alone, for its demonstration, needs neither GoogleTest nor a Python extension nor kernels for GPUs; whoever builds more configures again.
alone=()
if [[ ${targets[*]-} == octavo_command ]]; then
  alone=(-DOCTAVO_TESTS=OFF -DOCTAVO_PYTHON=OFF -DOCTAVO_GPU_KERNELS=OFF)
elif grep -qs '^OCTAVO_TESTS:BOOL=OFF' "build/$preset/CMakeCache.txt"; then
  # What was compiled without ccache stays compiled when ccache is there since.
  grep -q '^OCTAVO_CCACHE:.*NOTFOUND' "build/$preset/CMakeCache.txt" && alone=(-DOCTAVO_CCACHE=OFF)
  rm "build/$preset/CMakeCache.txt" "build/$preset/build.ninja"
fi
if [[ ! -f build/$preset/build.ninja || CMakePresets.json -nt build/$preset/build.ninja ]]; then
  # Groups of files make a build from nothing several times faster, and a build after an edit slower. `cmake --preset release` by hand has no groups.
  cmake --preset "$preset" -DOCTAVO_UNITY=ON ${alone[@]+"${alone[@]}"} >"$log" 2>&1 </dev/null || { cat "$log" >&2; echo "error: cmake --preset $preset failed" >&2; exit 1; }
fi
if [[ -t 1 ]]; then
  cmake --build "build/$preset" -j "$jobs" ${targets[@]+--target "${targets[@]}"}
else
  cmake --build "build/$preset" -j "$jobs" ${targets[@]+--target "${targets[@]}"} >"$log" 2>&1 </dev/null || { cat "$log" >&2; echo "error: the build failed (build/$preset)" >&2; exit 1; }
fi
echo "build: build/$preset is up to date ($((SECONDS - started)) s)"
