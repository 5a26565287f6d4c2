#!/bin/sh
# Checks Octavo's kernels on a machine with a GPU. That machine needs the CUDA driver and NVRTC; nothing is built there.
#   scripts/gpu_check.sh build [DIR]       here: builds octavo and the programs of tests/cuda/gpu, and puts them with the libraries that they load into
#                                          DIR/octavo-gpu.tar.xz (default build-gpu). OCTAVO_BEFORE=FILE takes an octavo of another commit along, for comparison
#   scripts/gpu_check.sh run [DIR] [OUT]   there: unpacks them and checks that every kind of kernel gives the reference's bits, in 8 minutes at most;
#                                          what is printed goes to OUT (default DIR/out) as well
#   scripts/gpu_check.sh time [DIR] [OUT]  there: times kernels, and transformers beside PyTorch (bench/gpu_transformers.py), in 15 minutes at most
set -eu
cd "$(dirname "$0")/.."
mode=${1:-run}
dir=${2:-build-gpu}
programs="octavo_gpu_epilogue_check octavo_gpu_matmul octavo_gpu_rows octavo_gpu_attention octavo_gpu_plain octavo_gpu_linear octavo_gpu_conv octavo_gpu_networks"
case $mode in
  build)
    build=build/release
    stage=$dir/stage
    rm -rf "$stage"
    mkdir -p "$stage/bin" "$stage/lib" "$stage/libexec/octavo"
    # shellcheck disable=SC2086
    cmake --build $build --target octavo_command $programs
    cp $build/bin/octavo "$stage/bin/octavo"
    cp $build/libexec/octavo/octavo-nvrtc "$stage/libexec/octavo/"
    for program in $programs; do cp "$(find $build -type f -name "$program" -perm -u+x | head -n 1)" "$stage/bin/"; done
    [ -z "${OCTAVO_BEFORE:-}" ] || cp "$OCTAVO_BEFORE" "$stage/bin/octavo_before"
    strip "$stage"/bin/* "$stage"/libexec/octavo/*
    # Everything but the C and C++ libraries, which the other machine has in a version that is newer or the same.
    for program in "$stage"/bin/*; do ldd "$program"; done | awk '/=> \// {print $3}' | sort -u |
      grep -v -E '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' | while read -r library; do cp -L "$library" "$stage/lib/"; done
    tar -C "$stage" -cJf "$dir/octavo-gpu.tar.xz" bin lib libexec
    rm -rf "$stage"
    ls -l "$dir/octavo-gpu.tar.xz"
    ;;
  run | time)
    [ -f "$dir/octavo-gpu.tar.xz" ] || { echo "gpu_check: $dir/octavo-gpu.tar.xz is missing; run 'scripts/gpu_check.sh build $dir' first" >&2; exit 2; }
    out=${3:-$dir/out}
    work=$(mktemp -d)
    mkdir -p "$out"
    tar -C "$work" -xJf "$dir/octavo-gpu.tar.xz"
    ours="env LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"  # not for Python, which has its own
    status=0
    left=900  # seconds for all; each step has more than it takes, as the machine may be busy
    step() {  # NAME SECONDS COMMAND: the last lines are shown, all are kept
      name=$1 seconds=$2
      shift 2
      if [ "$left" -lt "$seconds" ]; then seconds=$left; fi
      [ "$seconds" -gt 0 ] || { echo "== $name: left out, no time"; status=1; return; }
      begin=$(date +%s)
      code=0
      timeout "$seconds" "$@" >"$out/$name.txt" 2>&1 || code=$?
      spent=$(($(date +%s) - begin))
      left=$((left - spent))
      echo "== $name: exit code $code, $spent s"
      tail -n "${lines:-12}" "$out/$name.txt"
      [ $code -eq 0 ] || status=1
    }
    # shellcheck disable=SC2086
    if [ "$mode" = run ]; then
      left=480
      step rows 120 $ours "$work/bin/octavo_gpu_rows" check 120
      step attention 120 $ours "$work/bin/octavo_gpu_attention" check 60
      step products 120 $ours "$work/bin/octavo_gpu_matmul" check 100
      step plain 120 $ours "$work/bin/octavo_gpu_plain" check 10
      step linear 120 $ours "$work/bin/octavo_gpu_linear" check 12
      step convolutions 120 $ours "$work/bin/octavo_gpu_conv" check 40
      step networks 120 $ours "$work/bin/octavo_gpu_networks" 1 100 40
      step epilogues 120 $ours "$work/bin/octavo_gpu_epilogue_check"
      [ "$status" -eq 0 ] && echo "== all kernels checked are right"
    else
      lines=40 step row-times 120 $ours "$work/bin/octavo_gpu_rows" time 8
      lines=20 step attention-times 180 $ours "$work/bin/octavo_gpu_attention" time
      lines=70 step transformers 260 python3 bench/gpu_transformers.py "$work" --out "$out" --seconds 240
      lines=90 step product-times 300 $ours "$work/bin/octavo_gpu_matmul" time 6
    fi
    rm -rf "$work"
    exit $status
    ;;
  *) sed -n '2,8p' "$0"; exit 2 ;;
esac
