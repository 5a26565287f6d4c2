"""The statistics run of octavo quantize beside ONNX Runtime's calibrator, on the same arrays: seconds by the clock, in turns, medians.

usage: calibrators.py [--build DIR] [--data DIR] [--count N] [--rounds N] [--threads N] [NETWORK...]       needs onnxruntime, onnx, numpy, pillow

Octavo: the whole command that writes a table (`--method minmax|entropy --min-layer-sqnr 0`), with starting, reading the arrays, planning and writing.
ONNX Runtime: create_calibrator, collect_data and compute_data only, in a process of its own, for the operators that quantize_static calibrates; starting
Python, importing and reading the arrays are not counted. One array a sample for both.
"""
import argparse
import json
import lzma
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from accuracy import NETWORKS, ROOT, images  # noqa: E402

SIDES = {"imagenet": 224, "cifar10": 32, "coco": 416}


def peer(model, arrays, method, threads):
    """Prints the seconds of ONNX Runtime's calibrator."""
    import numpy as np
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
    onnxruntime.set_default_logger_severity(3)
    data = np.load(arrays)
    (name,) = data.files
    samples = [data[name][i:i + 1] for i in range(len(data[name]))]

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter(samples)

        def get_next(self):
            x = next(self.left, None)
            return None if x is None else {name: x}

    plain = onnxruntime.InferenceSession

    def limited(path, sess_options=None, **others):
        sess_options.intra_op_num_threads = threads
        return plain(path, sess_options=sess_options, **others)

    onnxruntime.InferenceSession = limited
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.perf_counter()
        calibrator = create_calibrator(model, list(set(QLinearOpsRegistry) | set(QDQRegistry)), f"{scratch}/augmented.onnx",
                                       {"minmax": CalibrationMethod.MinMax, "entropy": CalibrationMethod.Entropy}[method])
        calibrator.collect_data(Reader())
        tensors = calibrator.compute_data()
        print(json.dumps({"seconds": time.perf_counter() - begun, "tensors": len(list(tensors.keys()))}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("networks", nargs="*", default=["mobilenetv2_op17", "resnet20_cifar10", "nanodet_m"], metavar="NETWORK")
    args = parser.parse_args()
    import numpy as np
    import onnx
    from PIL import Image
    print("| network | method | Octavo, s | ONNX Runtime, s | ratio |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch:
        tmp = pathlib.Path(scratch)
        for network in args.networks:
            file, kind, _, _ = NETWORKS[network]
            blob = (args.data / "models" / file).read_bytes()
            model = onnx.load_from_string(lzma.decompress(blob) if file.endswith(".xz") else blob)
            constants = {i.name for i in model.graph.initializer}
            inputs = [i for i in model.graph.input if i.name not in constants]
            del model.graph.input[:]
            model.graph.input.extend(inputs)
            inputs[0].type.tensor_type.shape.dim[0].dim_value = 1
            path, arrays, side = tmp / f"{network}.onnx", tmp / f"{network}.npz", SIDES[kind]
            onnx.save(model, path)
            photos = [p for p, _ in images(args.data / "images", kind)[::2]]
            photos = [photos[i % len(photos)] for i in range(args.count)]
            np.savez(arrays, **{inputs[0].name: np.stack([np.asarray(Image.open(p).convert("RGB").resize((side, side)), np.float32).transpose(2, 0, 1) / 64 - 2
                                                          for p in photos])})
            for method in ("minmax", "entropy"):
                ours, theirs = [], []
                for _ in range(args.rounds):
                    begun = time.perf_counter()
                    subprocess.run([args.build / "bin/octavo", "quantize", path, "--data", arrays, "--method", method, "--min-layer-sqnr", "0", "--no-measure",
                                    "--threads", str(args.threads), "-o", tmp / "ranges.cache"], check=True, capture_output=True)
                    ours.append(time.perf_counter() - begun)
                    done = subprocess.run([sys.executable, __file__, "--peer", path, arrays, method, str(args.threads)], check=True, capture_output=True, text=True)
                    theirs.append(json.loads(done.stdout.splitlines()[-1])["seconds"])
                a, b = statistics.median(ours), statistics.median(theirs)
                print(f"| {network} | {method} | {a:.2f} | {b:.2f} | {b / a:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
