"""The benchmarks' own arithmetic: tables keep scales to the bit, intervals contain what they should."""
import pathlib
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import counterparts  # noqa: E402

onnx = pytest.importorskip("onnx")


def model(make, explicit):
    import cases

    net = cases.Net(explicit)
    return net.model(*make(net)), net


def float32(value):
    return struct.unpack(">f", struct.pack(">f", value))[0]


@pytest.mark.parametrize("name", ["C1", "C2", "C7", "C9, everywhere", "C12", "C14"])
def test_scales_of_a_model_are_its_counterparts_ranges(name):
    import cases

    explicit, _ = model(cases.CASES[name], True)
    _, counterpart = model(cases.CASES[name], False)
    found = counterparts.scales_of(explicit)
    assert sorted(found.values()) == sorted(float32(s) for s in counterpart.scales.values())


def test_a_table_keeps_every_bit(tmp_path):
    scales = {"a": float32(0.1), "b": float32(1 / 3), "c": 2.0**-140}
    counterparts.write_table(tmp_path / "t", scales)
    lines = (tmp_path / "t").read_text().splitlines()
    assert lines[0].startswith("TRT-")
    assert {n: struct.unpack(">f", bytes.fromhex(h))[0] for n, h in (l.split(": ") for l in lines[1:])} == scales


def test_a_pair_behind_a_pair_belongs_to_the_tensor_before_both():
    import cases

    net = cases.Net(True)
    x = net.input("x", [1, 4, 8, 8])
    scales = counterparts.scales_of(net.model(net.conv(net.q(x, 0.05), 4, scale=0.05)))
    assert scales == {"x": float32(0.05)}


def test_interval_of_equal_and_of_slower_times():
    same = [1.0 + 0.001 * (i % 5) for i in range(30)]
    ratio, low, high = counterparts.interval(same, same)
    assert ratio == low == high == 1.0
    ratio, low, high = counterparts.interval([1.1 * t for t in same], same)
    assert 1.09 < low <= ratio <= high < 1.11
