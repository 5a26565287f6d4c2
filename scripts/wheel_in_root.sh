#!/usr/bin/env bash
# wheel_in_root.sh WHEEL [ROOT]: the wheel in a Debian 12 system that has Python and nothing else (made by debootstrap in ROOT, as root): installs it,
# classifies pictures, writes the page, serves a model, and prints what each step took. Nothing in the root reaches the network: packages are
# fetched outside.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1")
root=${2:-/var/tmp/octavo-root}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ ! -x $root/usr/bin/python3 ]]; then
  command -v debootstrap >/dev/null || { echo "error: wheel_in_root: debootstrap is missing (apt-get install debootstrap)" >&2; exit 77; }
  echo "wheel_in_root: Debian 12 into $root"
  debootstrap --variant=minbase --include=python3,python3-venv bookworm "$root" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
fi
.venv/bin/python -m venv "$work/venv"
"$work/venv/bin/pip" download --quiet --disable-pip-version-check --python-version 3.11 --only-binary :all: -d "$work/house" "$wheel[serve]" </dev/null
rm -rf "$root/try"
mkdir -p "$root/try"
cp -r "$work/house" examples/digits/digits_qdq.onnx examples/digits/images "$root/try/"
cat >"$root/try/steps.sh" <<'STEPS'
set -euo pipefail
cd /try
step() { local began=$EPOCHREALTIME; "${@:2}" >out 2>&1 || { cat out; echo "FAILED: $1"; exit 1; }; awk "BEGIN { printf \"%-48s %6.1f s\n\", \"$1\", $EPOCHREALTIME - $began }"; }
dpkg-query -W -f='${Package}\n' | wc -l | sed 's/$/ Debian packages in the root/'
step "python3 -m venv" python3 -m venv env
before=$(du -sm env | cut -f1)
step "pip install WHEEL" env/bin/pip install --no-index --find-links house octavo
echo "installed: $(($(du -sm env | cut -f1) - before)) MB, with numpy; octavo alone $(du -smc env/lib/python3*/site-packages/octavo* | tail -1 | cut -f1) MB"
export HOME=/try
step "octavo run (builds first)" env/bin/octavo run digits_qdq.onnx --input images/1_*.png
cat out | tail -3
step "octavo run, again (measured times are kept)" env/bin/octavo run digits_qdq.onnx --input images/1_*.png
step "octavo view" env/bin/octavo view digits_qdq.onnx -o page.html
ls -l page.html | awk '{ print "page: " $5 " bytes" }'
step "python -m octavo doctor --system" env/bin/python -m octavo doctor --system
step "pip install octavo[serve]" env/bin/pip install --no-index --find-links house 'octavo[serve]'
echo "installed: $(($(du -sm env | cut -f1) - before)) MB with serve"
env/bin/octavo serve digits=digits_qdq.onnx --port 0 --grpc-port 0 --batch 1,4 >serve.out 2>&1 &
server=$!
began=$EPOCHREALTIME
until grep -q '^ready:' serve.out; do kill -0 $server || { cat serve.out; exit 1; }; sleep 0.1; done
awk "BEGIN { printf \"%-48s %6.1f s\n\", \"octavo serve, until ready\", $EPOCHREALTIME - $began }"
cat >ask.py <<'ASK'
import json, re, urllib.request
port = re.search(r":(\d+)", open("serve.out").read().split("ready:")[1]).group(1)
body = json.dumps({"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 1, 16, 16], "data": [0.5] * 256}]}).encode()
print("answer:", json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/digits/infer", body))["outputs"][0]["shape"])
ASK
env/bin/python ask.py
kill -TERM $server
wait $server && echo "octavo serve ended with 0"
STEPS
chroot "$root" /bin/bash /try/steps.sh
