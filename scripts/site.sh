#!/usr/bin/env bash
# site.sh BUILD_DIR: the documentation as web pages that need no server, in build/site/site. A link that leads nowhere is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
venv=build/site-venv
want=$(sha256sum <requirements-site.txt)
if [[ ! -x $venv/bin/python || $(cat "$venv/requirements.sha256" 2>/dev/null || true) != "$want" ]]; then
  echo "site: installing requirements-site.txt into $venv"
  .venv/bin/python -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r requirements-site.txt </dev/null
  echo "$want" >"$venv/requirements.sha256"
fi
mkdir -p build/site
PYTHONDONTWRITEBYTECODE=1 .venv/bin/python scripts/site.py "$build" build/site
# Not --quiet: mkdocs then does not count warnings, and a link that leads nowhere is one.
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --config-file build/site/mkdocs.yml >build/site/log 2>&1 </dev/null ||
  { grep -v '^INFO' build/site/log >&2; echo "error: site: mkdocs (all of its output: build/site/log)" >&2; exit 1; }
echo "site: $(find build/site/site -name '*.html' | wc -l) pages, $(du -sm build/site/site | cut -f1) MB: build/site/site/index.html"
