"""The onnx package's backend tests: none wrong, none crashed, and what is refused is what tests/backend/refused.txt says. All of them on the cpu device, and with
OCTAVO_FULL on the reference device too; without, one in four there."""
import collections
import pathlib

import pytest

pytest.importorskip("onnx")
pytest.importorskip("ml_dtypes")
from octavo import backend_tests  # noqa: E402
from rounds import rounds  # noqa: E402

PINNED = pathlib.Path(__file__).resolve().parents[1] / "backend" / "refused.txt"
KERNELS = PINNED.with_name("kernels.txt")
#: fewest that pass, and fewest that pass with kernels alone
LEAST = {"cpu": (1700, 650), "reference": (1700, 0)}


@pytest.fixture(scope="module")
def tests():
    return backend_tests.load_tests()


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_every_backend_test_is_in_its_class(tests, device):
    step = 1 if device == "cpu" else rounds(4, 1)
    results = backend_tests.run_all(tests[::step], device, timeout=60)
    pinned = {name: why for name, why in backend_tests.read_pinned(PINNED).items() if step == 1 or name in results}
    changed = backend_tests.differences(results, pinned)
    if device == "cpu":
        changed += backend_tests.lost_kernels(results, backend_tests.read_kernels(KERNELS))
    assert not changed, "\n".join(changed[:20])
    counts = collections.Counter(c for c, _ in results.values())
    passed, by_kernels = LEAST[device]
    assert (counts["cpu"] + counts["reference"]) * step >= passed, counts
    assert counts["cpu"] >= by_kernels, counts


def test_a_kernel_that_is_lost_is_told():
    names = backend_tests.read_kernels(KERNELS)
    assert len(names) == len(set(names)) >= LEAST["cpu"][1]
    told = backend_tests.lost_kernels({names[0]: ("reference", "cpu.reference.conv"), names[1]: ("cpu", "")}, names)
    assert len(told) == 1 and told[0].startswith(names[0])


def test_the_list_says_why():
    reasons = backend_tests.read_pinned(PINNED)
    assert reasons and all(reason.strip() for reason in reasons.values())


def test_data_reaches_the_engine_at_run_time():
    """One prepared model, two inputs: other results, from one engine."""
    import numpy as np
    import onnx
    from octavo import backend
    node = onnx.helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)
    shapes = {"x": [3, 1, 4], "w": [1, 8, 4], "r": [1, 8, 2]}
    graph = onnx.helper.make_graph([node], "g", [onnx.helper.make_tensor_value_info(k, 1, s) for k, s in shapes.items()],
                                   [onnx.helper.make_tensor_value_info("y", 1, [3, 1, 1, 2])])
    rep = backend.prepare(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 14)]), "cpu")
    rng = np.random.default_rng(0)
    feeds = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    first = rep.run(feeds)[0]
    engine = rep.engine
    feeds["x"] = -feeds["x"]
    assert not np.allclose(first, rep.run(feeds)[0])
    assert rep.engine is engine
