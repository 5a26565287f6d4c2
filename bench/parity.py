"""Explicit models against their implicit counterparts: the table of docs/lab/parity.md and the README's sentence (--record, bench/figures.py; docs/lab/parity-method.md says what it shows).

For each network, placement style and thread count both are built with one timing cache, frozen before any engine that is measured is built.
Equal plan hashes are the answer; otherwise pairs of processes take turns, and the 95 % interval of the median ratio explicit / counterpart is shown;
above 1.02 `octavo explain --roundings` says what the placement demands, and the network without the roundings that cost time takes turns with
the counterpart too. "implicit" compares the counterpart that has every range with the fastest of all seven styles. "check" compares every region of all seven
styles with the reference. Results are kept in --json, so that a run can be taken up again.

usage: parity.py [--nets A,B] [--styles A,B] [--threads 1,2] [--pairs 30] [--jobs N] [--record NAME]     measures here
       parity.py --prepare DIR [--nets A,B] [--wheels DIR]      one folder that another machine can measure from (bundle.py says what it needs)
       parity.py --run DIR [--json FILE] [--minutes M]          measures there; again with the same --json: the rest
"""
import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import sys
import threading
import time

import bundle
import figures
import networks
import parity_table
import counterparts
from parity_table import LIMIT


def quiet_cores(count):
    """`count` of the cores that this process may use, no two of them threads of one physical core while that can be helped."""
    first, second, seen = [], [], set()
    for cpu in sorted(os.sched_getaffinity(0)):
        file = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = file.read_text().strip() if file.exists() else str(cpu)
        (second if core in seen else first).append(cpu)
        seen.add(core)
    return (first + second)[:count]


class Cores:
    """Cores, lent out."""

    def __init__(self, cpus):
        self.free, self.changed = sorted(cpus), threading.Condition()

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
        facts = {"machine": counterparts.machine(), "effort": args.effort, "pairs": args.pairs, "jobs": args.jobs, "octavo": bundle.digest(args.octavo)}
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {"results": {}}
        for name, value in facts.items():
            if self.all.setdefault(name, value) != value:
                sys.exit(f"error: {self.path}: measured with {name} {self.all[name]!r}, now it is {value!r}: a table is one run's; take another --json")
        figures.claim(self.all, args.octavo)
        self.results = self.all["results"]
        self.write()

    def write(self):
        with self.lock:
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(self.all, indent=1, sort_keys=True))
            part.replace(self.path)

    def put(self, key, row):
        with self.lock:
            self.results[key] = row
        self.write()
        print(f"{key}: {parity_table.cell(row) if 'equal' not in row else row['line']}", flush=True)


FORMS = ("explicit", "counterpart")
LOCKS = collections.defaultdict(threading.Lock)


def cached(args, net, threads):
    (args.models / "times").mkdir(exist_ok=True)
    return argparse.Namespace(**{**vars(args), "cache": args.models / "times" / f"{net}.t{threads}-e{args.effort}.txt"})


def engine(args, net, style, form, threads):
    return args.engines / f"{net}.{style}.t{threads}.{form}.octavo"


def build(args, net, style, form, threads, strict):
    """Builds an engine; not strict: only to fill the timing cache."""
    file = engine(args, net, style, form, threads)
    part = file.with_name(f"{file.name}.{threading.get_ident()}")
    source, table = (networks.explicit_model(args, net, style), None) if form == "explicit" else \
                    (networks.float_model(args, net), networks.table_of(args, net, style))
    counterparts.build(cached(args, net, threads), source, part, threads, table, strict and args.effort > 0)
    if strict:
        part.replace(file)
    else:
        part.unlink()


def forms(args, style):
    """What is built of a style: of one that the table does not show, no counterpart."""
    return FORMS if style in args.styles else FORMS[:1]


def engines(args, net, style, threads):
    """Files of the explicit engine and its counterpart's, built when they are missing, from times that nobody changes any more."""
    for form in forms(args, style):
        for attempt in range(3):
            if engine(args, net, style, form, threads).exists():
                break
            with LOCKS[net, threads]:
                try:
                    build(args, net, style, form, threads, True)
                except RuntimeError:
                    if attempt == 2:
                        raise
                    build(args, net, style, form, threads, False)
    return [engine(args, net, style, form, threads) for form in forms(args, style)]


