#!/usr/bin/env python3
"""Imported graphs in the reference evaluator against ONNX Runtime with its optimizations off.

  compare_ort.py --tool build/tests/onnx/octavo_ref [--work DIR] [--only REGEX] [--real] [--slow] [--list]

(a) single-operator models over attributes and opsets (op_cases.py); (b) real models of the test data folder (OCTAVO_TEST_DATA, or
../shared beside the repository), with --real. Float models are compared output by output; quantized models region by region, each on the
inputs that ONNX Runtime found (tests/support/by_region.py): quantized values must be equal except at rounding ties. Exit code 77: ONNX Runtime is
not installed or, with --real, there is no test data.
"""
import argparse
import lzma
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

try:
    import numpy as np
    import onnx
    import onnxruntime as ort
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "support")]
import by_region  # noqa: E402
import op_cases  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOW = {"resnet56_cifar10_fp32", "retina_lp_mnet025", "nanodet_m_416", "yolox_nano_416", "ppocrv3_det_op14"}  # only with --slow
# Products of u8 and s8 with extreme values: on x86-64 without VNNI, ONNX Runtime adds two of them in 16 bits, which saturates. (Its exact mode is
# a graph optimization, and optimizations are off here.) Compared on processors with VNNI.
ORT_SATURATES = {"quant/qlinear_conv_uint8_False", "quant/qlinear_conv_uint8_True", "quant/qlinear_matmul_uint8", "quant/qgemm_uint8_0_True",
                 "quant/qgemm_uint8_0_False", "quant/qgemm_uint8_1_True", "quant/matmul_integer_uint8", "quant/dynamic_quantized_matmul",
                 "microsoft/MatMulIntegerToFloat", "microsoft/DynamicQuantizeMatMul", "microsoft/DynamicQuantizeLSTM_forward",
                 "microsoft/DynamicQuantizeLSTM_reverse", "microsoft/DynamicQuantizeLSTM_bidirectional"}
ORT_REFUSES = {"conv/conv5", "conv/conv5_bias", "norm/lrn_even"}  # SAME_LOWER with dilations; LRN of even size
UNSUPPORTED = {"faststyle_candy": ["ImageScaler", "Crop", "Affine"]}  # what the answer must name


def has_vnni():
    """Whether this processor adds four products of 8 bits in 32 bits; True where that cannot be read."""
    try:
        return "vnni" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace") or platform.machine() != "x86_64"
    except OSError:
        return True


def session(model, optimize=False):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def difference(ours, theirs, rel, steps, floor=1e-6):
    """'' if they agree, else what differs. `floor`: below this size, differences are judged as if the largest value were this."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} instead of {theirs.shape}"
    if ours.dtype != theirs.dtype:
        return f"type {ours.dtype} instead of {theirs.dtype}"
    if ours.size == 0:
        return ""
    if ours.dtype.kind in "iub":
        gap = np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max()
        return "" if gap <= steps else f"integers differ by up to {gap}, allowed {steps}"
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return ""
    largest = np.abs(np.where(np.isfinite(b), b, 0)).max()
    gap = np.abs(np.where(same, 0, a - b)).max()
    return "" if gap <= rel * max(largest, floor) else f"values differ by up to {gap:.3g} where the largest is {largest:.3g} (allowed {rel:g} of it)"


class Job:
    def __init__(self, name, path, feeds, rel, steps, peer=True, split=None, theirs=None):
        self.name, self.path, self.feeds, self.rel, self.steps, self.peer = name, path, feeds, rel, steps, peer
        self.split, self.theirs = split, theirs  # a quantized model: by_region's, and what ONNX Runtime computes from the inputs


def real_models(folder, everything, work):
    rng = np.random.default_rng(7)
    jobs = []
    paths = list((folder / "models").glob("*.onnx"))
    for packed in (folder / "models").glob("*.onnx.xz"):
        paths.append(work / packed.stem)
        paths[-1].write_bytes(lzma.decompress(packed.read_bytes()))
    for path in sorted(paths, key=lambda p: p.name):
        if path.stem in SLOW and not everything:
            continue
        model = onnx.load(path)
        initialized = {t.name for t in model.graph.initializer}
        feeds = {}
        for value in model.graph.input:
            if value.name in initialized:
                continue
            dims = [d.dim_value if d.dim_value > 0 else (1 if i == 0 else 3 if i == 1 else 64) for i, d in enumerate(value.type.tensor_type.shape.dim)]
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            scale = 255 if path.stem.startswith(("yolox", "yunet", "squeezenet", "retina")) else 1
            smooth = rng.standard_normal(dims)
            feeds[value.name] = (np.abs(smooth) * scale / 3 if scale > 1 else smooth).astype(kind)
        quantized = any("Quantize" in n.op_type or n.op_type.startswith("QLinear") for n in model.graph.node)
        half = any(t.data_type == onnx.TensorProto.FLOAT16 for t in model.graph.initializer)
        jobs.append(quantized_job(path, model, feeds, work) if quantized else Job(f"models/{path.stem}", path, feeds, 1e-3 if half else 2e-5, 0))
    return jobs


def quantized_job(path, model, feeds, work):
    """A job on the model's regions (by_region.py), each with the inputs that ONNX Runtime found for it."""
    split = by_region.split(model)
    peer = session(split.whole.SerializeToString())
    theirs = dict(zip((o.name for o in peer.get_outputs()), peer.run(None, feeds)))
    given = by_region.given(split, theirs)
    parts = work / f"{path.stem}_parts.onnx"
    onnx.save(split.parts, parts)
    return Job(f"models/{path.stem}", parts, feeds | given, 0, 0, split=split, theirs=theirs)


