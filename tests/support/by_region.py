"""Quantized models compared region by region: what another engine computes between two quantized tensors, it computes from the same values.

`split(model)` gives two models. `whole` also puts out every quantized activation and the float value that it was rounded from. In `parts`, every
quantized activation is an output, and an input of its own stands for it wherever it is read. An engine that runs `parts` on what ONNX Runtime found
in `whole` computes each region from ONNX Runtime's inputs, so one value that fell to the other side of a rounding tie changes nothing behind it, and
quantized results must be equal except at ties.
"""
import dataclasses

import numpy as np
import onnx
from onnx import helper, numpy_helper

GIVEN = "given:"
TIE = 1e-3  # of a step: sums of float32 in another order move a value by less
OPERATOR_OF = {"QLinearConv": "Conv", "QLinearAdd": "Add", "QGemm": "Gemm"}


@dataclasses.dataclass
class Split:
    whole: onnx.ModelProto
    parts: onnx.ModelProto
    rounded: dict  # quantized activation -> (float value that it was rounded from, scale, zero point)


def to_pairs(model):
    """The same model with DequantizeLinear, operator, QuantizeLinear in place of the integer operators that hold their scales (OPERATOR_OF), which on
    processors without VNNI saturate in ONNX Runtime."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes, n = [], model.graph.node

    def dequantized(x, scale, zero, axis=None):
        name = f"{x}:{len(nodes)}:float"
        more = {} if axis is None or np.ndim(constants[scale]) == 0 or np.size(constants[scale]) == 1 else {"axis": axis}
        nodes.append(helper.make_node("DequantizeLinear", [x, scale, zero], [name], name, **more))
        return name

    def bias_of(bias, x_scale, w_scale):
        value = constants[bias].astype(np.float64) * np.float64(constants[x_scale]) * np.float64(constants[w_scale])
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), f"{bias}:float"))
        return f"{bias}:float"

    for node in n:
        i = list(node.input)
        if node.op_type not in OPERATOR_OF:
            nodes.append(node)
            continue
        if node.op_type == "QLinearAdd":
            operands, out, attributes = [dequantized(*i[:3]), dequantized(*i[3:6])], i[6:8], {}
        else:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            axis = 0 if node.op_type == "QLinearConv" or attributes.get("transB") else 1
            operands = [dequantized(*i[:3]), dequantized(*i[3:6], axis=axis)]
            bias, out = (i[8:9], i[6:8]) if node.op_type == "QLinearConv" else (i[6:7], i[7:9])
            operands += [bias_of(bias[0], i[1], i[4])] if bias and bias[0] else []
        result = node.output[0] + ":before"
        nodes.append(helper.make_node(OPERATOR_OF[node.op_type], operands, [result], node.name, **attributes))
        nodes.append(helper.make_node("QuantizeLinear", [result, *out], [node.output[0]], node.output[0] + ":Q"))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def split(model):
    """See above. Integer operators become pairs in `whole`; `parts` keeps the operators of the file."""
    whole, parts = to_pairs(model), onnx.ModelProto.FromString(model.SerializeToString())
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    rounded = {}
    for node in whole.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants:
            zero = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.uint8(0)
            rounded[node.output[0]] = (node.input[0], constants[node.input[1]], zero)
    own = {o.name for o in model.graph.output}
    of_dtype = helper.np_dtype_to_tensor_dtype
    for name, (value, _, zero) in rounded.items():
        kind = of_dtype(zero.dtype)
        if name not in own:
            for m in (whole, parts):
                m.graph.output.append(helper.make_tensor_value_info(name, kind, None))
        if value not in {o.name for o in whole.graph.output} | {i.name for i in whole.graph.input}:
            whole.graph.output.append(helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None))
    for node in parts.graph.node:
        for i, name in enumerate(node.input):
            if name in rounded:
                node.input[i] = GIVEN + name
    return Split(whole, parts, rounded)


def given(found, theirs):
    """The inputs of `parts` that stand for quantized activations, and the model with their shapes filled in. `theirs`: all outputs of `whole`."""
    feeds = {GIVEN + name: theirs[name] for name in found.rounded}
    read = {i for n in found.parts.graph.node for i in n.input}
    for name, array in feeds.items():
        if name in read:
            found.parts.graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    return {name: array for name, array in feeds.items() if name in read}


def differences(found, feeds, theirs, ours, rel=1e-5):
    """A line for each output of `parts` that is not what ONNX Runtime computes from the same inputs: quantized values equal but for ties, where one step
    is allowed; floats equal within `rel` of the largest. Also gives the number of values that differ at ties, and of all quantized values."""
    wrong, ties, count = [], 0, 0
    for name, mine in ours.items():
        want = theirs[name]
        if mine.shape != want.shape or mine.dtype != want.dtype:
            wrong.append(f"{name}: {mine.dtype}{list(mine.shape)} instead of {want.dtype}{list(want.shape)}")
            continue
        if name not in found.rounded:
            gap, largest = np.abs(mine.astype(np.float64) - want).max(initial=0), np.abs(want).max(initial=1e-3)
            if not gap <= rel * largest:
                wrong.append(f"{name}: values differ by up to {gap:.3g} where the largest is {largest:.3g} (allowed {rel:g} of it)")
            continue
        source, scale, _ = found.rounded[name]
        value = (theirs[source] if source in theirs else feeds[source]).astype(np.float64) / scale.astype(np.float64)
        tie = np.abs(np.abs(value - np.floor(value)) - 0.5) <= TIE
        gap = np.abs(mine.astype(np.int64) - want.astype(np.int64))
        count += gap.size
        ties += int((gap == 1).sum())
        bad = (gap > 1) | ((gap == 1) & ~tie)
        if bad.any():
            at = tuple(map(int, np.argwhere(bad)[0]))
            wrong.append(f"{name}: {int(bad.sum())} of {gap.size} values differ, the first at {list(at)}: {mine[at]} instead of {want[at]}, "
                         f"which is {value[at]:.6g} before it is rounded")
    return wrong, ties, count
