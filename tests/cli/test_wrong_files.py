"""Files of another kind given as models: each is named, with what to do and the page that helps."""
import gzip
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import tarfile
import zipfile

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
DIGITS = ROOT / "examples/digits"
QDQ, IMAGES = DIGITS / "digits_qdq.onnx", DIGITS / "images"
PICTURE = IMAGES / "0_008.png"
QUICK = ["--effort", "0", "--threads", "1"]


def octavo(*args, code=0):
    done = subprocess.run([OCTAVO, *map(str, args)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == code, f"octavo {' '.join(map(str, args))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def zipped(path, **entries):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), data)


def tarred(path):
    with tarfile.open(path, "w") as archive:
        archive.add(PICTURE, "a.png")


HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
# How each file is made, what it is called, and the page that helps.
FOREIGN = {
    "checkpoint.pt": (lambda p: zipped(p, model__data_DOT_pkl=b"x", model__byteorder=b"little", model__data__0=b"1234", model__version=b"3"), "a PyTorch checkpoint",
                      "from-pytorch"),
    "old.pth": (lambda p: p.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2)), "a Python pickle, as PyTorch's older", "from-pytorch"),
    "script.pt": (lambda p: zipped(p, net__data_DOT_pkl=b"x", net__code____torch___DOT_py=b"", net__constants_DOT_pkl=b"x"), "a TorchScript module", "from-pytorch"),
    "program.pt2": (lambda p: zipped(p, program__archive_format=b"pt2", program__models__model_DOT_json=b"{}", program__data__weights__w=b"x"), "a PyTorch ExportedProgram", "from-pytorch"),
    "old.pt2": (lambda p: zipped(p, serialized_exported_program_DOT_json=b"{}", version=b"5"), "a PyTorch ExportedProgram", "from-pytorch"),
    "model.engine": (lambda p: p.write_bytes(b"ftrt" + bytes(60)), "a TensorRT engine", "from-tensorrt"),
    "model.plan": (lambda p: p.write_bytes(b"ptrt" + bytes(60)), "a TensorRT engine", "from-tensorrt"),
    "model.tflite": (lambda p: p.write_bytes(b"\x1c\0\0\0TFL3" + bytes(60)), "a TFLite model", "onnx.md"),
    "model.h5": (lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(60)), "an HDF5 file, as Keras", "onnx.md"),
    "model.keras": (lambda p: zipped(p, metadata_DOT_json=b"{}", config_DOT_json=b"{}", model_DOT_weights_DOT_h5=b"x"), "a Keras model", "onnx.md"),
    "model.xml": (lambda p: p.write_text('<?xml version="1.0"?>\n<net name="Model0" version="11">\n'), "an OpenVINO IR", "from-openvino"),
    "model.safetensors": (lambda p: p.write_bytes(struct.pack("<Q", len(HEADER)) + HEADER + bytes(4)), "a safetensors file", "from-pytorch"),
    "model.gguf": (lambda p: p.write_bytes(b"GGUF\3\0\0\0" + bytes(60)), "a GGUF file", "onnx.md"),
    "model.onnx.xz": (lambda p: p.write_bytes(b"\xfd7zXZ\0" + bytes(60)), "an xz archive", "troubleshooting"),
    "model.onnx.gz": (lambda p: p.write_bytes(gzip.compress(QDQ.read_bytes())), "a gzip archive", "troubleshooting"),
    "model.zip": (lambda p: zipped(p, model_DOT_onnx=b"x"), "a ZIP archive", "troubleshooting"),
    "model.tar": (tarred, "a tar archive", "troubleshooting"),
    "photo.png": (lambda p: shutil.copy(PICTURE, p), "a PNG picture", "running"),
    "photo.jpg": (lambda p: p.write_bytes(b"\xff\xd8\xff\xe0" + bytes(60)), "a JPEG picture", "running"),
    "x.npy": (lambda p: np.save(p, np.zeros(3)), "a NumPy array", "running"),
    "x.npz": (lambda p: np.savez(p, x=np.zeros(3)), "a NumPy archive", "running"),
    "pointer.onnx": (lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "a pointer of Git LFS", "troubleshooting"),
    "page.onnx": (lambda p: p.write_text("<!DOCTYPE html>\n<html><body>404</body></html>"), "a web page", "troubleshooting"),
    "model.json": (lambda p: p.write_text('{"model": 1}'), "a JSON file", "troubleshooting"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_kind_is_named(name, tmp_path):
    """As a model: by the kind of its contents, whatever it is called, with a page that exists."""
    make, kind, page = FOREIGN[name]
    for path in (tmp_path / name, tmp_path / "model.onnx"):
        make(path)
        if not path.exists():  # numpy.save adds its ending
            path = tmp_path / f"model.onnx{pathlib.Path(name).suffix}"
        done = octavo("build", path, "-o", tmp_path / "e", *QUICK, code=3)
        assert done.stderr.startswith(f"error: reading {path}: it is {kind}") and ", not an ONNX model\n  " in done.stderr, done.stderr
        assert page in done.stderr
        pages = [w.strip("().") for w in done.stderr.split() if w.startswith("(docs/")]
        assert pages and all((ROOT / p).exists() for p in pages)
        assert not (tmp_path / "e").exists()


def test_models_are_no_foreign_files(tmp_path):
    damaged = tmp_path / "m.onnx"
    damaged.write_bytes(QDQ.read_bytes()[:-100])
    assert "damaged, truncated, or another kind of file" in octavo("build", damaged, "-o", tmp_path / "e", code=3).stderr
    assert octavo("explain", QDQ, *QUICK).stdout
