"""Builds one model many times in separate processes from one full timing cache, the machine idle and then loaded, and compares the engine
files byte by byte. Then builds without a cache, which measures anew: times must differ, plans must load.

usage: determinism.py MODEL.onnx [--octavo COMMAND] [--builds 20] [--effort 2] [--threads 1] [--table FILE]
"""
import argparse
import hashlib
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def spin():
    while True:
        pass


def build(args, engine, cache):
    command = [args.octavo, "build", args.model, "-o", engine, "--effort", str(args.effort), "--threads", str(args.threads)]
    command += ["--timing-cache", cache] if cache else []
    command += ["--calibration", args.table] if args.table else []
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(str(c) for c in command)}\n{done.stderr.strip()}")
    return hashlib.sha256(pathlib.Path(engine).read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[1]
    parser.add_argument("model")
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(root / "build/release/bin/octavo")))
    parser.add_argument("--builds", type=int, default=20)
    parser.add_argument("--effort", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", help="calibration table: the model is then built as an implicit one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache, engine = pathlib.Path(folder) / "cache", pathlib.Path(folder) / "engine"
        build(args, engine, cache)
        filled = cache.read_bytes()
        hashes = {"idle": [build(args, engine, cache) for _ in range(args.builds // 2)]}
        load = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
        for p in load:
            p.start()
        hashes["loaded"] = [build(args, engine, cache) for _ in range(args.builds - args.builds // 2)]
        for p in load:
            p.terminate()
        different = set(hashes["idle"] + hashes["loaded"])
        for name, list_ in hashes.items():
            print(f"{name}: {len(list_)} builds, {len(set(list_))} different engine file(s)")
        if cache.read_bytes() != filled:
            print("the full cache was written to again")
            different.add("cache")
        other = pathlib.Path(folder) / "other"
        build(args, engine, other)
        measured = re.compile(r"\s+([0-9.]+) us\b")
        lines = [{measured.sub("", l): l for l in p.read_text().splitlines() if measured.search(l)} for p in (cache, other)]
        times = sum(lines[0][k] != lines[1][k] for k in lines[0].keys() & lines[1].keys())
        print(f"without the cache: {len(lines[1])} lines measured anew, {times} of {len(lines[0].keys() & lines[1].keys())} common ones have another time")
        done = subprocess.run([args.octavo, "bench", engine, "--seconds", "0.05", "--json"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"error: the engine built without the cache does not run: {done.stderr.strip()}")
        if len(different) != 1:
            sys.exit("error: engines from one cache differ")
        if times == 0:
            sys.exit("error: no time differs: nothing was measured")
        print("ok")


if __name__ == "__main__":
    main()
