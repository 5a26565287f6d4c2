"""What ONNX Runtime's quantizers make of a float model. FORMS: {name: function(model, feeds, folder) -> onnx.ModelProto}."""
import logging
import onnx
from onnxruntime import quantization as q
from onnxruntime.quantization.shape_inference import quant_pre_process


class Feeds(q.CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def static(model, feeds, folder, format_, activation, weight, **options):
    source, prepared, result = (str(folder / f"{name}.onnx") for name in ("float", "prepared", "quantized"))
    onnx.save(model, source)
    quant_pre_process(source, prepared, skip_symbolic_shape=True)  # symbolic inference would need sympy; the shapes are fixed
    logging.getLogger().setLevel(logging.ERROR)
    q.quantize_static(prepared, result, Feeds(feeds), quant_format=format_, activation_type=activation, weight_type=weight, **options)
    return onnx.load(result)


def dynamic(model, _feeds, folder, weight, **options):
    source, result = (str(folder / f"{name}.onnx") for name in ("float", "quantized"))
    onnx.save(model, source)
    q.quantize_dynamic(source, result, weight_type=weight, **options)
    return onnx.load(result)


U8, S8, QDQ, QOP = q.QuantType.QUInt8, q.QuantType.QInt8, q.QuantFormat.QDQ, q.QuantFormat.QOperator


def form(function, *arguments, **options):
    return lambda model, feeds, folder: function(model, feeds, folder, *arguments, **options)


FORMS = {
    "qdq_u8s8": form(static, QDQ, U8, S8),
    "qdq_u8s8_per_channel": form(static, QDQ, U8, S8, per_channel=True),
    "qdq_s8s8_per_channel_symmetric": form(static, QDQ, S8, S8, per_channel=True,
                                           extra_options={"ActivationSymmetric": True, "WeightSymmetric": True}),
    "qdq_u8u8": form(static, QDQ, U8, U8),
    "qdq_own_pairs": form(static, QDQ, U8, S8, per_channel=True, extra_options={"DedicatedQDQPair": True, "AddQDQPairToWeight": True}),
    "qdq_float_bias": form(static, QDQ, U8, S8, per_channel=True, reduce_range=True, extra_options={"QuantizeBias": False}),
    "qoperator_u8s8": form(static, QOP, U8, S8),
    "qoperator_u8s8_per_channel": form(static, QOP, U8, S8, per_channel=True),
    "qoperator_s8s8": form(static, QOP, S8, S8),
    "qoperator_u8u8": form(static, QOP, U8, U8),
    "dynamic_s8": form(dynamic, S8),
    "dynamic_u8_per_channel": form(dynamic, U8, per_channel=True),
}
