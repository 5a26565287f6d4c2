"""Two octavo commands on the same networks: bits and speed of the engines that they build, before and after a change of the code.

Every network is built by both, each with a timing cache of its own. Both engines run on the same seeded input: the outputs must be equal bit
for bit at effort 0, where no measured time decides; above, a differing choice of activations may differ by 1 at a tie, so the largest
difference is shown. Then pairs of processes take turns; the ratio is new / old with the 95 % interval of its median. --pairs 0 compares outputs alone.
--cpu: levels of the CPU's instructions that both are held to (OCTAVO_CPU), one cell each.

usage: versions.py --old OCTAVO --octavo OCTAVO [--nets all] [--styles residual,outputs] [--efforts 0,2] [--threads 1] [--pairs 9]
                   [--cpu portable,avx2] [--jobs 1] [--json FILE]
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import statistics
import time

import numpy as np

import counterparts
import networks


def feed_of(model, path):
    """Seeded inputs of a model as .npz, open dimensions 1."""
    import onnx

    if path.exists():
        return path
    graph, rng, arrays = onnx.load(model, load_external_data=False).graph, np.random.default_rng(1), {}
    constants = {t.name for t in graph.initializer}
    for v in graph.input:
        if v.name not in constants:
            shape = [d.dim_value or 1 for d in v.type.tensor_type.shape.dim]
            arrays[v.name] = rng.standard_normal(shape).astype(np.float32)
    np.savez(path, **arrays)
    return path


def difference(a, b):
    """The largest absolute difference of any output; None where names or shapes differ."""
    x, y = np.load(a), np.load(b)
    if sorted(x.files) != sorted(y.files) or any(x[n].shape != y[n].shape for n in x.files):
        return None
    return max((float(np.max(np.abs(x[n].astype(np.float64) - y[n].astype(np.float64)), initial=0)) for n in x.files), default=0.0)


def cell(args, cpus, net, style, effort, threads, level):
    """One row: {network, style, effort, threads, level, difference, ratio, low, high, old_ms, new_ms, old_build_s, new_build_s}."""
    name = f"{net}.{style}.e{effort}.t{threads}" + (f".{level}" if level else "")
    model = networks.explicit_model(args, net, style)
    feed = feed_of(model, args.models / f"{net}.{style}.npz")
    row, engines = {"network": net, "style": style, "effort": effort, "threads": threads, "level": level}, {}
    for which, command in (("old", args.old), ("new", args.octavo)):
        mine = argparse.Namespace(octavo=command, cpus=cpus, level=level)
        engines[which] = args.models / f"{name}.{which}.octavo"
        cache = args.models / f"{name}.{which}.cache"
        cache.unlink(missing_ok=True)
        start = time.monotonic()
        words = ["--timing-cache", cache] if effort > 0 else []
        counterparts.octavo(mine, "build", model, "-o", engines[which], "--threads", threads, "--effort", effort, *words)
        row[f"{which}_build_s"] = time.monotonic() - start
        counterparts.octavo(mine, "run", engines[which], "--input", feed, "--output", args.models / f"{name}.{which}.npz")
    row["difference"] = difference(*(args.models / f"{name}.{w}.npz" for w in ("old", "new")))
    if args.pairs == 0:
        return row
    times = {"old": [], "new": []}
    for i in range(args.pairs):
        for which in ("old", "new") if i % 2 == 0 else ("new", "old"):
            mine = argparse.Namespace(octavo=args.old if which == "old" else args.octavo, cpus=cpus, level=level, seconds=args.seconds)
            times[which].append(counterparts.bench(mine, engines[which], threads)["median_ms"])
    row["ratio"], row["low"], row["high"] = counterparts.interval(times["new"], times["old"])
    row["old_ms"], row["new_ms"] = statistics.median(times["old"]), statistics.median(times["new"])
    return row


def table(rows):
    """Markdown."""
    lines = ["| network | style | effort | threads | outputs | old, ms | new, ms | new ÷ old, 95 % | build, s, old → new |",
             "|---|---|---:|---:|---|---:|---:|---:|---:|"]
    for r in rows:
        if "error" in r:
            lines.append(f"| {r['network']} | {r['style']} | {r['effort']} | {r['threads']} | error: {r['error']} | | | | |")
            continue
        label = f"{r['network']}{', ' + r['level'] if r.get('level') else ''}"
        bits = "other names or shapes" if r["difference"] is None else "equal" if r["difference"] == 0 else f"differ by {r['difference']:.3g}"
        if "ratio" not in r:
            lines.append(f"| {label} | {r['style']} | {r['effort']} | {r['threads']} | {bits} | | | | {r['old_build_s']:.1f} → {r['new_build_s']:.1f} |")
            continue
        lines.append(f"| {label} | {r['style']} | {r['effort']} | {r['threads']} | {bits} | {r['old_ms']:.3f} | {r['new_ms']:.3f} | "
                     f"{r['ratio']:.3f} [{r['low']:.3f}, {r['high']:.3f}] | {r['old_build_s']:.1f} → {r['new_build_s']:.1f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    numbers = lambda text: [int(n) for n in text.split(",")]
    counterparts.arguments(parser)
    parser.set_defaults(pairs=9)
    parser.add_argument("--old", required=True, help="the earlier octavo command")
    parser.add_argument("--nets", type=split, default=list(networks.ALL))
    parser.add_argument("--styles", type=split, default=["residual", "outputs"])
    parser.add_argument("--efforts", type=numbers, default=[0, 2])
    parser.add_argument("--threads", type=numbers, default=[1])
    parser.add_argument("--cpu", type=split, default=[""], help="portable, avx2, avx512, avx512vnni, amx; default: what the processor has")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time, each on cores of its own")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    counterparts.finish(args)
    args.nets = list(networks.ALL) if args.nets == ["all"] else args.nets
    cells = [(n, s, e, t, c) for n in args.nets for s in args.styles for e in args.efforts for t in args.threads for c in args.cpu]
    for net, style in sorted({c[:2] for c in cells}):
        networks.explicit_model(args, net, style)
    cores, free = sorted(os.sched_getaffinity(0)), queue.Queue()
    width = max(1, len(cores) // args.jobs)
    for k in range(args.jobs):
        free.put(cores[k * width:(k + 1) * width])

    def work(c):
        cpus = free.get()
        try:
            return cell(args, cpus[:max(1, c[3])], *c)
        except RuntimeError as e:
            return {**dict(zip(("network", "style", "effort", "threads", "level"), c)), "error": str(e).splitlines()[-1]}
        finally:
            free.put(cpus)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = []
        for row in pool.map(work, cells):
            rows.append(row)
            print(table([row]).splitlines()[-1], flush=True)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{counterparts.machine()}; {args.pairs} pairs of processes in turns, {args.jobs} cells at a time\n\n{table(rows)}")


if __name__ == "__main__":
    main()
