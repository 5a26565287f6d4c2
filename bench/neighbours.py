"""Octavo, ONNX Runtime and OpenVINO on cores that other processes use too, and under processor quotas: docs/lab/neighbours.md.

Each case is a number of cores with as many threads, and a load: so many processes that compute without end, pinned to the same cores; or a
quota of a control group in cores (root, control groups of either version). Engines are built before, on idle cores. Every measurement is a
process of its own, all on the same inputs; engines take turns. Of each process the median run and the one that 99 of 100 do not exceed, of 120 runs at
least: of fewer it would be the longest run, which any tick of the system decides. The ratio is that of the better peer in the same round / Octavo's, its median over rounds with the least and the greatest.

usage: neighbours.py [--cores 2,16] [--loads 0,1,2,4] [--quotas 0.5,1,2,4] [--nets A,B] [--rounds N] [--seconds S] [--runs N] [--before OCTAVO]
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
NETS = {"mobilenetv2-12-qdq": {}, "yolox_nano_416": {}, "unet_small": {"input": [1, 1, 224, 224]}, "resnet20_cifar10_fp32": {}}
PEERS = ("ort", "openvino")


@contextlib.contextmanager
def load(processes, cpus):
    """So many processes that keep cores of `cpus` busy."""
    busy = [subprocess.Popen(["taskset", "-c", cpus, sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        time.sleep(0.3)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextlib.contextmanager
def quota(cores):
    """Words before a command that run it in a control group of so many cores; None: no quota."""
    if cores is None:
        yield []
        return
    root = pathlib.Path("/sys/fs/cgroup")
    second = (root / "cgroup.controllers").exists()
    group = (root if second else root / "cpu") / f"octavo-bench-{os.getpid()}"
    group.mkdir(exist_ok=True)
    if second:
        (root / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
        (group / "cpu.max").write_text(f"{int(cores * 100000)} 100000", encoding="ascii")
    else:
        (group / "cpu.cfs_period_us").write_text("100000", encoding="ascii")
        (group / "cpu.cfs_quota_us").write_text(str(int(cores * 100000)), encoding="ascii")
    try:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        time.sleep(0.1)
        group.rmdir()


def run(words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1][:200])
    return done.stdout


def prepare(args, command, net, threads):
    """(engine, inputs): built once for a command and a number of threads."""
    import numpy as np
    import peer

    model, feeds = args.data / f"{net}.onnx", args.models / f"{net}.npz"
    if not feeds.exists():
        np.savez(feeds, **peer.inputs_of(model, 1, NETS[net]))
    engine = args.models / f"{net}.{threads}.{pathlib.Path(command).parent.name}.{pathlib.Path(command).name}.octavo"
    if not engine.exists():
        shapes = ",".join(f"{k}:{'x'.join(map(str, v.shape))}" for k, v in np.load(feeds).items())
        run(["taskset", "-c", cpus(args, threads), command, "build", model, "-o", engine, "--threads", threads, "--shapes", shapes,
             "--timing-cache", args.models / f"times.{threads}.txt"])
    return engine, feeds


def cpus(args, cores):
    return ",".join(map(str, args.cpus[:cores]))


def measure(args, engine, net, cores, threads, prefix):
    command = {"octavo": args.octavo, "before": args.before}.get(engine)
    words = [*prefix, "taskset", "-c", cpus(args, cores)]
    if command:
        built, feeds = prepare(args, command, net, cores)
        words += [command, "bench", built, "--input", feeds, "--json", "--seconds", args.seconds, "--runs", args.runs, "--threads", threads]  # under a quota too, as the peers
    else:
        words += [sys.executable, HERE / "peer.py", engine, args.data / f"{net}.onnx", "-t", threads, "-s", args.seconds, "--runs", args.runs, "--inputs",
                  args.models / f"{net}.npz"]
        words += ["--precision", "f32"] if engine == "openvino" else []
    found = json.loads(run(words).splitlines()[-1])
    return [found["median_ms"], found["p99_ms"]]


def ratios(times, figure, engine="octavo"):
    """Of each round: the better peer / `engine`."""
    peers = [times[p] for p in PEERS if times.get(p)]
    return [min(p[figure] for p in round_) / own[figure] for own, *round_ in zip(times[engine], *peers)] if peers else []


def table(results):
    lines = []
    for key, nets in results.items():
        lines += [f"\n## {key}\n", "| network | Octavo, ms | ONNX Runtime | OpenVINO | before | better peer ÷ Octavo | p99: Octavo | ONNX Runtime | OpenVINO | before | better peer ÷ Octavo |",
                  "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
        for net, times in nets.items():
            cells = [net]
            for figure in (0, 1):
                for engine in ("octavo", *PEERS, "before"):
                    values = [t[figure] for t in times.get(engine, [])]
                    cells.append(f"{statistics.median(values):.3f}" if values else "–")
                found = ratios(times, figure) if times.get("octavo") else []
                cells.append(f"**{statistics.median(found):.2f}** ({min(found):.2f} to {max(found):.2f})" if found else "–")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda kind: lambda text: [kind(n) for n in text.split(",") if n]
    parser.add_argument("--cores", type=numbers(int), default=[2])
    parser.add_argument("--loads", type=numbers(int), default=[0, 1, 2, 4])
    parser.add_argument("--quotas", type=numbers(float), default=[])
    parser.add_argument("--nets", type=lambda t: t.split(","), default=list(NETS))
    parser.add_argument("--engines", type=lambda t: t.split(","), default=["octavo", "ort", "openvino"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--runs", type=int, default=120, help="at least so many in each process")
    parser.add_argument("--octavo", default=str(HERE.parent / "build/release/bin/octavo"))
    parser.add_argument("--before", help="another build of the command, measured in the same turns")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", HERE.parent / "../shared")) / "models")
    parser.add_argument("--models", type=pathlib.Path, default=HERE.parent / "build/neighbours", help="folder for engines and inputs")
    parser.add_argument("--json", type=pathlib.Path)
    sys.path.insert(0, str(HERE))
    import figures

    figures.add_option(parser)
    args = parser.parse_args()
    args.cpus = sorted(os.sched_getaffinity(0))
    args.models.mkdir(parents=True, exist_ok=True)
    args.json = args.json or args.models / "neighbours.json"
    engines = args.engines + (["before"] if args.before else [])
    results = json.loads(args.json.read_text(encoding="utf-8")) if args.json.exists() else {}
    results.setdefault("times", {})
    figures.claim(results, args.octavo)
    for cores in args.cores:
        for command in filter(None, (args.octavo if "octavo" in engines else None, args.before)):
            for net in args.nets:
                prepare(args, command, net, cores)
    cases = [(c, f"{c} cores, {n} busy", n, None) for c in args.cores for n in args.loads]
    cases += [(c, f"{c} cores, quota of {q:g}", 0, q) for c in args.cores for q in args.quotas if q <= c]
    for _ in range(args.rounds):
        for cores, key, busy, limit in cases:
            with load(busy, cpus(args, cores)), quota(limit) as prefix:
                for net in args.nets:
                    times = results["times"].setdefault(key, {}).setdefault(net, {})
                    for engine in engines:
                        try:
                            times.setdefault(engine, []).append(measure(args, engine, net, cores, cores, prefix))
                        except RuntimeError as error:
                            print(f"{key}: {net}: {engine}: {error}", file=sys.stderr)
                    print(key, net, {e: [round(f, 3) for f in v[-1]] for e, v in times.items() if v}, file=sys.stderr, flush=True)
            args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if args.record:
        tables = {}  # of each number of cores and figure: a row for each load and network
        for key, nets in results["times"].items():
            cores, load_ = key.split(", ")
            for i, figure in enumerate(("median", "p99")):
                rows = {f"{load_}: {net}": {e: [v[i] for v in values] for e, values in times.items()} for net, times in nets.items()}
                tables.setdefault(f"{cores}, {figure}", {}).update(rows)
        figures.save(figures.record(results, tables), args.record)
    print(table(results["times"]))


if __name__ == "__main__":
    main()
