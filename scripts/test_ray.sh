#!/usr/bin/env bash
# test_ray.sh BUILD_DIR: the tests of octavo.ray in an environment of their own that has Ray (0.6 GB).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
venv=build/ray-venv
want=$(sha256sum <requirements-ray.txt)
if [[ ! -x $venv/bin/python || $(cat "$venv/requirements.sha256" 2>/dev/null || true) != "$want" ]]; then
  echo "test-ray: installing requirements-ray.txt into $venv"
  .venv/bin/python -m venv "$venv"
  "$venv/bin/pip" install --quiet --upgrade pip </dev/null
  "$venv/bin/pip" install --quiet -r requirements-ray.txt </dev/null
  echo "$want" >"$venv/requirements.sha256"
fi
export PYTHONDONTWRITEBYTECODE=1 OCTAVO_BUILD="$build" PYTHONPATH="$build/python" RAY_USAGE_STATS_ENABLED=0
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/ray "${@:2}"
