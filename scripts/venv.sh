#!/usr/bin/env bash
# venv.sh REQUIREMENTS FOLDER: a virtual environment in FOLDER that holds exactly what REQUIREMENTS lists; made anew when the list changes.
set -euo pipefail
cd "$(dirname "$0")/.."
want=$(sha256sum <"$1")
[[ -x $2/bin/python && $(cat "$2/requirements.sha256" 2>/dev/null || true) == "$want" ]] && exit 0
echo "$(basename "$2"): installing $1"
.venv/bin/python -m venv --clear "$2"
"$2/bin/pip" install --quiet --disable-pip-version-check --upgrade pip </dev/null  # older ones take minutes to find versions that go together
"$2/bin/pip" install --quiet --disable-pip-version-check -r "$1" </dev/null
echo "$want" >"$2/requirements.sha256"
