#!/usr/bin/env python3
"""A table of a network's regions on a GPU: the time of each beside its limits, and beside what PyTorch's libraries take for the same product.

usage: gpu_regions.py MODEL.onnx --octavo COMMAND [--allow TYPES] [--effort 1] [--beside] [--start US] [--memory GB/s] [--tops TOPS] [--top N]
       gpu_regions.py PROFILE.json LAYERS.json [...]

With a model, `octavo bench` measures it. Without: the files that `octavo bench ENGINE --device cuda --noDataTransfers --exportProfile PROFILE.json --exportLayerInfo LAYERS.json`
writes. Regions that compute the same, of the same extents, by the same tactic are one row: how many there are, the median of their times, and what all take together.

The limits are those of bytes (inputs, outputs and weights once each, over --memory) and of products (over --tops, int8, half of it for float16). The time of a region run alone holds a
start and a wait; --start is taken off each. Defaults: 2,800 GB/s and 1,294 TOPS, what an H100 was seen to copy and what mma.sync reaches from registers; 2 us.

--beside needs PyTorch. For products of M x K with K x N: cuBLASLt in float16 (matmul) and in int8 (torch._int_mm: sums alone, nothing quantized), for attention cuDNN in float16
(scaled_dot_product_attention), each captured eight times in a CUDA graph whose replays are timed, so that no launch is in the time. They compute less than the region: no epilogue, no softmax
that is rounded. What a library refuses is "-"."""
import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile

SIZES = {"f32": 4, "f16": 2, "bf16": 2, "s32": 4, "s64": 8, "u8": 1, "s8": 1}


def size_of(tensor):
    kind = tensor["OctavoType"].split("[")[0]
    return math.prod(tensor["Dimensions"]) * SIZES.get(kind, 4)


def extents(text):
    return [int(n) for n in text.split(",")]


def products(layer):
    """[(what, batch, M, N, K)]: what a region multiplies, from its key."""
    key, found = layer.get("OctavoKey", ""), []
    matrices = re.findall(r"matmul (\S+?)\[([\d,]+)\]\S* (\S+?)\[([\d,]+)\]", key)
    if len(matrices) == 2 and "softmax" in key:  # attention: queries x features, features x keys
        left, right = extents(matrices[0][1]), extents(matrices[0][3])
        return [("attention", math.prod(left[:-2]), left[-2], right[-1], left[-1])]
    for _, a, _, b in matrices:
        left, right = extents(a), extents(b)
        found.append(("product", math.prod(left[:-2]), left[-2], right[-1], left[-1]))
    for part in key.split(" || "):
        conv = re.match(r"(?:conv|convolution)\b.*? \w+\[([\d,]+)\]\S* w \w+\[([\d,]+)\].* > \w+\[([\d,]+)\]", part)
        if conv:
            weights, out = extents(conv[2]), extents(conv[3])
            found.append(("product", 1, math.prod(out) // weights[0], weights[0], math.prod(weights[1:])))
    if len(found) > 1 and len({p[2:3] + p[4:] for p in found}) == 1:  # side by side: one product
        found = [(*found[0][:3], sum(p[3] for p in found), found[0][4])]
    return found


def rows_of(profile, layers):
    """Regions that are the same, in the order of the network: {key: [layer, [microseconds]]}."""
    times = {p["name"]: p["medianMs"] * 1000 for p in profile if "name" in p}
    rows = {}
    for layer in layers["Layers"]:
        us = times.get(layer["Name"])
        if us is None or "transfer" in layer.get("TacticName", ""):
            continue
        rows.setdefault((layer.get("OctavoKey", layer["Name"]).split(" : ")[0] + str([t["Dimensions"] for t in layer["Outputs"]]), layer["TacticName"]), [layer, []])[1].append(us)
    return list(rows.values())


class Beside:
    """Microseconds of PyTorch's libraries; every question is asked once."""

    def __init__(self):
        self.known = {}

    def us(self, library, what, batch, m, n, k):
        key = (library, what, batch, m, n, k)
        if key not in self.known:
            try:
                self.known[key] = self.measure(*key)
            except RuntimeError as error:  # an extent that the library refuses
                print(f"{library} {what} {batch} x {m} x {n} x {k}: {str(error).splitlines()[0]}", file=sys.stderr)
                self.known[key] = None
        return self.known[key]

    def measure(self, library, what, batch, m, n, k):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        half = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16)
        if what == "attention":
            if library != "float16":
                return None
            q, x, v = half(1, batch, m, k), half(1, batch, n, k), half(1, batch, n, k)
            run = lambda: torch.nn.functional.scaled_dot_product_attention(q, x, v)
        elif library == "int8":
            if batch != 1:
                return None
            a = torch.randint(-127, 127, (m, k), device="cuda", dtype=torch.int8)
            b = torch.randint(-127, 127, (n, k), device="cuda", dtype=torch.int8).t()
            run = lambda: torch._int_mm(a, b)
        else:
            a, b = half(batch, m, k), half(batch, n, k).transpose(1, 2)
            run = (lambda: torch.bmm(a, b)) if batch > 1 else (lambda a=a[0], b=b[0]: torch.mm(a, b))
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            for _ in range(3):
                run()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(8):
                    run()
        times = []
        for _ in range(12):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / 8)
        return statistics.median(times[2:])


