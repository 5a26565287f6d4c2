"""Encoders of ViT-B/16 and BERT-base on a GPU: every region of Octavo's engines against the reference, then times beside PyTorch in float16 and beside an
Octavo of another commit. Needs a GPU; numpy and onnx make the models there (seeded weights, the width of the networks, few layers).

usage: gpu_transformers.py DIR [--out DIR] [--seconds 240] [--layers 3] [--forms float,float16,linear,all] [--models DIR] [--floats]
       gpu_transformers.py DIR --record NAME [--rounds 6]     no checks: PyTorch and the engines in turns, round after round
DIR/bin/octavo is measured, DIR/bin/octavo_before too if there is one; DIR/lib holds libraries for them. What there is no time for is left out and named.
--models DIR only writes the models.

--floats: only float32 models with bfloat16 and with float16 allowed, and float16 models, which need no permission.

Forms: float; float16: tensors are float16 in the model; linear: Q/DQ around the products with constant weights, as ONNX Runtime's quantize_static writes them with MatMulConstBOnly; all: around the
products of attention as well."""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import figures
import gpu_time
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if pathlib.Path(p or ".").resolve() != HERE]  # a package of the name transformers is what PyTorch looks for
spec = importlib.util.spec_from_file_location("octavo_encoders", HERE / "transformers.py")
encoders = importlib.util.module_from_spec(spec)
spec.loader.exec_module(encoders)
WIDTH, HEADS = 768, 12
SHAPES = {"vit": (197, True), "bert": (128, False)}  # tokens, norms in front of attention and MLP


class Encoder(encoders.Graph):
    def __init__(self, batch, form, guarded):
        super().__init__(7, batch)
        self.form, self.guarded = form, guarded

    def pair(self, x, scale, zero=0):
        codes = self.node("QuantizeLinear", x, self.constant(np.float32(scale)), self.constant(np.int8(zero)))
        return self.node("DequantizeLinear", codes, self.constant(np.float32(scale)), self.constant(np.int8(zero)))

    def weight(self, *shape):
        if self.form.startswith("float") or len(shape) != 2:
            return super().weight(*shape)
        w = self.rng.standard_normal(shape) * (0.7 / np.sqrt(shape[0]))
        scales = (np.abs(w).max(axis=0) / 127).astype(np.float32)
        codes = np.rint(w / scales).clip(-127, 127).astype(np.int8)
        return self.node("DequantizeLinear", self.constant(codes), self.constant(scales), self.constant(np.zeros(shape[1], np.int8)), axis=1)

    def linear(self, x, a, b):
        return super().linear(x if self.form.startswith("float") else self.pair(x, 0.03), a, b)

    def node(self, op, *inputs, **attributes):
        if op == "MatMul" and self.form == "all":
            kinds = {n.output[0]: n.op_type for n in self.nodes}
            if kinds.get(inputs[1]) == "Transpose" and kinds.get(inputs[0]) in ("Transpose", "Softmax", "Where"):
                inputs = [self.pair(i, 0.03) if kinds[i] == "Transpose" else self.pair(i, 1 / 255, -128) for i in inputs]
        y = super().node(op, *inputs, **attributes)
        if op == "Softmax" and self.guarded:  # as PyTorch's exporter writes attention with a mask
            y = super().node("Where", super().node("IsNaN", y), self.constant(np.float32(0)), y)
        return y


def encoder(path, network, batch, form, layers):
    tokens, norm_first = SHAPES[network]
    g = Encoder(batch, form, guarded=not norm_first)
    x = "x"
    for _ in range(layers):
        if norm_first:
            x = g.node("Add", x, g.attention(g.norm(x, WIDTH), tokens, WIDTH, HEADS))
            x = g.node("Add", x, g.mlp(g.norm(x, WIDTH), WIDTH))
        else:
            x = g.norm(g.node("Add", x, g.attention(x, tokens, WIDTH, HEADS)), WIDTH)
            x = g.norm(g.node("Add", x, g.mlp(x, WIDTH)), WIDTH)
    shape = [batch, tokens, WIDTH]
    from onnx import TensorProto

    g.float_type = TensorProto.FLOAT16 if form == "float16" else TensorProto.FLOAT
    if form == "float16":
        arrays = [(c.name, g.numpy_helper.to_array(c)) for c in g.constants]
        g.constants = [g.numpy_helper.from_array(a.astype(np.float16) if a.dtype == np.float32 else a, name) for name, a in arrays]
    g.save(path, [g.helper.make_tensor_value_info("x", g.float_type, shape)], x, shape)


TITLE = "encoders on a GPU beside compiled PyTorch in float16"
TURNS = (("vit", 64), ("bert", 32), ("vit", 1), ("bert", 1))
FORMS = {"float16": ("float16", ""), "float, float16 allowed": ("float", "float16"), "float, bfloat16 allowed": ("float", "bfloat16"), "all products in int8": ("all", "")}


