#!/usr/bin/env bash
# site.sh BUILD_DIR: the documentation as web pages that need no server, in build/site/site. A link that leads nowhere is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
venv=build/site-venv
scripts/venv.sh requirements-site.txt "$venv"
mkdir -p build/site
PYTHONDONTWRITEBYTECODE=1 .venv/bin/python scripts/site.py "$build" build/site
# Not --quiet: mkdocs then does not count warnings, and a link that leads nowhere is one.
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --config-file build/site/mkdocs.yml >build/site/log 2>&1 </dev/null ||
  { grep -v '^INFO' build/site/log >&2; echo "error: site: mkdocs (all of its output: build/site/log)" >&2; exit 1; }
echo "site: $(find build/site/site -name '*.html' | wc -l) pages, $(du -sm build/site/site | cut -f1) MB: build/site/site/index.html"
