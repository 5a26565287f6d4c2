"""Octavo: compiles 8-bit neural networks from ONNX and runs them on the CPU.

>>> import numpy as np, octavo
>>> engine = octavo.build("model.onnx", shapes={"input": (1, 3, 224, 224)})
>>> logits = engine.run({"input": np.zeros((1, 3, 224, 224), np.float32)})["output"]
>>> for layer in engine.layers:
...     print(layer["name"], layer["precision"], layer["tactic"], layer["reason"])
"""
import os as _os

from ._errors import (EngineFileError, Error, FileError, InputError, InternalError, ModelError, UnsupportedError, UsageError)
from ._octavo import Engine, __version__, _build_bytes, _build_file, load

__all__ = ["Engine", "build", "load", "Error", "UsageError", "ModelError", "UnsupportedError", "InputError", "EngineFileError",
           "FileError", "InternalError", "__version__"]

_OPTIONS = {"default_batch", "disable"}


def build(model, device="cpu", shapes=None, threads=None, **options):
    """Compiles an ONNX model into an Engine.

    model     a path (str or os.PathLike), the bytes of an ONNX file, or an object with SerializeToString() (onnx.ModelProto).
    device    "cpu", or "reference": the slow evaluator that defines the results.
    shapes    {input name: sequence of int} for symbolic dimensions. Inputs left open are bound by the arrays of the first run; each
              new set of shapes is then built once and kept.
    threads   threads to plan for and to run with; None: every core this process may use.
    options   default_batch=n: a symbolic first dimension that `shapes` leaves open becomes n.
              disable=[names]: laws, rules and fusions to leave out.

    Takes seconds; other Python threads run meanwhile. Raises UsageError, ModelError, UnsupportedError, FileError; TypeError for
    an unknown option.
    """
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise TypeError(f"octavo.build: no option {unknown[0]!r}; the options are {', '.join(sorted(_OPTIONS))}")
    disable = options.get("disable") or []
    if isinstance(disable, str):
        raise TypeError(f"octavo.build: disable is a list of names, not the string {disable!r}")
    shape_map = {str(name): [int(d) for d in shape] for name, shape in (shapes or {}).items()}
    arguments = (str(device), shape_map, _thread_count(threads), int(options.get("default_batch") or 0), list(disable))
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _build_bytes(bytes(model), *arguments)
    if hasattr(model, "SerializeToString"):
        return _build_bytes(model.SerializeToString(), *arguments)
    return _build_file(_os.fspath(model), *arguments)


def _thread_count(threads):
    if threads is None:
        return 0
    if int(threads) < 1:
        raise UsageError(f"threads={threads}: give at least 1, or None for every core")
    return int(threads)
