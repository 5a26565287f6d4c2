"""Two small transformer encoders of seeded weights, in float and with Q/DQ pairs: BERT-like (ids in, 4 layers of 256 features, 4 heads, 128 tokens) and ViT-like
(a 224x224 image in patches of 16, 4 layers of 192 features, 3 heads). Attention, LayerNormalization and GELU are spelled out as exporters of
opset 13 write them.

usage: transformers.py DIR
"""
import pathlib
import sys

import numpy as np


class Graph:
    def __init__(self, seed, batch=1):
        from onnx import helper, numpy_helper

        self.rng, self.helper, self.numpy_helper = np.random.default_rng(seed), helper, numpy_helper
        self.nodes, self.constants, self.count, self.batch = [], [], 0, batch

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape):
        return self.constant((self.rng.standard_normal(shape) * (0.7 / np.sqrt(shape[0]))).astype(np.float32))

    def vector(self, n, around=0.0):
        return self.constant((around + 0.1 * self.rng.standard_normal(n)).astype(np.float32))

    def node(self, op, *inputs, **attributes):
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(self.helper.make_node(op, list(inputs), [name], name=f"n{self.count}_{op}", **attributes))
        return name

    def linear(self, x, a, b):
        return self.node("Add", self.node("MatMul", x, self.weight(a, b)), self.vector(b))

    def norm(self, x, n):
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        variance = self.node("ReduceMean", self.node("Pow", centred, self.constant(np.float32(2))), axes=[-1])
        root = self.node("Sqrt", self.node("Add", variance, self.constant(np.float32(1e-5))))
        return self.node("Add", self.node("Mul", self.node("Div", centred, root), self.vector(n, 1)), self.vector(n))

    def gelu(self, x):
        erf = self.node("Erf", self.node("Div", x, self.constant(np.float32(np.sqrt(2)))))
        return self.node("Mul", self.node("Mul", x, self.node("Add", erf, self.constant(np.float32(1)))), self.constant(np.float32(0.5)))

    def attention(self, x, tokens, n, heads):
        split, merged = self.constant(np.int64([self.batch, tokens, heads, n // heads])), self.constant(np.int64([self.batch, tokens, n]))
        q, k, v = (self.node("Reshape", self.linear(x, n, n), split) for _ in range(3))
        q, v = (self.node("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 3, 1]))
        scores = self.node("Softmax", self.node("Div", scores, self.constant(np.float32(np.sqrt(n // heads)))), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", scores, v), perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", mixed, merged), n, n)

    def mlp(self, x, n):
        return self.linear(self.gelu(self.linear(x, n, 4 * n)), 4 * n, n)

    def save(self, path, inputs, output, shape):
        import onnx
        from onnx import TensorProto, checker

        result = self.helper.make_tensor_value_info(output, getattr(self, "float_type", TensorProto.FLOAT), shape)
        graph = self.helper.make_graph(self.nodes, pathlib.Path(path).stem, inputs, [result], self.constants)
        model = self.helper.make_model(graph, opset_imports=[self.helper.make_opsetid("", 13)], ir_version=8)
        checker.check_model(model)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def bert(path, tokens=128, n=256, heads=4, layers=4, words=1000):
    """Norms behind the residual additions."""
    from onnx import TensorProto

    g = Graph(1)
    x = g.norm(g.node("Add", g.node("Gather", g.weight(words, n), "ids"), g.weight(tokens, n)), n)
    for _ in range(layers):
        x = g.norm(g.node("Add", x, g.attention(x, tokens, n, heads)), n)
        x = g.norm(g.node("Add", x, g.mlp(x, n)), n)
    g.save(path, [g.helper.make_tensor_value_info("ids", TensorProto.INT64, [1, tokens])], x, [1, tokens, n])


def vit(path, n=192, heads=3, layers=4, classes=100):
    """Norms before attention and MLP; a class token."""
    from onnx import TensorProto

    g = Graph(2)
    kernel = g.constant((g.rng.standard_normal((n, 3, 16, 16)) / 28).astype(np.float32))
    patches = g.node("Conv", "image", kernel, g.vector(n), kernel_shape=[16, 16], strides=[16, 16])
    patches = g.node("Transpose", g.node("Reshape", patches, g.constant(np.int64([1, n, 196]))), perm=[0, 2, 1])
    first = g.constant(g.rng.standard_normal((1, 1, n)).astype(np.float32))
    x = g.node("Add", g.node("Concat", first, patches, axis=1), g.weight(197, n))
    for _ in range(layers):
        x = g.node("Add", x, g.attention(g.norm(x, n), 197, n, heads))
        x = g.node("Add", x, g.mlp(g.norm(x, n), n))
    token = g.node("Gather", g.norm(x, n), g.constant(np.int64(0)), axis=1)
    g.save(path, [g.helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])], g.linear(token, n, classes), [1, classes])


def quantized(path, make, inputs):
    """Q/DQ pairs around products and convolutions as ONNX Runtime's static quantization places them: int8 weights per output channel, symmetric
    int8 activations per tensor, ranges of a few seeded inputs."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            rng = np.random.default_rng(3)
            self.left = [inputs(rng) for _ in range(4)]

        def get_next(self):
            return self.left.pop() if self.left else None

    plain = pathlib.Path(path).with_suffix(".float.onnx")
    make(plain)
    quantization.quantize_static(plain, path, Reader(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
                                 op_types_to_quantize=["MatMul", "Conv"], activation_type=quantization.QuantType.QInt8,
                                 weight_type=quantization.QuantType.QInt8, extra_options={"ActivationSymmetric": True, "MatMulConstBOnly": True})
    plain.unlink()


def bert_qdq(path):
    quantized(path, bert, lambda rng: {"ids": rng.integers(0, 1000, (1, 128))})


def vit_qdq(path):
    quantized(path, vit, lambda rng: {"image": rng.standard_normal((1, 3, 224, 224)).astype(np.float32)})


NETWORKS = {"bert_like": bert, "vit_like": vit, "bert_like_qdq": bert_qdq, "vit_like_qdq": vit_qdq}

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for network, make in NETWORKS.items():
        make(folder / f"{network}.onnx")
