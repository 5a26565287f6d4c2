#!/usr/bin/env bash
# run_demo.sh BUILD_DIR: what `make run` shows: predictions, accuracies, the plan and the time beside ONNX Runtime's, on examples/digits.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
octavo=$build/bin/octavo
digits=examples/digits
python=.venv/bin/python
[[ -x $python ]] || python=python3
OCTAVO=$(realpath "$octavo")
export OCTAVO

say() { printf '\n\033[1m%s\033[0m\n' "$*" | if [[ -t 1 ]]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi; }

say "Pictures of the held-out split (the first character of a name is the digit):"
inputs=()
for picture in "$digits"/images/*.png; do inputs+=(--input "$picture"); done
echo "\$ octavo run $digits/digits_qdq.onnx --input $digits/images/... --scale 1/255 --labels $digits/labels.txt --top 1"
"$octavo" run $digits/digits_qdq.onnx "${inputs[@]}" --scale 1/255 --labels $digits/labels.txt --top 1

say "Accuracy on the held-out split:"
"$python" $digits/data.py "$build/digits_test.npz"
for kind in fp32 qdq; do
  "$octavo" run $digits/digits_$kind.onnx --input "$build/digits_test.npz" --output "$build/digits_$kind.npz"
done
"$python" - "$build" <<'PY'
import sys
import numpy as np
labels = np.load(f"{sys.argv[1]}/digits_test.npz")["label"]
for name, kind in (("float", "fp32"), ("int8 (Q/DQ)", "qdq")):
    right = (np.load(f"{sys.argv[1]}/digits_{kind}.npz")["head"].argmax(1) == labels).sum()
    print(f"  {name:12} {right / len(labels):.2%}  ({right} of {len(labels)})")
PY

say "The plan, one line a region:"
echo "\$ octavo explain $digits/digits_qdq.onnx"
"$octavo" explain $digits/digits_qdq.onnx --threads 1

say "Time beside ONNX Runtime's, same file:"
"$python" bench/compare.py $digits/digits_qdq.onnx $digits/digits_fp32.onnx --seconds 0.15 --rounds 3
