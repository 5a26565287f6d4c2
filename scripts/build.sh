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
if [[ ! -f build/$preset/build.ninja || CMakePresets.json -nt build/$preset/build.ninja ]]; then
  # Precompiled headers make a build from nothing faster. With a filled compiler cache it is the other way round: other flags miss the cache.
  cached=$(ccache --print-stats 2>/dev/null | awk '$1 == "files_in_cache" { print $2 }')
  pch=()
  [[ -f build/$preset/CMakeCache.txt ]] || ((${cached:-0} > 500)) || pch=(-DOCTAVO_PCH=ON)
  cmake --preset "$preset" ${pch[@]+"${pch[@]}"} >"$log" 2>&1 </dev/null || { cat "$log" >&2; echo "error: cmake --preset $preset failed" >&2; exit 1; }
fi
if [[ -t 1 ]]; then
  cmake --build "build/$preset" -j "$jobs" ${targets[@]+--target "${targets[@]}"}
else
  cmake --build "build/$preset" -j "$jobs" ${targets[@]+--target "${targets[@]}"} >"$log" 2>&1 </dev/null || { cat "$log" >&2; echo "error: the build failed (build/$preset)" >&2; exit 1; }
fi
echo "build: build/$preset is up to date ($((SECONDS - started)) s)"
