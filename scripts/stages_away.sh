#!/usr/bin/env bash
# stages_away.sh: stages of scripts/test_all.sh on a machine without network, which has many cores or a GPU. They run in a Debian 12 root that is made here and carried there.
#   stages_away.sh pack [DIR] [MIB]     here, as root, with debootstrap: the root with compilers, libraries, Python packages and the test data (OCTAVO_TEST_DATA), compressed, in pieces
#                                       of MIB mebibytes (47): DIR/root.NN (DIR: build/away). Also the newest wheel of dist/ and what it needs for Python OCTAVO_PYTHON_THERE (3.12)
#   stages_away.sh start DIR COMMIT     there, as root, in a copy of the tree at COMMIT with DIR in it: unpacks, checks the tools, starts all stages beside each other, and returns
#   stages_away.sh check DIR COMMIT     the same, but starts nothing
#   stages_away.sh wait DIR [SECONDS]   there: until all have ended, or so long; says how far each is. Exit code 0: all passed; 75: some are not ready
# OCTAVO_AWAY_STAGES="asan long" starts and waits for some stages alone.
# Results: DIR/results has the outputs, and a record STAGE.json of each stage that passed, for scripts/stage_record.py merge. With 64 cores all but `gpu` take 14 minutes. `gpu` runs where there
# is a GPU, with the machine's own Python, which has PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:-} dir=$(realpath -m "${2:-build/away}")
root=${OCTAVO_AWAY_ROOT:-/var/tmp/octavo-away}
# What needs the release build comes last, and gpu_programs before the others of these.
read -ra stages <<<"${OCTAVO_AWAY_STAGES:-asan tsan fuzz ubsan gpu_programs long install caps}"
declare -A nice=([asan]=2 [tsan]=2 [fuzz]=6 [ubsan]=12)  # of those with a build of their own: the longest ones first
packages=(g++ cmake ninja-build make libxbyak-dev libdnnl-dev libexpected-dev protobuf-compiler libprotobuf-dev nlohmann-json3-dev libcli11-dev libfmt-dev libjpeg62-turbo-dev libpng-dev
  zlib1g-dev libxxhash-dev libssl-dev libnghttp2-dev libgtest-dev python3-venv python3-dev openssl pkg-config procps file patchelf xz-utils clang-14 libclang-rt-14-dev)
# Python packages of the root, with the versions of requirements*.txt.
python_packages=(onnx netron numpy onnxruntime pytest pillow nanobind scikit-build-core)
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

pack() {
  local pieces=${1:-47} names versions=() name
  work=$(mktemp -d)  # not local: the trap reads it behind this function
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$dir"
  rm -f "$dir"/root.* "$dir"/*.whl
  names=$(IFS=,; echo "${packages[*]}")
  debootstrap --variant=minbase --include="$names" bookworm "$work/root" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
  for name in "${python_packages[@]}"; do versions+=("$(grep -h "^$name==" requirements*.txt | sort -u)"); done
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" download --quiet --disable-pip-version-check --python-version 3.11 --only-binary :all: -d "$work/root/octavo/house" "${versions[@]}" </dev/null
  chroot "$work/root" /bin/bash -c 'python3 -m venv /octavo/venv && /octavo/venv/bin/pip install --quiet --no-index --no-compile --find-links /octavo/house /octavo/house/*.whl'
  cp -r "${OCTAVO_TEST_DATA:-../shared}" "$work/root/octavo/shared"
  rm -rf "$work/root"/octavo/house "$work/root"/var/{cache/apt,lib/apt/lists,log}/* "$work/root"/usr/share/{doc,man,locale,info} "$work/root"/usr/lib/python3.11/config-*/*.a
  tar -C "$work/root" -cf - . | xz -T0 -5 | split -b "${pieces}m" -d - "$dir/root."
  if compgen -G 'dist/octavo-*x86_64.whl' >/dev/null; then
    cp "$(ls -t dist/octavo-*x86_64.whl | head -n 1)" "$dir/"
    "$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --python-version "${OCTAVO_PYTHON_THERE:-3.12}" --only-binary :all: -d "$dir" 'nanobind-backend>=1.0,<2' </dev/null
  fi
  ls -l "$dir"
}

