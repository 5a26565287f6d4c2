"""ONNX Runtime as what results are compared with: integer products that are exact on every processor."""
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state

LEVELS = onnxruntime.GraphOptimizationLevel
EXACT = "session.x64quantprecision"


def exact_session(model, level=LEVELS.ORT_ENABLE_ALL, threads=0):
    """An InferenceSession on the CPU of a path or of the bytes of a model. On x86-64 without VNNI ONNX Runtime adds two products of u8 and s8 in 16
    bits, which saturates; its exact mode does not. There is no such mode for s8 activations, which are exact without it. `threads` 0: its default."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    model = model if isinstance(model, bytes) else str(model)
    for exact in ("1", "0"):
        options.add_session_config_entry(EXACT, exact)
        try:
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except onnxruntime_pybind11_state.NotImplemented:
            if exact == "0":
                raise
    raise AssertionError("unreachable")
