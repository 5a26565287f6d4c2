"""What the benchmarks of products of matrices share: options, rows that are measured once, ratios, the record."""
import argparse
import json
import os
import pathlib
import statistics
import sys

import figures

ROOT = pathlib.Path(__file__).resolve().parents[1]


def options(description, work):
    """The parser. `work`: the folder of models and times, in build."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--realtime", action="store_true", help="run with real-time priority (chrt -f), ahead of other programs")
    figures.add_option(parser)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / work)
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")))
    return parser


def run(args, sizes, measure, close, inexact=(), view=None):
    """Measures rows × depth × columns of `sizes` on each number of threads, prints ratios, keeps the record. Ends the program: exit code 1 if outputs differ by more than `close` or a ratio is below 1.

    measure(args, size, threads) -> ({who: [milliseconds of each round]}, largest difference). Those of `inexact` are shown and not compared with.
    """
    args.work.mkdir(parents=True, exist_ok=True)
    kept = args.work / "measured.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if args.resume and kept.exists() else {}
    figures.claim(results, args.octavo)
    tables, problems, ratios = results.setdefault("tables", {}), 0, []
    for threads in args.threads:
        rows = tables.setdefault(f"{threads} thread{'s' * (threads > 1)}", {})
        for size in sizes:
            name = f"{size[0]} × {size[1]} × {size[2]}"
            if name not in rows:
                rows[name], difference = measure(args, size, threads)
                kept.write_text(json.dumps(results), encoding="utf-8")
                if difference > close:
                    problems += 1
                    print(f"  PROBLEM {name}: outputs differ by {difference:.1e}", flush=True)
            exact = {who: times for who, times in rows[name].items() if who not in inexact}
            of = figures.ratios(exact, list(range(len(exact["octavo"]))))
            ratios.append(statistics.median(of))
            problems += ratios[-1] < 1
            print(f"{name}, {threads}: {figures.verdict(of)}  {({w: round(statistics.median(t), 3) for w, t in rows[name].items()})}", flush=True)
    print(figures.summary(ratios))
    if args.record:
        figures.save(figures.record(results, tables, **({"views": {title: view for title in tables}} if view else {})), args.record)
    sys.exit(1 if problems else 0)