# Of the caller's environment nothing reaches the root: a CXX that is not there would end every build.
in_root() { env -i HOME=/root LANG=C.UTF-8 PATH=$path OCTAVO_COMMIT="$commit" OCTAVO_TEST_DATA=/octavo/shared CCACHE_DISABLE=1 chroot "$root" "$@"; }

prepare() {
  # What an earlier start has mounted is not to be emptied.
  awk -v at="$root/" 'index($5, at) == 1 { print $5 }' /proc/self/mountinfo | sort -r | xargs -r umount --lazy
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  cat "$dir"/root.* | xz -dc -T0 | tar -C "$root" -xf -
  mkdir -p "$root/octavo/main" "$dir/results" "$root/octavo/results" "$root/usr/local/cuda"
  tar -cf - --exclude=./.git --exclude=./.venv --exclude=./build --exclude=./dist --exclude="./${dir#"$PWD/"}" . | tar -C "$root/octavo/main" -xf -
  ln -sfn /octavo/venv "$root/octavo/main/.venv"
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/tmp"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"  # no GPU: what is tested here must not see one
  local name kind
  while read -r name kind; do mknod -m 666 "$root/dev/$name" c "${kind%:*}" "${kind#*:}"; done <<<$'null 1:3\nzero 1:5\nfull 1:7\nrandom 1:8\nurandom 1:9\ntty 5:0'
  ln -s /proc/self/fd "$root/dev/fd"
  for name in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${name#*:}" "$root/dev/${name%:*}"; done
  mkdir "$root/dev/shm" "$root/dev/pts"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount -t devpts -o ptmxmode=666 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  mount --bind "$dir/results" "$root/octavo/results"
  [[ ! -e /usr/local/cuda ]] || mount --bind "$(realpath /usr/local/cuda)" "$root/usr/local/cuda"
  cat >"$root/octavo/stage.sh" <<'STAGE'
#!/bin/bash
# Arguments: a stage, and its jobs.
cd /octavo/main
OCTAVO_TEST_RECORD=/octavo/results/$1.json OCTAVO_TEST_ALL_OUT=/octavo/results/$1 scripts/test_all.sh --only "$1" --jobs "$2" >/octavo/results/$1.txt 2>&1 </dev/null
echo "ended $?" >>/octavo/results/$1.txt
STAGE
  # What needs the release build. `caps` and `long` both run CTest, which writes into the build's folder: `caps` has a copy at the same path.
  cat >"$root/octavo/release.sh" <<'RELEASE'
#!/bin/bash
# Arguments: jobs, and the stages of these.
cd /octavo/main
jobs=$1 stages=" ${*:2} "
scripts/build.sh release "$jobs" >/octavo/results/release.txt 2>&1 </dev/null
[[ $stages != *" gpu_programs "* ]] || bash /octavo/stage.sh gpu_programs "$jobs"
if [[ $stages == *" caps "* ]]; then
  mkdir -p /octavo/copy/build
  tar --exclude=./build -cf - . | tar -C /octavo/copy -xf -
  cp -a build/release /octavo/copy/build/
fi
[[ $stages != *" long "* ]] || bash /octavo/stage.sh long "$jobs" &
[[ $stages != *" install "* ]] || bash /octavo/stage.sh install $((jobs / 4 + 1)) &
[[ $stages != *" caps "* ]] ||
  unshare --mount --propagation unchanged bash -c "mount --bind /octavo/copy /octavo/main && cd / && bash /octavo/stage.sh caps $((jobs / 2 + 1))" >/octavo/results/caps.err 2>&1 </dev/null &
wait
RELEASE
  cat >"$root/octavo/check.sh" <<'CHECK'
set -e
cd /octavo/main
[[ $(.venv/bin/python scripts/stage_record.py commit) == "$OCTAVO_COMMIT" ]]
.venv/bin/python scripts/skips.py build/release
cmake --preset ubsan -DOCTAVO_UNITY=ON >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
cmake --preset fuzz -DOCTAVO_UNITY=ON >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
cmake --build build/ubsan --target octavo_base >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
unshare --mount --propagation unchanged mount --bind /octavo/results /mnt
rm -rf build
echo "the root's tools work"
CHECK
}

check() {
  commit=${1:?usage: stages_away.sh check|start DIR COMMIT}
  prepare
  in_root /bin/bash /octavo/check.sh
}

start() {
  check "${1:-}"
  local cores stage after=()
  cores=$(nproc)
  rm -f "$dir"/results/*.txt
  for stage in "${stages[@]}"; do
    if [[ -n ${nice[$stage]:-} ]]; then
      (in_root setsid nohup nice -n "${nice[$stage]}" /bin/bash /octavo/stage.sh "$stage" "$cores" >/dev/null 2>&1 </dev/null &)
    else
      after+=("$stage")
    fi
  done
  # A part of `long` builds this later; it is what `long` waits for.
  [[ " ${after[*]} " != *" long "* ]] ||
    (in_root setsid nohup nice -n 2 /bin/bash -c "cd /octavo/main && scripts/build.sh sanitize $cores test_onnx test_engine" >"$dir/results/sanitize.log" 2>&1 </dev/null &)
  ((${#after[@]} == 0)) || (in_root setsid nohup /bin/bash /octavo/release.sh "$cores" "${after[@]}" >/dev/null 2>&1 </dev/null &)
  if [[ " ${after[*]} " == *" gpu_programs "* ]] && compgen -G '/dev/nvidia[0-9]*' >/dev/null && compgen -G "$dir/octavo-*.whl" >/dev/null; then
    (setsid nohup bash -c 'scripts/stages_away.sh gpu "$@"; echo "ended $?"' gpu "$dir" "$commit" >"$dir/results/gpu.txt" 2>&1 </dev/null &)
  fi
  echo "started; see: scripts/stages_away.sh wait $dir"
}

# On the machine itself, whose Python has PyTorch; with what the stage gpu_programs made.
gpu() {
  local commit=$1 tree=$root/gpu/main
  until grep -q '^ended ' "$dir/results/gpu_programs.txt" 2>/dev/null; do sleep 1; done
  mkdir -p "$tree/build/release/python" "$tree/build/test-all/gpu"
  tar -C "$root/octavo/main" --exclude=./build --exclude=./.venv -cf - . | tar -C "$tree" -xf -
  for wheel in "$dir"/*.whl; do python3 -m zipfile -e "$wheel" "$tree/build/release/python"; done
  find "$tree/build/release/python" -name octavo-nvrtc -exec chmod +x {} +
  cp "$root/octavo/main/build/test-all/gpu/octavo-gpu.tar.xz" "$tree/build/test-all/gpu/"
  (cd "$tree" && env OCTAVO_TEST_DATA="$root/octavo/shared" OCTAVO_COMMIT="$commit" OCTAVO_TEST_RECORD="$dir/results/gpu.json" OCTAVO_TEST_ALL_OUT="$dir/results/gpu" \
    nice -n -8 scripts/test_all.sh --only gpu)
}

wait_for_all() {
  local end=$((SECONDS + ${1:-0})) all=("${stages[@]}") stage ready failed
  [[ ! -e $dir/results/gpu.txt ]] || all+=(gpu)
  while :; do
    ready=0 failed=0
    for stage in "${all[@]}"; do
      case $(tail -n 1 "$dir/results/$stage.txt" 2>/dev/null) in
        "ended 0") ready=$((ready + 1)) ;;
        "ended "*) ready=$((ready + 1)) failed=1 ;;
      esac
    done
    ((ready < ${#all[@]} && SECONDS < end)) || break
    sleep 2
  done
  for stage in "${all[@]}"; do
    grep -hE "^$stage +(passed|FAILED|skipped)" "$dir/results/$stage.txt" 2>/dev/null || echo "$stage: not ready; $(tail -n 1 "$dir/results/$stage/$stage.log" 2>/dev/null | cut -c 1-120)"
  done
  ((ready == ${#all[@]})) || return 75
  return $failed
}

case $mode in
  pack) pack "${@:3}" ;;
  check) check "${@:3}" ;;
  start) start "${@:3}" ;;
  wait) wait_for_all "${@:3}" ;;
  gpu) gpu "${@:3}" ;;
  *) sed -n '2,10p' "$0"; exit 2 ;;
esac
