#!/usr/bin/env python3
"""Attention alone in float16, heads of 64, 1,024 to 16,384 keys: Octavo's kernel beside cuDNN and FlashAttention as PyTorch calls them, in turns. Needs a GPU and PyTorch.

usage: gpu_attention.py OCTAVO_GPU_ATTENTION [--rounds 6] [--octavo COMMAND --record NAME]
OCTAVO_GPU_ATTENTION is the program of tests/cuda/gpu/attention_bench.cc. Of Octavo the tile that is fastest in a first run; times are of the kernel alone, by events, with
operands in memory. TFLOPS count both products. --record needs the command that the record is to name, built from the same sources."""
import argparse
import statistics
import subprocess
import sys

import figures

TITLE = "attention alone"
ROWS = {"head 64, 1k keys": (16, 16, 1024), "head 64, 4k keys": (4, 16, 4096), "head 64, 16k keys": (1, 16, 16384)}
VIEW = {"columns": [["cudnn", "cuDNN, ms"], ["flash", "FlashAttention, ms"], ["octavo", "Octavo, ms"], ["ratio", "cuDNN ÷ Octavo"]],
        "ratios": {"ratio": {"of": ["cudnn"], "over": "octavo"}}}


class Torch:
    def __init__(self, batch, heads, keys):
        import torch

        self.operands = [torch.randn(batch, heads, keys, 64, device="cuda", dtype=torch.float16) for _ in range(3)]

    def ms(self, name):
        """The median of 20 runs behind 5. Nothing where PyTorch has no such backend here."""
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        run = lambda: torch.nn.functional.scaled_dot_product_attention(*self.operands)
        times = []
        with sdpa_kernel({"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[name]):
            for i in range(25):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                run()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
        return statistics.median(times[5:])


def measure(program, row, rounds):
    """{engine: [milliseconds of each round]}, and Octavo's tile."""
    batch, heads, keys = ROWS[row]
    torch = Torch(batch, heads, keys)
    with subprocess.Popen([program, "serve", row], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as octavo:
        first = ""
        while not first[:1].isdigit():  # behind what it says of the GPU
            first = octavo.stdout.readline()
            if not first:
                sys.exit(f"{program} serve {row!r} ends: exit status {octavo.wait()}")
        times = {"octavo": [], "cudnn": [], "flash": []}
        for _ in range(rounds):
            octavo.stdin.write("\n")
            octavo.stdin.flush()
            times["octavo"].append(float(octavo.stdout.readline()))
            for engine in ("cudnn", "flash"):
                times[engine].append(torch.ms(engine))
        octavo.stdin.close()
    return times, first.split(" ", 1)[1].strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=figures.LEAST_ROUNDS)
    parser.add_argument("--octavo", help="the command that --record names")
    figures.add_option(parser)
    args = parser.parse_args()
    if args.record and not args.octavo:
        parser.error("--record needs --octavo")
    import torch

    table = {}
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    for row, (batch, heads, keys) in ROWS.items():
        times, tile = measure(args.program, row, args.rounds)
        table[row] = times
        rate = {k: 4 * batch * heads * keys * keys * 64 / statistics.median(v) / 1e9 for k, v in times.items()}
        words = ", ".join(f"{k} {statistics.median(v) * 1000:.1f} us ({rate[k]:.0f} TFLOPS)" for k, v in times.items())
        print(f"{row}: {words}; Octavo at {100 * rate['octavo'] / rate['cudnn']:.0f} % of cuDNN's rate, {tile}", flush=True)
    if args.record:
        results = {}
        figures.claim(results, args.octavo, torch.cuda.get_device_name())
        figures.save(figures.record(results, {TITLE: table}, views={TITLE: VIEW}), args.record)


if __name__ == "__main__":
    main()