def time_torch(names, layers, serve=False):
    """In a process of its own: one line of JSON a network. `serve`: one network, as gpu_time.serve says."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self, norm_first):
            super().__init__()
            nn = torch.nn
            self.norm_first = norm_first
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def attention(self, x):
            b, t, _ = x.shape
            q, k, v = (f(x).view(b, t, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return self.o(y.transpose(1, 2).reshape(b, t, WIDTH))

        def mlp(self, x):
            return self.down(torch.nn.functional.gelu(self.up(x)))

        def forward(self, x):
            if self.norm_first:
                x = x + self.attention(self.first(x))
                return x + self.mlp(self.second(x))
            x = self.first(x + self.attention(x))
            return self.second(x + self.mlp(x))

    for name in names:
        network, batch = name.split(":")
        tokens, norm_first = SHAPES[network]
        torch.manual_seed(0)
        with torch.no_grad():
            model = torch.nn.Sequential(*(Layer(norm_first) for _ in range(layers))).cuda().half().eval()
            x = torch.randn(int(batch), tokens, WIDTH, device="cuda", dtype=torch.float16)
            torch._dynamo.reset()
            run = torch.compile(model, mode="reduce-overhead")
            if serve:
                return gpu_time.serve(run, x)
            ms = gpu_time.median_ms(run, x)
        print(json.dumps({"network": name, "ms": ms, "gpu": torch.cuda.get_device_name()}), flush=True)
    return None


class Bench:
    def __init__(self, args):
        self.args, self.begin, self.out = args, time.time(), pathlib.Path(args.out)
        self.folder = pathlib.Path(args.folder)
        self.models = self.folder / "models"
        self.models.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.environment = dict(os.environ, LD_LIBRARY_PATH=f"{self.folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}", XDG_CACHE_HOME=str(self.folder / "cache"))
        self.left_out, self.wrong = [], 0

    def left(self):
        return self.args.seconds - (time.time() - self.begin)

    def model(self, network, batch, form, layers):
        path = self.models / f"{network}_b{batch}_{form}_{layers}.onnx"
        if not path.exists():
            encoder(path, network, batch, form, layers)
        return path

    def octavo(self, what, program, *words):
        """The command's result and what it printed, which is kept as a file; None where there is no time for it."""
        if self.left() < 8:
            self.left_out.append(what)
            return None
        try:
            run = subprocess.run([str(self.folder / "bin" / program), *map(str, words)], env=self.environment, capture_output=True, text=True, timeout=max(8, self.left()))
        except subprocess.TimeoutExpired:
            self.left_out.append(what)
            return None
        (self.out / (re.sub(r"[^A-Za-z0-9]+", "-", what) + ".txt")).write_text(run.stdout + run.stderr)
        return run

    def check(self, network, batch, form, effort, allow):
        if form not in self.args.forms:
            return
        path = self.model(network, batch, form, 1)
        what = f"check {network} {batch} {form} effort {effort} {allow}"
        run = self.octavo(what, "octavo", "check", path, "--device", "cuda", "--effort", effort, *(["--allow", f"int8,float32,{allow}"] if allow else []))
        if run is None:
            return
        self.wrong += run.returncode != 0
        print(f"{what}: {'equal' if run.returncode == 0 else 'WRONG'}: {(run.stdout + run.stderr).strip().splitlines()[-1][:200]}", flush=True)

    def bench(self, network, batch, form, allow, program="octavo"):
        if form not in self.args.forms:
            return
        path = self.model(network, batch, form, self.args.layers)
        what = f"bench {network} {batch} {form} {allow or 'nothing'} {program}"
        begin = time.time()
        run = self.octavo(what, program, "bench", path, "--device", "cuda", "--effort", 1, "--noDataTransfers", "--seconds", 0.5, "--regions",
                          "--timing-cache", self.folder / f"{program}.times", *(["--allow", f"int8,float32,{allow}"] if allow else []))
        if run is None:
            return
        if run.returncode != 0:
            self.wrong += program == "octavo"
            print(f"{what}: fails: {(run.stdout + run.stderr).strip()[:300]}", flush=True)
            return
        median = re.search(r"median ([0-9.]+) ms", run.stdout)
        print(f"{what}: {median[1] if median else '?'} ms ({time.time() - begin:.0f} s with the build)", flush=True)

    def turns(self, rounds):
        """{row: rounds of both}, and the rows for which there was no time."""
        found, absent, program = {}, [], self.folder / "bin/octavo"
        for network, batch in TURNS:
            words = [sys.executable, __file__, "--torch", f"{network}:{batch}", "--serve", "--layers", str(self.args.layers)]
            torch, engines = gpu_time.Torch(words, os.environ, max(10, self.left() - 20)), {}
            for form, (model, allow) in FORMS.items():
                title = f"{network}, {self.args.layers} layers, batch {batch}, {form}"
                engine = self.out / f"{len(engines)}.octavo"
                run = self.octavo(f"build {title}", "octavo", "build", self.model(network, batch, model, self.args.layers), "-o", engine, "--device", "cuda", "--effort", 1,
                                  "--timing-cache", self.folder / "octavo.times", *(["--allow", f"int8,float32,{allow}"] if allow else []))
                if run is not None and run.returncode == 0:
                    engines[title] = engine
                else:
                    self.wrong += run is not None
                    absent.append(title)
            bench = lambda e: json.loads(subprocess.run([program, "bench", e, "--noDataTransfers", "--seconds", "0.3", "--json"], env=self.environment, capture_output=True, text=True,
                                                        check=True, timeout=60).stdout.splitlines()[-1])["median_ms"]
            measured = gpu_time.rounds(torch, engines, bench, rounds, self.left)
            torch.close()
            if measured is None:
                print(f"{network}:{batch}: {torch.error or 'no time left'}", flush=True)
                absent += list(engines)
                continue
            found |= measured
            for title, times in measured.items():
                print(f"{title}: {figures.verdict(figures.ratios(times, range(rounds)))}", flush=True)
        return found, absent

    def torch(self, names):
        if self.left() < 40:
            return self.left_out.append("torch")
        words = [sys.executable, __file__, "--torch", *names, "--layers", str(self.args.layers)]
        try:
            run = subprocess.run(words, capture_output=True, text=True, timeout=min(110, self.left()))
            out, errors = run.stdout, run.stderr
        except subprocess.TimeoutExpired as e:
            out, errors = (e.stdout or b"").decode(), "no time left"
        (self.out / "torch.txt").write_text(out + errors)
        for line in out.splitlines():
            if line.startswith("{"):
                r = json.loads(line)
                print(f"torch {r['network']} float16 compiled: {r['ms']:.4f} ms on {r['gpu']}", flush=True)
        if not out:
            print("torch fails:", errors.strip()[-300:], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--forms", type=lambda text: text.split(","), default=["float", "float16", "linear", "all"])
    parser.add_argument("--models")
    parser.add_argument("--floats", action="store_true")
    parser.add_argument("--torch", nargs="*")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=figures.LEAST_ROUNDS)
    figures.add_option(parser)
    args = parser.parse_args()
    if args.torch:
        return time_torch(args.torch, args.layers, args.serve)
    if args.models:
        folder = pathlib.Path(args.models)
        folder.mkdir(parents=True, exist_ok=True)
        for network in SHAPES:
            for form in ("float", "float16", "linear", "all"):
                encoder(folder / f"{network}_{form}.onnx", network, 1, form, args.layers)
        return None
    b = Bench(args)
    if args.record:
        results = {}
        figures.claim(results, b.folder / "bin/octavo", gpu_time.device())
        found, absent = b.turns(args.rounds)
        if found:
            figures.save(figures.record(results, {TITLE: found}, left_out=absent), args.record)
        return 1 if b.wrong or absent else 0
    kinds = (("float16", ""), ("float", "float16"), ("float", "bfloat16"))
    if args.floats:
        for form, allow in kinds:
            b.check("vit", 1, form, 0, allow)
            b.check("bert", 1, form, 0, allow)
        b.torch(["vit:64", "bert:32", "vit:1", "bert:1"])
        for network, batch in (("vit", 64), ("bert", 32), ("vit", 1), ("bert", 1)):
            for form, allow in kinds:
                b.bench(network, batch, form, allow)
        if b.left_out:
            print("left out, no time:", "; ".join(b.left_out))
        return 1 if b.wrong else 0
    for batch, form, allow in ((1, "float", ""), (2, "float", "bfloat16"), (1, "float16", ""), (2, "float", "float16"), (1, "all", "")):
        b.check("vit", batch, form, 0, allow)
    b.check("bert", 1, "all", 0, "")
    for form, allow in (("float", ""), ("float", "bfloat16"), ("float16", ""), ("float", "float16"), ("linear", "bfloat16"), ("linear", "float16"),
                        ("all", "")):
        b.bench("vit", 64, form, allow)
    b.torch(["vit:64", "bert:32", "vit:1", "bert:1"])
    before = (b.folder / "bin" / "octavo_before").exists()
    if before:
        b.bench("vit", 64, "linear", "", "octavo_before")
    b.bench("vit", 64, "linear", "")
    b.bench("bert", 32, "all", "")
    b.bench("bert", 32, "float", "bfloat16")
    b.bench("vit", 1, "all", "")
    b.bench("bert", 1, "all", "")
    b.bench("vit", 1, "float", "bfloat16")
    b.bench("bert", 1, "float", "bfloat16")
    b.check("vit", 1, "all", 1, "")
    b.bench("vit", 64, "float", "tf32")
    b.bench("bert", 32, "linear", "bfloat16")
    if before:
        b.bench("vit", 64, "all", "", "octavo_before")
        b.bench("bert", 32, "all", "", "octavo_before")
        b.bench("vit", 64, "float", "bfloat16", "octavo_before")
    b.bench("vit", 1, "linear", "bfloat16")
    if b.left_out:
        print("left out, no time:", "; ".join(b.left_out))
    return 1 if b.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
