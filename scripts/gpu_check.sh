#!/bin/sh
# Checks on a GPU that epilogue programs give the oracle's bits. The GPU's machine needs the CUDA driver only.
#   scripts/gpu_check.sh build [DIR]   here: build the check (plain g++) and compile its kernels with NVRTC into DIR (default build-gpu)
#   scripts/gpu_check.sh run [DIR]     there: run it; with NVRTC if the machine has it, then with the kernels compiled at build time
set -eu
cd "$(dirname "$0")/.."
mode=${1:-run}
dir=${2:-build-gpu}
check=$dir/octavo_gpu_epilogue_check
case $mode in
  build)
    mkdir -p "$dir"
    ${CXX:-g++} -std=c++20 -O2 -ffp-contract=off -DFMT_HEADER_ONLY -static-libstdc++ -static-libgcc -Isrc -Itests \
      tests/cuda/gpu/run_on_gpu.cc src/cuda/*.cc src/program/*.cc src/ir/*.cc src/base/*.cc -ldl -o "$check"
    "$check" --emit "$dir" --arch "${OCTAVO_GPU_ARCH:-sm_90a}"
    ;;
  run)
    [ -x "$check" ] || { echo "gpu_check: $check is missing; run 'scripts/gpu_check.sh build' first" >&2; exit 2; }
    "$check" --load "$dir"
    status=0
    "$check" || status=$?
    [ "$status" -ne 3 ] || { echo "gpu_check: no NVRTC on this machine; the kernels compiled at build time were checked"; status=0; }
    exit $status
    ;;
  *) sed -n '2,4p' "$0"; exit 2 ;;
esac
