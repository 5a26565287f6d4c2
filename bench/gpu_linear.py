"""Linear layers of float16 on a GPU, one by one: the best kernel of each family of Octavo beside cuBLASLt as PyTorch calls it. Needs a GPU and PyTorch.

usage: gpu_linear.py OCTAVO_GPU_LINEAR [--tiles N] [--only NAME] [--library DIR]
OCTAVO_GPU_LINEAR is the program of tests/cuda/gpu/linear_bench.cc; --library: a folder of libraries for it.

cuBLASLt computes the product and the bias (addmm), for "residual" too; GELU and the residual are what PyTorch's compiler makes of them, a kernel of its own. So "alone" is
the product, "all" everything that Octavo's one kernel does. Weights and inputs lie in the L2 cache where they fit, for both."""
import argparse
import os
import re
import subprocess
import sys


def torch_times(rows, depth, columns, style):
    """Microseconds of the product with its bias, and of all that the style says."""
    import torch

    x = torch.rand(rows, depth, device="cuda", dtype=torch.float16) * 2 - 1
    layer = torch.nn.Linear(depth, columns).cuda().half()
    residual = torch.rand(rows, columns, device="cuda", dtype=torch.float16)

    def run(f):
        with torch.no_grad():
            for _ in range(3):
                f()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(16):
                    f()
            times = []
            for _ in range(7):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end))
        return sorted(times[2:])[2] * 1000 / 16

    def whole():
        y = layer(x)
        if style == "gelu":
            return torch.nn.functional.gelu(y)
        return y + residual if style == "residual" else y

    alone = run(lambda: layer(x))
    return alone, run(torch.compile(whole, dynamic=False)) if style in ("gelu", "residual") else alone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--tiles", default="1000")
    parser.add_argument("--only", default="")
    parser.add_argument("--library", default="")
    args = parser.parse_args()
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{args.library}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    run = subprocess.run([args.program, "time", args.tiles, args.only], env=environment, capture_output=True, text=True)
    print(run.stdout + run.stderr, flush=True)
    layers, best = [], {}
    for line in run.stdout.splitlines():
        head = re.match(r"(\S.*): (f16|bf16) (\d+)x(\d+)x(\d+) image 1x1 .* (\w+)$", line)
        if head:
            layers.append((head[1], int(head[3]), int(head[4]), int(head[5]), head[6]))
        time = re.match(r"\s+([0-9.]+) us .* TFLOPS\s+(\S+)", line)
        if time and layers and not line.startswith("resnet"):
            best.setdefault((layers[-1][0], time[2]), float(time[1]))
    families = sorted({family for _, family in best})
    print(f"{'layer':14} {'rows x depth x columns':24} {'style':9} " + " ".join(f"{f:>18}" for f in families) + "  cuBLASLt alone, all; microseconds (TFLOPS)")
    for name, rows, depth, columns, style in layers:
        operations = 2 * rows * depth * columns * 1e-6  # times 1e6, over microseconds: TFLOPS
        try:
            alone, whole = torch_times(rows, depth, columns, style)
        except Exception as e:  # no PyTorch: the other columns stay
            print(f"{name}: PyTorch fails: {e}", file=sys.stderr)
            alone = whole = float("nan")

        def cell(t):
            return f"{t:9.2f} ({operations / t:5.0f})"

        ours = " ".join(f"{cell(best[name, f]) if (name, f) in best else '-':>18}" for f in families)
        print(f"{name:14} {f'{rows} x {depth} x {columns}':24} {style:9} {ours}  {cell(alone)} {cell(whole)}", flush=True)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
