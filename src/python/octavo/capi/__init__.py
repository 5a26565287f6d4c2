"""Where ONNX Runtime keeps its exceptions: `from onnxruntime.capi.onnxruntime_pybind11_state import Fail` becomes `from octavo.capi...`."""
from . import onnxruntime_pybind11_state

__all__ = ["onnxruntime_pybind11_state"]