def evaluate_twice(tool, batch, work, jobs, failures):
    """Runs the tool on the graphs as imported and in normal form, side by side. The normal form must give the same bits; returns the tool's
    answers for the first."""
    runs = []
    for name in ("plain", "normal"):
        folder = work / name
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.npy"):
            old.unlink()
        own = batch.with_name(f"jobs_{name}.txt")
        own.write_text(batch.read_text().replace(f"{work}/out", f"{folder}/out"))
        environment = {k: v for k, v in os.environ.items() if k != "OCTAVO_REF_NORMALIZE"}
        if name == "normal":
            environment["OCTAVO_REF_NORMALIZE"] = "1"
        answers = open(work / f"answers_{name}.txt", "w+")
        runs.append((folder, answers, subprocess.Popen([tool, "--batch", str(own)], stdout=answers, env=environment)))
    for name, (_, answers, process) in zip(("as imported", "in normal form"), runs):
        code = process.wait()
        answers.seek(0)
        done = len(answers.readlines())
        if code != 0 or done != len(jobs):
            failures.append((jobs[min(done, len(jobs) - 1)].name, f"the tool ended with {code} after {done} of {len(jobs)} jobs, {name}"))
    plain, normal = ({f.name: f.read_bytes() for f in folder.glob("*.npy")} for folder, _, _ in runs)
    for name in sorted(set(plain) | set(normal)):
        if plain.get(name) != normal.get(name):
            job = jobs[int(re.match(r"out(\d+)_", name).group(1))]
            failures.append((job.name, f"the normal form gives other bits than the imported graph ({name})"))
    runs[0][1].seek(0)
    return runs[0][1].read().splitlines()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--work", default="/tmp/octavo_compare_ort")
    parser.add_argument("--only", default="")
    parser.add_argument("--real", action="store_true", help="the real models of the test data instead of single operators")
    parser.add_argument("--slow", action="store_true", help="with --real: the slow ones too")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    started = time.time()

    jobs, refused_by_ort = [], []
    data = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
    if args.real and not (data / "models").is_dir():
        print(f"skipped: OCTAVO_TEST_DATA: no {data / 'models'}")
        return 77
    for case in [] if args.real else op_cases.all_cases():
        if re.search(args.only, case.name):
            path = work / (re.sub(r"[^A-Za-z0-9_.-]", "_", case.name) + ".onnx")
            path.write_bytes(case.model.SerializeToString())
            jobs.append(Job(case.name, path, case.feeds, case.rel, case.steps, peer=case.peer))
    if args.real:
        jobs += [j for j in real_models(data, args.slow, work) if re.search(args.only, j.name)]
    if args.list:
        print("\n".join(j.name for j in jobs))
        return 0

    lines = []
    for i, job in enumerate(jobs):
        fields = [str(job.path), str(work / f"out{i}_")]
        for name, array in job.feeds.items():
            file = work / f"in{i}_{len(fields)}.npy"
            np.save(file, np.ascontiguousarray(array).reshape(array.shape))
            fields.append(f"{name}={file}")
        lines.append("\t".join(fields))
    batch = work / "jobs.txt"
    batch.write_text("\n".join(lines) + "\n")
    failures = []
    results = evaluate_twice(args.tool, batch, work, jobs, failures)
    for i, (job, result) in enumerate(zip(jobs, results)):
        expected_names = UNSUPPORTED.get(pathlib.Path(job.path).stem)
        if expected_names and job.name.startswith("models/"):
            missing = [n for n in expected_names if n not in result]
            if not result.startswith("error 4") or missing:
                failures.append((job.name, f"should be refused by name ({missing}): {result}"))
            continue
        if not job.peer:
            if not result.startswith("ok"):
                failures.append((job.name, result))
            continue
        if not result.startswith("ok"):
            failures.append((job.name, result))
            continue
        if job.split:
            outputs = [o.name for o in job.split.parts.graph.output]
            ours = {name: np.load(work / "plain" / f"out{i}_{k}.npy") for k, name in enumerate(outputs)}
            problems, ties, count = by_region.differences(job.split, job.feeds, job.theirs, ours)
            failures += [(job.name, problem) for problem in problems]
            print(f"{job.name}: {len(job.split.rounded)} regions, {ties} of {count} quantized values differ, at rounding ties")
            continue
        try:
            theirs = session(str(job.path)).run(None, job.feeds)
        except Exception as problem:
            (refused_by_ort if job.name in ORT_REFUSES else failures).append((job.name, "ONNX Runtime: " + str(problem).splitlines()[0]))
            continue
        for k, expected in enumerate(theirs):
            ours = np.load(work / "plain" / f"out{i}_{k}.npy")
            expected = np.asarray(expected)
            if args.real:
                gap = np.abs(ours.astype(np.float64) - expected).max() if ours.shape == expected.shape else np.nan
                print(f"{job.name} output {k}: largest difference {gap:.3g} of {np.abs(expected).max():.3g}")
            problem = difference(ours, expected, job.rel, job.steps, 1e-3 if args.real else 1e-6)
            if problem and job.name in ORT_SATURATES and not has_vnni():
                refused_by_ort.append((job.name, "ONNX Runtime's 16-bit sums saturate on this processor"))
                break
            if problem:
                failures.append((job.name, f"output {k}: {problem}"))
                break
    for name, problem in failures:
        print(f"FAILED {name}: {problem}\n  repeat: {sys.argv[0]} --tool {args.tool}{' --real' if args.real else ''} --only '^{re.escape(name)}$'")
    for name, problem in refused_by_ort:
        print(f"not compared {name}: {problem}")
    compared = len(jobs) - len(refused_by_ort)
    print(f"{compared} models compared, {len(failures)} failed, {len(refused_by_ort)} that ONNX Runtime itself refuses or saturates, "
          f"{time.time() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
