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
    "Attention": ([real(2, 5, 6), real(6, 24), real(24), np.int32([[1, 1, 0, 0, 1], [0, 1, 1, 1, 0]])], {"num_heads": 2, "unidirectional": 1}, 1),
    "MultiHeadAttention": ([real(2, 5, 8), real(2, 7, 8), real(2, 7, 12), real(28), np.int32([3, 7])], {"num_heads": 2}, 1),
    "EmbedLayerNormalization": ([np.int32([[0, 5, 8]]), np.int32([[0, 1, 1]]), real(9, 8), real(4, 8), real(2, 8), real(8), real(8)], {"epsilon": 1e-5}, 2),
    "RotaryEmbedding": ([real(2, 5, 8), np.int64([2]), real(9, 2), real(9, 2)], {}, 1),
    "FusedGemm": ([real(3, 4), real(4, 5), real(5)], {"activation": "Relu", "alpha": 0.5}, 1),
    "DynamicQuantizeMatMul": ([real(3, 40), weights(40, 6), np.float32([0.02]), np.int8([3])], {}, 1),
}


def model_of(kind, arrays, attributes, results=1):
    """One node; operands that are None are left out."""
    inputs = ["" if a is None else f"i{k}" for k, a in enumerate(arrays)]
    feeds = {n: a for n, a in zip(inputs, arrays) if a is not None}
    node = helper.make_node(kind, inputs, [f"o{k}" for k in range(results)], name="the_node", domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
                              [helper.make_tensor_value_info(n, 6 if kind == "EmbedLayerNormalization" and k == 1 else 1, None) for k, n in enumerate(node.output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8), feeds


def test_packed_heads_equal_separate_ones():
    """ONNX Runtime runs the packed forms on GPUs alone: its separate form is the peer."""
    q, k, v = real(2, 5, 2, 4), real(2, 5, 2, 4), real(2, 5, 2, 4)
    separate, feeds = model_of("MultiHeadAttention", [a.reshape(2, 5, 8) for a in (q, k, v)], {"num_heads": 2})
    expected = onnxruntime.InferenceSession(separate.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    for arrays in ([np.stack([q, k, v], 3)], [q.reshape(2, 5, 8), np.stack([k, v], 3)]):
        model, feeds = model_of("MultiHeadAttention", arrays, {"num_heads": 2})
        np.testing.assert_allclose(octavo.build(model, device="cpu", effort=0).run(feeds)["o0"], expected, rtol=1e-4, atol=1e-5)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("kind, shapes, attributes, meaning", [
    ("BiasAdd", [(2, 3, 4), (4,), (2, 3, 4)], {}, lambda x, b, s: x + b + s),
    ("BiasSoftmax", [(2, 3, 4, 5), (2, 1, 1, 5)], {"axis": 3, "is_inner_broadcast": 1}, lambda x, b: softmax(x + b)),
    ("GemmFastGelu", [(2, 3, 4), (4, 5), (5,)], {}, lambda x, w, b: 0.5 * (x @ w + b) * (1 + np.tanh(np.sqrt(2 / np.pi) * ((x @ w + b) + 0.044715 * (x @ w + b) ** 3)))),
])
def test_operators_that_only_gpus_run(kind, shapes, attributes, meaning):
    arrays = [real(*s) for s in shapes]
    model, feeds = model_of(kind, arrays, attributes)
    np.testing.assert_allclose(octavo.build(model, device="cpu", effort=0).run(feeds)["o0"], meaning(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind, arrays, attributes, results, said", [
    ("Attention", [real(2, 5, 6), real(6, 24), real(24), np.full(8, 5, np.int32)], {"num_heads": 2}, 1, "--use_raw_attention_mask"),
    ("Attention", [real(2, 5, 6), real(6, 24), real(24)], {"num_heads": 2, "do_rotary": 1}, 1, "do_rotary"),
    ("Attention", [real(2, 5, 6), real(6, 24), real(24), None, real(2, 2, 2, 9, 4), None, np.int32([3])], {"num_heads": 2, "past_present_share_buffer": 1}, 2,
     "export the model without past_present_share_buffer"),
    ("Attention", [real(2, 5, 6), real(6, 24), real(24), None, real(2, 2, 3, 9, 4)], {"num_heads": 2}, 2, r"past is \[2,2,3,9,4\], needs \[2,2,2,length,4\]"),
    ("Attention", [real(2, 5, 6), real(6, 25), real(25)], {"num_heads": 2}, 1, "25 columns"),
    ("Attention", [real(2, 5, 6), real(6, 24), real(24)], {"num_heads": 3}, 1, "num_heads 3 for 8 features"),
    ("MultiHeadAttention", [real(2, 5, 8), real(2, 7, 8), real(2, 6, 8)], {"num_heads": 2}, 1, "keys and"),
    ("MultiHeadAttention", [real(2, 5, 8), real(2, 7, 8), real(2, 7, 8)], {"num_heads": 2}, 4, "the scores"),
    ("MultiHeadAttention", [real(2, 1, 8), real(2, 1, 8), real(2, 1, 8), None, None, None, real(2, 2, 9, 4), real(2, 2, 9, 4), np.int32([3])], {"num_heads": 2}, 3,
     "past_sequence_length, cache_indirection"),
    ("EmbedLayerNormalization", [np.int32([[0, 5, 8]]), None, real(9, 8), real(2, 8), None, real(8), real(8)], {}, 1, "3 positions"),
    ("MatMulNBits", [real(2, 32), codes(np.uint8, 5, 1, 16), real(5)], {"K": 32, "N": 5, "bits": 4, "block_size": 32}, 1, '"i1" is computed at run time'),
    ("MatMulNBits", [real(2, 32), codes(np.uint8, 5, 1, 16), real(5)], {"K": 32, "N": 5, "bits": 3, "block_size": 32}, 1, "2, 4 and 8 are covered"),
    ("MatMulNBits", [real(2, 32), codes(np.uint8, 5, 1, 16), real(5), None, np.int32([0] * 32)], {"K": 32, "N": 5, "bits": 4, "block_size": 32}, 1, "quantize the model again without it"),
    ("RotaryEmbedding", [real(2, 5, 8), np.int64([2]), real(9, 2), real(9, 2)], {"is_packed_batching": 1}, 1, "without packing"),
])
def test_what_cannot_be_said_names_the_node_and_the_way_out(kind, arrays, attributes, results, said):
    model, _ = model_of(kind, arrays, attributes, results)
    with pytest.raises(octavo.Error, match=said) as refused:
        octavo.build(model, device="cpu", effort=0)
    assert '"the_node"' in str(refused.value)


def model_with_constants(kind, arrays, attributes, results, fixed):
    """`fixed`: operands that are constants of the model."""
    model, feeds = model_of(kind, arrays, attributes, results)
    for k in fixed:
        if f"i{k}" in feeds:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(feeds.pop(f"i{k}")), f"i{k}"))
            model.graph.input.remove(next(i for i in model.graph.input if i.name == f"i{k}"))
    return model, feeds


def agrees(kind, arrays, attributes, results, fixed=()):
    """The operator beside ONNX Runtime's."""
    model, feeds = model_with_constants(kind, arrays, attributes, results, fixed)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for device in ("cpu", "reference"):
        ours = octavo.build(model, device=device, effort=0).run(feeds)
        for output, expected in zip(model.graph.output, theirs):
            np.testing.assert_allclose(ours[output.name], expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("bits, block, zeros", [(4, 16, None), (4, 32, "packed"), (8, 32, "packed"), (8, 16, None), (4, 64, "float"), (2, 16, None), (4, 128, "packed")])
def test_weights_of_a_few_bits(bits, block, zeros):
    k, n = 72, 7
    blocks = -(-k // block)
    zero = codes(np.uint8, n * -(-blocks * bits // 8)) if zeros == "packed" else real(n, blocks) if zeros == "float" else None
    agrees("MatMulNBits", [real(3, k), codes(np.uint8, n, blocks, block * bits // 8), real(n * blocks), zero], {"K": k, "N": n, "bits": bits, "block_size": block}, 1, (1, 2, 3))


@pytest.mark.parametrize("queries, past, more", [(1, 8, {}), (5, 0, {}), (1, 8, {"local_window_size": 4}), (3, 4, {"softcap": 2.0, "scale": 0.3}), (4, 3, {"rotary_interleaved": 1})])
@pytest.mark.parametrize("packed", [False, True])
def test_attention_of_groups(queries, past, more, packed):
    """Four heads of queries and two of keys; the cache grows by what comes in."""
    heads, pairs, size = 4, 2, 16
    q, k, v = real(1, queries, heads * size), real(1, queries, pairs * size), real(1, queries, pairs * size)
    parts = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    caches = [real(1, pairs, past, size), real(1, pairs, past, size)] if past else [None, None]
    angles = np.arange(16)[:, None] * 0.3 ** np.arange(size // 2)
    agrees("GroupQueryAttention", [*parts, *caches, np.int32([queries + past - 1]), np.int32(queries + past), np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)],
           {"num_heads": heads, "kv_num_heads": pairs, "do_rotary": 1, **more}, 3, (5, 6))


@pytest.mark.parametrize("batch, attributes, said", [(1, {"smooth_softmax": 1}, "export without them"), (2, {}, "build for a batch of 1"), (1, {"kv_num_heads": 3}, "num_heads 4 and kv_num_heads 3")])
def test_groups_that_are_not_covered(batch, attributes, said):
    arrays = [real(batch, 1, 32), real(batch, 1, 16), real(batch, 1, 16), real(batch, 2, 4, 8), real(batch, 2, 4, 8), np.int32([4] * batch), np.int32(5)]
    model, _ = model_with_constants("GroupQueryAttention", arrays, {"num_heads": 4, "kv_num_heads": 2, **attributes}, 3, (5, 6))
    with pytest.raises(octavo.Error, match=said) as refused:
        octavo.build(model, device="cpu", effort=0)
    assert '"the_node"' in str(refused.value)


def test_the_length_of_a_cache_may_be_an_input():
    """Each run binds it: the second has another."""
    engine = None
    for past in (4, 5):
        arrays = [real(1, 1, 32), real(1, 1, 16), real(1, 1, 16), real(1, 2, past, 8), real(1, 2, past, 8), np.int32([past]), np.asarray(past + 1, np.int32)]
        model, feeds = model_of("GroupQueryAttention", arrays, {"num_heads": 4, "kv_num_heads": 2}, 3)
        for k in (3, 4):
            model.graph.input[k].type.tensor_type.shape.dim[2].dim_param = "past"
        theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        engine = engine or octavo.build(model, device="cpu", effort=0)
        ours = engine.run(feeds)
        for output, expected in zip(model.graph.output, theirs):
            np.testing.assert_allclose(ours[output.name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(CASES))
def test_agrees_with_onnxruntime(kind):
    arrays, attributes, results = CASES[kind]
    model, feeds = model_of(kind, [np.asarray(a) for a in arrays], attributes, results)
    outputs = [o.name for o in model.graph.output]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, feeds)
    for device in ("cpu", "reference"):
        ours = octavo.build(model, device=device, effort=0).run(feeds)
        for name, expected in zip(outputs, theirs):
            np.testing.assert_allclose(ours[name], expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
