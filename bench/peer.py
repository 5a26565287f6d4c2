"""One process of another engine: builds a model, runs it, prints one line of JSON (median, time to build and to the first run, memory).

Inputs are bound once and outputs left where the engine puts them, so that little of Python is in the times. `memory_kb` is how far the
process grew at its peak from just before the model was read.

usage: peer.py ort|openvino MODEL.onnx [-t THREADS] [-b BATCH] [-s SECONDS] [--runs N] [--precision f32|bf16] [--plain] [--inputs IN.npz] [--outputs OUT.npz]
"""
import argparse
import json
import pathlib
import re
import statistics
import time

NAMES = {"octavo": "Octavo", "ort": "ONNX Runtime", "openvino": "OpenVINO"}
TYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 10: "float16"}


def inputs_of(path, batch, shapes=None):
    """Random arrays for the model's inputs; an open first dimension becomes `batch`; others are an error unless `shapes` has them."""
    import numpy as np
    import onnx

    graph, rng, feeds = onnx.load(path, load_external_data=False).graph, np.random.default_rng(0), {}
    constants = {t.name for t in graph.initializer}
    for value in graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = (shapes or {}).get(value.name) or [d.dim_value or (batch if i == 0 else 0) for i, d in enumerate(tensor.shape.dim)]
        if 0 in shape:
            raise SystemExit(f'error: {path}: input "{value.name}" has open dimensions; bind them first')
        feeds[value.name] = rng.standard_normal(shape).astype(TYPES[tensor.elem_type])
    return feeds


def open_ort(path, threads, feeds, precision=None, plain=False):
    """(run, outputs): ONNX Runtime; `plain`: the graph as it is written."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if precision == "bf16":
        raise SystemExit("error: ONNX Runtime has no bfloat16 mode for float models on x86")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    names = [o.name for o in session.get_outputs()]
    for name in names:
        binding.bind_output(name, "cpu")
    return lambda: session.run_with_iobinding(binding), lambda: dict(zip(names, binding.copy_outputs_to_cpu()))


def open_openvino(path, threads, feeds, precision=None, plain=False):
    """(run, outputs): OpenVINO's CPU plugin for one request at a time."""
    import openvino as ov

    core = ov.Core()
    model = core.read_model(str(path))
    if plain:
        raise SystemExit("error: OpenVINO always optimizes")
    shapes = {name: list(array.shape) for name, array in feeds.items()}
    if any(i.partial_shape.is_dynamic or list(i.shape) != shapes[next(n for n in shapes if n in i.names)] for i in model.inputs):
        model.reshape(shapes)
    names = [sorted(o.names)[0] for o in model.outputs]
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision:
        config["INFERENCE_PRECISION_HINT"] = precision
    if precision == "f32":  # its default would quantize the activations of products with 8-bit weights
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"
    request = core.compile_model(model, "CPU", config).create_infer_request()
    kept = [ov.Tensor(array, shared_memory=True) for array in feeds.values()]
    for name, tensor in zip(feeds, kept):
        request.set_tensor(name, tensor)

    def run():
        request.start_async()
        request.wait()

    return run, lambda: {name: request.get_output_tensor(i).data.copy() for i, name in enumerate(names)}


OPEN = {"ort": open_ort, "openvino": open_openvino}


def memory(what):
    """KiB: VmRSS, now, or VmHWM, at most so far."""
    return int(re.search(rf"{what}:\s+(\d+)", pathlib.Path("/proc/self/status").read_text(encoding="ascii"))[1])


def measure(run, seconds, least=5):
    """Milliseconds of at least `least` runs: the median, the fastest, the mean processor time, and what one of 100 runs takes longer than."""
    end = time.perf_counter() + seconds / 10
    while time.perf_counter() < end:
        run()
    times, end, busy = [], time.perf_counter() + seconds, time.process_time()
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    processor = (time.process_time() - busy) / len(times)
    times.sort()
    return statistics.median(times) * 1e3, times[0] * 1e3, processor * 1e3, times[min(len(times) - 1, int(len(times) * 0.99))] * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=OPEN)
    parser.add_argument("model")
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("-b", "--batch", type=int, default=1)
    parser.add_argument("-s", "--seconds", type=float, default=2)
    parser.add_argument("--runs", type=int, default=5, help="at least so many")
    parser.add_argument("--precision", choices=["f32", "bf16"])
    parser.add_argument("--plain", action="store_true", help="without the engine's graph optimizations")
    parser.add_argument("--inputs", type=pathlib.Path)
    parser.add_argument("--outputs", type=pathlib.Path)
    args = parser.parse_args()
    import numpy as np

    feeds = dict(np.load(args.inputs)) if args.inputs else inputs_of(args.model, args.batch)
    __import__({"ort": "onnxruntime"}.get(args.peer, args.peer))
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak so far is forgotten
    except OSError:
        pass
    before, start = memory("VmRSS"), time.perf_counter()
    run, outputs = OPEN[args.peer](args.model, args.threads, feeds, args.precision, args.plain)
    built = time.perf_counter()
    run()
    first = time.perf_counter()
    result = {"build_ms": (built - start) * 1e3, "first_ms": (first - built) * 1e3}
    if args.seconds > 0:
        result["median_ms"], result["min_ms"], result["processor_ms"], result["p99_ms"] = measure(run, args.seconds, args.runs)
    result["memory_kb"] = memory("VmHWM") - before
    if args.outputs:
        np.savez(args.outputs, **outputs())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
