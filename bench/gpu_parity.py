#!/usr/bin/env python3
"""Explicit models against their implicit counterparts on a GPU: are the plans the same, and where they are not, which is faster?

usage: gpu_parity.py FOLDER [--nets A,B] [--styles inputs,residual] [--batches 1,128] [--effort 0] [--cache FILE] [--pairs 5] [--jobs N] [--hashes]

FOLDER holds NET.onnx (float) and NET.STYLE.onnx, what zoo.py and placements.py of the test data write. The counterpart is the float model with a
calibration table that holds the scale of every tensor which the explicit one quantizes (counterparts.py). Equal plan hashes are the answer: the
same regions, tactics and constants. Where they differ, both run in turns, --pairs processes each, and the median ratio explicit / counterpart is
shown. --hashes: no times are taken.
"""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys

import counterparts


def plan(args, net, style, batch, form):
    """Builds the engine in FOLDER; its plan hash."""
    import onnx

    import octavo

    explicit = args.folder / f"{net}.{style}.onnx"
    model, table = explicit, None
    shapes = {i.name: [batch] + [d.dim_value for d in i.type.tensor_type.shape.dim][1:] for i in onnx.load(explicit).graph.input}
    if form == "counterpart":
        model, table = args.folder / f"{net}.onnx", args.folder / f"{net}.{style}.{batch}.cache"
        counterparts.write_table(table, counterparts.scales_of(onnx.load(explicit)))
    engine = octavo.build(model, device="cuda", shapes=shapes, effort=args.effort, timing_cache=args.cache, calibration=table)
    if not args.hashes:
        engine.save(args.folder / f"{net}.{style}.{batch}.{form}.octavo")
    return engine.plan_hash


def ratio(args, net, style, batch):
    def ms(form):
        return counterparts.octavo(args, "bench", args.folder / f"{net}.{style}.{batch}.{form}.octavo", "--json", "--noDataTransfers", "--seconds", "0.3")
    ratios = []
    for _ in range(args.pairs):
        first, second = (json.loads(ms(form).splitlines()[-1])["median_ms"] for form in ("explicit", "counterpart"))
        ratios.append(first / second)
    return statistics.median(ratios), min(ratios), max(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--nets", default="resnet50,mobilenet_v2,yolov8n,unet")
    parser.add_argument("--styles", default="inputs,residual")
    parser.add_argument("--batches", default="1,128")
    parser.add_argument("--effort", type=int, default=0)
    parser.add_argument("--cache")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--hashes", action="store_true")
    parser.add_argument("--octavo", default=counterparts.octavo_command())
    args = parser.parse_args()
    cells = [(net, style, int(batch)) for net in args.nets.split(",") for style in args.styles.split(",") for batch in args.batches.split(",")]
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        futures = {(cell, form): pool.submit(plan, args, *cell, form) for cell in cells for form in ("explicit", "counterpart")}
        hashes = {key: future.result() for key, future in futures.items()}
    worse = 0
    for cell in cells:
        explicit, counterpart = hashes[cell, "explicit"], hashes[cell, "counterpart"]
        line = f"{cell[0]} {cell[1]} batch {cell[2]}: {explicit[:12]} {counterpart[:12]} "
        if explicit == counterpart:
            print(line + "the same plan", flush=True)
        elif args.hashes:
            worse += 1
            print(line + "other plans", flush=True)
        else:
            middle, least, most = ratio(args, *cell)
            worse += middle > 1.02
            print(line + f"other plans, explicit / counterpart {middle:.3f} [{least:.3f}, {most:.3f}]", flush=True)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
