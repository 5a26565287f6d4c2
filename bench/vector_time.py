"""The part of the run time that is spent outside vector kernels (reference or portable code), for every model of the test data, the benchmark networks, the
transformers of bench/transformers.py and the networks of the exporters' tests. `octavo build` measures it, three profiled runs of the engine it made.

usage: vector_time.py [--octavo PROGRAM] [--models FOLDER] [--only TEXT] [--threads N]
"""
import argparse
import importlib.util
import pathlib
import re
import subprocess
import sys

import build_times
import counterparts


def models(args):
    """(name, file, --shapes)"""
    import onnx

    yield from build_times.models(args)
    folder = args.models / "transformers"
    folder.mkdir(exist_ok=True)
    subprocess.run([sys.executable, pathlib.Path(__file__).with_name("transformers.py"), folder], check=True, stdout=subprocess.DEVNULL)
    for file in sorted(folder.glob("*.onnx")):
        yield file.stem, file, ""
    spec = importlib.util.spec_from_file_location("exported", counterparts.ROOT / "tests/exports/networks.py")  # bench has a module of that name
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    for name, make in exported.NETWORKS.items():
        file = args.models / f"exports.{name}.onnx"
        onnx.save(make(), file)
        yield f"exports: {name}", file, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--octavo", default=counterparts.octavo_command())
    parser.add_argument("--models", type=pathlib.Path, default=counterparts.ROOT / "build/bench_models")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    print("| model | % of the time outside vector kernels | where |\n|---|---:|---|")
    for name, file, shapes in models(args):
        words = [args.octavo, "build", file, "-o", args.models / "vector_time.octavo", "--threads", args.threads]
        words += ["--shapes", shapes] if shapes else []
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"| {name} | not built | {done.stderr.strip().splitlines()[-1]} |", flush=True)
            continue
        found = re.search(r"([\d.]+) % of the time is spent in (?:one region|\d+ regions) without vector kernels: (.*)", done.stdout)
        print(f"| {name} | {found[1] if found else '0.0'} | {found[2] if found else ''} |", flush=True)


if __name__ == "__main__":
    main()
