"""Explicit models against their implicit twins: the parity table of the README and docs/parity.md.

For each network, placement style and thread count both are built with one timing cache. Equal plan hashes are the answer; otherwise pairs
of processes take turns, and the 95 % interval of the median ratio explicit / twin is shown. "implicit" compares the twin that has every
range with the fastest explicit style. Results are kept in parity.json beside the models, so that a run can be taken up again.

usage: parity.py [--nets A,B] [--styles A,B | --all-styles] [--threads 1,2] [--pairs 30] [--seconds 0.15] [--effort 2] [--write]
"""
import argparse
import json
import lzma
import pathlib
import subprocess
import sys

import twins

ZOO = ("resnet50", "mobilenet_v2", "yolov8n", "unet")
REAL = {  # file, input shapes where the model leaves them open
    "resnet20": ("resnet20_cifar10_fp32.onnx", {}),
    "resnet56": ("resnet56_cifar10_fp32.onnx", {}),
    "mobilenetv1_025": ("mobilenetv1_025_224_fp32.onnx", {}),
    "mobilenetv2": ("mobilenetv2_op17_fp32.onnx", {}),
    "squeezenet11": ("squeezenet11_fp16.onnx", {}),
    "yolox_nano": ("yolox_nano_416.onnx", {}),
    "nanodet_m": ("nanodet_m_416.onnx", {}),
    "ppocrv3_det": ("ppocrv3_det_op14.onnx", {"x": [1, 3, 320, 320]}),
}
STYLES = ("residual", "outputs", "conv-act", "everywhere")
MORE = ("inputs", "concat-in", "concat-out")
LIMIT = 1.02


def as_float32(model):
    """A float16 model with the same values in float32."""
    from onnx import TensorProto, numpy_helper

    half, single = TensorProto.FLOAT16, TensorProto.FLOAT
    for i, t in enumerate(model.graph.initializer):
        if t.data_type == half:
            model.graph.initializer[i].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype("float32"), t.name))
    for v in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if v.type.tensor_type.elem_type == half:
            v.type.tensor_type.elem_type = single
    for n in model.graph.node:
        for a in n.attribute:
            if n.op_type == "Cast" and a.name == "to" and a.i == half:
                a.i = single
            if a.HasField("t") and a.t.data_type == half:
                a.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(a.t).astype("float32"), a.t.name))


def float_model(args, net):
    """The float model with fixed shapes, in float32, opset 13 or later, constants as initializers; made once."""
    import onnx

    path = args.models / f"{net}.float.onnx"
    if path.exists():
        return path
    if net in ZOO:
        if not (args.models / f"{net}.onnx").exists():
            subprocess.run([sys.executable, twins.DATA / "bench/zoo.py", args.models], check=True, stdout=sys.stderr)
        model, shapes = onnx.load(args.models / f"{net}.onnx"), {}
    else:
        file, shapes = REAL[net]
        source = twins.DATA / "models" / file
        if source.exists():
            model = onnx.load(source)
        else:
            model = onnx.load_from_string(lzma.open(f"{source}.xz").read())
    as_float32(model)
    version = [o.version for o in model.opset_import if o.domain == ""][0]
    if version < 13:
        model = onnx.version_converter.convert_version(model, 13)
    constants = {t.name for t in model.graph.initializer}
    for value in model.graph.input:
        if value.name in constants:
            continue
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_value = shapes.get(value.name, [dim.dim_value or 1] * (i + 1))[i] or 1
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    for i, node in enumerate(model.graph.node):
        node.name = node.name or f"n{i}_{node.op_type}"
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, path)
    return path


def explicit_model(args, net, style):
    path = args.models / f"{net}.{style}.qdq.onnx"
    if not path.exists():
        twins.run([sys.executable, twins.DATA / "bench/placements.py", float_model(args, net), path, style, "--random", 1])
    return path


def table_of(args, net, style):
    import onnx

    path = args.models / f"{net}.{style}.table"
    if not path.exists():
        twins.write_table(path, twins.scales_of(onnx.load(explicit_model(args, net, style))))
    return path


def engines(args, net, style, threads):
    stem = args.models / f"{net}.{style}.t{threads}"
    a = twins.build(args, explicit_model(args, net, style), f"{stem}.explicit.octavo", threads)
    b = twins.build(args, float_model(args, net), f"{stem}.twin.octavo", threads, table_of(args, net, style))
    return a, b


def roundings(args, engine):
    """How many views and codes the regions' programs make: what a placement demands between the nodes of one region is more of them."""
    regions = json.loads(twins.run([args.octavo, "explain", engine, "--json"]))["regions"]
    return sum(r["reason"].split("epilogue in registers:")[-1].count(word) for r in regions if "epilogue in registers:" in r["reason"] for word in ("view", "quantize"))


