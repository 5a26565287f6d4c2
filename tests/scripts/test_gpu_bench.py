"""The flow of the scripts about GPUs, with programs that only say what Octavo and PyTorch would: rounds in turns, records, what is left out, and taking a measurement up again."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
pytest.importorskip("numpy")
import figures  # noqa: E402
import gpu_networks  # noqa: E402
import gpu_parity  # noqa: E402
import gpu_time  # noqa: E402
import gpu_transformers  # noqa: E402

OCTAVO = """#!/bin/sh
all="$*"; verb=$1; name=${{2##*/}}
echo "$verb $name" >> {log}
if [ $verb = build ]; then
  while [ "$1" != -o ]; do shift; done
  echo engine > "$2"
  case "$all" in *residual*) plan=aaaa;; *--calibration*) plan=bbbb;; *) plan=cccc;; esac
  echo "x.octavo: 1 kB, plan $plan"
else
  case "$all" in *--json*) echo '{{"median_ms": 2.0}}';; *) printf 'median 2.0 ms\\n  0  12.0 50.0%% conv1 (cuda.conv{{a=1}})\\n';; esac
fi
"""
SERVER = "import json, sys\nprint('warming')\nprint(json.dumps({'ms': 9, 'gpu': 'a GPU'}), flush=True)\nfor _ in sys.stdin: print(json.dumps({'ms': 3.0}), flush=True)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder as the scripts take it, with a command and PyTorch processes that pretend."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "models").mkdir()
    command = tmp_path / "bin/octavo"
    command.write_text(OCTAVO.format(log=tmp_path / "log"))
    command.chmod(0o755)
    monkeypatch.setattr(figures, "RECORDS", tmp_path / "records")
    monkeypatch.setenv("OCTAVO_COMMIT", "abc1234")
    real = gpu_time.Torch
    monkeypatch.setattr(gpu_time, "Torch", lambda words, environment, seconds: real([sys.executable, "-c", SERVER], environment, 20))
    monkeypatch.setattr(gpu_time, "device", lambda: "a GPU, driver 1")
    return tmp_path


def recorded(folder, name="g"):
    return json.loads((folder / f"records/{name}.json").read_text())


def test_a_process_that_says_nothing_is_named():
    dead = gpu_time.Torch([sys.executable, "-c", "raise SystemExit('no GPU')"], None, 20)
    assert dead.error == "no GPU" and dead.ms() is None
    assert gpu_time.rounds(dead, {"form": "engine"}, lambda e: 1.0, 6, lambda: 100) is None


def networks(monkeypatch, folder, *words):
    monkeypatch.setattr(sys, "argv", ["gpu_networks.py", str(folder), "neta:8", "netb:1", "--forms", "float16,int8", "--out", str(folder / "out"), "--json", str(folder / "j.json"), "--record", "g", *words])
    return gpu_networks.main()


def test_networks_in_turns(folder, monkeypatch):
    for name in ("neta_b8", "netb_b1"):
        for form in ("", ".int8"):
            (folder / f"models/{name}{form}.onnx").write_text("m")
    assert networks(monkeypatch, folder) == 0
    found = recorded(folder)
    assert found["machine"] == "a GPU, driver 1" and "left_out" not in found
    assert found["tables"] == {gpu_networks.TITLE: {f"{n}, {form}": {"octavo": [2.0] * 6, "torch": [3.0] * 6} for n in ("neta, batch 8", "netb, batch 1") for form in ("float16", "int8")}}
    assert "| neta, batch 8, int8 | 2.000 | 3.000 | 1.50 (1.50 to 1.50), ahead |" in figures.table([found]) and "| PyTorch, ms |" in figures.table([found])
    turns = (folder / "log").read_text().split("bench ")[1:5]
    assert [t.split("\n")[0] for t in turns] == ["neta_b8.float16.octavo", "neta_b8.int8.octavo"] * 2  # every round both engines
    before = (folder / "log").read_text()
    assert networks(monkeypatch, folder) == 0 and (folder / "log").read_text() == before  # all of it was kept


def test_what_fails_is_left_out_and_measured_next_time(folder, monkeypatch):
    for name in ("neta_b8.onnx", "neta_b8.int8.onnx", "netb_b1.onnx"):
        (folder / "models" / name).write_text("m")
    assert networks(monkeypatch, folder) == 1
    assert recorded(folder)["left_out"] == ["netb, batch 1, int8"] and "not measured for want of time: netb, batch 1, int8" in figures.table([recorded(folder)])
    (folder / "models/netb_b1.int8.onnx").write_text("m")
    assert networks(monkeypatch, folder) == 0 and "left_out" not in recorded(folder)


LANE = """import os, sys
sys.path.insert(0, {bench!r})
import gpu_networks, gpu_time
real = gpu_time.Torch
gpu_time.Torch = lambda words, environment, seconds: real([sys.executable, "-c", {server!r}], environment, 20)
gpu_time.device = lambda: "a GPU, driver 1"
open({log!r}, "a").write("GPU " + os.environ["CUDA_VISIBLE_DEVICES"] + " " + " ".join(w for w in sys.argv if ":" in w) + f" {{len(os.sched_getaffinity(0))}}\\n")
sys.exit(gpu_networks.main())
"""


def test_several_gpus_measure_a_network_each(folder, monkeypatch):
    for name in ("neta_b8", "netb_b1"):
        for form in ("", ".int8"):
            (folder / f"models/{name}{form}.onnx").write_text("m")
    (folder / "lane.py").write_text(LANE.format(bench=str(ROOT / "bench"), server=SERVER, log=str(folder / "lanes")))
    monkeypatch.setattr(gpu_networks, "__file__", str(folder / "lane.py"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2))
    assert networks(monkeypatch, folder, "--gpus", "2") == 0
    assert sorted((folder / "lanes").read_text().splitlines()) == ["GPU 0 neta:8 1", "GPU 1 netb:1 1"]
    rows = recorded(folder)["tables"][gpu_networks.TITLE]
    assert [*rows] == ["neta, batch 8, float16", "neta, batch 8, int8", "netb, batch 1, float16", "netb, batch 1, int8"] and all(r == {"octavo": [2.0] * 6, "torch": [3.0] * 6} for r in rows.values())
    assert "--gpus 2" in recorded(folder)["command"]
    kept = json.loads((folder / "j.json.1").read_text())  # what another binary left there is refused
    (folder / "j.json").unlink()
    (folder / "j.json.1").write_text(json.dumps(kept | {"provenance": kept["provenance"] | {"binary": "other"}}))
    with pytest.raises(figures.Mistake, match='of binary "other"'):
        networks(monkeypatch, folder, "--gpus", "2")


def test_encoders_in_turns(folder, monkeypatch):
    monkeypatch.setattr(gpu_transformers, "encoder", lambda path, *_: path.write_text("m"))
    monkeypatch.setattr(sys, "argv", ["gpu_transformers.py", str(folder), "--out", str(folder / "out"), "--record", "g"])
    assert gpu_transformers.main() == 0
    rows = recorded(folder)["tables"][gpu_transformers.TITLE]
    assert len(rows) == 16 and rows["bert, 3 layers, batch 32, float, bfloat16 allowed"] == {"octavo": [2.0] * 6, "torch": [3.0] * 6}


def test_explicit_beside_implicit(folder, monkeypatch):
    onnx = pytest.importorskip("onnx")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3])
    model = onnx.helper.make_model(onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 3])]))
    for name in ("net.onnx", "net.residual.onnx", "net.inputs.onnx"):
        onnx.save(model, folder / name)
    words = [str(folder), "--nets", "net", "--styles", "inputs,residual", "--batches", "1", "--octavo", str(folder / "bin/octavo"), "--record", "g"]
    monkeypatch.setattr(sys, "argv", ["gpu_parity.py", *words])
    with pytest.raises(SystemExit) as end:
        gpu_parity.main()
    text = figures.table([recorded(folder)])
    assert end.value.code == 0 and "| net, inputs, batch 1 | another | 2.000 | 2.000 | 1.00 (1.00 to 1.00), level |" in text and "| net, residual, batch 1 | the same | – | – | – |" in text


def test_scripts_start_without_pytorch():
    for name in ("gpu_networks.py", "gpu_transformers.py", "gpu_parity.py"):
        assert "--record" in subprocess.run([sys.executable, ROOT / "bench" / name, "--help"], capture_output=True, text=True, check=True).stdout
