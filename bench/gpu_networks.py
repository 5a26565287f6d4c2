"""Networks as users export them, on a GPU: Octavo's float16, int8 beside float16, and int8, beside PyTorch's compiled float16 in one call. Models are
those of torchvision and transformers with seeded weights, written by PyTorch's ONNX exporter; Q/DQ by ONNX Runtime's quantize_static (per channel, symmetric int8).
Needs a GPU, torch, torchvision, onnx, onnxscript; onnxruntime for the forms int8 and mixed; transformers for bert.

usage: gpu_networks.py DIR [NETWORK:BATCH ...] [--forms float16,mixed,int8] [--rounds 6] [--seconds 540] [--out DIR] [--effort 1] [--allow TYPES] [--workers N] [--check]
       [--mode reduce-overhead] [--octavo COMMAND] [--json FILE] [--record NAME] [--gpus N]
DIR/bin/octavo is measured (or --octavo), DIR/lib holds libraries for it, DIR/models keeps the models and DIR/cache what PyTorch and Octavo keep. Without networks: those of TARGETS.

First all networks are exported and compiled in PyTorch, several at a time; these processes then wait. Engines are built one after the other, and PyTorch and the engines of a network
take turns, round after round. --json keeps the rounds: the same command measures what is missing there. --gpus N: so many networks at a time, each on a GPU and on an equal share of
the processor's cores of its own; needs --json.

One JSON line a measurement goes to OUT/rows.json and to the screen: network, batch, form, ms (median), build_s (with what is measured to choose kernels), ratio (PyTorch's ms divided by it),
slowest (the five regions that take longest, with their kernels). Times are of whole runs with inputs and outputs in the GPU's memory. What there is no time for is left out, and
named at the end. A form that fails to build is a row with the error; the exit code is then 1.

Forms: float16 allows float16 for a float model; mixed quantizes convolutions alone and allows float16 for the rest; int8 quantizes every operator that quantize_static knows
(transformers: MatMul, Gemm and Conv) and allows float16 as well."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import figures
import gpu_time

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if pathlib.Path(p or ".").resolve() != HERE]  # files here have the names of packages
TARGETS = ("mobilenet_v3_large:8", "regnet_y_800mf:8", "inception_v3:8", "efficientnet_b0:32", "convnext_tiny:8", "densenet121:8", "resnext50_32x4d:8", "efficientnet_v2_s:8",
           "deeplabv3_mobilenet_v3_large:8", "r3d_18:2", "swin_t:1", "shufflenet_v2_x1_0:8")
TITLE = "networks on a GPU beside compiled PyTorch in float16"
TRANSFORMERS = ("bert", "vit", "swin")


def network(name, batch):
    """(the model, an input), the same weights in every process."""
    import torch

    torch.manual_seed(0)
    if name.startswith("bert"):
        from transformers import BertConfig, BertModel

        class Encoder(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bert = BertModel(BertConfig(attn_implementation="sdpa"))

            def forward(self, ids):
                return self.bert(ids).last_hidden_state

        return Encoder().eval(), torch.randint(0, 30000, (batch, int(name[4:] or 128)))
    import torchvision.models as models

    rooms = {"segmentation": models.segmentation, "video": models.video, "images": models}
    room = next(r for r, where in rooms.items() if hasattr(where, name))
    options = {"weights_backbone": None} if room == "segmentation" else {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    inner = getattr(rooms[room], name)(weights=None, **options).eval()
    for part in inner.modules():  # statistics of a trained network are not 0 and 1
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            y = self.inner(x)
            return y["out"] if isinstance(y, dict) else y

    size = 299 if name == "inception_v3" else 224
    return One().eval(), torch.randn(batch, *((3, 16, 112, 112) if room == "video" else (3, size, size)))


def export(models, name, batch, forms):
    """Writes the missing models of a network."""
    path = models / f"{name}_b{batch}.onnx"
    wanted = [path] + [path.with_suffix(f".{f}.onnx") for f in forms if f != "float16"]
    if all(p.exists() for p in wanted):
        return
    import torch

    model, x = network(name, batch)
    if not path.exists():
        part = path.with_suffix(".part")
        torch.onnx.export(model, (x,), str(part), dynamo=True, external_data=False, opset_version=18, verbose=False)
        part.rename(path)
    for form, to in zip([f for f in forms if f != "float16"], wanted[1:]):
        if to.exists():
            continue
        import onnx
        from onnxruntime import quantization

        samples = [{onnx.load(path).graph.input[0].name: x.numpy()}]

        class Reader(quantization.CalibrationDataReader):
            def get_next(self):
                return samples.pop() if samples else None

        kinds = ["Conv"] if form == "mixed" else ["MatMul", "Gemm", "Conv"] if name.startswith(TRANSFORMERS) else None
        part = to.with_suffix(".part")
        quantization.quantize_static(str(path), str(part), Reader(), quant_format=quantization.QuantFormat.QDQ, per_channel=True, activation_type=quantization.QuantType.QInt8,
                                     weight_type=quantization.QuantType.QInt8, extra_options={"ActivationSymmetric": True, "MatMulConstBOnly": True},
                                     **({"op_types_to_quantize": kinds} if kinds else {}))
        part.rename(to)


def time_torch(name, batch, mode):
    import torch

    torch.backends.cudnn.benchmark = True
    with torch.no_grad():
        model, x = network(name, batch)
        model, x = model.cuda().half(), x.cuda()
        if x.is_floating_point():
            x = x.half()
        if x.dim() == 4:
            model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        gpu_time.serve(torch.compile(model, mode=mode), x)


def command_of(args):
    """The octavo that is measured."""
    return pathlib.Path(args.octavo or pathlib.Path(args.folder) / "bin/octavo").resolve()


class Bench:
    def __init__(self, args):
        self.args, self.begin, self.folder, self.out = args, time.time(), pathlib.Path(args.folder).resolve(), pathlib.Path(args.out)
        self.models = self.folder / "models"
        self.models.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        cache = self.folder / "cache"
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(cache), TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"), TRITON_CACHE_DIR=str(cache / "triton"))
        self.libraries = {"LD_LIBRARY_PATH": f"{self.folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        self.rows, self.left_out, self.torch, self.failed = [], [], {}, False
        self.octavo = command_of(args)
        self.results = json.loads(args.json.read_text()) if args.json and args.json.exists() else {"times": {}}
        if args.record or args.json:
            figures.claim(self.results, self.octavo, gpu_time.device())

    def left(self):
        return self.args.seconds - (time.time() - self.begin)

    def row(self, **values):
        self.failed |= "error" in values
        self.rows.append(values)
        print(json.dumps(values), flush=True)
        (self.out / "rows.json").write_text("\n".join(map(json.dumps, self.rows)) + "\n")

    def run(self, what, words, environment, least=10):
        """What ended in time; None otherwise."""
        if self.left() < least:
            self.left_out.append(what)
            return None
        try:
            return subprocess.run([str(w) for w in words], env=environment, capture_output=True, text=True, timeout=max(least, self.left()))
        except subprocess.TimeoutExpired:
            self.left_out.append(what)
            return None

    def prepare(self, networks):
        """Models, and PyTorch's processes, several networks at a time."""
        def one(net):
            name, batch = net
            words = [sys.executable, __file__, str(self.folder), "--export", f"{name}:{batch}", "--forms", ",".join(self.args.forms)]
            done = self.run(f"export {name}:{batch}", words, self.environment)
            if done is not None and done.returncode != 0:
                self.row(network=name, batch=batch, form="export", error=done.stderr.strip()[-300:])
            if not self.args.no_torch:
                words = [sys.executable, __file__, str(self.folder), "--torch", f"{name}:{batch}", "--mode", self.args.mode]
                self.torch[name, batch] = gpu_time.Torch(words, self.environment, max(10, self.left() - 30))

        with concurrent.futures.ThreadPoolExecutor(self.args.workers) as pool:
            list(pool.map(one, networks))

    @staticmethod
    def title(name, batch, form):
        return f"{name}, batch {batch}, {form}"

    def build(self, name, batch, form):
        """(engine file, seconds), or None."""
        path = self.models / (f"{name}_b{batch}.onnx" if form == "float16" else f"{name}_b{batch}.{form}.onnx")
        if not path.exists():
            self.left_out.append(f"{self.title(name, batch, form)} (no model)")
            return None
        engine, begin = self.out / f"{name}_b{batch}.{form}.octavo", time.time()
        done = self.run(self.title(name, batch, form), [self.octavo, "build", path, "-o", engine, "--device", "cuda", "--effort", self.args.effort, "--allow", self.args.allow,
                                                        "--timing-cache", "none"], self.environment | self.libraries)
        if done is not None and done.returncode != 0:
            self.row(network=name, batch=batch, form=form, error=(done.stderr or done.stdout).strip()[:300])
        return (engine, time.time() - begin) if done is not None and done.returncode == 0 else None

    def bench(self, engine, *words):
        return subprocess.run([str(w) for w in (self.octavo, "bench", engine, "--noDataTransfers", "--seconds", 0.3, *words)], env=self.environment | self.libraries, capture_output=True,
                              text=True, check=True, timeout=60).stdout

    def network(self, name, batch):
        """Builds, then rounds in turns."""
        built = {form: found for form in self.args.forms if (found := self.build(name, batch, form))}
        engines = {form: engine for form, (engine, _) in built.items()}
        torch = self.torch.get((name, batch))
        if torch is None or torch.error:
            self.row(network=name, batch=batch, form="torch", error=torch.error if torch else "left out")
        found = gpu_time.rounds(torch, engines, lambda e: json.loads(self.bench(e, "--json").splitlines()[-1])["median_ms"], self.args.rounds, self.left) if torch and engines else None
        for form, (engine, seconds) in built.items():
            if found is None:
                self.left_out.append(self.title(name, batch, form))
                continue
            self.results["times"][self.title(name, batch, form)] = found[form]
            self.row(network=name, batch=batch, form=form, ms=statistics.median(found[form]["octavo"]), torch=statistics.median(found[form]["torch"]), build_s=round(seconds, 1),
                     ratio=round(statistics.median(figures.ratios(found[form], range(self.args.rounds))), 2), slowest=slowest(self.bench(engine, "--regions")))
            if self.args.check:
                self.check(name, batch, form)
            engine.unlink()
        if self.args.json:
            self.args.json.write_text(json.dumps(self.results, indent=1))

    def check(self, name, batch, form):
        path = self.models / (f"{name}_b{batch}.onnx" if form == "float16" else f"{name}_b{batch}.{form}.onnx")
        done = self.run(f"check {self.title(name, batch, form)}", [self.octavo, "check", path, "--device", "cuda", "--effort", 0, "--allow", self.args.allow],
                        self.environment | self.libraries)
        if done is not None and done.returncode != 0:
            self.row(network=name, batch=batch, form=f"check {form}", error=(done.stdout + done.stderr).strip()[-300:])


