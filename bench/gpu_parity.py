#!/usr/bin/env python3
"""Explicit models against their implicit counterparts on a GPU: are the plans the same, and where they are not, which is faster?

usage: gpu_parity.py FOLDER [--nets A,B] [--styles inputs,residual] [--batches 1,128] [--effort 0] [--cache FILE] [--pairs 6] [--jobs N] [--allow TYPES] [--hashes] [--make] [--record NAME]

FOLDER holds NET.onnx (float) and NET.STYLE.onnx, what zoo.py and placements.py of the test data write (--make: writes those that are missing). The counterpart is the float model with a
calibration table that holds the scale of every tensor which the explicit one quantizes (counterparts.py). Equal plan hashes are the answer: the
same regions, tactics and constants. Where they differ, both run in turns, --pairs processes each, and the median ratio explicit / counterpart is
shown. --hashes: no times are taken. --allow: the types that both forms may compute in (octavo build --allow).
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import sys

import counterparts
import figures
import gpu_time
import networks
import parity_table

TITLE = "explicit beside implicit on a GPU"


def plan(args, net, style, batch, form):
    """Builds the engine in FOLDER; its plan hash."""
    import onnx

    explicit = args.folder / f"{net}.{style}.onnx"
    model, table = explicit, []
    shapes = ",".join("x".join(map(str, [f"{i.name}:{batch}"] + [d.dim_value for d in i.type.tensor_type.shape.dim][1:])) for i in onnx.load(explicit).graph.input)
    if form == "counterpart":
        model, table = args.folder / f"{net}.onnx", args.folder / f"{net}.{style}.{batch}.cache"
        counterparts.write_table(table, counterparts.scales_of(onnx.load(explicit)))
        table = ["--calibration", table]
    said = counterparts.octavo(args, "build", model, "-o", args.folder / f"{net}.{style}.{batch}.{form}.octavo", "--device", "cuda", "--shapes", shapes, "--effort", args.effort,
                               "--timing-cache", args.cache or "none", *(["--allow", args.allow] if args.allow else []), *table)
    return re.search(r", plan ([0-9a-f]+)", said)[1]


def pairs(args, net, style, batch):
    """Milliseconds of both forms, in turns; neither is always first."""
    found = {"explicit": [], "counterpart": []}
    for i in range(args.pairs):
        for form in list(found)[:: 1 - 2 * (i % 2)]:
            said = counterparts.octavo(args, "bench", args.folder / f"{net}.{style}.{batch}.{form}.octavo", "--json", "--noDataTransfers", "--seconds", "0.3")
            found[form].append(json.loads(said.splitlines()[-1])["median_ms"])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--nets", default="resnet50,mobilenet_v2,yolov8n,unet")
    parser.add_argument("--styles", default="inputs,residual")
    parser.add_argument("--batches", default="1,128")
    parser.add_argument("--effort", type=int, default=0)
    parser.add_argument("--cache")
    parser.add_argument("--pairs", type=int, default=figures.LEAST_ROUNDS)
    parser.add_argument("--make", action="store_true", help="write the models that are missing")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--allow")
    parser.add_argument("--hashes", action="store_true")
    parser.add_argument("--octavo", default=counterparts.octavo_command())
    figures.add_option(parser)
    args = parser.parse_args()
    results, rows, facts = {}, {}, {}
    if args.record:
        figures.claim(results, args.octavo, gpu_time.device())
    if args.make:
        args.models = args.folder
        for net in args.nets.split(","):
            for style in args.styles.split(","):
                networks.placed_model(args, net, style)
    cells = [(net, style, int(batch)) for net in args.nets.split(",") for style in args.styles.split(",") for batch in args.batches.split(",")]
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        futures = {(cell, form): pool.submit(plan, args, *cell, form) for cell in cells for form in ("explicit", "counterpart")}
        hashes = {key: future.result() for key, future in futures.items()}
    worse = 0
    for cell in cells:
        name, explicit, counterpart = f"{cell[0]}, {cell[1]}, batch {cell[2]}", hashes[cell, "explicit"], hashes[cell, "counterpart"]
        line = f"{name}: {explicit[:12]} {counterpart[:12]} "
        rows[name], facts[name] = {}, {"plan": "the same" if explicit == counterpart else "another"}
        if explicit == counterpart:
            print(line + "the same plan", flush=True)
        elif args.hashes:
            worse += 1
            print(line + "other plans", flush=True)
        else:
            rows[name] = pairs(args, *cell)
            middle, least, most = counterparts.interval(rows[name]["explicit"], rows[name]["counterpart"])
            worse += least > parity_table.LIMIT
            print(line + f"other plans, explicit / counterpart {middle:.3f} [{least:.3f}, {most:.3f}]", flush=True)
    if args.record:
        view = {**parity_table.RECORDED, "columns": parity_table.RECORDED["columns"][:4], "facts": facts, "note": f"effort {args.effort}" + (f", {args.allow} allowed" if args.allow else "")}
        figures.save(figures.record(results, {TITLE: rows}, views={TITLE: view}), args.record)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
