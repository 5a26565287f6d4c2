"""The interface of the onnx package for backends: onnx.backend.base.Backend on Octavo engines.

>>> import octavo.backend
>>> y, = octavo.backend.run_model(model, [x], device="cpu")

Devices: "cpu" (also "CPU", "CPU:0") and "reference". Models go through octavo.build(...).run(...) as they are: open shapes, and values
of inputs that decide shapes, are bound by the arrays of a run. docs/backend.md says more.
"""
import numpy as np
import onnx
from onnx.backend.base import Backend as _Backend, BackendRep as _BackendRep, Device as _Device, namedtupledict

import octavo
from octavo import _sequences


def _engine_device(device):
    name = str(device).split(":")[0].lower()
    return name if name in ("cpu", "reference") else None


class OctavoRep(_BackendRep):
    """A prepared model."""

    def __init__(self, model, device, options):
        self._model, self._device, self._options = model, device, options
        initialised = {t.name for t in model.graph.initializer}
        self._inputs = [v for v in model.graph.input if v.name not in initialised]
        self._engine = self._shapes = self._arrays = None

    def _named(self, inputs):
        if hasattr(inputs, "items"):
            return dict(inputs)
        inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(inputs) > len(self._inputs):
            raise octavo.InputError(f"run: {len(inputs)} inputs given, the model has {len(self._inputs)}")
        return {v.name: x for v, x in zip(self._inputs, inputs)}

    def run(self, inputs, **kwargs):
        """inputs: arrays in the model's order, or {name: array}; a list of arrays for a sequence, None for an optional value that is not there. Returns a named
        tuple of arrays, and of lists of arrays for sequences, in the model's order."""
        if _sequences.needed(self._model):
            return self._run_sequences(self._named(inputs))
        arrays = {}
        for name, x in self._named(inputs).items():
            if x is None or isinstance(x, (list, tuple)) and not all(np.isscalar(e) for e in x):
                raise octavo.InputError(f"run: input \"{name}\" is a tensor, a sequence or nothing was given")
            arrays[name] = np.asarray(x)
        if self._engine is None:
            self._engine = octavo.build(self._model, device=self._device, **self._options)
        results = self._engine.run(arrays)
        self._shapes, self._arrays = {name: x.shape for name, x in arrays.items()}, arrays
        names = [o.name for o in self._model.graph.output]
        return namedtupledict("Outputs", names)(*[results[name] for name in names])

    def _run_sequences(self, given):
        """The lengths of what is given are part of the model that is built: another one for other lengths."""
        model, arrays = _sequences.of_inputs(self._model, given)
        lengths, sequences = {}, _sequences.sequence_outputs(model)
        if sequences:
            counted = octavo.build(_sequences.with_lengths(model), device=self._device, **self._options).run(arrays)
            lengths = {name: int(counted[f"{name}[]"]) for name in sequences}
            model = _sequences.with_elements(model, lengths)
        else:
            model = _sequences.with_elements(model, {})
        if any(n == 0 for n in lengths.values()) and len(model.graph.output) == 0:
            raise octavo.UnsupportedError("all results are sequences without elements")
        self._engine = octavo.build(model, device=self._device, **self._options)
        self._shapes, self._arrays = {name: x.shape for name, x in arrays.items()}, arrays
        results = self._engine.run(arrays)
        names = [o.name for o in self._model.graph.output]
        return namedtupledict("Outputs", names)(*[[results[f"{name}[{i}]"] for i in range(lengths[name])] if name in lengths else results[name] for name in names])

    @property
    def engine(self):
        """The engine of the latest run; None before."""
        if self._engine is None or self._arrays is None:
            return None
        return self._engine.at(self._shapes, self._arrays) if self._engine.open else self._engine


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
