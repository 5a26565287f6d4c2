"""Writes the trained network as ONNX: once in float, once with QuantizeLinear/DequantizeLinear pairs.

The pairs are placed as different exporters would: uint8 where a value is not negative (after ReLU) or asymmetric (after SiLU), int8 with
zero point 0 elsewhere; around the first SiLU's input as well (a table), not around the second's; on the concat's result, and on the branch
of the residual add. Weights are int8 per output channel, biases int32 with scale s_x * s_w.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    def __init__(self, params, ranges, quantize):
        self.p, self.ranges, self.quantize = params, ranges, quantize
        self.nodes, self.constants, self.scales = [], [], {}

    def const(self, name, array):
        if not any(t.name == name for t in self.constants):
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind, inputs, name, **attrs):
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attrs))
        if kind in ("MaxPool", "Flatten") and inputs[0] in self.scales:
            self.scales[name] = self.scales[inputs[0]]
        return name

    def view(self, x, how):
        """x as seen through an 8-bit grid: 'u8' from 0, 'asym' uint8 with a zero point, 's8' symmetric. Float model: x itself."""
        if not self.quantize:
            return x
        lo, hi = self.ranges[x]
        if how == "s8":
            scale, zero = np.float32(max(-lo, hi) / 127), np.int8(0)
        else:
            lo = min(lo, 0.0) if how == "asym" else 0.0
            scale = np.float32((hi - lo) / 255)
            zero = np.uint8(np.rint(-lo / float(scale)))
        args = [self.const(x + "_scale", scale), self.const(x + "_zero", zero)]
        self.op("QuantizeLinear", [x, *args], x + "_q")
        y = self.op("DequantizeLinear", [x + "_q", *args], x + "_dq")
        self.scales[y] = scale
        return y

    def weighted(self, kind, name, x, weight, axis, **attrs):
        """weight in ONNX's layout; `axis` is that of the output channels."""
        w, b = weight.astype(np.float32), self.p[name + ".b"].astype(np.float32)
        if not self.quantize:
            return self.op(kind, [x, self.const(name + "_w", w), self.const(name + "_b", b)], name, **attrs)
        amax = np.abs(w).max(axis=tuple(k for k in range(w.ndim) if k != axis))
        scale = np.maximum(amax / np.float32(127), np.float32(1e-8))
        codes = np.clip(np.rint(w / scale.reshape([-1 if k == axis else 1 for k in range(w.ndim)])), -127, 127).astype(np.int8)
        wq = self.op("DequantizeLinear", [self.const(name + "_w_q", codes), self.const(name + "_w_scale", scale),
                                          self.const(name + "_w_zero", np.zeros(len(scale), np.int8))], name + "_w", axis=axis)
        bias_scale = self.scales[x] * scale
        bias = np.clip(np.rint(b / bias_scale), -(2**31), 2**31 - 1).astype(np.int32)
        bq = self.op("DequantizeLinear", [self.const(name + "_b_q", bias), self.const(name + "_b_scale", bias_scale),
                                          self.const(name + "_b_zero", np.zeros(len(scale), np.int32))], name + "_b", axis=0)
        return self.op(kind, [x, wq, bq], name, **attrs)

    def conv(self, name, x, stride=1):
        w = self.p[name]
        k = w.shape[0]
        if w.ndim == 3:
            w, group = w.transpose(2, 0, 1)[:, None], w.shape[2]
        else:
            w, group = w.transpose(3, 2, 0, 1), 1
        return self.weighted("Conv", name, x, w, 0, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=group)

    def silu(self, x, name):
        return self.op("Mul", [x, self.op("Sigmoid", [x], name + "_sigmoid")], name)

    def pool(self, x, name):
        return self.op("MaxPool", [x], name, kernel_shape=[2, 2], strides=[2, 2])

    def build(self):
        a = self.view(self.conv("conv1", self.view("image", "u8")), "asym")
        a = self.pool(self.view(self.silu(a, "act1"), "asym"), "pool1")
        a = self.view(self.op("Relu", [self.conv("dw", a)], "act2"), "u8")
        skip = self.view(self.op("Relu", [self.conv("pw", a)], "act3"), "u8")
        a = self.view(self.op("Relu", [self.conv("res1", skip)], "act4"), "u8")
        a = self.op("Add", [self.view(self.conv("res2", a), "s8"), skip], "add")
        a = self.op("Relu", [a], "act5")
        a_down = self.view(self.silu(self.conv("down", self.view(a, "u8"), stride=2), "act6"), "asym")
        up = self.weighted("ConvTranspose", "up", a_down, self.p["up"].transpose(0, 3, 1, 2), 1, kernel_shape=[2, 2], strides=[2, 2])
        a = self.op("Concat", [a, self.op("Relu", [up], "act7")], "concat", axis=1)
        a = self.view(self.silu(self.conv("fuse", self.view(a, "u8")), "act8"), "asym")
        a = self.op("GlobalAveragePool", [self.pool(a, "pool2")], "mean")
        a = self.op("Flatten", [self.view(a, "asym")], "flat")
        self.weighted("Gemm", "head", a, self.p["head"][0, 0].T, 0, transB=1)
        graph = helper.make_graph(
            self.nodes, "digits", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 16, 16])],
            [helper.make_tensor_value_info("head", TensorProto.FLOAT, ["N", 10])], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="octavo-digits")
        onnx.checker.check_model(model, full_check=True)
        return model


def export(params, ranges, folder):
    for name, quantize in (("digits_fp32.onnx", False), ("digits_qdq.onnx", True)):
        (folder / name).write_bytes(Writer(params, ranges, quantize).build().SerializeToString(deterministic=True))
