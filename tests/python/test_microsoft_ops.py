"""Operators of the domain com.microsoft that optimizers and quantizers write, against ONNX Runtime."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402

import octavo  # noqa: E402

RNG = np.random.default_rng(5)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def codes(dtype, *shape):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(*shape):
    """Codes of at most 64, so that ONNX Runtime's sums of two products stay within 16 bits on processors without VNNI."""
    return codes(np.int8, *shape) // np.int8(2)


CASES = {
    "FusedMatMul": ([real(2, 3, 4), real(2, 5, 4)], {"transB": 1, "alpha": 0.5}, 1),
    "FastGelu": ([real(2, 5), real(5)], {}, 1),
    "BiasGelu": ([real(2, 5), real(5)], {}, 1),
    "QuickGelu": ([real(2, 5)], {"alpha": 0.5}, 1),
    "SkipLayerNormalization": ([real(2, 3, 8), real(2, 3, 8), real(8), real(8), real(8)], {"epsilon": 0.001}, 1),
    "SkipSimplifiedLayerNormalization": ([real(2, 3, 8), real(2, 3, 8), real(8)], {"epsilon": 0.001}, 1),
    "MatMulIntegerToFloat": ([codes(np.uint8, 3, 40), weights(40, 6), np.float32(0.02), np.abs(real(6)) + 0.01, np.uint8(120),
                              weights(6), real(6)], {}, 1),
    "DynamicQuantizeMatMul": ([real(3, 40), weights(40, 6), np.float32([0.02]), np.int8([3])], {}, 1),
}


@pytest.mark.parametrize("kind", sorted(CASES))
def test_agrees_with_onnxruntime(kind):
    arrays, attributes, results = CASES[kind]
    arrays = [np.asarray(a) for a in arrays]
    inputs = [f"i{k}" for k in range(len(arrays))]
    outputs = [f"o{k}" for k in range(results)]
    node = helper.make_node(kind, inputs, outputs, domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                                            for n, a in zip(inputs, arrays)], [helper.make_tensor_value_info(n, 1, None) for n in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    feeds = dict(zip(inputs, arrays))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, feeds)
    for device in ("cpu", "reference"):
        ours = octavo.build(model, device=device, effort=0).run(feeds)
        for name, expected in zip(outputs, theirs):
            np.testing.assert_allclose(ours[name], expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
