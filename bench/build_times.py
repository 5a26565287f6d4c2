"""How long default builds take, with an empty timing cache and with the full one that this leaves, and how much memory they need, for every
model of the test data, the benchmark networks and some large images. Wall times count what else the machine does; processor times less so.

usage: build_times.py measure OUT.json [--octavo PROGRAM] [--models FOLDER] [--only TEXT,TEXT] [--threads N] [--limit SECONDS] [--record NAME]
       build_times.py table BEFORE.json AFTER.json
"""
import argparse
import json
import lzma
import os
import pathlib
import signal
import subprocess
import time

import counterparts
import figures
import networks

TITLE = "builds with an empty and a full timing cache"


def with_size(source, path, sizes):
    """The model with other input sizes; made once."""
    import onnx

    if not path.exists():
        model = onnx.load(source)
        for value in model.graph.input:
            for dim, size in zip(value.type.tensor_type.shape.dim, sizes.get(value.name, [])):
                dim.Clear()
                dim.dim_value = size
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        onnx.save(model, path)
    return path


def normalized_unet(path, height=1024, width=256):
    """A U-Net with InstanceNormalization behind every convolution, of seeded weights; made once."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    if path.exists():
        return path
    rng = np.random.default_rng(17)
    nodes, constants = [], []

    def constant(array):
        constants.append(numpy_helper.from_array(array.astype("float32"), f"c{len(constants)}"))
        return constants[-1].name

    def op(kind, inputs, **attributes):
        nodes.append(helper.make_node(kind, inputs, [f"t{len(nodes)}"], name=f"n{len(nodes)}_{kind}", **attributes))
        return nodes[-1].output[0]

    def conv(x, before, after):
        weights = constant(rng.standard_normal((after, before, 3, 3)) / (3 * before**0.5))
        x = op("Conv", [x, weights, constant(np.zeros(after))], pads=[1, 1, 1, 1])
        x = op("InstanceNormalization", [x, constant(np.ones(after)), constant(np.zeros(after))])
        return op("LeakyRelu", [x], alpha=0.1)

    x, before, kept = "image", 3, []
    for after in (32, 64, 128, 256):
        x = conv(conv(x, before, after), after, after)
        before = after
        if after < 256:
            kept.append((x, after))
            x = op("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    for skip, after in reversed(kept):
        x = op("ConvTranspose", [x, constant(rng.standard_normal((before, after, 2, 2)) / before**0.5)], strides=[2, 2])
        x = conv(conv(op("Concat", [x, skip], axis=1), 2 * after, after), after, after)
        before = after
    x = op("Conv", [x, constant(rng.standard_normal((4, before, 1, 1)) / before**0.5)])
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "unet_in", [value("image", [1, 3, height, width])], [value(x, [1, 4, height, width])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def dynamic_model(source, path):
    """A float model in dynamic int8, as ONNX Runtime's tool makes it; made once."""
    if not path.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(source, path, weight_type=QuantType.QUInt8)
    return path


def wanted(args, name):
    return any(text in name for text in args.only)


def models(args):
    """(name, file, --shapes) of everything that is built."""
    folder = counterparts.DATA / "models"
    out = []
    for file in sorted(folder.glob("*.onnx*")):
        name = file.name.split(".")[0]
        if not wanted(args, name) and name != "mobilenetv2_op17_fp32":  # of which the dynamic one is made
            continue
        if name in ("faststyle_candy",):  # refused by name: it has operators of before opset 7
            continue
        if file.suffix == ".xz":
            plain = args.models / file.stem
            if not plain.exists():
                plain.write_bytes(lzma.open(file).read())
            file = plain
        out.append((name, file, "x:1x3x320x320" if name == "ppocrv3_det_op14" else ""))
    for net in networks.ZOO:
        if not wanted(args, f"{net} float") and not wanted(args, f"{net} outputs"):
            continue
        networks.make_zoo(args, [net])
        size = {"unet": 256, "yolov8n": 640}.get(net, 224)
        shape = f"input:1x3x{size}x{size}"
        out.append((f"{net} float", args.models / f"{net}.onnx", shape))
        out.append((f"{net} outputs", networks.placed_model(args, net, "outputs"), shape))
    out.append(("ppocrv3_det 1088x1920", folder / "ppocrv3_det_op14.onnx", "x:1x3x1088x1920"))
    out.append(("unet_small 1088x1920",
                with_size(folder / "unet_small.onnx", args.models / "unet_small.1080p.onnx", {"input": [1, 1, 1088, 1920]}), ""))
    out.append(("unet with InstanceNormalization 1024x256", normalized_unet(args.models / "unet_in.onnx"), ""))
    if wanted(args, "mobilenetv2 dynamic int8"):
        out.append(("mobilenetv2 dynamic int8", dynamic_model(args.models / "mobilenetv2_op17_fp32.onnx", args.models / "mobilenetv2.dynamic.onnx"), ""))
    return [m for m in out if wanted(args, m[0])]


