#!/usr/bin/env bash
# wheel.sh [FOLDER]: the wheel and the source distribution, in dist/ or FOLDER. One wheel for every Python from 3.11 on, x86-64, with the
# libraries that it needs inside; its name says the least glibc (manylinux_2_35 where it is built on Debian 12). Checked by tests/install/test_wheel.py.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
venv=build/wheel-venv
work=build/wheel
log=build/wheel.log
scripts/venv.sh requirements-wheel.txt "$venv"
python=$PWD/$venv/bin/python
started=$SECONDS
rm -rf "$work"
mkdir -p "$work" "$out"
echo "wheel: building (log: $log)"
# --no-isolation: the packages of the environment above, whose versions are pinned. The compiler by the name that CMake takes by itself:
# Python's own (g++) would miss what the other builds left in the compiler cache.
make_wheel() {
  "$python" -m build --no-isolation --sdist --outdir "$work/sdist" . &&
    CC=${CC:-cc} CXX=${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} "$python" -m build --no-isolation --wheel --outdir "$work/plain" . &&
    PATH=$PWD/$venv/bin:$PATH "$python" -m auditwheel repair --strip --wheel-dir "$work/repaired" "$work"/plain/*.whl &&
    "$python" scripts/wheel_licences.py "$work"/repaired/*.whl "$out"
}
make_wheel >"$log" 2>&1 </dev/null || { tail -n 40 "$log" >&2; echo "error: wheel: building failed (all of its output: $log)" >&2; exit 1; }
cp "$work"/sdist/*.tar.gz "$out/"
for file in "$out"/octavo-*; do echo "wheel: $file, $(du -k "$file" | cut -f1) kB"; done
echo "wheel: done ($((SECONDS - started)) s)"
