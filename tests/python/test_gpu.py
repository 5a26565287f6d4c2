"""Arrays in a GPU's memory through the Python package: tensors go in and come out where they are, on the caller's stream, with the host's bits.

Needs an NVIDIA GPU, NVRTC and PyTorch; skipped without.
"""
import os
import pathlib
import sys
import threading

import numpy as np
import pytest

import octavo

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared"))
MODEL = DATA / "models/mobilenetv2_qdq_perchannel_s8.onnx"


@pytest.fixture(scope="module")
def engine():
    return octavo.build(MODEL, device="cuda", effort=0)


@pytest.fixture(scope="module")
def names(engine):
    return engine.inputs[0]["name"], engine.outputs[0]["name"]


def some_input(engine, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*engine.inputs[0]["shape"], device="cuda", generator=generator)


def from_host(engine, x):
    return engine.run([x.cpu().numpy()])[engine.outputs[0]["name"]]


def on_device(engine, names, seed):
    x = some_input(engine, seed)
    y = torch.full(engine.outputs[0]["shape"], float("nan"), device="cuda")
    return x, y


def test_host_arrays_equal_the_cpu(engine):
    x = some_input(engine, 1).cpu().numpy()
    cpu = octavo.build(MODEL, effort=0)
    got, want = engine.run([x]), cpu.run([x])
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_tensors_go_in_and_come_out_where_they_are(engine, names):
    x, y = on_device(engine, names, 2)
    at = y.data_ptr()
    result = engine.run({names[0]: x}, outputs={names[1]: y})
    assert result[names[1]] is y and y.data_ptr() == at
    np.testing.assert_array_equal(y.cpu().numpy(), from_host(engine, x))


def test_a_run_copies_nothing(engine, names):
    x, y = on_device(engine, names, 3)
    engine.run({names[0]: x}, outputs={names[1]: y})
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        engine.run({names[0]: x}, outputs={names[1]: y})
        torch.cuda.synchronize()
    events = [e.name for e in profile.events()]
    assert not [e for e in events if "memcpy" in e.lower()], events
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:  # and copies would be seen
        engine.run([x.cpu().numpy()])
        torch.cuda.synchronize()
    assert [e.name for e in profile.events() if "memcpy" in e.name.lower()]


def test_new_results_are_tensors_without_a_copy(engine, names):
    x = some_input(engine, 4)
    result = engine.run({names[0]: x})[names[1]]
    first, second = torch.from_dlpack(result), torch.from_dlpack(result)
    assert first.device.type == "cuda" and first.data_ptr() == second.data_ptr()
    np.testing.assert_array_equal(first.cpu().numpy(), from_host(engine, x))
    kept = first.clone()
    engine.run({names[0]: some_input(engine, 5)})  # has memory of its own
    assert torch.equal(first, kept)


