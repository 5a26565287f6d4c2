"""scripts/replay.py: the committed list holds for this build, and what differs is found and named."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "tests/octavo_replay"
sys.path.insert(0, str(ROOT / "scripts"))
import replay  # noqa: E402

PLAN = "net.onnx avx2 plan 0123\n"
REGION = "net.onnx avx2 0 a,b | int8 | cpu.conv.u8s8.avx2.jit{rows=2} | constants aa | code bb | launch -\n"


def of(*lines):
    return replay.read("".join(lines))


def test_the_list_holds():
    done = subprocess.run([sys.executable, ROOT / "scripts/replay.py", "--binary", BINARY, "--list", ROOT / "tests/replay.txt"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout == f"434 plans, 0 differ from {ROOT / 'tests/replay.txt'}\n"


def test_a_list_that_does_not_hold_is_told(tmp_path):
    """One digest changed, one line gone, one too many."""
    lines = (ROOT / "tests/replay.txt").read_text(encoding="utf-8").splitlines()
    first, second = lines[2].split(), lines[3].split()
    assert first[:2] == ["random:1", "portable"]
    lines[2] = " ".join([*first[:5], "0" * 10, *first[6:]])  # the packed constants
    lines[3] = " ".join(["gone:1", *second[1:]])
    (tmp_path / "list.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = subprocess.run([sys.executable, ROOT / "scripts/replay.py", "--binary", BINARY, "--list", tmp_path / "list.txt"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for text in ("random:1 portable: constants\n", "gone:1 avx2: listed only\n", "random:1 avx2: not in the list\n", "434 plans, 3 differ"):
        assert text in done.stdout, done.stdout


@pytest.mark.parametrize("new, parts", [
    (REGION, None),
    (REGION.replace("rows=2", "rows=4"), ["tactics"]),
    (REGION.replace("constants aa", "constants ab"), ["constants"]),
    (REGION.replace("code bb", "code error: region \"a\": no"), ["code"]),
    (REGION.replace("launch -", "launch cc"), ["launch"]),
    (REGION + REGION.replace("avx2 0", "avx2 1"), ["tactics", "constants", "code", "launch"]),
])
def test_differences_are_named(new, parts):
    found = replay.differences(of(PLAN, REGION), of(PLAN, new))
    assert [f[2] for f in found] == ([parts] if parts else [])
    assert not parts or replay.report(found).startswith(f"1 networks and targets differ in {', '.join(parts)}\n  net.onnx avx2: ")


def test_refusals_and_networks_of_one_version_count():
    refused = "net.onnx avx2 refused: no kernel for \"x\"\n"
    assert [f[2] for f in replay.differences(of(PLAN, REGION), of(refused))] == [list(replay.PARTS)]
    assert [f[2] for f in replay.differences(of(PLAN, REGION), {})] == [["only in the old version"]]
    assert not replay.differences(of(refused), of(refused))
    with pytest.raises(SystemExit):
        of("what is this\n")
