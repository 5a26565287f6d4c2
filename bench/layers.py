"""Where a network's time goes: per region multiplications a second, the part of the machine's 8-bit peak, bytes, and beside it oneDNN's time for
the same convolution (8 bits, scales per channel, bias and Relu; its own formats, reorders not timed), as a table and as JSON.

Octavo's regions and oneDNN's layers are timed in turns, one thread; figures are medians over rounds of each one's median. oneDNN does less: the
epilogues of Octavo's regions may hold residual additions with scales of their own, tables, and second stages.

--write puts the tables into docs/lab/layers.md.

usage: layers.py MODEL.onnx|ENGINE.octavo... [--rounds N] [--json FILE] [--octavo COMMAND] [--layer-bench COMMAND]
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import peer_report
import counterparts

STAGE = re.compile(r"\b(conv_transpose|conv|gemm) ((?:\w+=\S+ )*)u8\[([\d,]+)\]\S* w [su]8\[([\d,]+)\]")


TEXT = """# Regions beside oneDNN

Written by `bench/layers.py --write`: {machine}, one thread, batch 1, median of {rounds} rounds in which a network and oneDNN's layers took turns. *Of peak*:
of back-to-back `vpdpbusd` in the same rounds. *oneDNN* (2.6.3): the same convolution alone, u8 by s8 to u8, scales per channel, bias and Relu, in
the formats it likes best, its weights one of several copies in turn (as a network finds them), its data where the last run left it (in a network
the region before wrote it: about the same). oneDNN's residual is one multiply-add on the accumulator; ours adds values of another scale, rounded as
the graph says. *kB*: inputs, weights and outputs, each once.

"""


def layers_of(region):
    """The region's weighted stages as lines for octavo_layer_bench; None where oneDNN has nothing like it."""
    lines = []
    for kind, words, x, w in STAGE.findall(region["key"]):
        given = dict(word.split("=") for word in words.split())
        x, w = ([int(d) for d in dims.split(",")] for dims in (x, w))
        if len(w) != 4 or len(x) not in (2, 4) or "out_pads" in given or "output_padding" in given:
            return None
        x = x + [1] * (4 - len(x))
        numbers = {k: [int(v) for v in text.split(",")] for k, text in given.items() if re.fullmatch(r"[\d,]+", text)}
        group = numbers.get("group", [1])[0]
        outputs = w[1] * group if kind == "conv_transpose" else w[0]
        added = len(re.findall(r"\badd\b", region["key"].split(" > ", maxsplit=1)[0])) > 0
        lines.append([*x[:2], *x[2:], outputs, w[2], w[3], *numbers.get("strides", [1, 1]), *numbers.get("dilations", [1, 1]),
                      *numbers.get("pads", [0, 0, 0, 0]), group, int(kind == "conv_transpose"), int(added)])
    return lines or None


def timed(args, engine, folder, runs):
    """Milliseconds of each region, in one process."""
    counterparts.run([*args.prefix, args.octavo, "profile", engine, "--threads", 1, "--runs", runs, "--exportProfile", folder / "profile.json"])
    return [layer["medianMs"] for layer in json.loads((folder / "profile.json").read_text(encoding="utf-8"))[1:]]


