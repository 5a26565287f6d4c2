"""Explicit models against their implicit twins: the parity table of the README and docs/parity.md.

For each network, placement style and thread count both are built with one timing cache. Equal plan hashes are the answer; otherwise pairs
of processes take turns, and the 95 % interval of the median ratio explicit / twin is shown; above 1.02 `octavo explain --roundings` says
what the placement demands, and the time without it. "implicit" compares the twin that has every range with the fastest of all seven styles.
"check" builds all seven styles and compares every region with the reference. Results are kept in --json, so that a run can be taken up again.

usage: parity.py [--nets A,B] [--styles A,B] [--threads 1,2] [--pairs 30] [--jobs 1]     measures here
       parity.py --prepare DIR [--nets A,B]       one folder that another machine can measure from (bundle.py says what that needs)
       parity.py --run DIR --jobs N [--json FILE] [--minutes M]       measures there, N pairs at a time; again with the same --json: the rest
       parity.py --write --json FILE              docs/parity.md and the README from the results
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import statistics
import sys
import threading
import time

import bundle
import networks
import parity_table
import twins
from parity_table import LIMIT


class Cores:
    """The cores that this process may use, lent out."""

    def __init__(self):
        self.free, self.changed = sorted(os.sched_getaffinity(0)), threading.Condition()

    @contextlib.contextmanager
    def take(self, args, count):
        """`args` with `cpus`: so many cores that nobody else has meanwhile."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.free) >= count)
            mine, self.free = self.free[:count], self.free[count:]
        try:
            yield argparse.Namespace(**{**vars(args), "cpus": mine})
        finally:
            with self.changed:
                self.free = sorted(self.free + mine)
                self.changed.notify_all()


class Kept:
    """The results by "network/style/threads", written to the file with every change."""

    def __init__(self, args):
        self.path, self.lock = args.json, threading.Lock()
        facts = {"machine": twins.machine(), "effort": args.effort, "pairs": args.pairs, "jobs": args.jobs, "octavo": bundle.digest(args.octavo)}
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {"results": {}}
        for name, value in facts.items():
            if self.all.setdefault(name, value) != value:
                sys.exit(f"error: {self.path}: measured with {name} {self.all[name]!r}, now it is {value!r}: a table is one run's; take another --json")
        self.results = self.all["results"]

    def put(self, key, row):
        with self.lock:
            self.results[key] = row
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(self.all, indent=1, sort_keys=True))
            part.replace(self.path)
        print(f"{key}: {parity_table.cell(row) if 'equal' not in row else row['line']}", flush=True)


def engines(args, net, style, threads):
    """Files of the explicit engine and its twin's, built when they are missing. One network's builds follow each other: one cache."""
    stem = args.engines / f"{net}.{style}.t{threads}"
    files = []
    for form, model, table in (("explicit", networks.explicit_model, None), ("twin", networks.float_model, networks.table_of)):
        file = pathlib.Path(f"{stem}.{form}.octavo")
        if not file.exists():
            source = model(args, net, style) if form == "explicit" else model(args, net)
            twins.build(cached(args, net, threads), source, file, threads, table(args, net, style) if table else None)
        files.append(file)
    return files


def cached(args, net, threads):
    return argparse.Namespace(**{**vars(args), "cache": args.engines / f"{net}.t{threads}.times"})


def roundings(args, net, style, threads):
    """What `octavo explain --roundings` says, from the cache that the engines were built with."""
    more = ["--timing-cache", cached(args, net, threads).cache] if args.effort > 0 else []
    return json.loads(twins.octavo(args, "explain", networks.explicit_model(args, net, style), "--roundings", "--json", "--threads", threads,
                                   "--effort", args.effort, *more))


def compare(args, a, b, threads):
    """The row of two engines; not timed when they are one plan."""
    first, second = twins.bench(args, a, threads, 0.05), twins.bench(args, b, threads, 0.05)
    row = {"explicit_hash": first["plan_hash"], "twin_hash": second["plan_hash"]}
    if first["plan_hash"] == second["plan_hash"]:
        return {**row, "same": True, "explicit_ms": twins.bench(args, a, threads, 1.0)["median_ms"]}
    x, y = twins.interleaved(args, a, b, threads)
    ratio, low, high = twins.interval(x, y)
    return {**row, "same": False, "pairs": args.pairs, "explicit_ms": statistics.median(x), "twin_ms": statistics.median(y),
            "ratio": ratio, "low": low, "high": high}


def measure_style(args, net, style, threads):
    """A cell of the table; of a style that the table does not show, the explicit time alone."""
    a, b = engines(args, net, style, threads)
    if style not in args.styles:
        return {"explicit_ms": statistics.median(twins.bench(args, a, threads)["median_ms"] for _ in range(5))}
    row = compare(args, a, b, threads)
    if not row["same"] and row["low"] > LIMIT:
        row["demanded"] = roundings(args, net, style, threads)
    return row


def measure_implicit(args, net, threads, results):
    """The twin with every range against the fastest explicit style; there "explicit" is the twin, "twin" the fastest style."""
    known = [(results[key]["explicit_ms"], s) for s in args.wanted if "explicit_ms" in results.get(key := f"{net}/{s}/{threads}", {})]
    if not known:
        raise RuntimeError("no explicit style was measured")
    fastest = min(known)[1]
    twin = engines(args, net, "everywhere", threads)[1]
    return {**compare(args, twin, engines(args, net, fastest, threads)[0], threads), "fastest": fastest}


