"""Compiles and runs the real models of the test data, and writes docs/lab/real-models.md.

For each model: its final outputs against ONNX Runtime without optimizations, beside what ONNX Runtime's own optimizations change; top-1 on
labelled pictures; the share of the work in vector kernels; and `octavo check` (each region against the reference) on one picture.

usage: real_models.py [--only TEXT] [--limit N] [--no-check] [--write] [--octavo COMMAND]     minutes; test data: OCTAVO_TEST_DATA
Exit status 1 if a model does not run, differs more than ONNX Runtime from itself, loses more than one picture, or has too much portable code.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
import real_data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/support"))
from ort_exact import LEVELS, exact_session  # noqa: E402

FLOOR = 2e-5  # relative difference that the order of float32 sums explains
CHANCE = 1.25  # both differences are sums over rounding ties that fell differently: equal up to chance
INT8_MACS, BYTES = 0.99, 0.95  # shares that must be in vector kernels


def run_ort(path, model, array, optimized):
    session = exact_session(path, LEVELS.ORT_ENABLE_ALL if optimized else LEVELS.ORT_DISABLE_ALL)
    names = [o.name for o in session.get_outputs()]
    runs = [session.run(None, {model.input: array[i : i + 1]}) for i in range(len(array))]
    return {name: np.concatenate([r[k] for r in runs]).astype(np.float64) for k, name in enumerate(names)}


def octavo(args, *command):
    done = subprocess.run([args.octavo, *map(str, command)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def difference(a, b):
    """Largest over the outputs of rms(a - b) / rms(b)."""
    def rms(x):
        return float(np.sqrt(np.mean(np.square(x))))
    return max(rms(a[k].reshape(-1) - b[k].reshape(-1)) / max(rms(b[k]), 1e-30) for k in b)


def spread_of(args, model, name, path, array, plain):
    """What ONNX Runtime's own optimizations change, and what they do to the outputs."""
    optimized = run_ort(path, model, array, True)
    spread, counterpart = difference(optimized, plain), args.work / f"{name}_counterpart.onnx"
    if "QuantizeLinear" in {n.op_type for n in onnx.load(path).graph.node}:
        if real_data.as_uint8(path, counterpart):
            spread = max(spread, difference(run_ort(counterpart, model, array, True), run_ort(counterpart, model, array, False)))
        if real_data.spell_out(path, counterpart):
            spread = max(spread, difference(run_ort(counterpart, model, array, False), plain))
    return spread, optimized


def one_code_apart(a, b):
    """True if the outputs are codes of an 8-bit grid and none is more than one code off."""
    for k in b:
        values = np.unique(b[k])
        if len(values) > 256 or len(values) < 2 or np.abs(a[k].reshape(-1) - b[k].reshape(-1)).max() > 1.001 * np.diff(values).min():
            return False
    return True


def top1(outputs, labels):
    scores = next(iter(outputs.values()))
    return int((scores.reshape(len(labels), -1).argmax(1) == labels).sum())


def judge(args, model, name, path):
    """One row of the table, and what is wrong."""
    array, labels = real_data.feed(model, args.limit)
    shapes = ["--shapes", f"{model.input}:{'x'.join(map(str, model.shape))}"] if model.shape else []
    feeds, one, out = (args.work / f"{name}_{k}.npz" for k in ("feeds", "one", "out"))
    np.savez(feeds, **{model.input: array})
    np.savez(one, **{model.input: array[:1]})
    octavo(args, "run", path, "--input", feeds, "--output", out, *shapes)
    ours = {k: v.astype(np.float64) for k, v in np.load(out).items()}
    plain = run_ort(path, model, array, False)
    spread, optimized = spread_of(args, model, name, path, array, plain)
    feeds.unlink()
    totals = json.loads(octavo(args, "explain", path, "--json", *shapes))["totals"]
    share_macs = totals["int8_macs_vector"] / totals["int8_macs"] if totals["int8_macs"] else None
    share_bytes = totals["bytes_vector"] / totals["bytes"]
    from_plain = difference(ours, plain)
    problems = []
    if from_plain > CHANCE * max(spread, FLOOR) and not one_code_apart(ours, plain):
        problems.append(f"differs from ONNX Runtime by {from_plain:.1e}, its own spread is {spread:.1e}")
    if share_macs is not None and share_macs < INT8_MACS:
        problems.append(f"{share_macs:.1%} of the int8 MACs in vector kernels")
    if share_bytes < BYTES:
        problems.append(f"{share_bytes:.1%} of the bytes in vector kernels")
    right = ""
    if labels is not None:
        mine, theirs, fast = (top1(o, labels) for o in (ours, plain, optimized))
        right = f"{mine} / {theirs} / {fast} of {len(labels)}"
        if abs(mine - theirs) > 1:
            problems.append(f"top-1: {mine}, ONNX Runtime {theirs}")
    checked = ""
    if not args.no_check:
        report = octavo(args, "check", path, "--input", one, *shapes)
        m = re.search(r"(\d+) regions: (\d+) bit-equal, (\d+) within the float tolerance, (\d+) not judged, (\d+) differ", report)
        checked = f"{m[2]} + {m[3]} of {m[1]}"
        if int(m[4]) or int(m[5]):
            problems.append(f"check: {m[5]} regions differ, {m[4]} not judged")
    row = [name, f"{totals['int8_regions']} / {totals['float_regions']} / {totals['regions']}", "–" if share_macs is None else f"{share_macs:.1%}",
           f"{share_bytes:.1%}", f"{from_plain:.1e}", f"{spread:.1e}", right or "–", checked or "–"]
    return row, problems