def resident_peak(pid):
    """The most memory that the process has had, in MB; its rusage would begin with that of this interpreter."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # just gone
        return 0.0
    return next((float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM")), 0.0)


def build(args, file, shapes, cache):
    """{wall, cpu, peak in MB} of a process that builds an engine, or {failed}."""
    words = [args.octavo, "build", file, "-o", args.models / "build_times.octavo", "--timing-cache", cache, "--threads", args.threads]
    words += ["--shapes", shapes] if shapes else []
    start, peak = time.monotonic(), 0.0
    with open(args.models / "build_times.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([str(w) for w in words], stdout=log, stderr=log, start_new_session=True)
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, resident_peak(process.pid))
            if time.monotonic() - start > args.limit:
                os.killpg(process.pid, signal.SIGKILL)
                os.wait4(process.pid, 0)
                return {"failed": f"more than {args.limit} s"}
            time.sleep(0.02)
    process.returncode = status
    whole = used.ru_maxrss / 1e3  # to the end, which polling misses on a loaded machine; the interpreter's own where the build needs less
    if whole > 1.1 * resident_peak(os.getpid()):
        peak = max(peak, whole)
    if status != 0:
        return {"failed": (args.models / "build_times.log").read_text(encoding="utf-8").strip().splitlines()[-1]}
    text = (args.models / "build_times.log").read_text(encoding="utf-8")
    plan = next((line.split("plan ")[1] for line in text.splitlines() if ", plan " in line), "")
    return {"wall": time.monotonic() - start, "cpu": used.ru_utime + used.ru_stime, "peak": peak, "plan": plan}


def measure(args):
    found = {"machine": counterparts.machine(), "threads": args.threads, "models": {}}
    figures.claim(found, args.octavo)
    for name, file, shapes in models(args):
        cache = args.models / "build_times.cache"
        cache.unlink(missing_ok=True)
        empty = build(args, file, shapes, cache)
        full = build(args, file, shapes, cache) if "wall" in empty else {}
        found["models"][name] = {"empty": empty, "full": full, "file": pathlib.Path(file).stat().st_size / 1e6}
        print(name, found["models"][name], flush=True)
        args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if args.record:
        figures.save(figures.record(found, *recorded(found)), args.record)


def recorded(found):
    """(tables, steady, views) for figures.record: each build once, so no interval."""
    columns = {"wall": ("empty", "wall", "empty cache, s"), "cpu": ("empty", "cpu", "of processors"), "again": ("full", "wall", "full cache, s"),
               "again cpu": ("full", "cpu", "of processors"), "peak": ("empty", "peak", "peak memory, MB")}
    rows = {name: {key: [m[which][what]] for key, (which, what, _) in columns.items() if what in m[which]} for name, m in found["models"].items()}
    facts = {name: {"file": f"{m['file']:.1f}", **({"wall": m["empty"]["failed"]} if "failed" in m["empty"] else {})} for name, m in found["models"].items()}
    view = {"columns": [*([key, text] for key, (_, _, text) in columns.items()), ["file", "model file, MB"]], "facts": facts,
            "digits": {"peak": 0, "wall": 2, "cpu": 2, "again": 2, "again cpu": 2}, "note": f"{found['threads']} threads, effort 2"}
    return {TITLE: rows}, None, {TITLE: view}


def table(args):
    before, after = (json.loads(f.read_text(encoding="utf-8")) for f in (args.before, args.after))
    print(f"{after['machine']}, {after['threads']} threads, effort 2. Seconds of wall time (of processors).\n")
    print("| model | empty cache: before | after | full cache: before | after | peak memory, MB: before | after | model file, MB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")

    def seconds(of):
        return f"{of['wall']:.1f} ({of['cpu']:.1f})" if "wall" in of else of.get("failed", "")

    peak = lambda m: f"{m['empty']['peak']:.0f}" if "peak" in m["empty"] else ""
    for name, new in after["models"].items():
        old = before["models"].get(name, {"empty": {}, "full": {}})
        cells = [name, seconds(old["empty"]), seconds(new["empty"]), seconds(old["full"]), seconds(new["full"]), peak(old), peak(new), f"{new['file']:.1f}"]
        print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("out", type=pathlib.Path)
    one.add_argument("--octavo", default=counterparts.octavo_command())
    one.add_argument("--models", type=pathlib.Path, default=counterparts.ROOT / "build/bench_models")
    one.add_argument("--only", type=lambda t: t.split(","), default=[""], help="models whose name contains one of these")
    figures.add_option(one)
    one.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    one.add_argument("--limit", type=float, default=300)
    one.set_defaults(run=measure)
    two = commands.add_parser("table")
    two.add_argument("before", type=pathlib.Path)
    two.add_argument("after", type=pathlib.Path)
    two.set_defaults(run=table)
    args = parser.parse_args()
    if args.run is measure:
        args.models.mkdir(parents=True, exist_ok=True)
    args.run(args)


if __name__ == "__main__":
    main()
