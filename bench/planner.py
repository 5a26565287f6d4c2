"""The searched plan against the default choices: does looking for a better plan pay?

For each network, form and thread count two engines are built: with --baseline (0: nothing measured, the default choices) and with --effort, each
of the latter from a timing cache of its own. Pairs of processes take turns; the ratio is searched / default, median and 95 % interval; below 1 the
search won. "implicit" is the float model with the ranges of style everywhere, "batch8" style residual with eight images. Equal plans are not timed. Results are kept in --json.

usage: planner.py [--nets A,B] [--forms residual,outputs,implicit,batch8] [--threads 1,2] [--pairs 30] [--jobs N] [--effort 2] [--baseline 0]
       planner.py --run DIR ...       in a folder that parity.py --prepare made
       planner.py --write --json F    docs/lab/planner-gains.md from the results
"""
import argparse
import json
import os
import pathlib
import re
import sys

import bundle
import networks
import parity
import counterparts

FORMS = ("residual", "outputs", "implicit", "batch8")
PAGE = counterparts.ROOT / "docs/lab/planner-gains.md"


def batched(args, net, images):
    """Style residual for so many images; made once. A model that fixes its batch elsewhere is refused when it is built."""
    import onnx

    path = args.models / f"{net}.residual.b{images}.qdq.onnx"
    if not path.exists():
        model = onnx.load(networks.explicit_model(args, net, "residual"))
        constants = {t.name for t in model.graph.initializer}
        for value in model.graph.input:
            if value.name not in constants:
                value.type.tensor_type.shape.dim[0].dim_value = images
        del model.graph.value_info[:]
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        networks.save(model, path)
    return path


def measure(args, net, form, threads):
    """The row of one cell: "explicit" is the searched plan, "counterpart" the default one (parity.compare's names)."""
    if form == "implicit":
        source, table = networks.float_model(args, net), networks.table_of(args, net, "everywhere")
    elif form == "batch8":
        source, table = batched(args, net, 8), None
    else:
        source, table = networks.explicit_model(args, net, form), None
    files = []
    for effort in (args.effort, args.baseline):
        file = args.engines / f"{net}.{form}.t{threads}.e{effort}.octavo"
        cache = file.with_suffix(".times")
        if not file.exists():
            part = file.with_name(file.name + ".part")
            counterparts.build(argparse.Namespace(**{**vars(args), "effort": effort, "cache": cache}), source, part, threads, table)
            part.replace(file)
        files.append(file)
    row = parity.compare(args, *files, threads)
    decisions = counterparts.plan_of(args, files[0])["decisions"]
    row["taken"] = sorted({d["choice"] for d in decisions if d["chosen"] != d["candidates"][0]["name"]})
    return row


class Run(parity.Run):
    def run(self):
        a = self.args
        networks.make_zoo(a, a.nets)
        self.each([(None, 1, lambda m, n=n: networks.float_model(m, n)) for n in a.nets])
        styles = {"implicit": "everywhere", "batch8": "residual"}
        self.each([(None, 1, lambda m, n=n, s=s: networks.table_of(m, n, s)) for n in a.nets for s in sorted({styles.get(f, f) for f in a.forms})])
        made = sorted({styles.get(f, f) for f in a.forms if f != "implicit"})
        self.each([(None, 1, lambda m, n=n, s=s: networks.explicit_model(m, n, s)) for n in a.nets for s in made])
        for t in a.threads:
            self.each([(f"{n}/{f}/{t}", t, lambda m, n=n, f=f: measure(m, n, f, t))
                       for n in a.nets for f in a.forms if self.missing(f"{n}/{f}/{t}")], quiet=True)
        return self.stopped or any("error" in r for r in self.kept.results.values())


def cell(row):
    if row is None:
        return ""
    if "error" in row:
        return "not measured"
    if row["same"]:
        return f"the default plan, {row['explicit_ms']:.2f} ms"
    return f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}], {row['explicit_ms']:.2f} ms ({', '.join(row['taken']) or 'tactics'})"


def table(results, nets, forms, threads):
    lines = [f"| network | threads | {' | '.join(forms)} |", "|---" * (2 + len(forms)) + "|"]
    for net in nets:
        for t in threads:
            rows = [results.get(f"{net}/{f}/{t}") for f in forms]
            if any(rows):
                lines.append(f"| {net} | {t} | {' | '.join(map(cell, rows))} |")
    return "\n".join(lines)


def write(kept, nets, forms, threads):
    won = sorted({k.split("/")[0] for k, r in kept["results"].items() if r.get("high", 1) < 1})
    lost = sorted(k for k, r in kept["results"].items() if r.get("low", 0) > 1)
    words = {k: re.sub(r"\S*/", "", r["error"].strip().splitlines()[-1]) for k, r in sorted(kept["results"].items()) if "error" in r}
    absent = "\n".join(f"- {k}: {text}" for k, text in words.items())
    PAGE.write_text(f"""# What the planner's search gains over the default choices

Written by `bench/planner.py --write` from one run on {kept['machine']}: effort {kept['effort']} against effort {kept['baseline']}. A ratio is searched ÷ default,
the median of {kept['pairs']} pairs of processes that take turns, and its 95 % interval; then the searched plan's time and the kinds of questions that got
another answer than the default. *The default plan*: the search found nothing better, or whole plans did not confirm it (`docs/planner.md`).

Faster, with the whole interval below 1, on: {', '.join(won) or 'none'}. Slower, with the whole interval above 1: {', '.join(lost) or 'none'}.

{table(kept['results'], nets, forms, threads)}
{"Not measured:" + chr(10) + absent + chr(10) if absent else ""}""", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    parser.add_argument("--nets", type=split, default=list(networks.ALL))
    parser.add_argument("--forms", type=split, default=list(FORMS))
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--baseline", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="cores that measure at a time (default: half of all)")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--run", type=pathlib.Path, metavar="DIR")
    counterparts.arguments(parser)
    parser.add_argument("--write", action="store_true", help="write the documents")
    parser.set_defaults(models=None)
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    args.jobs = args.jobs or max(cores // 2, max(args.threads))
    if args.run:
        counterparts.DATA = args.run.resolve() / "shared"
        args.models = args.run.resolve() / "work" if args.models is None else args.models.resolve()
        args.octavo = bundle.unpack(args.run.resolve(), args.models)
    args.models = args.models or counterparts.ROOT / "build/bench_models"
    args.json = args.json or args.models / "planner.json"
    if args.write:
        write(json.loads(args.json.read_text()), args.nets, args.forms, args.threads)
        return
    counterparts.finish(args)
    args.engines = args.models / f"planned-{bundle.digest(args.octavo)}"
    args.engines.mkdir(exist_ok=True)
    run = Run(args)
    run.kept.all["baseline"] = args.baseline
    failed = run.run()
    print(table(run.kept.results, args.nets, args.forms, args.threads))
    sys.exit(failed)


if __name__ == "__main__":
    main()
