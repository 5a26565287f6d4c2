"""Time per image of Octavo beside other engines, on this machine, in one run.

Each measurement is a process of its own; the engines take turns, round after round, so that what else the machine does falls on all of
them; figures are medians over rounds of each process's median. Compare only figures from one run.

usage: compare.py MODEL.onnx... [--peers octavo,ort,openvino] [-t THREADS] [-b BATCH] [-s SECONDS] [-r ROUNDS] [--octavo COMMAND]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import figures
import peer
from peer import NAMES

ROOT = pathlib.Path(__file__).resolve().parents[1]


def one(args, engine, path):
    """One process of one engine: median milliseconds of a run."""
    common = ["--threads", str(args.threads), "--seconds", str(args.seconds)]
    if engine == "octavo":
        command = [args.octavo, "bench", path, "--json", *common] + (["--batch", str(args.batch)] if args.batch > 1 else [])
    else:
        command = [sys.executable, peer.__file__, engine, path, *common, "--batch", str(args.batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}\n{done.stderr.strip() or done.stdout.strip()}")
    return json.loads(done.stdout.splitlines()[-1])["median_ms"]


def compare(args, paths, progress=True, every=None):
    """{path: {engine: milliseconds}}. `every` gets {path: {engine: [milliseconds of each round]}}."""
    results = {}
    for path in paths:
        rounds = {e: [] for e in args.peers}
        for _ in range(args.rounds):
            for engine in args.peers:
                rounds[engine].append(one(args, engine, path))
        results[path] = {e: statistics.median(ms) for e, ms in rounds.items()}
        if every is not None:
            every[path] = rounds
        if progress and sys.stderr.isatty():
            print(f"{path}: {results[path]}", file=sys.stderr)
    return results


def table(args, results):
    """Markdown: milliseconds an image, and each other engine's time over Octavo's."""
    others = [p for p in args.peers if p != "octavo"]
    head = ["model"] + [f"{NAMES[p]}, ms" for p in args.peers] + [f"{NAMES[p]} ÷ Octavo" for p in others]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for path, ms in results.items():
        cells = [pathlib.Path(path).stem] + [f"{ms[p] / args.batch:.3f}" for p in args.peers] + [f"{ms[p] / ms['octavo']:.2f}" for p in others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def arguments(parser):
    parser.add_argument("--peers", type=lambda t: t.split(","), default=["octavo", "ort"])
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-b", "--batch", type=int, default=1)
    parser.add_argument("-s", "--seconds", type=float, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")), help="the octavo command")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    arguments(parser)
    figures.add_option(parser)
    args = parser.parse_args()
    print(f"{args.threads} thread{'s' * (args.threads > 1)}, batch {args.batch}, milliseconds an image, median of {args.rounds} interleaved rounds")
    every, results = {}, {}
    figures.claim(results, args.octavo)
    print(table(args, compare(args, args.models, every=every)))
    if args.record:
        title = f"{args.threads} thread(s), batch {args.batch}"
        figures.save(figures.record(results, {title: {pathlib.Path(path).stem: times for path, times in every.items()}}), args.record)


if __name__ == "__main__":
    main()
