#!/usr/bin/env bash
# aarch64.sh JOBS [all]: engines, the runtime and the portable kernels pass the compiler for 64-bit Arm, up to the generation of code (that takes half of
# the time). `all`: they are compiled, and the tests of base, program, region and the kernels run under qemu. Exit code 77: no cross compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$1
command -v aarch64-linux-gnu-g++ >/dev/null || { echo "skipped: no aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu)"; exit 77; }
tests=()
[[ ${2:-} != all ]] || tests=(test_base test_program test_region test_cpu)
folder=build/aarch64
options=()
if ((!${#tests[@]})); then  # there are no objects then, and nothing to archive
  folder=build/aarch64-syntax
  options=(-B "$folder" -DCMAKE_CXX_FLAGS_QUICK=-fsyntax-only -DCMAKE_AR=/bin/true -DCMAKE_RANLIB=/bin/true -DOCTAVO_TESTS=OFF)
fi
mkdir -p build
log=$folder.log
if ! { cmake --preset aarch64 ${options[@]+"${options[@]}"} && cmake --build "$folder" -j "$jobs" --target octavo_engine octavo_cpu ${tests[@]+"${tests[@]}"}; } >"$log" 2>&1 </dev/null; then
  cat "$log"
  exit 1
fi
if ((!${#tests[@]})); then
  echo "aarch64: $(grep -c 'Building CXX' "$log") groups of files pass the compiler"
  exit 0
fi
run=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [[ -z $run ]]; then
  echo "aarch64: compiled; its tests were not run: no qemu-aarch64 (Debian: qemu-user)"
  exit 0
fi
for t in "${tests[@]}"; do
  # A child under an address-space limit cannot start under qemu, which needs more itself; Isa/.../1 and 2 are AVX2's and AVX-512's.
  "$run" -L /usr/aarch64-linux-gnu "build/aarch64/tests/$t" --gtest_brief=1 --gtest_filter='-Limits.NeverMoreThanTheAddressSpace:Isa/*/1:Isa/*/2'
done
echo "aarch64: compiled, and ${tests[*]} passed under qemu"