def on_many_gpus(args, networks):
    """Measures the networks in a process of its own for each GPU, and brings their rounds into one file. Whether all of them ended well."""
    results = json.loads(args.json.read_text()) if args.json.exists() else {"times": {}}
    figures.claim(results, command_of(args), gpu_time.device())
    cores, lanes = sorted(os.sched_getaffinity(0)), [[] for _ in range(args.gpus)]
    for i, (name, batch) in enumerate(networks):
        lanes[i % args.gpus].append(f"{name}:{batch}")
    share = len(cores) // args.gpus

    def lane(i):
        kept = args.json.with_name(f"{args.json.name}.{i}")
        words = [sys.executable, __file__, args.folder, *lanes[i], "--forms", ",".join(args.forms), "--seconds", args.seconds, "--out", f"{args.out}.{i}", "--effort", args.effort,
                 "--allow", args.allow, "--workers", max(1, share // 4), "--mode", args.mode, "--rounds", args.rounds, "--json", kept,
                 *(["--octavo", args.octavo] if args.octavo else []), *(["--check"] if args.check else []), *(["--prepare"] if args.prepare else [])]
        done = subprocess.run([str(w) for w in words], env=dict(os.environ, CUDA_VISIBLE_DEVICES=str(i)), check=False, stdin=subprocess.DEVNULL,
                              preexec_fn=lambda: os.sched_setaffinity(0, cores[i * share:(i + 1) * share]))
        return done.returncode == 0, kept

    with concurrent.futures.ThreadPoolExecutor(args.gpus) as pool:
        ended = list(pool.map(lane, [i for i in range(args.gpus) if lanes[i]]))
    for _, kept in ended:
        found = json.loads(kept.read_text()) if kept.exists() else {"times": {}}
        if found["times"]:
            figures.claim(dict(found), command_of(args), gpu_time.device())  # refuses what another binary left
            results["times"].update(found["times"])
    args.json.write_text(json.dumps(results, indent=1))
    return all(well for well, _ in ended)


def slowest(text):
    """Of `octavo bench --regions`: [microseconds, kernel, nodes] of five regions."""
    found = []
    for line in text.splitlines():
        at = re.match(r"\s*\d+\s+([0-9.]+)\s+[0-9.]+%\s+(.*) \((\S+)\)$", line)
        if at:
            found.append((float(at[1]), re.sub(r"\{.*", "", at[3]), at[2][:100]))
    return [list(f) for f in sorted(found, reverse=True)[:5]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--forms", type=lambda text: text.split(","), default=["float16", "mixed", "int8"])
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--out", default="out")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--allow", default="int8,float32,float16")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 4) // 4))
    parser.add_argument("--check", action="store_true", help="also `octavo check` of every form")
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile")
    parser.add_argument("--no-torch", action="store_true", help="with --prepare: write the models alone")
    parser.add_argument("--rounds", type=int, default=figures.LEAST_ROUNDS)
    parser.add_argument("--octavo", help="the command (default: DIR/bin/octavo)")
    parser.add_argument("--json", type=pathlib.Path, help="where the rounds are kept")
    parser.add_argument("--gpus", type=int, default=1, help="so many networks at a time, each on a GPU of its own")
    figures.add_option(parser)
    parser.add_argument("--prepare", action="store_true", help="write the models and compile them in PyTorch, measure nothing")
    parser.add_argument("--export", help=argparse.SUPPRESS)
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    args = parser.parse_args()
    split = lambda net: (net.partition(":")[0], int(net.partition(":")[2] or 8))
    if args.export:
        return export(pathlib.Path(args.folder).resolve() / "models", *split(args.export), args.forms)
    if args.torch:
        return time_torch(*split(args.torch), args.mode)
    wanted = [split(n) for n in (args.networks or TARGETS)]
    well = True
    if args.gpus > 1:
        if args.json is None:
            parser.error("--gpus needs --json FILE, where the rounds of all GPUs are brought together")
        times = json.loads(args.json.read_text())["times"] if args.json.exists() else {}
        if absent := [n for n in wanted if any(Bench.title(*n, form) not in times for form in args.forms)]:
            well = on_many_gpus(args, absent)
        if args.prepare:
            return 0 if well else 1
    bench = Bench(args)
    networks = [] if args.gpus > 1 else [n for n in wanted if any(bench.title(*n, form) not in bench.results["times"] for form in args.forms)]
    try:
        bench.prepare(networks)
        for (name, batch), torch in bench.torch.items():
            if torch.error:
                print(f"torch {name}:{batch}: {torch.error}", flush=True)
        for name, batch in [] if args.prepare else networks:
            if bench.left() < 40:
                bench.left_out += [bench.title(name, batch, form) for form in args.forms]
            else:
                bench.network(name, batch)
    finally:
        for torch in bench.torch.values():
            torch.close()
    times = bench.results["times"]
    for form in args.forms:
        found = [statistics.median(figures.ratios(times[key], range(len(times[key]["octavo"])))) for n in wanted if (key := bench.title(*n, form)) in times]
        if found:
            print(f"{form}: PyTorch / Octavo: {figures.summary(found)}")
    if bench.left_out:
        print("left out, no time or no model:", "; ".join(bench.left_out))
    absent = [key for n in wanted for form in args.forms if (key := bench.title(*n, form)) not in times]
    if args.record and times:
        figures.save(figures.record(bench.results, {TITLE: {key: times[key] for n in wanted for form in args.forms if (key := bench.title(*n, form)) in times}}, left_out=absent), args.record)
    return 1 if bench.failed or not well or (absent and not args.prepare) else 0


if __name__ == "__main__":
    sys.exit(main())