def measured(args):
    """Profile and layers of a model."""
    with tempfile.TemporaryDirectory() as folder:
        words = [args.octavo, "bench", args.files[0], "--device", "cuda", "--effort", args.effort, "--allow", args.allow, "--timing-cache", "none", "--noDataTransfers",
                 "--exportProfile", f"{folder}/profile.json", "--exportLayerInfo", f"{folder}/layers.json"]
        run = subprocess.run(words, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{' '.join(words)}: exit status {run.returncode}\n{run.stderr[-2000:]}")
        print("\n".join(line for line in run.stdout.splitlines() if "median" in line and "ms" in line).strip(), end="\n\n")
        return json.load(open(f"{folder}/profile.json")), json.load(open(f"{folder}/layers.json"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--octavo", default="octavo")
    parser.add_argument("--allow", default="int8,float32,float16")
    parser.add_argument("--effort", default="1")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--start", type=float, default=2)
    parser.add_argument("--memory", type=float, default=2800)
    parser.add_argument("--tops", type=float, default=1294)
    parser.add_argument("--top", type=int, default=0, help="only so many rows, those that take longest together first")
    args = parser.parse_args()
    if len(args.files) > 2:
        parser.error("one model, or a profile and layers")
    profile, layers = measured(args) if len(args.files) == 1 else [json.load(open(f)) for f in args.files]
    beside, rows = Beside() if args.beside else None, []
    for layer, times in rows_of(profile, layers):
        us = max(statistics.median(times) - args.start, 0.5)
        found = products(layer)
        weights = max(layer["Weights"]["Count"], sum(n * k for *_, n, k in found)) if "Weights" in layer else 0
        moved = sum(size_of(t) for t in layer["Inputs"] + layer["Outputs"]) + weights
        macs = sum(b * m * n * k * (2 if what == "attention" else 1) for what, b, m, n, k in found)
        rate = args.tops * (1 if layer.get("OctavoPrecision") == "int8" else 0.5)
        of_bytes, of_products = moved / args.memory / 1e3, 2 * macs / rate / 1e6
        libraries = [sum(v) if (v := [beside.us(library, *p) for p in found]) and None not in v else None for library in ("float16", "int8")] if beside else []
        rows.append((us * len(times), layer["Name"], layer["TacticName"], len(times), us, "; ".join("x".join(map(str, p[1 if p[1] > 1 else 2:])) for p in found), of_bytes,
                     of_products, libraries))
    total = sum(r[0] for r in rows)
    if args.top:
        rows = sorted(rows, key=lambda r: -r[0])[: args.top]
    cell = lambda v: "-" if v is None else f"{v:.1f}"
    more = ["library, float16", "library, int8"] if beside else []
    print("| region | tactic | batch x M x N x K | times | us | of bytes, us | of products, us | limit ÷ time | " + "".join(f"{h} | " for h in more) + "together, us |")
    print("|---|---|---|---:|---:|---:|---:|---:|" + "---:|" * (len(more) + 1))
    for together, name, tactic, count, us, shape, of_bytes, of_products, libraries in rows:
        print(f"| {name.split(' + ')[0].split(' | ')[0]} | {tactic.split('{')[0].removeprefix('cuda.')} | {shape} | {count} | {us:.1f} | {of_bytes:.1f} | {of_products:.1f} | "
              f"{max(of_bytes, of_products) / us:.0%} | " + "".join(f"{cell(v)} | " for v in libraries) + f"{together:.0f} |")
    print(f"\nall regions, one after the other: {total:.0f} us")


if __name__ == "__main__":
    main()