class OnlyInterface:
    """A tensor as a library shows it that does not know DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.__cuda_array_interface__ = dict(tensor.__cuda_array_interface__)


def test_cuda_array_interface(engine, names):
    x, y = on_device(engine, names, 6)
    lent, place = OnlyInterface(x), OnlyInterface(y)
    assert lent.__cuda_array_interface__["data"][0] == x.data_ptr()
    result = engine.run({names[0]: lent}, outputs={names[1]: place})
    assert result[names[1]] is place
    np.testing.assert_array_equal(y.cpu().numpy(), from_host(engine, x))


def test_the_run_waits_for_the_callers_stream(engine, names):
    x, y = on_device(engine, names, 7)
    later = some_input(engine, 8)
    want = from_host(engine, later)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about 0.1 s, in which x still holds the other values
        x.copy_(later)
        engine.run({names[0]: x}, outputs={names[1]: y}, stream=stream.cuda_stream)
    np.testing.assert_array_equal(y.cpu().numpy(), want)


def test_the_default_stream_is_waited_for(engine, names):
    x, y = on_device(engine, names, 9)
    later = some_input(engine, 10)
    want = from_host(engine, later)
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    x.copy_(later)
    engine.run({names[0]: x}, outputs={names[1]: y})
    np.testing.assert_array_equal(y.cpu().numpy(), want)


def test_threads_share_an_engine(engine, names):
    inputs = [some_input(engine, 20 + i) for i in range(4)]
    want = [from_host(engine, x) for x in inputs]
    torch.cuda.synchronize()
    wrong = []

    def work(i):
        for _ in range(20):
            y = torch.from_dlpack(engine.run({names[0]: inputs[i]})[names[1]])
            if not np.array_equal(y.cpu().numpy(), want[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_tensors_that_do_not_fit_are_refused_by_name(engine, names):
    x = some_input(engine, 11)
    with pytest.raises(octavo.InputError, match=f'"{names[0]}" is float16, the model has float32'):
        engine.run({names[0]: x.half()})
    with pytest.raises(octavo.InputError, match="not C-contiguous"):
        engine.run({names[0]: x.to(memory_format=torch.channels_last)})
    with pytest.raises(octavo.InputError, match=r"has shape .*, the engine was built for"):
        engine.run({names[0]: torch.cat([x, x])})


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(octavo.Error, match="opening GPU 99"):
        octavo.build(MODEL, device="cuda:99", effort=0)


def test_memory_that_is_used_up_is_said(engine, names):
    taken, said = [], None
    try:
        for _ in range(5):  # other programs may give memory back meanwhile
            free, _ = torch.cuda.mem_get_info()
            taken.append(torch.empty(max(free - (4 << 20), 1), dtype=torch.uint8, device="cuda"))
            try:
                octavo.build(MODEL, device="cuda", effort=0).run([np.zeros(engine.inputs[0]["shape"], np.float32)])
            except octavo.Error as error:
                said = str(error)
                break
        assert said is not None and "memory" in said.lower()
    finally:
        del taken
        torch.cuda.empty_cache()
    x = some_input(engine, 12)  # the engine that was there before still runs
    y = torch.from_dlpack(engine.run({names[0]: x})[names[1]])
    np.testing.assert_array_equal(y.cpu().numpy(), from_host(engine, x))


def test_what_the_gpu_has_no_kernel_for_runs_on_the_cpu(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes = [helper.make_node("MatMul", ["x", "x"], ["p"], "square"), helper.make_node("Det", ["p"], ["d"], "determinant"),
             helper.make_node("Softmax", ["d"], ["y"], "shares", axis=0)]  # the GPU's kernel for determinants takes 1,024 rows
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kinds.FLOAT, (2, 1025, 1025))],
                              [helper.make_tensor_value_info("y", kinds.FLOAT, (2,))])
    model = tmp_path / "det.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    with pytest.raises(octavo.UnsupportedError, match='device "cuda,cpu"'):
        octavo.build(model, device="cuda", effort=0)
    engine = octavo.build(model, device="cuda,cpu", effort=0)
    tactics = {layer["tactic"].partition(".")[0] for layer in engine.layers}
    assert {"cuda", "cpu"} <= tactics, tactics
    x = np.stack([np.eye(1025, dtype=np.float32) * scale for scale in (1.0, 1.0005)])  # determinants of 1 and 2.8
    got, want = engine.run([x])["y"], octavo.build(model, effort=0).run([x])["y"]
    np.testing.assert_allclose(got, want, rtol=1e-3)
    assert 0.05 < got[0] < got[1], got
    y = torch.from_dlpack(engine.run({"x": torch.from_numpy(x).cuda()})["y"])
    np.testing.assert_array_equal(y.cpu().numpy(), got)


def spoilt(file):
    """The engine file with right checksums, its machine code for another machine than a GPU: bytes 18 and 19 of an ELF header."""
    sys.path.insert(0, str(ROOT / "fuzz"))
    try:
        import forged_files
    finally:
        sys.path.pop(0)
    parts, count = [], 0
    for name, number, data in forged_files.sections(file):
        at = data.find(b"\x7fELF") if name in ("constant", "open-data") else -1
        changed = bytearray(data)
        while at >= 0:
            changed[at + 18:at + 20] = b"\0\0"
            count += 1
            at = data.find(b"\x7fELF", at + 4)
        parts.append((name, number, bytes(changed)))
    assert count > 3
    return forged_files.packed(parts, file[8:24])


@pytest.mark.parametrize("kind,batches", [("one shape", [2]), ("a set", [1, 3]), ("a range", [4, 7])])
def test_machine_code_of_a_file_is_not_used_with_code_rebuild(tmp_path, kind, batches):
    """code="rebuild": a file whose machine code no GPU takes runs, with the CPU's bits; code="file": it is refused."""
    digits = ROOT / "examples/digits/digits_qdq.onnx"
    shape = lambda n: (n, 1, 16, 16)
    more = {"one shape": {"shapes": {"image": shape(2)}}, "a set": {}, "a range": {"profiles": {"image": (shape(1), shape(4), shape(8))}}}[kind]
    built = octavo.build(digits, device="cuda", effort=0, **more)
    if kind == "a set":
        for n in batches:
            built.at({"image": shape(n)})
    built.save(tmp_path / "gpu.octavo")
    file = spoilt((tmp_path / "gpu.octavo").read_bytes())
    with pytest.raises(octavo.Error):
        octavo.load(file, code="file").run({"image": np.zeros(shape(batches[0]), np.float32)})
    anew = octavo.load(file, code="rebuild")
    for n in batches:
        x = np.random.default_rng(n).standard_normal(shape(n)).astype(np.float32)
        want = octavo.build(digits, effort=0, shapes={"image": shape(n)}).run({"image": x})
        for name, value in anew.run({"image": x}).items():
            np.testing.assert_array_equal(value, want[name])