HEAD = ["model", "regions int8 / float / all", "int8 MACs in vector kernels", "bytes in vector kernels", "output difference", "ONNX Runtime's own",
        "top-1 Octavo / ORT off / ORT on", "regions bit-equal + within float tolerance"]
TEXT = """# Real models

Written by `bench/real_models.py --write`; the models are trained ones, listed with sources in the test data's own README. `_outputs` and
`_residual` are Q/DQ variants of the float file above them, calibrated on its pictures.

*Output difference*: rms(Octavo − ONNX Runtime without optimizations) / rms(the latter), largest over the outputs, on all pictures; beside it
the same for ONNX Runtime with and without its optimizations. In 8-bit models both are what remains of rounding ties that fell differently
(ONNX Runtime sums in float32 before it rounds; Octavo sums exactly). Which optimizations ONNX Runtime applies depends on how a Q/DQ model is
written, so its figure is the largest of up to three that mean the same: the model as it is, optimized; with int8 activations written as
uint8, zero points 128 higher, optimized (its integer kernels on x86 take only those); and, not optimized, with Sigmoid and BatchNormalization
spelled out in elementary operators and each convolution as the sum of two over half the channels. In the model of QLinear operators nothing changes its results; there no output is more than one code
from ONNX Runtime's. A model passes when its difference is at most 1.25 times that figure (both are sums over ties that fell by chance). The
stricter reading, ONNX Runtime's optimizations on and off on the file as it is, cannot be met where that changes nothing: its figure is 0 for
`resnet20_residual`, `resnet56_residual` and the QLinear model, 2.7e-2 for `yolox_nano_416_inputs_p99.9`. *Top-1*: right pictures by Octavo, by ONNX Runtime without and with
optimizations. *Regions*: `octavo check` feeds the reference with each region's own inputs, on one picture.

Every file of the test data's models is here but `faststyle_candy.onnx`, which is refused: its `ImageScaler`, `Crop` and `Affine` were
experimental operators that ONNX removed; the message names each node and what to write instead. `tests/exports/test_shared_models.py` runs all
files at effort 0 in every test run, by the same rules.

"""

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--limit", type=int, help="at most so many pictures a model")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--write", action="store_true", help="write docs/lab/real-models.md")
    parser.add_argument("--work", type=pathlib.Path, default=real_data.ROOT / "build/real_models")
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(real_data.ROOT / "build/release/bin/octavo")))
    args = parser.parse_args()
    if not (real_data.DATA / "models").is_dir():
        sys.exit(f"error: no test data at {real_data.DATA}; set OCTAVO_TEST_DATA")
    args.work.mkdir(parents=True, exist_ok=True)
    lines, failures = ["| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|"], []
    for model in real_data.MODELS:
        if args.only not in model.file and not any(args.only in style for style in model.placements):
            continue
        for name, path in real_data.variants(model, args.work):
            if args.only not in name:
                continue
            try:
                row, problems = judge(args, model, name, path)
            except RuntimeError as error:
                row, problems = [name, *["–"] * (len(HEAD) - 1)], [str(error)]
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
            failures += [f"{name}: {p}" for p in problems]
            print("\n".join(f"  PROBLEM {p}" for p in problems), end="\n" if problems else "", flush=True)
    if args.write:
        (real_data.ROOT / "docs/lab/real-models.md").write_text(TEXT + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines) - 2} models, {len(failures)} problems")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