def other(args, lines):
    """{line: answer} of oneDNN, in one process."""
    done = subprocess.run([*map(str, args.prefix), str(args.layer_bench)], input="".join(line + "\n" for line in lines), capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{args.layer_bench}: {done.stderr.strip()}")
    return dict(zip(lines, map(json.loads, done.stdout.splitlines())))


def measure(args, model, folder):
    """{"regions": [...], "peak"}"""
    engine = model
    if model.suffix == ".onnx":
        engine = folder / "model.octavo"
        counterparts.run([*args.prefix, args.octavo, "build", model, "-o", engine, "--threads", 1, *(["--timing-cache", args.cache] if args.cache else [])])
    regions = json.loads(counterparts.run([args.octavo, "explain", engine, "--json"]))["regions"]
    wanted = [layers_of(r) for r in regions]
    lines = sorted({" ".join(map(str, line)) for lists in wanted for line in lists or []})
    ours, theirs, peaks = [], [], []
    for _ in range(args.rounds):
        peaks.append(json.loads(counterparts.run([*args.prefix, args.layer_bench, "--peak", 1])))
        ours.append(timed(args, engine, folder, args.runs))
        theirs.append(other(args, lines))
    peak = statistics.median(max(p["vnni"], p["amx"]) for p in peaks)
    rows = []
    for i, (region, lists) in enumerate(zip(regions, wanted)):
        ms = statistics.median(times[i] for times in ours)
        row = {"index": i, "name": region["name"], "tactic": region["tactic"], "precision": region["precision"], "macs": region["macs"],
               "bytes": region["bytes"], "ms": ms, "gmac_s": region["macs"] / ms / 1e6, "of_peak": region["macs"] / ms / 1e6 / peak,
               "key": region["key"], "onednn_ms": None, "onednn": None}
        found = [[t[" ".join(map(str, line))] for t in theirs] for line in lists or []]
        if found and all("seconds" in answer for answers in found for answer in answers):
            row["onednn_ms"] = sum(statistics.median(a["seconds"] for a in answers) for answers in found) * 1e3
            row["onednn"] = " + ".join(answers[0]["implementation"] for answers in found)
        rows.append(row)
    return {"model": model.name, "peak": peak, "regions": rows}


def text(found):
    """Markdown, the slowest regions first; below, sums."""
    rows, total = found["regions"], sum(r["ms"] for r in found["regions"])
    out = [f"### {found['model']}: {total:.3f} ms in {len(rows)} regions, peak {found['peak']:.0f} GMAC/s\n",
           "| # | region | MMAC | kB | us | share | GMAC/s | of peak | oneDNN, us | oneDNN ÷ Octavo | tactic |",
           "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---|"]
    for r in sorted(rows, key=lambda r: -r["ms"]):
        theirs = ["–", "–"] if r["onednn_ms"] is None else [f"{r['onednn_ms'] * 1e3:.1f}", f"{r['onednn_ms'] / r['ms']:.2f}"]
        speed = [f"{r['gmac_s']:.0f}", f"{100 * r['of_peak']:.0f} %"] if r["macs"] else ["–", "–"]
        out.append(f"| {r['index']} | {r['name']} | {r['macs'] / 1e6:.1f} | {r['bytes'] / 1e3:.0f} | {r['ms'] * 1e3:.1f} | {100 * r['ms'] / total:.1f} % | "
                   + " | ".join(speed + theirs) + f" | {r['tactic']} |")
    both, macs = [r for r in rows if r["onednn_ms"] is not None], sum(r["macs"] for r in rows)
    if both:
        mine, theirs = sum(r["ms"] for r in both), sum(r["onednn_ms"] for r in both)
        out.append(f"\nRegions with a convolution in oneDNN: {mine:.3f} ms, oneDNN {theirs:.3f} ms ({theirs / mine:.2f}); all others {total - mine:.3f} ms. "
                   f"The network: {100 * macs / total / 1e6 / found['peak']:.0f} % of the peak.")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=50, help="of the network, a round")
    parser.add_argument("--json", type=pathlib.Path, help="the same as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/lab/layers.md")
    parser.add_argument("--cache", type=pathlib.Path, help="timing cache for models that are not built yet")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="core to measure on")
    parser.add_argument("--octavo", default=counterparts.octavo_command())
    parser.add_argument("--layer-bench", type=pathlib.Path, help="octavo_layer_bench (default: beside the build of --octavo)")
    args = parser.parse_args()
    args.layer_bench = args.layer_bench or pathlib.Path(args.octavo).parents[1] / "bench/octavo_layer_bench"
    if not args.layer_bench.exists():
        sys.exit(f"error: no {args.layer_bench}; build it (ninja octavo_layer_bench) or name it with --layer-bench")
    realtime = shutil.which("chrt") and subprocess.run(["chrt", "-f", "50", "true"], capture_output=True, check=False).returncode == 0
    args.prefix = (["chrt", "-f", "50"] if realtime else []) + (["taskset", "-c", args.cpu] if shutil.which("taskset") else [])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            results.append(measure(args, model, pathlib.Path(folder)))
            print(text(results[-1]), flush=True)
    if args.write:
        head = TEXT.format(machine=peer_report.machine([]), rounds=args.rounds)
        (counterparts.ROOT / "docs/lab/layers.md").write_text(head + "\n".join(text(r) for r in results), encoding="utf-8")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
