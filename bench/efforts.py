"""How long a build takes at each effort, with an empty timing cache and with the one that this leaves, and how fast the engine is: the table of
docs/planner.md. One core builds, so that times do not depend on how many there are; engines run on one thread, in turn, medians of --rounds processes.

usage: efforts.py [--nets resnet50,mobilenet_v2,yolov8n] [--style residual] [--efforts 0,1,2,3,4,5] [--rounds 5] [--write]
"""
import argparse
import statistics
import time

import networks
import counterparts

BEGIN, END = "<!-- efforts:begin -->", "<!-- efforts:end -->"


def timed_build(args, model, engine, effort, cache):
    """Seconds of a process that builds an engine."""
    start = time.monotonic()
    counterparts.octavo(args, "build", model, "-o", engine, "--threads", 1, "--effort", effort, *(["--timing-cache", cache] if effort > 0 else []))
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    parser.add_argument("--nets", type=split, default=["resnet50", "mobilenet_v2", "yolov8n"])
    parser.add_argument("--style", default="residual")
    parser.add_argument("--efforts", type=lambda t: [int(n) for n in t.split(",")], default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=1)
    counterparts.arguments(parser)
    parser.add_argument("--write", action="store_true", help="write the documents")
    args = parser.parse_args()
    counterparts.finish(args)
    args.cpus = [args.cpu]
    networks.make_zoo(args, args.nets)
    lines = ["| network | effort | build, empty cache | build, full cache | engine |", "|---|---:|---:|---:|---:|"]
    for net in args.nets:
        model, engines, times = networks.explicit_model(args, net, args.style), {}, {}
        for effort in args.efforts:
            cache = args.models / f"{net}.effort{effort}.txt"
            cache.unlink(missing_ok=True)
            engines[effort] = args.models / f"{net}.effort{effort}.octavo"
            first = timed_build(args, model, engines[effort], effort, cache)
            again = [timed_build(args, model, engines[effort], effort, cache) for _ in range(3)]
            times[effort] = [first, statistics.median(again)]
            print(net, effort, times[effort], flush=True)
        runs = {e: [] for e in args.efforts}
        for _ in range(args.rounds):
            for effort in args.efforts:
                runs[effort].append(counterparts.bench(args, engines[effort], 1)["median_ms"])
        lines += [f"| {net} | {e} | {times[e][0]:.2f} s | {times[e][1]:.2f} s | {statistics.median(runs[e]):.3f} ms |" for e in args.efforts]
    table = "\n".join(lines)
    print(table)
    if not args.write:
        return
    page = counterparts.ROOT / "docs/planner.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN, 1)
    where = f"{counterparts.machine()}, style {args.style}; builds on one core, engines on one thread (`bench/efforts.py`):"
    page.write_text(f"{head}{BEGIN}\n{where}\n\n{table}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
