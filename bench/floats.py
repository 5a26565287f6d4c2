"""Float networks beside ONNX Runtime and OpenVINO (its precision hint at f32): docs/lab/performance-float.md.

The trained models of the test data that are float, the networks with seeded weights and two transformer encoders (transformers.py). Every
measurement is a process of its own; engines take turns on the same file and the same inputs, with the same cores; figures are medians over
rounds of --figure: each process's median run, its fastest one, or its mean processor time, for machines that other work shares; the ratio is the
median over rounds of the faster peer's time / Octavo's of the same round. Engines are built at the default effort with one timing cache a command.

usage: floats.py [--nets A,B] [--threads 1,2] [--rounds N] [--seconds S] [--precision f32|bf16] [--before OCTAVO] [--json FILE] [--record NAME]
--precision bf16: Octavo with --allow float32,bfloat16 beside OpenVINO with its hint at bf16; ONNX Runtime has no such mode on x86.
--before: another build of the command (an older one): its engines are measured in the same turns, by --octavo.
"""
import argparse
import json
import lzma
import pathlib
import statistics
import sys

import bundle
import counterparts
import figures
import networks
import peer
import transformers

ENGINES = ("octavo", "ort", "openvino")


def models(args):
    """{name: (path, shapes to bind)}"""
    import real_data

    found = {}
    for model in real_data.MODELS:
        if "qdq" in model.file or "qoperator" in model.file:
            continue
        path = counterparts.DATA / "models" / model.file
        if path.suffix == ".xz":
            plain = args.models / path.stem
            if not plain.exists():
                plain.write_bytes(lzma.open(path).read())
            path = plain
        found[model.file.split(".")[0]] = (path, {model.input: list(model.shape)} if model.shape else {})
    networks.make_zoo(args, networks.ZOO)
    found |= {f"{net}, seeded": (args.models / f"{net}.onnx", {}) for net in networks.ZOO}
    for name, make in transformers.NETWORKS.items():
        path = args.models / f"{name}.onnx"
        if not path.exists():
            make(path)
        found[name] = (path, {})
    if args.precision == "bf16":  # of float models alone
        found = {k: v for k, v in found.items() if not k.endswith("_qdq")}
    return {k: v for k, v in found.items() if not args.nets or any(n in k for n in args.nets)}


def feeds_of(args, name, path, shapes):
    import numpy as np

    file = args.models / f"{name}.npz"
    if not file.exists():
        np.savez(file, **peer.inputs_of(path, 1, shapes))
    return file


def engine_of(args, command, path, shapes, threads):
    """An engine of this command, built once."""
    digest = bundle.digest(command)
    engine = args.models / f"{path.stem}.t{threads}.{args.precision}.{digest}.octavo"
    if not engine.exists():
        bound = peer.inputs_of(path, 1, shapes)
        words = ",".join(f"{k}:{'x'.join(map(str, v.shape))}" for k, v in bound.items())
        counterparts.run(["taskset", "-c", cores(args, threads), command, "build", path, "-o", engine, "--threads", threads, "--timing-cache",
                          args.models / f"times.{digest}.txt", "--shapes", words, *(["--allow", "float32,bfloat16"] if args.precision == "bf16" else [])])
    return engine


def cores(args, threads):
    return ",".join(map(str, args.cpus[-threads:]))


def measure(args, engine, name, path, shapes, threads):
    """Milliseconds of one process."""
    feeds, words = feeds_of(args, name, path, shapes), ["taskset", "-c", cores(args, threads)]
    if engine in ("octavo", "before"):
        command = args.octavo if engine == "octavo" else args.before
        words += [args.octavo, "bench", engine_of(args, command, path, shapes, threads), "--threads", threads, "--input", feeds, "--json", "--seconds", args.seconds]
    else:
        words += [sys.executable, pathlib.Path(peer.__file__), engine, path, "-t", threads, "-s", args.seconds, "--inputs", feeds]
        words += ["--precision", args.precision] if engine == "openvino" else []
    return json.loads(counterparts.run(words).splitlines()[-1])[args.figure + "_ms"]


def ratio(times):
    """Median over rounds of the faster peer's time / Octavo's."""
    peers = [p for p in ("ort", "openvino") if times.get(p)]
    return statistics.median(min(round_) / own for own, *round_ in zip(times["octavo"], *(times[p] for p in peers))) if peers else float("nan")


def table(results):
    lines = []
    for threads in sorted({t for _, t in map(key_of, results["times"])}):
        lines += [f"\n## {threads} thread{'s' * (threads > 1)}\n", "| network | before, ms | Octavo, ms | ONNX Runtime, ms | OpenVINO, ms | faster peer ÷ Octavo |",
                  "|---|---:|---:|---:|---:|---:|"]
        product, count = 1.0, 0
        for key, times in results["times"].items():
            name, of = key_of(key)
            if of != threads or not times.get("octavo"):
                continue
            own = [f"{statistics.median(times[e]):.3f}" if times.get(e) else "–" for e in ("before", *ENGINES)]
            product, count = product * ratio(times), count + 1
            lines.append(f"| {name} | {' | '.join(own)} | **{ratio(times):.2f}** |")
        lines.append(f"| geometric mean | | | | | **{product ** (1 / max(1, count)):.2f}** |")
    return "\n".join(lines)


def key_of(key):
    name, threads = key.rsplit(" ", 1)
    return name, int(threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=lambda t: t.split(","), help="those whose names contain one of these")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1])
    parser.add_argument("--engines", type=lambda t: t.split(","), default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--figure", choices=("median", "min", "processor"), default="median")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--octavo", default=counterparts.octavo_command())
    parser.add_argument("--before", help="another octavo command")
    parser.add_argument("--models", type=pathlib.Path, default=counterparts.ROOT / "build/floats")
    parser.add_argument("--json", type=pathlib.Path)
    figures.add_option(parser)
    args = parser.parse_args()
    if args.precision == "bf16":
        args.engines = [e for e in args.engines if e != "ort"]
    import os

    args.cpus = sorted(os.sched_getaffinity(0))
    args.models.mkdir(parents=True, exist_ok=True)
    args.json = args.json or args.models / "floats.json"
    results = json.loads(args.json.read_text(encoding="utf-8")) if args.json.exists() else {"times": {}}
    if args.rounds:
        figures.claim(results, args.octavo)
    found = models(args) if args.rounds else {}
    for _ in range(args.rounds):
        for threads in args.threads:
            for name, (path, shapes) in found.items():
                times = results["times"].setdefault(f"{name} {threads}", {})
                for engine in (["before"] if args.before else []) + args.engines:
                    try:
                        times.setdefault(engine, []).append(measure(args, engine, name, path, shapes, threads))
                    except RuntimeError as error:
                        print(f"{name}: {engine}: {str(error).strip().splitlines()[-1][:200]}", file=sys.stderr)
                print(f"{name} {threads}: " + ", ".join(f"{e} {v[-1]:.3f}" for e, v in times.items() if v), file=sys.stderr, flush=True)
                args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if args.record:
        tables = {}
        for key, times in results["times"].items():
            name, threads = key_of(key)
            tables.setdefault(f"{threads} thread(s)", {})[name] = times
        figures.save(figures.record(results, tables), args.record)
    print(table(results))


if __name__ == "__main__":
    main()
