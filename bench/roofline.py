"""How fast an 8-bit network could run: multiplications and bytes of its operators, from an ONNX file's shapes.

A kernel is a convolution or matrix product with everything pointwise behind it, or another operator that has to move data. Codes are one
byte. `ideal` counts multiplications alone, at the measured peak; `tuned` is what a good engine reaches: dense kernels at 90 % of the
peak and depthwise ones at 19 % (their sums have 9 terms, a dot instruction takes 4 times as many), never faster than the bytes come from
the last-level cache, plus 0.3 us a kernel.

usage: roofline.py MODEL.onnx... [--peak GMAC/s] [--batch N]
"""
import argparse
import collections
import math

DENSE, DEPTHWISE, CACHE_BYTES, START = 0.9, 0.19, 124e9, 0.3e-6
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
MOVES = ("MaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Upsample")  # not absorbed; Concat and Split are views

Kernel = collections.namedtuple("Kernel", "name op macs bytes depthwise")


def shapes_of(model, batch, given):
    """{tensor: dimensions}; inputs have the shapes that `given` has for them, or their open dimensions become `batch`."""
    import onnx

    model = onnx.ModelProto.FromString(model.SerializeToString())
    constants = {t.name for t in model.graph.initializer}
    for value in model.graph.input:
        for i, dim in enumerate(value.type.tensor_type.shape.dim if value.name not in constants else []):
            if value.name in given or dim.dim_value <= 0:
                dim.dim_value = given[value.name][i] if value.name in given else batch
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    found = {t.name: list(t.dims) for t in model.graph.initializer}
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    for value in [*graph.input, *graph.value_info, *graph.output]:
        if value.type.tensor_type.HasField("shape"):
            found[value.name] = [d.dim_value for d in value.type.tensor_type.shape.dim]
    return found


def kernels_of(model, batch=1, given=None):
    """The kernels of a float or Q/DQ model. Raises ValueError for a product whose shapes cannot be inferred."""
    shapes = shapes_of(model, batch, given or {})
    producer = {o: n for n in model.graph.node for o in n.output}
    found = []

    def size(name):
        return math.prod(shapes.get(name, [0]))

    for node in model.graph.node:
        if node.op_type not in (*PRODUCTS, *MOVES):
            continue
        x, y = node.input[0], node.output[0]
        if y not in shapes or 0 in shapes[y]:
            raise ValueError(f'"{node.name}" ({node.op_type}): its output shape cannot be inferred')
        moved, macs, depthwise = size(x) + size(y), 0, False
        if node.op_type in PRODUCTS:
            w = node.input[1]
            while w not in shapes and w in producer:
                w = producer[w].input[0]
            dims = shapes[w]
            moved += math.prod(dims)
            if node.op_type == "Conv":
                macs = size(y) * math.prod(dims[1:])
                depthwise = dims[1] == 1 and dims[0] > 1 and shapes[x][1] > 1
            elif node.op_type == "ConvTranspose":
                macs = size(x) * math.prod(dims[1:])
            else:
                macs = size(y) * shapes[x][0 if any(a.name == "transA" and a.i for a in node.attribute) else -1]
        found.append(Kernel(node.name or y, node.op_type, macs, moved, depthwise))
    return found


def bounds(kernels, peak):
    """{"gmac", "ideal", "tuned"}: seconds at a peak in MAC/s."""
    tuned = sum(max(k.macs / (peak * (DEPTHWISE if k.depthwise else DENSE)), k.bytes / CACHE_BYTES) + START for k in kernels)
    macs = sum(k.macs for k in kernels)
    return {"gmac": macs / 1e9, "ideal": macs / peak, "tuned": tuned}


def main():
    import onnx

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peak", type=float, default=574, help="GMAC/s; see octavo_layer_bench --peak")
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    for path in args.models:
        kernels = kernels_of(onnx.load(path), args.batch)
        b = bounds(kernels, args.peak * 1e9)
        print(f"{path}: {len(kernels)} kernels, {b['gmac']:.3f} GMAC ({sum(k.macs for k in kernels if k.depthwise) / 1e9:.3f} depthwise), "
              f"{sum(k.bytes for k in kernels) / 1e6:.1f} MB; ideal {b['ideal'] * 1e3:.3f} ms ({args.batch / b['ideal']:.0f}/s), "
              f"tuned {b['tuned'] * 1e3:.3f} ms ({args.batch / b['tuned']:.0f}/s)")


if __name__ == "__main__":
    main()
