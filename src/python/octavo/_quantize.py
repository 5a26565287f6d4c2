"""octavo.quantize: from a float model and data to an int8 model, as the command `octavo quantize` does it."""
import json
import os
import warnings
import pathlib
import tempfile
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence, Tuple, Union

from ._arguments import real, thread_count
from ._errors import FileError, InputError, UsageError
from ._octavo import _Quantizer


class Quantized:
    """What octavo.quantize made. `octavo.build` takes it as it takes an onnx.ModelProto.

    model     bytes of the ONNX model with Q/DQ pairs.
    ranges    {tensor: (least, largest value of its codes)}; with activations="symmetric" {tensor: largest magnitude}. The tensors are those of `model`, whose channels may be equalized: as
              `calibration=` of another float model they are of use only with equalization=False.
    report    what the command's --report writes: "sqnr_db" of the outputs on the data, "layers", "tensors", "search", "warnings".
    """

    def __init__(self, model: bytes, report: Dict[str, Any]) -> None:
        self.model = model
        self.report = report

    @property
    def ranges(self) -> Dict[str, Union[float, Tuple[float, float]]]:
        def range_of(tensor: Dict[str, Any]) -> Union[float, Tuple[float, float]]:
            scale, zero = float(tensor["scale"]), int(tensor["zero_point"])  # products and sums below are exact
            return (-zero * scale, (255 - zero) * scale) if tensor["type"] == "u8" else 127 * scale
        return {t["name"]: range_of(t) for t in self.report["tensors"]}

    @property
    def precision(self) -> Dict[str, str]:
        """{pattern of a node's name: "bfloat16"} of the layers that are to be bfloat16, as `octavo.build` takes `precision=`. A processor
        without kernels for them refuses; "bfloat16-emulated" computes the same values there, as slowly as float32."""
        special = str.maketrans({c: "\\" + c for c in "*?[\\"})
        return {layer["node"].translate(special): "bfloat16" for layer in self.report["layers"] if layer["type"] == "bfloat16"}

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the model; an existing file survives a failure. Raises FileError."""
        target = pathlib.Path(path)
        try:
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=target.name, delete=False) as file:
                file.write(self.model)
            os.replace(file.name, target)
        except OSError as e:
            raise FileError(f"cannot write \"{target}\": {e.strerror}") from e

    def SerializeToString(self) -> bytes:  # the name that onnx.ModelProto has
        return self.model

    def __repr__(self) -> str:
        layers = self.report["layers"]
        sqnr = self.report["sqnr_db"]
        types = [layer["type"] for layer in layers]
        small = f"{types.count('bfloat16')} bfloat16, " if "bfloat16" in types else ""
        return (f"<octavo.Quantized: {types.count('int8')} layers int8, {small}{types.count('float32')} float, signal to noise {'unknown' if sqnr is None else f'{sqnr:.1f} dB'}>")


def quantize(model: Any, data: Iterable[Any], *, method: Optional[str] = None, percentile: float = 99.99, activations: Optional[str] = None,
             weights: str = "mse", rounding: str = "learned", bias_correction: bool = True, equalization: bool = True,
             placement: str = "borders", min_sqnr: Optional[float] = None, max_drop: Optional[float] = None,
             allow: Optional[Iterable[str]] = None, labels: Optional[Sequence[int]] = None, shapes: Optional[Mapping[str, Sequence[int]]] = None, threads: Optional[int] = None,
             measure: bool = True, progress: Optional[Callable[[str], Any]] = None) -> Quantized:
    """Quantizes a float ONNX model to int8 with the ranges that its tensors take on data (docs/quantize.md explains each option).

    model     as for build: a path, the bytes of an ONNX file, or an object with SerializeToString().
    data      any iterable of samples, preprocessed as the network was trained: {input name: array}, or for a model with one input an
              array; a list or tuple counts as its first element, so that a PyTorch DataLoader of (images, labels) works. Arrays are
              what numpy.asarray understands, tensors included; k times the input's size in dimension 0 is k samples. They are kept in
              memory up to 256 MB; what is more goes to a file without a name in the temporary folder (TMPDIR).
    method    "best", "minmax", "percentile" (with `percentile`), "entropy" or "mse": ranges of activations. None: "best"; a detector
              with the heads of YOLOX or NanoDet is quantized by "best" and by "minmax", which takes up to twice the time, and the
              one whose scores at objects change less on the data is kept (report["scores_at_objects"]).
    activations  "asymmetric" (a zero point for each tensor; the default) or "symmetric".
    weights   "mse" or "minmax": how their scales are chosen, one for each channel. rounding: "learned" or "nearest".
    bias_correction, equalization   corrections, on by default.
    min_sqnr  layers leave int8 until the outputs' signal to noise is at least this, in dB; max_drop: until at most this share of right
              answers (0 to 1) is lost, which needs `labels`, the right class of each sample.
    allow     the types that layers may have then; default {"int8", "float32"}. With "bfloat16" layers go to it first; the model file does
              not record this, but `Quantized.precision` does: octavo.build(quantized, precision=quantized.precision).
    shapes    {input name: shape} for symbolic dimensions; an open batch is 1.
    threads   None: every core this process may use. The result does not depend on it.
    measure   compare the outputs with the float network's (report["sqnr_db"]).
    progress  function(step): called with what is being done ("collecting statistics of samples: 3 of 64") when that changes; returning
              False raises CancelledError.

    Takes seconds to minutes; other Python threads run meanwhile, and Ctrl-C stops it. Raises UsageError, ModelError, UnsupportedError,
    FileError; InputError for data that does not fit the model, holds NaN, or is empty. The entries of report["warnings"] are Python warnings, too.
    """
    if method != "percentile" and percentile != 99.99:
        raise UsageError(f'quantize: percentile={percentile} has no effect: it belongs to method="percentile"')
    if labels is not None and max_drop is None and min_sqnr is None:
        raise UsageError("quantize: labels has no effect: right answers are counted for max_drop; give it as well")
    if isinstance(data, (str, bytes, os.PathLike)):
        raise UsageError("quantize: data is an iterable of samples; the command `octavo quantize --data` reads folders and pictures")
    if progress is not None and not callable(progress):
        raise TypeError("octavo.quantize: progress is a function of one argument, the step")
    source = os.fspath(model) if isinstance(model, (str, os.PathLike)) else model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)
    quantizer = _Quantizer(source, {
        "method": method, "percentile": real("quantize: percentile", percentile, 50, 100), "activations": activations, "weights": str(weights), "rounding": str(rounding),
        "bias_correction": bool(bias_correction), "equalization": bool(equalization), "placement": str(placement),
        "min_sqnr": None if min_sqnr is None else real("quantize: min_sqnr", min_sqnr, 0, 200), "max_drop": None if max_drop is None else repr(float(max_drop)),
        "allow": [] if allow is None else [allow] if isinstance(allow, str) else sorted(allow),
        "labels": None if labels is None else [int(label) for label in labels],
        "shapes": {str(name): [int(d) for d in shape] for name, shape in (shapes or {}).items()}, "threads": thread_count(threads, "quantize: "), "measure": bool(measure)})
    count = 0
    for count, sample in enumerate(data, 1):
        quantizer.add(_arrays(sample, count - 1), f"sample {count - 1}")
    if count == 0:
        spent = " (an iterator gives its samples once: make a new one, or pass a list)" if iter(data) is data else ""
        raise InputError(f"quantize: data, a {type(data).__name__}, gave no sample{spent}")
    made, text = quantizer.run(progress)
    report = json.loads(text)
    for warning in report["warnings"]:
        warnings.warn(f"quantize: {warning}", UserWarning, stacklevel=2)
    return Quantized(made, report)


def _arrays(sample: Any, index: int) -> Any:
    """What a sample holds, as NumPy arrays: a dict, or one array."""
    import numpy
    if isinstance(sample, (list, tuple)) and sample:
        sample = sample[0]

    def array(value: Any, what: str) -> Any:
        for step in ("detach", "cpu"):  # of a torch.Tensor
            value = getattr(value, step)() if hasattr(value, step) else value
        made = numpy.asarray(value)
        if made.dtype == object:
            raise InputError(f"quantize: sample {index} is no array and no dict of arrays ({type(value).__name__})")
        _finite(made, what)
        return made

    if hasattr(sample, "items"):
        return {str(name): array(value, f"sample {index}, {str(name)!r}") for name, value in sample.items()}
    return array(sample, f"sample {index}")


def _finite(array: Any, what: str) -> None:
    """Names the element; the calibration itself would name the sample alone."""
    import numpy
    if array.dtype.kind != "f" or numpy.isfinite(array).all():
        return
    at = numpy.argwhere(~numpy.isfinite(array))
    index = tuple(int(i) for i in at[0])
    raise InputError(f"quantize: {what} holds {array[index]} at {list(index)} ({len(at)} of {array.size} elements are not finite); calibration data must be "
                     "finite numbers: leave this sample out")
