"""octavo.build(cpu=...): engines for lesser processors, as `octavo build --cpu` makes them."""
import pathlib

import numpy as np
import pytest

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]
QDQ = ROOT / "examples" / "digits" / "digits_qdq.onnx"
LEVELS = ["portable", "avx2", "avx512", "avx512vnni", "amx"]
OPTIONS = {"shapes": {"image": (1, 1, 16, 16)}, "threads": 1, "effort": 0}


def levels_used(engine):
    """The levels that the tactics of an engine name."""
    words = {word for layer in engine.layers for word in layer["tactic"].replace("+", ".").split(".")}
    return [level for level in LEVELS if level in words]


def build(cpu):
    try:
        return octavo.build(QDQ, cpu=cpu, **OPTIONS)
    except octavo.UnsupportedError as error:
        assert "this processor has" in str(error)
        pytest.skip(f"this processor lacks {cpu}")


@pytest.mark.parametrize("cpu", LEVELS)
def test_no_tactic_is_above_the_level(cpu):
    engine = build(cpu)
    assert all(LEVELS.index(level) <= LEVELS.index(cpu) for level in levels_used(engine)), levels_used(engine)
    x = np.random.default_rng(3).uniform(0, 1, (1, 1, 16, 16)).astype(np.float32)
    np.testing.assert_array_equal(engine.run(x)["head"], octavo.build(QDQ, **OPTIONS).run(x)["head"])
    if cpu in ("avx2", "avx512"):
        assert cpu in levels_used(engine)  # the level itself was hit


def test_the_cap_ends_with_the_build():
    before = octavo.build(QDQ, **OPTIONS)
    portable = build("portable")
    after = octavo.build(QDQ, **OPTIONS)
    assert [layer["tactic"] for layer in before.layers] == [layer["tactic"] for layer in after.layers]
    assert octavo.build(QDQ, cpu="native", **OPTIONS).plan_hash == before.plan_hash
    if levels_used(before) != ["portable"]:
        assert portable.plan_hash != before.plan_hash


def test_shapes_that_are_built_later_are_capped_too():
    engine = octavo.build(QDQ, cpu="portable", threads=1, effort=0)
    assert engine.open
    later = engine.at({"image": (2, 1, 16, 16)})
    assert set(levels_used(later)) <= {"portable"}


def test_an_unknown_level_names_the_known_ones():
    with pytest.raises(octavo.UsageError, match="portable, avx2, avx512, avx512vnni, amx, native"):
        octavo.build(QDQ, cpu="avx9", **OPTIONS)


def test_check_and_view_take_it():
    assert octavo.check(QDQ, cpu="portable", threads=1, effort=0)["ok"]