def measure_without(args, net, style, threads, counterpart):
    """What the placement demands, and the network without any of it: where that is the counterpart's plan, nothing is left to time. Otherwise the
    network without what costs time against the counterpart; where that does not reach the limit, also the network without any. The times that
    this takes go into a copy of the cache."""
    model, some, every = networks.explicit_model(args, net, style), *(engine(args, net, style, form, threads) for form in ("without", "without-all"))
    words = ["explain", model, "--roundings", "--json", "--threads", threads, "--effort", args.effort]
    if args.effort > 0:
        copy = some.with_suffix(".times")
        shutil.copy(cached(args, net, threads).cache, copy)
        words += ["--timing-cache", copy]
    found = json.loads(counterparts.octavo(args, *words))
    row, costly, count = {"demanded": found}, found["costly"]["count"], len(found["roundings"])
    if count == 0:
        return row
    counterparts.octavo(args, *words, *(["--build-without", some] if costly else []), "--build-without-all", every)
    hashes = [counterparts.bench(args, e, threads, 0.05)["plan_hash"] for e in (every, counterpart)]
    if hashes[0] == hashes[1]:
        row["without_all"] = compare(args, every, counterpart, threads)
        return row
    if costly:
        row["without"] = compare(args, some, counterpart, threads)
        if costly == count or row["without"]["same"] or row["without"]["low"] <= LIMIT:
            return row
    row["without_all"] = compare(args, every, counterpart, threads)
    return row


def compare(args, a, b, threads):
    """The row of two engines; not timed when they are one plan."""
    first, second = counterparts.bench(args, a, threads, 0.05), counterparts.bench(args, b, threads, 0.05)
    row = {"explicit_hash": first["plan_hash"], "counterpart_hash": second["plan_hash"]}
    if first["plan_hash"] == second["plan_hash"]:
        return {**row, "same": True, "explicit_ms": counterparts.bench(args, a, threads, 1.0)["median_ms"]}
    x, y = counterparts.interleaved(args, a, b, threads)
    ratio, low, high = counterparts.interval(x, y)
    return {**row, "same": False, "pairs": args.pairs, "explicit_ms": statistics.median(x), "counterpart_ms": statistics.median(y),
            "ratio": ratio, "low": low, "high": high, "rounds": [x, y]}


def measure_style(args, net, style, threads):
    """A cell of the table; of a style that the table does not show, the explicit time alone."""
    a, *counterpart = engines(args, net, style, threads)
    if not counterpart:
        return {"explicit_ms": statistics.median(counterparts.bench(args, a, threads)["median_ms"] for _ in range(5))}
    b = counterpart[0]
    row = compare(args, a, b, threads)
    if not row["same"] and row["low"] > LIMIT:
        row |= measure_without(args, net, style, threads, b)
    return row


def measure_implicit(args, net, threads, results):
    """The counterpart with every range against the fastest explicit style; there "explicit" is the counterpart, "counterpart" the fastest style."""
    known = [(results[key]["explicit_ms"], s) for s in args.wanted if "explicit_ms" in results.get(key := f"{net}/{s}/{threads}", {})]
    if not known:
        raise RuntimeError("no explicit style was measured")
    fastest = min(known)[1]
    counterpart = engines(args, net, "everywhere", threads)[1]
    return {**compare(args, counterpart, engines(args, net, fastest, threads)[0], threads), "fastest": fastest}


def check(args, net, style):
    """Every region against the reference, and the regions that compute nothing."""
    import onnx

    t = args.threads[0]
    files = engines(args, net, style, t)
    model = networks.explicit_model(args, net, style)
    more = ["--strict-timing", "--timing-cache", cached(args, net, t).cache] if args.effort > 0 else []
    line = counterparts.octavo(args, "check", model, "--threads", t, "--effort", args.effort, *more).splitlines()[-1]
    counts = re.search(r"(\d+) regions: (\d+) bit-equal, (\d+) within the float tolerance, (\d+) not judged, (\d+) differ", line)
    plan, *counterpart = [counterparts.plan_of(args, f) for f in files]
    passes = counterparts.passes(plan, onnx.load(model, load_external_data=False))
    return {**dict(zip(("checked", "equal", "within", "unjudged", "differ"), map(int, counts.groups()))), "line": line,
            "regions": len(plan["regions"]), "counterpart_regions": len(counterpart[0]["regions"]) if counterpart else None, "passes": passes}


