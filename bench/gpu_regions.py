#!/usr/bin/env python3
"""A table of an engine's regions beside the GPU's ceilings.

usage: gpu_regions.py PROFILE.json LAYERS.json [--start US] [--memory GB/s] [--tops TOPS] [--top N]

The files are what `octavo bench ENGINE --device cuda --noDataTransfers --exportProfile PROFILE.json --exportLayerInfo LAYERS.json`
writes. A region's bytes are its inputs, outputs and weights once each; its products are counted from its weights. The time of a region
run alone holds a start and a wait; --start is taken off each (default: 15 us; the shortest region shows about how much it is).
Defaults: 2,800 GB/s and 1,294 TOPS, what an H100 was seen to copy and what mma.sync reaches from registers.
"""
import argparse
import json
import math

SIZES = {"f32": 4, "f16": 2, "bf16": 2, "s32": 4, "s64": 8, "u8": 1, "s8": 1}


def size_of(tensor):
    kind = tensor["OctavoType"].split("[")[0]
    return math.prod(tensor["Dimensions"]) * SIZES.get(kind, 4)


def rows_of(profile, layers, start, memory, tops):
    times = {p["name"]: p["medianMs"] * 1000 for p in profile if "name" in p}
    for layer in layers["Layers"]:
        us = times.get(layer["Name"])
        if us is None or "transfer" in layer.get("TacticName", ""):
            continue
        tensors = layer["Inputs"] + layer["Outputs"]
        weights = layer.get("Weights", {}).get("Count", 0)
        moved = sum(size_of(t) for t in tensors) + weights
        dims = layer["Outputs"][0]["Dimensions"] if layer["Outputs"] else []
        macs = weights * (dims[0] * math.prod(dims[2:]) if len(dims) == 4 else (dims or [0])[0])
        least = max(moved / memory / 1e3, 2 * macs / tops / 1e6)  # us
        us = max(us - start, 0.5)
        yield us, layer["Name"], layer["TacticName"], moved / 1e6, macs / 1e9, moved / us / 1e3, 2 * macs / us / 1e6, 100 * least / us


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("layers")
    parser.add_argument("--start", type=float, default=15)
    parser.add_argument("--memory", type=float, default=2800)
    parser.add_argument("--tops", type=float, default=1294)
    parser.add_argument("--top", type=int, default=0, help="only so many, the slowest first")
    args = parser.parse_args()
    rows = list(rows_of(json.load(open(args.profile)), json.load(open(args.layers)), args.start, args.memory, args.tops))
    if args.top:
        rows = sorted(rows, reverse=True)[: args.top]
    print("| region | tactic | us | MB | GMAC | GB/s | TOPS | of the roofline |\n|---|---|---|---|---|---|---|---|")
    for us, name, tactic, mb, gmac, gbs, reached, part in rows:
        print(f"| {name} | {tactic.split('{')[0].removeprefix('cuda.')} | {us:.1f} | {mb:.1f} | {gmac:.2f} | {gbs:.0f} | {reached:.0f} | {part:.0f} % |")


if __name__ == "__main__":
    main()
