"""The interface of the onnx package for backends: onnx.backend.base.Backend on Octavo engines.

>>> import octavo.backend
>>> y, = octavo.backend.run_model(model, [x], device="cpu")

Devices: "cpu" (also "CPU", "CPU:0") and "reference". Shapes are those of the arrays of a run. A graph input that is read only as a
shape, an axis, a count or a quantization parameter of an operator (SPECIALISED below) is not data: its value becomes a constant of the
engine, and each new value builds a new one. All other inputs are inputs of the engine. docs/backend.md says more.
"""
import numpy as np
import onnx
from onnx.backend.base import Backend as _Backend, BackendRep as _BackendRep, Device as _Device, namedtupledict

import octavo

_REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
               "ReduceSum", "ReduceSumSquare")

#: {operator: positions of inputs that are shapes, axes, counts or quantization parameters}
SPECIALISED = {
    "Reshape": {1}, "Expand": {1}, "Tile": {1}, "ConstantOfShape": {0}, "Slice": {1, 2, 3, 4}, "Pad": {1, 3}, "Resize": {1, 2, 3},
    "Upsample": {1}, "Range": {0, 1, 2}, "OneHot": {1}, "TopK": {1}, "Squeeze": {1}, "Unsqueeze": {1}, "Split": {1}, "CumSum": {1},
    "CumProd": {1}, "Trilu": {1}, "CenterCropPad": {1}, "NonMaxSuppression": {2}, "DFT": {1, 2}, "STFT": {1, 3}, "Col2Im": {1, 2},
    "AffineGrid": {1}, "MaxUnpool": {2}, "Loop": {0, 1}, "BlackmanWindow": {0}, "HannWindow": {0}, "HammingWindow": {0},
    "MelWeightMatrix": {0, 1, 2, 3, 4},
    "QuantizeLinear": {1, 2}, "DequantizeLinear": {1, 2}, "ConvInteger": {2, 3}, "MatMulInteger": {2, 3},
    "QLinearConv": {1, 2, 4, 5, 6, 7}, "QLinearMatMul": {1, 2, 4, 5, 6, 7},
    **{name: {1} for name in _REDUCTIONS},
}


def _engine_device(device):
    name = str(device).split(":")[0].lower()
    return name if name in ("cpu", "reference") else None


def _reads(graph, found):
    for node in graph.node:
        for position, name in enumerate(node.input):
            found.setdefault(name, []).append((node.domain, node.op_type, position))
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                _reads(inner, found)
                for output in inner.output:
                    found.setdefault(output.name, []).append(("", "", 0))


def specialised_inputs(model):
    """Names of the graph inputs that are read, and only as shapes, axes, counts or quantization parameters."""
    reads = {}
    _reads(model.graph, reads)
    outputs = {o.name for o in model.graph.output}
    initialised = {t.name for t in model.graph.initializer}
    names = set()
    for value in model.graph.input:
        uses = reads.get(value.name, [])
        if uses and value.name not in outputs | initialised and all(
                domain in ("", "ai.onnx") and position in SPECIALISED.get(op, ()) for domain, op, position in uses):
            names.add(value.name)
    return names


class OctavoRep(_BackendRep):
    """A prepared model: engines for the shapes and specialised values seen so far."""

    def __init__(self, model, device, options):
        self._model, self._device, self._options = model, device, options
        initialised = {t.name for t in model.graph.initializer}
        self._inputs = [v for v in model.graph.input if v.name not in initialised]
        self._specialised = specialised_inputs(model)
        self._selected = {o for n in model.graph.node if n.op_type == "NonMaxSuppression" and n.domain in ("", "ai.onnx")
                          for o in n.output}
        self._engines = {}
        self.engine = None  #: of the latest run

    def _named(self, inputs):
        if hasattr(inputs, "items"):
            return dict(inputs)
        inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(inputs) > len(self._inputs):
            raise octavo.InputError(f"run: {len(inputs)} inputs given, the model has {len(self._inputs)}")
        return {v.name: x for v, x in zip(self._inputs, inputs)}

    def run(self, inputs, **kwargs):
        """inputs: arrays in the model's order, or {name: array}. Returns a named tuple of arrays, in the model's order."""
        arrays = {}
        for name, x in self._named(inputs).items():
            if x is None or isinstance(x, (list, tuple)) and not all(np.isscalar(e) for e in x):
                raise octavo.UnsupportedError(f"run: input \"{name}\" is a sequence or an optional value; only tensors are covered")
            arrays[name] = np.asarray(x)
        fixed = {name: arrays.pop(name) for name in sorted(self._specialised & set(arrays))}
        shapes = {name: x.shape for name, x in arrays.items()}
        key = (tuple(sorted(shapes.items())), tuple((n, x.dtype.str, x.shape, x.tobytes()) for n, x in fixed.items()))
        if key not in self._engines:
            self._engines[key] = octavo.build(self._with(fixed), device=self._device, shapes=shapes, **self._options)
        self.engine = self._engines[key]
        results = self.engine.run(arrays)
        for name in self._selected & set(results):  # as many rows as were selected; the engine fills up with -1
            results[name] = results[name][results[name][:, 0] >= 0]
        names = [o.name for o in self._model.graph.output]
        return namedtupledict("Outputs", names)(*[results[name] for name in names])

    def _with(self, fixed):
        if not fixed:
            return self._model
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        declared = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
        kept = [v for v in model.graph.input if v.name not in fixed]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        for name, x in fixed.items():
            tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(x).reshape(x.shape), name)
            if tensor.data_type != declared[name]:
                raise octavo.InputError(f"run: input \"{name}\" is {x.dtype}, the model declares "
                                        f"{onnx.TensorProto.DataType.Name(declared[name])}")
            model.graph.initializer.append(tensor)
        return model


class Backend(_Backend):
    """onnx.backend.base.Backend."""

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        """kwargs: options of octavo.build (threads, effort, ...); `effort` is 0 here unless given. Models whose inputs all have
        shapes are built in full by the first run, not here."""
        if not cls.supports_device(device):
            raise octavo.UsageError(f"device \"{device}\" is not known; known are \"cpu\" and \"reference\"")
        return OctavoRep(model, _engine_device(device), {"effort": 0, **kwargs})

    @classmethod
    def run_model(cls, model, inputs, device="CPU", **kwargs):
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, **kwargs):
        """outputs_info: [(element type, shape)] of the results, as onnx has it; needed where their type is not that of input 0."""
        opset = kwargs.pop("opset_version", None) or min(28, onnx.defs.onnx_opset_version())
        arrays = [np.asarray(x) for x in inputs]
        given = [name for name in node.input if name]
        typed = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                 for name, x in zip(given, arrays)]
        infos = outputs_info or [(arrays[0].dtype, None)] * len(node.output)
        results = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                   for name, (dtype, shape) in zip(node.output, infos) if name]
        graph = onnx.helper.make_graph([node], node.op_type, typed, results)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        return cls.run_model(model, dict(zip(given, arrays)), device, **kwargs)

    @classmethod
    def supports_device(cls, device):
        return _engine_device(device) is not None


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
