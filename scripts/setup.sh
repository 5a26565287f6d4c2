#!/usr/bin/env bash
# setup.sh [compile|run|configure]: installs what is missing and nothing else: Debian packages (as root or through sudo) and the pinned Python packages in .venv.
# `compile`: what compiling the command needs. `run`: also what its demonstration needs. Without either: also what the Python package, the tests and the
# benchmarks need.
# `configure`: all Debian packages, and those Python packages without which CMake does not begin; the others are installed while the compiler runs.
# Says what it does; a second run finds nothing to do and takes a fraction of a second. Asks nothing, reads no input.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build libxbyak-dev libdnnl-dev libexpected-dev protobuf-compiler libprotobuf-dev
  nlohmann-json3-dev libcli11-dev libfmt-dev libjpeg62-turbo-dev libpng-dev zlib1g-dev libxxhash-dev libssl-dev python3-venv)
requirements=(requirements-run.txt requirements-compile.txt)
if [[ ${1:-} == compile ]]; then
  requirements=(requirements-compile.txt)
elif [[ ${1:-} != run ]]; then
  packages+=(ccache libnghttp2-dev libgtest-dev openssl python3-dev g++-aarch64-linux-gnu qemu-user chromium chromium-driver)
  requirements=(requirements.txt requirements-run.txt requirements-compile.txt requirements-serving.txt)
fi

if command -v dpkg-query >/dev/null; then
  missing=()
  for p in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done
  if ((${#missing[@]})); then
    become=()
    if [[ $(id -u) != 0 ]]; then
      if ! command -v sudo >/dev/null; then
        echo "error: setup: ${#missing[@]} Debian packages are missing, and neither root nor sudo is here to install them" >&2
        echo "  as root, run: apt-get install ${missing[*]}" >&2
        exit 1
      fi
      become=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    log=$(mktemp)
    if ! { "${become[@]}" apt-get update -q &&
           "${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
           >"$log" 2>&1 </dev/null; then
      tail -n 20 "$log" >&2
      echo "error: setup: apt-get failed (its last lines are above; all of it: $log)" >&2
      exit 1
    fi
    rm -f "$log"
  fi
else
  for tool in g++ cmake ninja protoc python3; do
    command -v "$tool" >/dev/null || { echo "error: setup: $tool is missing, and this is not a Debian-like system: install what docs/dependencies.md lists" >&2; exit 1; }
  done
fi

# One file for each set that is installed. A larger set contains the smaller ones.
digest() { { cat "$@"; python3 --version; } | sha256sum | cut -d' ' -f1; }
whole=$(digest requirements.txt requirements-run.txt requirements-compile.txt requirements-serving.txt)
of_run=$(digest requirements-run.txt requirements-compile.txt)
want=$(digest "${requirements[@]}")
have=$(cat .venv/requirements.sha256 2>/dev/null || true)
[[ ${1:-} != compile || $have != "$of_run" ]] || want=$of_run
if [[ ${1:-} == configure ]]; then
  if [[ ! -x .venv/bin/python || $have != "$whole" ]]; then
    [[ $(.venv/bin/python --version 2>/dev/null) == "$(python3 --version)" ]] || python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile --no-deps -r requirements-compile.txt "$(grep '^nanobind==' requirements.txt)" </dev/null
  fi
elif [[ ! -x .venv/bin/python || ($have != "$want" && $have != "$whole") ]]; then
  echo "setup: installing ${requirements[0]} into .venv"
  [[ $(.venv/bin/python --version 2>/dev/null) == "$(python3 --version)" ]] || python3 -m venv .venv
  # The demonstration imports few modules, which are compiled then. Tests import many, in many processes.
  options=()
  [[ ${1:-} != compile ]] || options=(--no-deps)  # files of these packages are read, nothing is imported; compiling waits for them
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile ${options[@]+"${options[@]}"} -r "${requirements[0]}" </dev/null
  # Some packages have files of other Pythons. Tests of packages and what is rarely imported stay as they are: half of the time.
  [[ $want != "$whole" ]] || .venv/bin/python -m compileall -q -j 0 -x '/(tests|pip|setuptools|mypyc?|pygments)/' .venv/lib >/dev/null 2>&1 || true
  echo "$want" >.venv/requirements.sha256
fi
