#!/usr/bin/env bash
# test_ray.sh BUILD_DIR: the tests of octavo.ray in an environment of their own that has Ray (0.6 GB).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
venv=build/ray-venv
scripts/venv.sh requirements-ray.txt "$venv"
export PYTHONDONTWRITEBYTECODE=1 OCTAVO_BUILD="$build" PYTHONPATH="$build/python" RAY_USAGE_STATS_ENABLED=0
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/ray "${@:2}"
