"""The networks of the parity table: float models with fixed shapes, made once, and what each placement makes of them."""
import lzma
import pathlib
import subprocess
import sys

import counterparts

ZOO = ("resnet50", "mobilenet_v2", "yolov8n", "unet")  # seeded weights, made by bench/zoo.py of the shared folder
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
ALL = (*ZOO, *REAL)
STYLES = ("residual", "outputs", "conv-act", "everywhere")  # of the table
MORE = ("inputs", "concat-in", "concat-out")


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


def source(net):
    """(the file of a real model, as it is or compressed, its input shapes)"""
    file, shapes = REAL[net]
    path = counterparts.DATA / "models" / file
    return (path if path.exists() else path.with_name(path.name + ".xz")), shapes


def make_zoo(args, nets):
    """The models with seeded weights that are wanted and missing."""
    if any(n in ZOO and not (args.models / f"{n}.onnx").exists() for n in nets):
        args.models.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, counterparts.DATA / "bench/zoo.py", args.models], check=True, stdout=sys.stderr)


def placed_model(args, net, style):
    """A network with seeded weights, its batch open, with Q/DQ pairs in a style; made once."""
    path = args.models / f"{net}.{style}.onnx"
    make_zoo(args, [net])
    if not path.exists():
        part = path.with_name(path.name + ".part")
        counterparts.run([sys.executable, pathlib.Path(__file__).with_name("place.py"), args.models / f"{net}.zoo.ranges.json",
                   counterparts.DATA / "bench/placements.py", args.models / f"{net}.onnx", part, style, "--random", 1])
        part.replace(path)
    return path


def float_model(args, net):
    """The float model with fixed shapes, in float32, opset 13 or later, constants as initializers; made once."""
    import onnx

    path = args.models / f"{net}.float.onnx"
    if path.exists():
        return path
    if net in ZOO:
        make_zoo(args, [net])
        model, shapes = onnx.load(args.models / f"{net}.onnx"), {}
    else:
        file, shapes = source(net)
        model = onnx.load_from_string(lzma.open(file).read()) if file.suffix == ".xz" else onnx.load(file)
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
    stated = {o.name: [d.dim_value or 1 for d in o.type.tensor_type.shape.dim] for o in model.graph.output}
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    for node in [n for n in model.graph.node if n.op_type == "Constant" and n.attribute[0].name == "value"]:
        node.attribute[0].t.name = node.output[0]  # an initializer: no edge between nodes, gets no pair
        model.graph.initializer.append(node.attribute[0].t)
        model.graph.node.remove(node)
    empty = {t.name for t in model.graph.initializer if 0 in t.dims}
    for i, node in enumerate(model.graph.node):
        if node.op_type == "Resize" and len(node.input) == 4 and node.input[2] in empty:  # as before opset 13: sizes count
            node.input[2] = ""
        node.name = node.name or f"n{i}_{node.op_type}"
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for output in model.graph.output:
        if not output.type.tensor_type.HasField("shape"):  # behind a computed shape
            for size in stated[output.name]:
                output.type.tensor_type.shape.dim.add().dim_value = size
    save(model, path)
    return path


def save(model, path):
    """Whole or not at all: a file that is there is taken for finished."""
    import onnx

    part = path.with_name(path.name + ".part")
    onnx.save(model, part)
    part.replace(path)


def ranges_file(args, net):
    """Largest magnitudes of a network's tensors on one seeded input, whatever the style; written with the first style."""
    return args.models / f"{net}.ranges.json"


def explicit_model(args, net, style):
    """The float model with Q/DQ pairs in a style; made once."""
    path = args.models / f"{net}.{style}.qdq.onnx"
    if not path.exists():
        part = path.with_name(path.name + ".part")
        counterparts.run([sys.executable, pathlib.Path(__file__).with_name("place.py"), ranges_file(args, net), counterparts.DATA / "bench/placements.py",
                   float_model(args, net), part, style, "--random", 1])
        part.replace(path)
    return path


def table_of(args, net, style):
    """The calibration table with the scales of a style; made once."""
    import onnx

    path = args.models / f"{net}.{style}.table"
    if not path.exists():
        counterparts.write_table(path, counterparts.scales_of(onnx.load(explicit_model(args, net, style))))
    return path