class Run:
    """Everything that is asked for and not yet kept: builds on all cores, measurements on `args.jobs` of them."""

    def __init__(self, args):
        self.args, self.kept = args, Kept(args)
        self.end = time.monotonic() + 60 * args.minutes
        self.stopped = False

    def each(self, tasks, quiet=False):
        """Runs (key or None, cores, function of args) tasks; a key's result is kept. A failure is a result."""
        if self.stopped or not tasks:
            return
        begin = time.monotonic()
        cores = Cores(quiet_cores(self.args.jobs) if quiet else os.sched_getaffinity(0))

        def one(key, count, function):
            try:
                with cores.take(self.args, count) as mine:
                    if time.monotonic() > self.end:
                        self.stopped = True
                        return
                    row = function(mine)
            except (RuntimeError, ValueError, OSError, AttributeError, KeyError) as error:
                row = {"error": str(error)}
                if key or not quiet:
                    print(f"{key or 'preparing'}: {error}", file=sys.stderr, flush=True)
            if key:
                self.kept.put(key, row)

        with concurrent.futures.ThreadPoolExecutor(len(cores.free)) as pool:
            for done in concurrent.futures.as_completed([pool.submit(one, *task) for task in tasks]):
                done.result()
        print(f"{len(tasks)} tasks in {time.monotonic() - begin:.0f} s", flush=True)

    def missing(self, key):
        return self.args.again or "error" in self.kept.results.get(key, {"error": ""})

    def build_all(self, cells):
        """Every engine of the cells. Times are taken first, by many builds at once; then the engines are built from those times alone.
        The few whose search then asks for a time that nobody took are left to `engines`."""
        def absent():
            return [(n, s, f, t) for n, s, t in cells for f in forms(self.args, s) if not engine(self.args, n, s, f, t).exists()]

        def strict(m, *which):
            with contextlib.suppress(RuntimeError):
                build(m, *which, True)

        def all_of(function, which):
            self.each([(None, w[3], lambda m, w=w: function(m, *w)) for w in which])

        todo = absent()
        if self.args.effort > 0 and todo:
            known = [w for w in todo if cached(self.args, w[0], w[3]).cache.exists()]
            all_of(strict, known)
            order = {s: i for i, s in enumerate(self.args.wanted)}
            all_of(lambda m, *w: build(m, *w, False), sorted(absent(), key=lambda w: (w[2], order[w[1]])))  # one network's apart
        all_of(strict, absent())

    def run(self):
        a = self.args
        networks.make_zoo(a, a.nets)
        self.each([(None, 1, lambda m, n=n: networks.float_model(m, n)) for n in a.nets])
        self.each([(None, 1, lambda m, n=n, s=s: networks.table_of(m, n, s)) for s in a.wanted for n in a.nets])
        self.build_all([(n, s, t) for n in a.nets for t in a.threads for s in a.wanted
                        if self.missing(f"{n}/{s}/{t}") or self.missing(f"{n}/implicit/{t}")
                        or (t == a.threads[0] and self.missing(f"{n}/{s}/check"))])
        for t in a.threads:
            self.each([(f"{n}/{s}/{t}", t, lambda m, n=n, s=s: measure_style(m, n, s, t))
                       for n in a.nets for s in a.wanted if self.missing(f"{n}/{s}/{t}")], quiet=True)
            self.each([(f"{n}/implicit/{t}", t, lambda m, n=n: measure_implicit(m, n, t, self.kept.results))
                       for n in a.nets if "everywhere" in a.styles and self.missing(f"{n}/implicit/{t}")], quiet=True)
            if a.check and t == a.threads[0]:
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
    parser.add_argument("--jobs", type=int, help="cores that measure at a time, pairs of processes each on their own (default: half of all)")
    parser.add_argument("--json", type=pathlib.Path, help="where results are kept (default: parity.json in --models)")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after so many minutes")
    parser.add_argument("--again", action="store_true", help="measure again what is kept already")
    parser.add_argument("--no-check", dest="check", action="store_false", help="leave out the comparison with the reference")
    parser.add_argument("--only-styles", action="store_true", help="leave out the styles that the table does not show")
    parser.add_argument("--prepare", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--run", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--wheels", type=pathlib.Path, metavar="DIR", help="with --prepare: Python wheels for a machine without onnx")
    counterparts.arguments(parser)
    figures.add_option(parser)
    parser.set_defaults(models=None)
    args = parser.parse_args()
    args.wanted = [*args.styles, *(s for s in (*networks.STYLES, *networks.MORE) if s not in args.styles and not args.only_styles)]
    if unknown := (set(args.nets) - set(networks.ALL)) | (set(args.wanted) - {*networks.STYLES, *networks.MORE}):
        parser.error(f"no such network or style: {', '.join(sorted(unknown))}")
    cores = len(os.sched_getaffinity(0))
    args.jobs = args.jobs or max(cores // 2, max(args.threads))
    if not max(args.threads) <= args.jobs <= cores:
        parser.error(f"--jobs {args.jobs} with {max(args.threads)} threads: this process may use {cores} cores")
    if args.run:
        counterparts.DATA = args.run.resolve() / "shared"
        args.models = args.run.resolve() / "work" if args.models is None else args.models.resolve()
        args.octavo = bundle.unpack(args.run.resolve(), args.models)
    args.models = args.models or counterparts.ROOT / "build/bench_models"
    args.json = args.json or args.models / "parity.json"
    counterparts.finish(args)
    if args.prepare:
        print(f"{args.prepare}: {bundle.prepare(args, args.prepare) / 2**20:.1f} MiB")
        return
    args.engines = args.models / f"engines-{bundle.digest(args.octavo)}-e{args.effort}"
    args.engines.mkdir(exist_ok=True)
    failed = Run(args).run()
    if args.record and not failed:
        parity_table.record(json.loads(args.json.read_text()), args)
    results = json.loads(args.json.read_text())["results"]
    for table in (parity_table.main_table, parity_table.count, parity_table.roundings_table):
        print(table(results, args.nets, args.styles, args.threads) + "\n")
    print(parity_table.checks_table(results, args.nets))
    sys.exit(failed)


if __name__ == "__main__":
    main()
