"""Numbers that JSON and protocol buffers carry: integers of 64 bits, infinity and NaN, booleans; over both protocols, on the short and the long way of HTTP."""
import gzip
import json

import numpy as np
import pytest

octavo = pytest.importorskip("octavo")
onnx = pytest.importorskip("onnx")
from test_serve import InferenceServerException, Running, triton_grpc, triton_http  # noqa: E402

LARGE = [2**64 - 1, 1, 2, 3]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """wide: UINT64, y = x. logs: FP32, y = log(x), and z = -x, which is finite."""
    from onnx import TensorProto, helper
    folder = tmp_path_factory.mktemp("numbers")
    for name, kind, nodes in (("wide", TensorProto.UINT64, [helper.make_node("Identity", ["x"], ["y"])]),
                              ("logs", TensorProto.FLOAT, [helper.make_node("Log", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])])):
        outputs = [helper.make_tensor_value_info(one, kind, ["n", 4]) for node in nodes for one in node.output]
        graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", kind, ["n", 4])], outputs)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), folder / f"{name}.onnx")
    with Running(folder, "--batch", "1,2", "--delay-ms", "0") as running:
        yield running


def ask(server, model, datatype, data, *, padding=0, packed=False, **more):
    """By hand, in JSON; `packed`: compressed, `padding`: more bytes of a body, which then goes the short way."""
    text = json.dumps({"inputs": [{"name": "x", "datatype": datatype, "shape": [1, 4], "data": data}], **more}).encode() + b" " * padding
    status, said = server.ask("POST", f"/v2/models/{model}/infer", gzip.compress(text) if packed else text, {"Content-Encoding": "gzip"} if packed else {})
    return status, json.loads(said) if said.startswith(b'{"error"') or b'"data"' in said else said


def ask_typed(server, model, datatype, field, data):
    request = triton_grpc.service_pb2.ModelInferRequest(model_name=model)
    one = request.inputs.add(name="x", datatype=datatype, shape=[1, 4])
    getattr(one.contents, field).extend(data)
    return server.grpc._client_stub.ModelInfer(request)


@pytest.mark.parametrize("more", [{}, {"padding": 2000}, {"packed": True}])
def test_integers_of_64_bits(server, more):
    status, said = ask(server, "wide", "UINT64", LARGE, **more)
    assert status == 200 and said["outputs"][0]["data"] == LARGE, said
    for wrong in (-1, 2**64, 2**80):
        status, said = ask(server, "wide", "UINT64", [2**64 - 1, 0, 0, wrong], **more)
        assert status == 400 and "is outside 0 to 18446744073709551615, the range of UINT64" in said["error"], said


def test_integers_of_64_bits_in_a_protocol_buffer(server):
    assert list(ask_typed(server, "wide", "UINT64", "uint64_contents", LARGE).outputs[0].contents.uint64_contents) == LARGE
    with pytest.raises(Exception, match="INVALID_ARGUMENT.*(.|\n)*300 is outside -128 to 127, the range of INT8"):
        ask_typed(server, "wide", "INT8", "int_contents", [1, 2, 3, 300])


@pytest.mark.parametrize("more", [{}, {"padding": 2000}, {"packed": True}])
def test_numbers_that_would_become_infinite_and_booleans(server, more):
    for data, text in (([1, 2, 3, 1e39], "1e+39 is outside"), ([True, 2, 3, 4.5], "true and false are not"), ([True, 2, 3, 4], "true and false are not"), ([True] * 4, "true and false are not")):
        status, said = ask(server, "logs", "FP32", data, **more)
        assert status == 400 and text in said["error"], said


@pytest.mark.parametrize("more", [{}, {"padding": 2000}, {"packed": True}])
@pytest.mark.parametrize("x", [[1, 2, -1, 3], [1, 2, 0, 3]], ids=["NaN", "infinity"])
def test_results_that_json_cannot_express(server, x, more):
    """Not null in their place: an error that names the output and the way out. Outputs that JSON can express, classes, and binary data are as ever."""
    with np.errstate(all="ignore"):
        right = np.log(np.float32(x))
    for _ in range(2):
        status, said = ask(server, "logs", "FP32", x, **more)
        assert status == 400 and "output 'y': 1 of 4 values are NaN or infinity, which JSON cannot express" in said["error"] and "binary_data true" in said["error"], said
        status, said = ask(server, "logs", "FP32", x, **more, outputs=[{"name": "z"}])
        assert status == 200 and said["outputs"][0]["data"] == [-value for value in x]
        status, said = ask(server, "logs", "FP32", x, **more, outputs=[{"name": "y", "parameters": {"classification": 4}}])
        assert status == 200 and any(text.startswith(("nan", "-inf")) for text in said["outputs"][0]["data"]), said
        status, said = ask(server, "logs", "FP32", x, **more, outputs=[{"name": "y", "parameters": {"binary_data": True}}])
        assert status == 200 and np.allclose(np.frombuffer(said[-16:], np.float32), right, equal_nan=True)
    one = triton_http.InferInput("x", [1, 4], "FP32")
    one.set_data_from_numpy(np.float32([x]))
    assert np.allclose(server.http.infer("logs", [one]).as_numpy("y"), [right], equal_nan=True)
    with pytest.raises(InferenceServerException, match="400.*output 'y'.*JSON cannot express"):
        server.http.infer("logs", [one], outputs=[triton_http.InferRequestedOutput("y", binary_data=False)])
    assert np.allclose(ask_typed(server, "logs", "FP32", "fp32_contents", x).outputs[0].contents.fp32_contents, right, equal_nan=True)
    assert np.isnan(ask_typed(server, "logs", "FP32", "fp32_contents", [np.nan, np.inf, 1, 1]).outputs[0].contents.fp32_contents[0])
