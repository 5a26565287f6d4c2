#!/usr/bin/env bash
# wheel_aarch64.sh [FOLDER]: the wheel for 64-bit Arm, in dist/ or FOLDER, cross-compiled here (portable kernels, no oneDNN), and tried under qemu
# where there is one. Needs g++-aarch64-linux-gnu and a Debian system for Arm with the libraries in OCTAVO_ARM_ROOT (default: build/arm-root, made by
# debootstrap when it is missing: 380 MB). About half an hour of a core.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
root=$(realpath -m "${OCTAVO_ARM_ROOT:-build/arm-root}")
venv=build/wheel-venv
work=$PWD/build/wheel-aarch64
log=build/wheel-aarch64.log
command -v aarch64-linux-gnu-g++ >/dev/null || { echo "error: wheel_aarch64: no aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu)" >&2; exit 1; }
mkdir -p build
if [[ ! -d $root/usr/include ]]; then
  command -v debootstrap >/dev/null || { echo "error: wheel_aarch64: $root has no usr/include, and there is no debootstrap to make it" >&2; exit 1; }
  echo "wheel_aarch64: unpacking a Debian system for Arm into $root"
  packages=python3,libpython3-dev,libprotobuf-dev,libjpeg62-turbo-dev,libpng-dev,zlib1g-dev,libfmt-dev,libxxhash-dev,libnghttp2-dev,libssl-dev
  packages+=,libexpected-dev,nlohmann-json3-dev,libcli11-dev
  debootstrap --arch=arm64 --foreign --variant=minbase --include="$packages" bookworm "$root" >build/arm-root.log 2>&1 </dev/null
  for package in "$root"/var/cache/apt/archives/*.deb; do dpkg -x "$package" "$root"; done
fi
scripts/venv.sh requirements-wheel.txt "$venv"
python=$PWD/$venv/bin/python
started=$SECONDS
rm -rf "$work"
mkdir -p "$work" "$out"
include=$root/usr/include/python3.11
define=()
for pair in CMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-package.cmake" OCTAVO_ARM_ROOT="$root" OCTAVO_ONEDNN=OFF OCTAVO_UNITY=ON \
  Python_EXECUTABLE="$python" Python3_EXECUTABLE="$python" Python_INCLUDE_DIR="$include" Python3_INCLUDE_DIR="$include"; do
  define+=("-Ccmake.args=-D$pair")
done
libraries=$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu
make_wheel() {
  # The platform that Python's own tools take for the one of the wheel.
  _PYTHON_HOST_PLATFORM=linux-aarch64 CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
    "$python" -m build --no-isolation --wheel --outdir "$work/plain" -Cbuild-dir=build/arm "${define[@]}" . &&
    PATH=$PWD/$venv/bin:$PATH "$python" -m auditwheel repair --ldpaths "$libraries" --wheel-dir "$work/repaired" "$work"/plain/*.whl &&
    "$python" scripts/wheel_licences.py "$work"/repaired/*.whl "$out" "$root"
}
echo "wheel_aarch64: building (log: $log)"
make_wheel >"$log" 2>&1 </dev/null || { tail -n 40 "$log" >&2; echo "error: wheel_aarch64: building failed (all of its output: $log)" >&2; exit 1; }
wheel=$(ls -t "$out"/octavo-*_aarch64.whl | head -n 1)
echo "wheel_aarch64: $wheel, $(du -k "$wheel" | cut -f1) kB ($((SECONDS - started)) s)"

run=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
[[ -n $run ]] || { echo "wheel_aarch64: not tried: no qemu-aarch64 (Debian: qemu-user)"; exit 0; }
# As pip on such a machine would: its tags are asked for, what the wheel needs is fetched for it.
tags=()
for glibc in $(seq 36 -1 17); do tags+=(--platform "manylinux_2_${glibc}_aarch64"); done
"$venv/bin/pip" install --quiet --disable-pip-version-check --target "$work/site" "${tags[@]}" --platform manylinux2014_aarch64 --only-binary=:all: --python-version 3.11 \
  --implementation cp "$wheel" </dev/null
octavo() { PYTHONPATH=$work/site PYTHONDONTWRITEBYTECODE=1 "$run" -L "$root" "$root/usr/bin/python3.11" -m octavo "$@"; }
octavo doctor --system | grep -E "^(octavo|CPU|kernels)" || true
octavo check examples/digits/digits_qdq.onnx --effort 0 --timing-cache none | tail -n 1
octavo build examples/digits/digits_qdq.onnx --effort 0 --timing-cache none -o "$work/digits.octavo" >"$work/build.txt"
octavo run "$work/digits.octavo" --input examples/digits/images/ -o "$work/digits.json"
if [[ -x build/release/bin/octavo ]]; then  # the same outputs, bit for bit, as this machine's kernels give
  build/release/bin/octavo run examples/digits/digits_qdq.onnx --effort 0 --timing-cache none --input examples/digits/images/ -o "$work/here.json" >"$work/here.txt"
  cmp "$work/digits.json" "$work/here.json" && echo "wheel_aarch64: outputs equal those of $(uname -m)"
fi
echo "wheel_aarch64: done ($((SECONDS - started)) s)"
