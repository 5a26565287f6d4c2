"""From a PyTorch module to ONNX: float by both exporters, fake-quantized (QAT), PT2E, and NNCF. Each returns an onnx.ModelProto."""
import copy
import io

import onnx
import torch

torch.set_num_threads(1)


def exported(module, shape, dynamo):
    x = torch.zeros(shape)
    buffer = io.BytesIO()
    if dynamo:
        torch.onnx.export(module, (x,), dynamo=True, verbose=False).save(buffer)
    else:
        torch.onnx.export(module, (x,), buffer, dynamo=False, opset_version=17, input_names=["x"])
    return onnx.load_from_string(buffer.getvalue())


def torchscript(module, shape):
    return exported(module, shape, dynamo=False)


def dynamo(module, shape):
    return exported(module, shape, dynamo=True)


def batches(shape, count=16):
    torch.manual_seed(99)
    return [torch.randn(shape) for _ in range(count)]


def fake_quantize():
    """What QAT puts before weights and behind activations. ONNX knows the whole range of int8 only: -128, not -127."""
    from torch.ao import quantization as q

    weights = q.FakeQuantize.with_args(observer=q.MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
                                       qscheme=torch.per_channel_symmetric, ch_axis=0)
    inputs = q.FakeQuantize.with_args(observer=q.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8)
    return q.QConfig(activation=inputs, weight=weights)


def observed(module, shape):
    """Ranges from some batches, then fixed; training proper would come between."""
    from torch.ao import quantization as q

    with torch.no_grad():
        for batch in batches(shape):
            module(batch)
    return module.eval().apply(q.disable_observer)


def qat(module, shape):
    """torch.ao's FX quantization-aware training: BatchNormalization is folded into the fake-quantized weights at run time."""
    from torch.ao import quantization as q
    from torch.ao.quantization.quantize_fx import prepare_qat_fx

    mapping = q.QConfigMapping().set_global(fake_quantize())
    module = prepare_qat_fx(copy.deepcopy(module).train(), mapping, (torch.zeros(shape),))
    return torchscript(observed(module, shape), shape)


def qat_eager(module, shape):
    """The same with prepare_qat: one fake quantization behind each module, none behind an addition."""
    from torch.ao import quantization as q

    module = torch.nn.Sequential(q.QuantStub(), copy.deepcopy(module)).train()
    module.qconfig = fake_quantize()
    q.prepare_qat(module, inplace=True)
    return torchscript(observed(module, shape), shape)


def pt2e(module, shape, quantizer):
    """torchao's PT2E quantization of the exported program, then torch.onnx."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    program = torch.export.export(module, (torch.zeros(shape),)).module()
    program = prepare_pt2e(program, quantizer)
    for batch in batches(shape):
        program(batch)
    program = convert_pt2e(program)
    return exported(program, shape, dynamo=True)


def x86():
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x
    return x.X86InductorQuantizer().set_global(x.get_default_x86_inductor_quantization_config())


def xnnpack():
    from torchao.testing.pt2e import _xnnpack_quantizer as x
    return x.XNNPACKQuantizer().set_global(x.get_symmetric_quantization_config(is_per_channel=True))


def nncf(module, shape, **parameters):
    """NNCF's post-training quantization of the ONNX file; `parameters` of its activations' quantizers."""
    import nncf
    from nncf.common.logging.logger import set_log_level
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, QuantizationParameters

    set_log_level(40)
    model = torchscript(module, shape)
    data = nncf.Dataset([batch.numpy() for batch in batches(shape)], lambda x: {"x": x})
    advanced = AdvancedQuantizationParameters(activations_quantization_params=QuantizationParameters(**parameters))
    return nncf.quantize(model, data, subset_size=16, preset=nncf.QuantizationPreset.MIXED, advanced_parameters=advanced)


FORMS = {
    "torchscript": torchscript,
    "dynamo": dynamo,
    "qat": qat,
    "qat_eager": qat_eager,
    "pt2e_x86": lambda module, shape: pt2e(module, shape, x86()),
    "pt2e_xnnpack": lambda module, shape: pt2e(module, shape, xnnpack()),
    "nncf": nncf,
    "nncf_per_tensor": lambda module, shape: nncf(module, shape, per_channel=False),
}