def compare(args, a, b, threads):
    """The row of two engines; not timed when they are one plan."""
    first, second = twins.bench(args, a, threads, 0.05), twins.bench(args, b, threads, 0.05)
    row = {"explicit_hash": first["plan_hash"], "twin_hash": second["plan_hash"]}
    if first["plan_hash"] == second["plan_hash"]:
        return {**row, "same": True, "explicit_ms": twins.bench(args, a, threads, 1.0)["median_ms"]}
    x, y = twins.interleaved(args, a, b, threads)
    ratio, low, high = twins.interval(x, y)
    return {**row, "same": False, "pairs": args.pairs, "explicit_ms": sorted(x)[len(x) // 2], "twin_ms": sorted(y)[len(y) // 2],
            "ratio": ratio, "low": low, "high": high, "roundings": roundings(args, a) - roundings(args, b)}


def hobbled(args, net, threads, results):
    """The twin with every range against the fastest explicit style."""
    known = [(results[key]["explicit_ms"], style) for style in (*STYLES, *MORE) if "explicit_ms" in results.get(key := f"{net}/{style}/{threads}", {})]
    if not known:
        return None
    fastest = min(known)[1]
    fast = f"{args.models / net}.{fastest}.t{threads}.explicit.octavo"
    twin = f"{args.models / net}.everywhere.t{threads}.twin.octavo"
    if not pathlib.Path(fast).exists() or not pathlib.Path(twin).exists():
        return None
    row = compare(args, twin, fast, threads)  # "explicit" is here the twin, "twin" the fastest explicit style
    return {**row, "fastest": fastest}


def cell(row):
    if row is None:
        return ""
    if "error" in row:
        return "failed"
    if row["same"]:
        return f"same plan, {row['explicit_ms']:.2f} ms"
    more = row.get("roundings", 0)
    mark = "" if row["low"] <= LIMIT else f", {more} roundings more" if more > 0 else " **slower**"
    return f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]{mark}"


def table(args, results):
    lines = ["| network | threads | " + " | ".join(args.styles) + " | implicit ÷ fastest explicit |", "|---" * (len(args.styles) + 3) + "|"]
    for net in args.nets:
        for t in args.threads:
            cells = [cell(results.get(f"{net}/{s}/{t}")) for s in args.styles]
            if any(cells):
                last = results.get(f"{net}/implicit/{t}")
                lines.append(f"| {net} | {t} | " + " | ".join(cells) + f" | {cell(last)}{' (' + last['fastest'] + ')' if last and 'fastest' in last else ''} |")
    return "\n".join(lines)


TEXT = """# Explicit models against their implicit twins

Written by `bench/parity.py --write` on {machine}; effort {effort}. *same plan*: the Q/DQ model and its twin (the float model with a table
of the same scales) compile to plans of one hash; the time is a run's. A ratio is explicit ÷ twin, median of {pairs} pairs of processes that take
turns, and its 95 % interval; where the interval has no value up to {limit}, the cell says how many
roundings more the placement demands inside regions (the twin is the time without them; `octavo explain` names them), or *slower* when it demands none. The last column is the twin with every
range over the fastest explicit style.

"""


def write(args, results):
    text = table(args, results)
    (twins.ROOT / "docs/parity.md").write_text(
        TEXT.format(machine=twins.machine(), effort=args.effort, pairs=args.pairs, limit=LIMIT) + text + "\n", encoding="utf-8")
    readme = twins.ROOT / "README.md"
    begin, end = "<!-- parity:begin -->", "<!-- parity:end -->"
    content = readme.read_text(encoding="utf-8")
    if begin in content and end in content:
        head, rest = content.split(begin, 1)
        readme.write_text(head + begin + "\n" + text + "\n" + end + rest.split(end, 1)[1], encoding="utf-8")
    else:
        print(f"README.md has no {begin} ... {end}: only docs/parity.md was written", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    split = lambda text: text.split(",")
    parser.add_argument("--nets", type=split, default=[*ZOO, *REAL])
    parser.add_argument("--styles", type=split, default=list(STYLES))
    parser.add_argument("--all-styles", action="store_true", help="the other three placements as well")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--again", action="store_true", help="measure again what parity.json has already")
    twins.arguments(parser)
    args = parser.parse_args()
    args.styles += [s for s in MORE if args.all_styles and s not in args.styles]
    twins.finish(args)
    kept = args.models / "parity.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for t in args.threads:
        for net in args.nets:
            for style in [*args.styles, "implicit"]:
                key = f"{net}/{style}/{t}"
                if key in results and "error" not in results[key] and not args.again:
                    continue
                try:
                    row = hobbled(args, net, t, results) if style == "implicit" else compare(args, *engines(args, net, style, t), t)
                except (RuntimeError, ValueError) as error:
                    row = {"error": str(error)}
                    print(f"{key}: {error}", file=sys.stderr)
                if row is None:
                    continue
                results[key] = row
                print(f"{key}: {cell(row)}", flush=True)
                kept.write_text(json.dumps(results, indent=1, sort_keys=True))
    print(table(args, results))
    if args.write:
        write(args, results)
    sys.exit(any("error" in r for r in results.values()))


if __name__ == "__main__":
    main()
