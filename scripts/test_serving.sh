#!/usr/bin/env bash
# test_serving.sh BUILD_DIR: the tests of octavo serve in an environment of their own that has what they need (0.2 GB), with
# 10000 mutated requests over each protocol and 100000 good ones.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
venv=build/serving-venv
scripts/venv.sh requirements-serving.txt "$venv"
export PYTHONDONTWRITEBYTECODE=1 OCTAVO_BUILD="$build" PYTHONPATH="$build/python"
export OCTAVO_SERVE_REQUESTS="${OCTAVO_SERVE_REQUESTS:-100000}" OCTAVO_SERVE_MUTATED="${OCTAVO_SERVE_MUTATED:-10000}"
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/serving "${@:2}"
