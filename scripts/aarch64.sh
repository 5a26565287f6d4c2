#!/usr/bin/env bash
# aarch64.sh JOBS [all]: the source files that name a processor, its instructions or the code that is generated for it pass the compiler for 64-bit Arm;
# another file can hardly be wrong there alone. `all`: engines, the runtime and the portable kernels are compiled, and the tests of base, program, region
# and the kernels run under qemu. Exit code 77: no cross compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$1
command -v aarch64-linux-gnu-g++ >/dev/null || { echo "skipped: no aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu)"; exit 77; }
mkdir -p build
if [[ ${2:-} != all ]]; then
  headers=build/aarch64-headers  # the host's header-only libraries, one by one: /usr/include itself holds the host's C library too
  mkdir -p $headers
  for header in fmt nlohmann tl xxhash.h; do ln -sfn "/usr/include/$header" $headers/; done
  named='__x86_64__|__aarch64__|__ARM_|immintrin|__builtin_(ia32|cpu)|cpuid|__AVX|asm volatile|xbyak|"cpu/jit/'
  # cpu/jit is no part of the build for Arm.
  mapfile -t sources < <(grep -lrE "$named" src/{base,ir,program,region,reference,cpu,engine} --include='*.cc' | grep -v '^src/cpu/jit/' | sort)
  ((${#sources[@]} > 10)) || { echo "error: aarch64: only ${#sources[@]} files name a processor: is the pattern right?"; exit 1; }
  printf '%s\n' "${sources[@]}" |
    xargs -P "$jobs" -n 1 aarch64-linux-gnu-g++ -std=c++20 -fsyntax-only -ffp-contract=off -DFMT_HEADER_ONLY=1 -Isrc -Iinclude -isystem $headers
  echo "aarch64: the ${#sources[@]} files that name a processor pass the compiler"
  exit 0
fi
tests=(test_base test_program test_region test_cpu)
log=build/aarch64.log
if ! { cmake --preset aarch64 && cmake --build build/aarch64 -j "$jobs" --target octavo_engine octavo_cpu "${tests[@]}"; } >"$log" 2>&1 </dev/null; then
  cat "$log"
  exit 1
fi
run=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [[ -z $run ]]; then
  echo "aarch64: compiled; its tests were not run: no qemu-aarch64 (Debian: qemu-user)"
  exit 0
fi
# A child under an address-space limit cannot start under qemu, which needs more itself. Each program in shares, as many at a time as there are jobs.
shares=8
share() {  # PROGRAM SHARE SHARES QEMU
  local log=build/aarch64/$1.$2.log
  GTEST_TOTAL_SHARDS=$3 GTEST_SHARD_INDEX=$2 "$4" -L /usr/aarch64-linux-gnu "build/aarch64/tests/$1" --gtest_brief=1 --gtest_filter='-Limits.NeverMoreThanTheAddressSpace' >"$log" 2>&1 && return
  cat "$log"
  return 1
}
export -f share
for t in "${tests[@]}"; do for ((i = 0; i < shares; ++i)); do echo "$t $i"; done; done |
  xargs -P "$jobs" -L 1 bash -c 'share "$2" "$3" "$0" "$1"' "$shares" "$run" || { echo "error: aarch64: tests failed under qemu"; exit 1; }
echo "aarch64: compiled, and ${tests[*]} passed under qemu"