def check(args, net, style):
    """Every region against the reference, and the regions that compute nothing."""
    import onnx

    t = args.threads[0]
    a, b = engines(args, net, style, t)
    model = networks.explicit_model(args, net, style)
    more = ["--timing-cache", cached(args, net, t).cache] if args.effort > 0 else []
    line = twins.octavo(args, "check", model, "--threads", t, "--effort", args.effort, *more).splitlines()[-1]
    counts = re.search(r"(\d+) regions: (\d+) bit-equal, (\d+) within the float tolerance, (\d+) not judged, (\d+) differ", line)
    plan, twin = twins.plan_of(args, a), twins.plan_of(args, b)
    passes = twins.passes(plan, onnx.load(model, load_external_data=False))
    return {**dict(zip(("checked", "equal", "within", "unjudged", "differ"), map(int, counts.groups()))), "line": line,
            "regions": len(plan["regions"]), "twin_regions": len(twin["regions"]), "passes": passes}


class Run:
    """Everything that is asked for and not yet kept, `args.jobs` at a time."""

    def __init__(self, args):
        self.args, self.cores, self.kept = args, Cores(), Kept(args)
        self.end = time.monotonic() + 60 * args.minutes
        if args.jobs * max(args.threads) > len(self.cores.free):
            sys.exit(f"error: --jobs {args.jobs} with {max(args.threads)} threads each: this process may use {len(self.cores.free)} cores")
        self.stopped = False

    def each(self, tasks):
        """Runs (key or None, cores, function of args) tasks; a key's result is kept. A failure is a result."""
        def one(key, count, function):
            if time.monotonic() > self.end:
                self.stopped = True
                return
            with self.cores.take(self.args, count) as mine:
                try:
                    row = function(mine)
                except (RuntimeError, ValueError, OSError, AttributeError) as error:
                    row = {"error": str(error)}
                    print(f"{key}: {error}", file=sys.stderr, flush=True)
            if key:
                self.kept.put(key, row)

        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            for done in concurrent.futures.as_completed([pool.submit(one, *task) for task in tasks]):
                done.result()

    def missing(self, key):
        return self.args.again or "error" in self.kept.results.get(key, {"error": ""})

    def run(self):
        a = self.args
        networks.make_zoo(a, a.nets)
        self.each([(None, 1, lambda m, n=n: networks.float_model(m, n)) for n in a.nets])
        self.each([(None, 1, lambda m, n=n, s=s: networks.table_of(m, n, s)) for n in a.nets for s in a.wanted])
        cells = [(n, s, t) for n in a.nets for s in a.wanted for t in a.threads if self.missing(f"{n}/{s}/{t}")]

        def build(m, net, threads):
            for style in a.wanted:
                if time.monotonic() <= self.end:
                    engines(m, net, style, threads)

        self.each([(None, t, lambda m, n=n, t=t: build(m, n, t)) for n, t in dict.fromkeys((n, t) for n, _, t in cells)])
        self.each([(f"{n}/{s}/{t}", t, lambda m, n=n, s=s, t=t: measure_style(m, n, s, t)) for n, s, t in cells])
        self.each([(f"{n}/implicit/{t}", t, lambda m, n=n, t=t: measure_implicit(m, n, t, self.kept.results))
                   for n in a.nets for t in a.threads if "everywhere" in a.wanted and self.missing(f"{n}/implicit/{t}")])
        if a.check:
            self.each([(f"{n}/{s}/check", 1, lambda m, n=n, s=s: check(m, n, s))
                       for n in a.nets for s in a.wanted if self.missing(f"{n}/{s}/check")])
        if self.stopped:
            print(f"stopped after {a.minutes} minutes; the same command measures the rest", file=sys.stderr)
        return self.stopped or any("error" in r for r in self.kept.results.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    parser.add_argument("--nets", type=split, default=list(networks.ALL))
    parser.add_argument("--styles", type=split, default=list(networks.STYLES), help="columns of the table")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="pairs measured at a time, each on cores of its own")
    parser.add_argument("--json", type=pathlib.Path, help="where results are kept (default: parity.json in --models)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after so many minutes")
    parser.add_argument("--again", action="store_true", help="measure again what is kept already")
    parser.add_argument("--no-check", dest="check", action="store_false", help="leave out the comparison with the reference")
    parser.add_argument("--only-styles", action="store_true", help="leave out the styles that the table does not show")
    parser.add_argument("--prepare", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--run", type=pathlib.Path, metavar="DIR")
    twins.arguments(parser)
    args = parser.parse_args()
    args.wanted = [*args.styles, *(s for s in (*networks.STYLES, *networks.MORE) if s not in args.styles and not args.only_styles)]
    if unknown := (set(args.nets) - set(networks.ALL)) | (set(args.wanted) - {*networks.STYLES, *networks.MORE}):
        parser.error(f"no such network or style: {', '.join(sorted(unknown))}")
    if args.run:
        twins.DATA = args.run.resolve() / "shared"
        args.models = args.run.resolve() / "work"
        args.octavo = bundle.unpack(args.run.resolve(), args.models)
    args.json = args.json or args.models / "parity.json"
    if args.write:
        parity_table.write(json.loads(args.json.read_text()), args.nets, args.styles, args.threads)
        return
    twins.finish(args)
    if args.prepare:
        print(f"{args.prepare}: {bundle.prepare(args, args.prepare) / 2**20:.1f} MiB")
        return
    args.engines = args.models / f"engines-{bundle.digest(args.octavo)}-e{args.effort}"
    args.engines.mkdir(exist_ok=True)
    failed = Run(args).run()
    print(parity_table.main_table(json.loads(args.json.read_text())["results"], args.nets, args.styles, args.threads))
    sys.exit(failed)


if __name__ == "__main__":
    main()
