"""What is found about a request before it is decoded: fields, numbers, and the memory that they can take, which is measured here again."""
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("octavo")
orjson = pytest.importorskip("orjson", reason="orjson is not installed (make test-serving installs it)")
pb = pytest.importorskip("tritonclient.grpc.service_pb2", reason="tritonclient is not installed (make test-serving installs it)")
from octavo.serve import BadRequest  # noqa: E402
from octavo.serve._bounds import Widest, json_cost, split  # noqa: E402

WIDEST = Widest(2, 1000, 100)
INFER = pb.ModelInferRequest.DESCRIPTOR


def request(raw=(), inputs=1, **contents):
    made = pb.ModelInferRequest(model_name="m", id="7" * 200)
    made.parameters["a"].string_param = "b" * 300
    for i in range(inputs):
        one = made.inputs.add(name=f"x{i}", datatype="FP32", shape=(1, 200, 1 << 20))
        one.parameters["c"].int64_param = -1
        for name, values in contents.items():
            getattr(one.contents, name).extend(values)
    made.outputs.add(name="y").parameters["classification"].int64_param = 3
    made.raw_input_contents.extend(raw)
    return made


@pytest.mark.parametrize("made, numbers", [(request([b"abc", b"", b"\x2a" * 70000]), 3), (request(), 3), (request(inputs=3, int_contents=[-1, 5, 300] * 20), 3 * 63),
                                           (request(bool_contents=[True] * 99), 102), (request(fp32_contents=[1.5] * 30, fp64_contents=[1.0]), 34), (pb.ModelInferRequest(), 0)])
def test_a_message_is_divided_and_counted(made, numbers):
    data = made.SerializeToString()
    for given in (data, bytearray(data), np.frombuffer(data, np.uint8).data):
        found = split(given, INFER, WIDEST, 7)
        assert [bytes(one) for one in found.raw] == list(made.raw_input_contents)
        rest = pb.ModelInferRequest.FromString(found.rest)
        assert not rest.raw_input_contents
        rest.raw_input_contents.extend(map(bytes, found.raw))
        assert rest == made
        assert found.cost >= len(found.rest) + 72 * numbers
        assert split(given, INFER, WIDEST).rest == data


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


BOMBS = {"inputs": b"\x2a\0" * 20000, "outputs": b"\x32\0" * 20000, "raw": b"\x3a\0" * 20000, "parameters": b"\x22\0" * 20000, "names": b"\x0a\0" * 20000,
         "unknown": b"\xa0\6\1" * 20000, "tags of two bytes": b"\xaa\0\0" * 20000, "in an input": field(5, b"\x22\0" * 20000), "texts": field(5, field(5, b"\x42\0" * 20000)),
         "in a parameter": field(4, field(2, b"\x08\1" * 20000)), "not packed": field(5, b"\x18\1" * 20000), "packed": field(5, field(5, field(3, b"\1" * 20000))),
         "a shape": field(5, field(3, b"\1" * 20000)), "long name": field(1, b"a" * 70000)}


@pytest.mark.parametrize("kind", BOMBS)
def test_messages_that_would_become_large_are_refused(kind):
    with pytest.raises(BadRequest, match="more than|the limit is"):
        split(BOMBS[kind], INFER, WIDEST, 7)


