"""Networks as users export them, on a GPU: Octavo's float16, int8 beside float16, and int8, beside PyTorch's compiled float16 in one call. Models are
those of torchvision and transformers with seeded weights, written by PyTorch's ONNX exporter; Q/DQ by ONNX Runtime's quantize_static (per channel, symmetric int8).
Needs a GPU, torch, torchvision, onnx, onnxscript; onnxruntime for the forms int8 and mixed; transformers for bert.

usage: gpu_networks.py DIR [NETWORK:BATCH ...] [--forms float16,mixed,int8] [--seconds 540] [--out DIR] [--effort 1] [--allow TYPES] [--workers N] [--check] [--mode reduce-overhead]
DIR/bin/octavo is measured, DIR/lib holds libraries for it, DIR/models keeps the models and DIR/cache what PyTorch and Octavo keep. Without networks: those of TARGETS.

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

import gpu_time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if pathlib.Path(p or ".").resolve() != HERE]  # files here have the names of packages
TARGETS = ("mobilenet_v3_large:8", "regnet_y_800mf:8", "inception_v3:8", "efficientnet_b0:32", "convnext_tiny:8", "densenet121:8", "resnext50_32x4d:8", "efficientnet_v2_s:8",
           "deeplabv3_mobilenet_v3_large:8", "r3d_18:2", "swin_t:1", "shufflenet_v2_x1_0:8")
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
    import torch

    path = models / f"{name}_b{batch}.onnx"
    wanted = [path] + [path.with_suffix(f".{f}.onnx") for f in forms if f != "float16"]
    if all(p.exists() for p in wanted):
        return
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
        run = torch.compile(model, mode=mode)
        ms = gpu_time.median_ms(run, x)
    print(json.dumps({"ms": round(ms, 4), "gpu": torch.cuda.get_device_name()}), flush=True)


class Bench:
    def __init__(self, args):
        self.args, self.begin, self.folder, self.out = args, time.time(), pathlib.Path(args.folder).resolve(), pathlib.Path(args.out)
        self.models = self.folder / "models"
        self.models.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        cache = self.folder / "cache"
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(cache), TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"), TRITON_CACHE_DIR=str(cache / "triton"))
        self.libraries = {"LD_LIBRARY_PATH": f"{self.folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        self.rows, self.left_out, self.torch_ms, self.failed = [], [], {}, False

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
        """Models, and what PyTorch compiles, several networks at a time; the times of this are not reported."""
        def one(net):
            name, batch = net
            words = [sys.executable, __file__, str(self.folder), "--export", f"{name}:{batch}", "--forms", ",".join(self.args.forms)]
            done = self.run(f"export {name}:{batch}", words, self.environment)
            if done is not None and done.returncode != 0:
                self.row(network=name, batch=batch, form="export", error=done.stderr.strip()[-300:])
            if not self.args.no_torch:
                self.run(f"compile {name}:{batch}", self.torch_words(name, batch), self.environment)

        with concurrent.futures.ThreadPoolExecutor(self.args.workers) as pool:
            list(pool.map(one, networks))

    def torch_words(self, name, batch):
        return [sys.executable, __file__, str(self.folder), "--torch", f"{name}:{batch}", "--mode", self.args.mode]

    def torch(self, name, batch):
        done = self.run(f"torch {name}:{batch}", self.torch_words(name, batch), self.environment, 20)
        if done is None:
            return
        line = next((l for l in done.stdout.splitlines() if l.startswith("{")), None)
        if line is None:
            return self.row(network=name, batch=batch, form="torch", error=done.stderr.strip()[-300:])
        found = json.loads(line)
        self.torch_ms[name, batch] = found["ms"]
        self.row(network=name, batch=batch, form="torch", **found)

    def octavo(self, name, batch, form):
        path = self.models / (f"{name}_b{batch}.onnx" if form == "float16" else f"{name}_b{batch}.{form}.onnx")
        what = f"octavo {name}:{batch} {form}"
        if not path.exists():
            return self.left_out.append(f"{what} (no model)")
        words = [self.folder / "bin/octavo", "bench", path, "--device", "cuda", "--effort", self.args.effort, "--noDataTransfers", "--seconds", 0.5, "--regions", "--allow", self.args.allow,
                 "--timing-cache", "none"]
        begin = time.time()
        done = self.run(what, words, self.environment | self.libraries)
        if done is None:
            return
        (self.out / (re.sub(r"[^a-z0-9]+", "-", what) + ".txt")).write_text(done.stdout + done.stderr)
        median = re.search(r"median ([0-9.]+) ms", done.stdout)
        if done.returncode != 0 or not median:
            return self.row(network=name, batch=batch, form=form, error=(done.stderr or done.stdout).strip()[:300])
        ms = float(median[1])
        other = self.torch_ms.get((name, batch))
        self.row(network=name, batch=batch, form=form, ms=ms, build_s=round(time.time() - begin - 0.5, 1), **({"ratio": round(other / ms, 2)} if other else {}), slowest=slowest(done.stdout))
        if self.args.check:
            done = self.run(f"check {what}", [self.folder / "bin/octavo", "check", path, "--device", "cuda", "--effort", 0, "--allow", self.args.allow], self.environment | self.libraries)
            if done is not None and done.returncode != 0:
                self.row(network=name, batch=batch, form=f"check {form}", error=(done.stdout + done.stderr).strip()[-300:])


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
    parser.add_argument("--no-torch", action="store_true", help="Octavo alone; models must be there already, or torch")
    parser.add_argument("--prepare", action="store_true", help="write the models and compile them in PyTorch, measure nothing")
    parser.add_argument("--export", help=argparse.SUPPRESS)
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    args = parser.parse_args()
    split = lambda net: (net.partition(":")[0], int(net.partition(":")[2] or 8))
    if args.export:
        return export(pathlib.Path(args.folder).resolve() / "models", *split(args.export), args.forms)
    if args.torch:
        return time_torch(*split(args.torch), args.mode)
    networks = [split(n) for n in (args.networks or TARGETS)]
    bench = Bench(args)
    bench.prepare(networks)
    if not args.prepare:
        for name, batch in networks:
            if not args.no_torch:
                bench.torch(name, batch)
            for form in args.forms:
                bench.octavo(name, batch, form)
    ratios = {f: [r["ratio"] for r in bench.rows if r["form"] == f and "ratio" in r] for f in args.forms}
    for form, found in ratios.items():
        if found:
            print(f"{form}: PyTorch / Octavo: geometric mean {statistics.geometric_mean(found):.2f} of {len(found)} networks, least {min(found):.2f}")
    if bench.left_out:
        print("left out, no time or no model:", "; ".join(bench.left_out))
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
