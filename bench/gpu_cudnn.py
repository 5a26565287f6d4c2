#!/usr/bin/env python3
"""cuDNN's int8 convolutions of a network's shapes: what a region of ours is to be compared with.

usage: gpu_cudnn.py [--batch 128] [--seconds 60] [--plans 12] [--net resnet50|unet]
Needs PyTorch (CUDA) and nvidia-cudnn-frontend. The execution plans that cuDNN's heuristics put first are timed (median of 3 times 20 starts, inputs
in turns so that they do not stay in L2), the best is shown:
"int8": the sums times a scale a channel, Relu, stored as int8 (what a region of ours computes without an addition); "plain": the sums stored as int8
by saturation alone. NHWC, s8 times s8 (cuDNN has no u8 activations). cuDNN has no zero points, residual operands of another scale, or exact rounding.
"""
import argparse
import time

import cudnn
import torch

SHAPES = {  # channels, height, filters, kernel, stride: each kind of layer once
    "resnet50": [(64, 56, 64, 1, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (64, 56, 64, 3, 1), (256, 56, 128, 1, 1), (128, 56, 128, 3, 2),
                 (128, 28, 512, 1, 1), (512, 28, 128, 1, 1), (128, 28, 128, 3, 1), (512, 28, 256, 1, 1), (256, 28, 256, 3, 2), (256, 14, 1024, 1, 1),
                 (1024, 14, 256, 1, 1), (256, 14, 256, 3, 1), (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1),
                 (2048, 7, 512, 1, 1), (512, 7, 512, 3, 1)],
    "unet": [(32, 256, 32, 3, 1), (64, 256, 32, 3, 1), (64, 128, 64, 3, 1), (128, 128, 64, 3, 1), (128, 64, 128, 3, 1), (256, 64, 128, 3, 1),
             (256, 32, 256, 3, 1), (512, 32, 256, 3, 1)],
}


def microseconds(handle, batch, shape, scaled, most):
    channels, height, filters, kernel, stride = shape
    pad = kernel // 2
    out = (height + 2 * pad - kernel) // stride + 1
    int8, int32, float32 = cudnn.data_type.INT8, cudnn.data_type.INT32, cudnn.data_type.FLOAT

    def nhwc(*dims, dtype=torch.int8):
        t = torch.randint(-128, 127, dims, dtype=torch.int8, device="cuda").to(dtype)
        return t.contiguous(memory_format=torch.channels_last)

    graph = cudnn.pygraph(handle=handle, io_data_type=int8, intermediate_data_type=float32, compute_data_type=int32)

    def tensor(name, t, kind):
        return graph.tensor(name=name, dim=list(t.shape), stride=list(t.stride()), data_type=kind)

    x, w, y = nhwc(batch, channels, height, height), nhwc(filters, channels, kernel, kernel), nhwc(batch, filters, out, out)
    scale = nhwc(1, filters, 1, 1, dtype=torch.float32)
    pack = {tensor("x", x, int8): x, tensor("w", w, int8): w}
    result = graph.conv_fprop(*pack, padding=[pad, pad], stride=[stride, stride], dilation=[1, 1], compute_data_type=int32)
    if scaled:
        result.set_data_type(float32)
        by = tensor("scale", scale, float32)
        pack[by] = scale
        result = graph.mul(a=result, b=by, compute_data_type=float32)
        result.set_data_type(float32)
        result = graph.relu(input=result, compute_data_type=float32)
    result.set_output(True).set_data_type(int8)
    result.set_dim(list(y.shape))
    result.set_stride(list(y.stride()))
    pack[result] = y
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    best = float("inf")
    copies = [{key: t.clone() for key, t in pack.items()} for _ in range(max(1, min(8, 150_000_000 // (x.numel() + y.numel()))))]
    for plan in range(min(graph.get_execution_plan_count(), most)):
        try:
            graph.build_plan_at_index(plan)
            space = torch.empty(max(graph.get_workspace_size_plan_at_index(plan), 1), device="cuda", dtype=torch.uint8)
            times = []
            for turn in range(4):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for i in range(20):
                    graph.execute_plan_at_index(copies[i % len(copies)], space, plan, handle=handle)
                end.record()
                end.synchronize()
                times += [begin.elapsed_time(end) / 20 * 1e3] if turn else []
            best = min(best, sorted(times)[1])
        except Exception:  # noqa: S112, a plan that does not run after all
            continue
    if best == float("inf"):
        raise cudnn.cudnnGraphNotSupportedError("no plan runs")
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--net", choices=SHAPES, default="resnet50")
    args = parser.parse_args()
    handle = cudnn.create_handle()
    print(f"cuDNN {cudnn.backend_version()}, batch {args.batch}\n| layer | int8, us | plain, us |\n|---|---|---|")
    began = time.time()
    for shape in SHAPES[args.net]:
        if time.time() - began > args.seconds:
            print(f"| {shape} | no time | no time |")
            continue
        cells = []
        for scaled in (True, False):
            try:
                cells.append(f"{microseconds(handle, args.batch, shape, scaled, args.plans):.1f}")
            except cudnn.cudnnGraphNotSupportedError:
                cells.append("not supported")
        c, h, f, k, s = shape
        print(f"| {k}x{k}/{s} {c} → {f}, {h}² | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