def test_what_is_no_protocol_buffer():
    good = request([b"abc"], int_contents=[1, 2]).SerializeToString()
    for bad in (b"\x2a", b"\x2a\x05a", b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", b"\x0b", b"\x0f", b"\x80", b"\x0d\0", b"\x08\x80", b"\x3a\xff\xff\xff\xff\x0f"):
        with pytest.raises(BadRequest, match="is not a protocol buffer of this call"):
            split(bad, INFER, WIDEST, 7)
    rng = np.random.default_rng(1)
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            bad[rng.integers(len(bad))] = rng.integers(256)
        try:
            found = split(bad[:rng.integers(len(bad) + 1)], INFER, WIDEST, 7)
        except BadRequest:
            continue
        assert found.cost >= len(found.rest)


@pytest.mark.parametrize("text", ids=range(6), argvalues=[b"[" + b"[]," * 20000, b'{"inputs":[' + b"{}," * 20000, b"[" + b"1," * 20000, b"[" * 20000, b'{"a":' * 20000, b'["a"' + b',"a"' * 20000])
def test_json_that_would_become_large_is_refused(text):
    with pytest.raises(BadRequest, match="more than a request of these models needs"):
        json_cost(text, WIDEST)


def test_json_of_requests_is_not_refused():
    nested = np.zeros([2, 5, 10, 10], np.float32).tolist()
    text = orjson.dumps({"id": "[{,", "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 5, 10, 10], "data": nested}], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]})
    assert len(text) <= json_cost(text, Widest(2, 1000, 1 + 2 + 10 + 100)) < 120 * 1000 + 64000


MEASURE = """
import ctypes, gc, sys
import numpy, orjson
from tritonclient.grpc import service_pb2 as pb
sys.path.insert(0, {folder!r})
from octavo.serve._bounds import Widest, json_cost, split
def most(key):
    return int([line for line in open("/proc/self/status") if line.startswith(key)][0].split()[1]) * 1024
def made(form, text):
    gc.disable()
    ctypes.CDLL(None).malloc_trim(0)
    open("/proc/self/clear_refs", "w").write("5")
    before = most("VmHWM")
    if form == "json":
        cost = json_cost(text, Widest(1, 1 << 30, 1 << 30)._replace(tensors=1 << 30))
        value = orjson.loads(text)
        array = numpy.asarray(value).astype("float32") if text[1:2] in b"0123456789" or text[1:3] == b"[0" else None
    else:
        found = split(text, pb.ModelInferRequest.DESCRIPTOR, Widest(1 << 30, 1 << 30), 7)
        cost, value = found.cost, pb.ModelInferRequest.FromString(found.rest)
        for kind in ("int_contents", "int64_contents", "fp32_contents", "bool_contents"):
            if value.inputs and getattr(value.inputs[0].contents, kind):
                array = numpy.asarray(getattr(value.inputs[0].contents, kind)).astype("float32")
    print(most("VmHWM") - before, cost)
made({form!r}, {text})
"""


@pytest.mark.parametrize("form, text", ids=range(24), argvalues=[
    *(("json", f"b'[' + b','.join([{one!r}] * 300000) + b']'") for one in (b"[]", b"{}", b"1", b"300", b"0.5", b"0", b"null", b'""', b'"a"', b'{"":0}', b'{"a":1,"b":2}', b"[[]]",
                                                                           b"[0.5]", b"123456789012", b'{"abcdef":[]}', '"a\U0001F600bcdefghijklmnop"'.encode())),
    *(("pb", f"{one!r} * 300000") for one in (b"\x2a\0", b"\x32\0", b"\x22\0", b"\x0a\0", b"\xa0\6\1")),
    *(("pb", f"bytes.fromhex({bytes(head).hex()!r}) + {one!r} * 300000") for head, one in (
        (b"\x2a" + varint(4 + 4 + 600000) + b"\x2a" + varint(4 + 600000) + b"\x1a" + varint(600000), b"\xac\2"),
        (b"\x2a" + varint(4 + 4 + 300000) + b"\x2a" + varint(4 + 300000) + b"\x12" + varint(300000), b"\1"),
        (b"\x2a" + varint(4 + 4 + 1200000) + b"\x2a" + varint(4 + 1200000) + b"\x32" + varint(1200000), b"\0\0\0\x3f")))])
def test_decoding_makes_no_more_than_is_charged(form, text):
    """Resident memory at its peak, of a process of its own; a megabyte is the allocators' own."""
    import octavo
    program = MEASURE.format(folder=str(pathlib.Path(octavo.__file__).parents[1]), form=form, text=text)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    made, cost = map(int, done.stdout.split())
    assert made <= cost + (1 << 20), f"{made} bytes were made, {cost} were charged"
    assert made > 300000 or b"\x0a\0".__repr__() in text


def test_bulk_data_are_not_looked_at():
    """The time for a message does not depend on its raw contents."""
    small, large = request([bytes(10)]).SerializeToString(), request([bytes(64 << 20)]).SerializeToString()
    view = memoryview(large)

    def best(data):
        times = []
        for _ in range(20):
            began = time.perf_counter()
            split(data, INFER, WIDEST, 7)
            times.append(time.perf_counter() - began)
        return min(times)
    assert best(view) < 3 * best(small) + 1e-4
