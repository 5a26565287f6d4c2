"""Octavo: compiles 8-bit neural networks from ONNX and runs them on the CPU.

>>> import numpy as np, octavo
>>> engine = octavo.build("model.onnx", shapes={"input": (1, 3, 224, 224)})
>>> logits = engine.run({"input": np.zeros((1, 3, 224, 224), np.float32)})["output"]
>>> for layer in engine.layers:
...     print(layer["name"], layer["precision"], layer["tactic"], layer["reason"])
"""
import os as _os

from ._errors import (EngineFileError, Error, FileError, InputError, InternalError, ModelError, UnsupportedError, UsageError)
from ._octavo import SCHEMA, Engine, __version__, _build_bytes, _build_file, _doctor_bytes, _doctor_file, load

__all__ = ["Engine", "build", "doctor", "load", "Error", "UsageError", "ModelError", "UnsupportedError", "InputError", "EngineFileError",
           "FileError", "InternalError", "SCHEMA", "__version__"]

_OPTIONS = {"default_batch", "disable", "effort", "timing_cache", "strict_timing", "calibration", "precision", "allowed", "bindings",
            "max_error", "profiles"}


def build(model, device="cpu", shapes=None, threads=None, **options):
    """Compiles an ONNX model into an Engine.

    model     a path (str or os.PathLike), the bytes of an ONNX file, or an object with SerializeToString() (onnx.ModelProto).
    device    "cpu", or "reference": the slow evaluator that defines the results.
    shapes    {input name: sequence of int} for symbolic dimensions. Inputs left open are bound by the arrays of the first run; each
              new set of shapes is then built once and kept.
    threads   threads to plan for and to run with; None: every core this process may use.
    options   default_batch=n: a symbolic first dimension that `shapes` leaves open becomes n.
              profiles={input name: (min, opt, max)}, three shapes: what inputs with open dimensions may be bound to. The engine for
              the opt shapes is built at once, others between min and max when they first occur; shapes outside raise InputError.
              disable=[names]: laws, rules and fusions to leave out.
              effort=0..5: how hard to look for the fastest plan; 0 measures nothing, 2 is the default.
              timing_cache=path: measured times are read from there and added; strict_timing=True: a time it lacks is an error.
              calibration=path of a calibration table (TensorRT's, or JSON), or {tensor: largest magnitude}: ranges that permit
              int8 in a float model. precision={pattern of node or tensor names: "int8", "float32" or "bfloat16"}, or a list of such
              pairs: the first that matches counts. allowed={"int8", "float32"}: types that layers may take; "bfloat16" too where the
              processor has it (docs/implicit.md). max_error=x: layers stay float32 until the estimated error is at most x of an
              output's largest magnitude; slow on large networks.
              bindings={input or output name: "uint8:hwc", "float16", ...}: their type and layout (docs/bindings.md); arrays then have
              the shape of that memory, as engine.inputs says, with scale and zero point where they hold codes.

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
    profiles = {str(name): [[int(d) for d in shape] for shape in given] for name, given in (options.get("profiles") or {}).items()}
    for name, given in profiles.items():
        if len(given) != 3:
            raise UsageError(f"profiles: {name!r} has {len(given)} shapes, needs three: min, opt, max")
    calibration, precision, allowed = options.get("calibration"), options.get("precision") or [], options.get("allowed")
    if calibration is not None and hasattr(calibration, "items"):
        calibration = {str(tensor): float(amax) for tensor, amax in calibration.items()}
        wrong = sorted(tensor for tensor, amax in calibration.items() if not amax >= 0)
        if wrong:
            raise UsageError(f"calibration: the range of {wrong[0]!r} is {calibration[wrong[0]]}, must not be negative")
    elif calibration is not None:
        calibration = _os.fspath(calibration)
    if isinstance(precision, str) or isinstance(allowed, str):
        raise TypeError("octavo.build: precision is {pattern: type}, allowed is a set of types; neither is a string")
    rules = precision.items() if hasattr(precision, "items") else precision
    effort = options.get("effort")
    arguments = {
        "device": str(device), "shapes": shape_map, "profiles": profiles, "threads": _thread_count(threads),
        "default_batch": int(options.get("default_batch") or 0), "disable": list(disable),
        "effort": 2 if effort is None else int(effort), "timing_cache": _os.fspath(options.get("timing_cache") or ""),
        "strict_timing": bool(options.get("strict_timing")), "calibration": calibration,
        "precision": [(str(pattern), str(kind)) for pattern, kind in rules], "allowed": None if allowed is None else set(allowed),
        "max_error": None if options.get("max_error") is None else float(options["max_error"]),
        "bindings": {str(name): str(text) for name, text in (options.get("bindings") or {}).items()},
    }
    return _with(model, _build_file, _build_bytes)(arguments)


def doctor(model, calibration=None, minmax=None):
    """The numbers of an ONNX model that mislead, as `octavo doctor` finds them (docs/doctor.md): a list of dicts, errors first.

    model         as for build. Nothing is built: shapes need not be known, and models that build refuses are looked at too.
    calibration   path of a calibration table, whose ranges are looked at as well.
    minmax        path of a min-max table of the same model and data, to compare `calibration` with.
    each finding  severity ("error": build refuses the model; "warning"), rule ("scale", "bias-overflow", ...), tensor, nodes (the ONNX
                  nodes that read it), text (the fact with its numbers, and the way out).

    Raises FileError; ModelError for what is no ONNX file; UsageError and InputError about the tables.
    """
    return _with(model, _doctor_file, _doctor_bytes)(*(_os.fspath(table or "") for table in (calibration, minmax)))


def _with(model, of_file, of_bytes):
    """The function for what `model` is, bound to it."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return lambda *rest: of_bytes(bytes(model), *rest)
    if hasattr(model, "SerializeToString"):
        return lambda *rest: of_bytes(model.SerializeToString(), *rest)
    return lambda *rest: of_file(_os.fspath(model), *rest)


def _thread_count(threads):
    if threads is None:
        return 0
    if int(threads) < 1:
        raise UsageError(f"threads={threads}: give at least 1, or None for every core")
    return int(threads)
