"""How the scripts about GPUs time PyTorch."""
import statistics


def median_ms(run, x):
    """Milliseconds of run(x) by events of the GPU: the median of 40 runs behind 8."""
    import torch

    for _ in range(8):
        run(x)
    torch.cuda.synchronize()
    times = []
    for _ in range(40):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run(x)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)
