"""The rows that bench/everything.py measures on a machine: scripts, their settings, and the minutes expected on two quiet cores of 2026."""
import collections
import importlib.machinery
import os
import pathlib
import re
import shlex
import sys

import gpu_time
import parity

HERE = pathlib.Path(__file__).resolve().parent
CAP = {"OCTAVO_CPU": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
PEERS = ("onnx", "onnxruntime", "openvino")
GPU = ("onnx", "torch", "torchvision", "transformers", "onnxruntime")
SERVING = ("uvicorn", "starlette", "httptools", "orjson", "prometheus_client")
TRANSFORMERS = ("bert128:1", "swin_t:1", "vit_b_16:1", "vit_b_16:64")  # README shows these
NETWORKS = ("vit_b_16:64", "bert128:32", "vit_b_16:1", "bert128:1", "swin_t:1", "efficientnet_b0:32", "mobilenet_v3_large:8")
MORE = ("convnext_tiny:8", "inception_v3:8", "densenet121:8", "regnet_y_800mf:8", "bert384:8")  # a record of their own: each fits into ten minutes
OTHERS = ("resnext50_32x4d:8", "efficientnet_v2_s:8", "deeplabv3_mobilenet_v3_large:8", "r3d_18:2", "shufflenet_v2_x1_0:8")
MIXED = ("efficientnet_b0:32",)  # convolutions alone quantized

NETS = ("resnet50", "mobilenet_v2", "yolov8n", "unet")
TRAINED = ("mobilenetv,squeezenet,resnet20,resnet56", "tinycnn,yolox,unet_small", "nanodet,ppocr,yunet", "retina,_like")
BFLOAT16 = ("resnet50", "mobilenet_v2,unet_small", "yolox", "_like")

PARITY = ("resnet50", "mobilenet_v2", "resnet20", "yolox_nano")

# importance: the smallest first. 1 and 2: what README shows; then the pages of each kind of machine; then pages of their own.
# words: what the script is called with; {work}, {seconds}, {rounds}, {left} are filled in. by_round: the script adds one round a call to its --json. lanes: networks that may be measured
# beside each other where there are cores.
Step = collections.namedtuple("Step", "record importance minutes script words needs by_round environment cpus lanes", defaults=((), False, {}, None, ()))


def flags():
    return set(re.search(r"^flags\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)[1].split())


def level():
    """The instructions that decide about int8 kernels."""
    return "amx" if "amx_int8" in flags() else "vnni" if "avx512_vnni" in flags() else "avx2"


def has_bfloat16():
    """Does the processor multiply bfloat16? The peers convert to float32 where it does not, which nobody would choose."""
    return not flags().isdisjoint({"avx512_bf16", "amx_bf16"})


def cpu_steps(name, cores, cpus, minor, bf16=True):
    """The rows of a machine; `minor`: the two cores of a larger one, of which only what differs is measured; `bf16`: it multiplies bfloat16."""
    peers = ["--models", "{work}/models", "--seconds", "{seconds}"]
    threads = f"{cores}"
    forms = ["--forms", "residual,outputs,inputs,uint8,float" + (",bfloat16" if bf16 else "")]
    trained, few = ",".join(TRAINED), cores <= 2
    steps = [
        Step(f"int8-threads-{name}", 6, 4, "peers.py", [*peers, "--configs", f"{threads}x1", "--forms", "residual,outputs,inputs,uint8", "--no-agree"], PEERS, True,
             lanes=NETS if few else ()),
        Step(f"float-threads-{name}", 7, 4, "floats.py", [*peers, "--threads", threads, "--nets", trained], (*PEERS, "PIL"), True, lanes=TRAINED if few else ()),
    ]
    if not minor:
        bfloat16 = ["--precision", "bf16", "--nets", ",".join(BFLOAT16)]
        steps += [
            Step(f"int8-{name}", 1, 9, "peers.py", [*peers, "--configs", "1x1", *forms, "--no-agree"], PEERS, True, lanes=NETS),
            Step(f"float-{name}", 3, 5, "floats.py", [*peers, "--threads", "1", "--nets", trained], (*PEERS, "PIL"), True, lanes=TRAINED),
            *([Step(f"bfloat16-{name}", 3, 3, "floats.py", [*peers, "--threads", "1", *bfloat16], (*PEERS, "PIL"), True, lanes=BFLOAT16)] if bf16 else []),
            Step(f"parity-{name}", 2, 6, "parity.py", ["--models", "{work}/parity", "--json", "{json}", "--nets", ",".join(PARITY), "--threads", "1", "--pairs", "12", "--seconds", "0.1",
                                                      "--only-styles", "--no-check", "--minutes", "{minutes}"], ("onnx", "onnxruntime")),
            Step(f"precisions-{name}", 5, 2, "precisions.py", ["--models", "{work}/models", "--nets", "resnet50,mobilenet_v2", "-s", "{seconds}", "-r", "{rounds}"], ("onnx",)),
            Step(f"build-times-{name}", 4, 2, "build_times.py", ["measure", "{work}/build_times.json", "--models", "{work}/models", "--only", "mobilenetv2,yolox,unet_small,ppocrv3_det_op14,resnet50"], ("onnx", "onnxruntime")),
        ]
    if not minor and not name.startswith("amx"):  # once is enough: accuracy is that of the same bits, and the pages show one machine
        serve = ["{data}/models/mobilenetv2-12-qdq.onnx", "--seconds", "3", "--rounds", "{rounds}", "--timing-cache", "{work}/serve.times"]
        steps += [Step(f"real-{name}", 8, 12, "peers.py", [*peers, "--real", "--configs", "1x1", "--no-agree"], (*PEERS, "PIL"), True),
                  Step(f"accuracy-{name}", 4, 5, "accuracy.py", ["--build", "{build}", "--forms", "table default,JSON and float model,Q/DQ nearest,Q/DQ default"]),
                  *(Step(f"serve-{kind}-{name}", 4, 1, "serve.py", [*serve, *more], ("octavo", "numpy", *packages))
                    for kind, more, packages in (("http", [], ()), ("grpc", ["--grpc"], ("tritonclient",))))]
    return [s._replace(cpus=cpus) for s in steps]


def capped_steps(cpus):
    """What AVX2 alone gives, beside OpenVINO held to it."""
    common = ["--models", "{work}/models", "--seconds", "{seconds}"]
    steps = [Step("int8-avx2-2", 5, 5, "peers.py", [*common, "--configs", "1x1", "--forms", "residual,outputs,inputs,uint8", "--peers", "octavo,openvino", "--no-agree"], PEERS, True),
             Step("float-avx2-2", 7, 3, "floats.py", [*common, "--threads", "1", "--nets", "mobilenetv,resnet20,yolox,nanodet,unet_small,ppocr,bert_like,vit_like", "--engines", "octavo,openvino"],
                  (*PEERS, "PIL"), True)]
    return [s._replace(cpus=cpus, environment=CAP) for s in steps]


def other_steps(cpus):
    """Pages of their own, whose records have the names that they always had: of the machine with AVX-512 VNNI and two cores."""
    packages = ("ddddocr", "magika", "silero_vad", "nudenet")
    steps = [Step("dynamic-products", 9, 5, "dynamic_products.py", ["--threads", "1,2", "--rounds", "{rounds}", "--seconds", "0.05", "--work", "{work}/dynamic"], PEERS),
             Step("weight-codes", 9, 9, "weight_codes.py", ["--threads", "1,2", "--rounds", "{rounds}", "--seconds", "0.1", "--work", "{work}/weight-codes"], PEERS),
             Step("neighbours-2", 9, 10, "neighbours.py", ["--cores", "2", "--loads", "0,1,2,4", "--seconds", "0.3", "--models", "{work}/neighbours"], PEERS, True),
             Step("packaged", 9, 12, "packaged.py", ["--threads", "1,2", "--rounds", "{rounds}", "--seconds", "{seconds}", "--work", "{work}/packaged"], (*PEERS, *packages))]
    text = ["--requests", "3000", "--layers", "2", "--work", "{work}"]
    steps += [Step("serve-text-octavo", 8, 4, "serve_text.py", text, ("octavo", "onnx", *SERVING)),
              Step("serve-text-onnxruntime", 8, 4, "serve_text.py", [*text, "--runtime", "onnxruntime"], ("octavo", "onnx", "onnxruntime", *SERVING))]
    if (HERE.parent / "build/quantizers").is_dir():  # what bench/quantizers.py prepare and quantize left
        steps.append(Step("quantizers", 10, 70, "quantizers.py", ["measure", "--threads", "2,1", "--rounds", "{rounds}", "--seconds", "0.2", "--resume"], PEERS))
    return [s._replace(cpus=cpus) for s in steps]


def gpu_steps(name):
    folder, gpus = "{work}/gpu", gpu_time.count()
    def networks(record, importance, minutes, names, forms="float16,int8"):
        many = ["--gpus", str(gpus)] if gpus > 1 else []
        return Step(record, importance, minutes, "gpu_networks.py", [folder, *names, *many, "--forms", forms, "--octavo", "{octavo}", "--json", "{json}", "--rounds", "{rounds}", "--seconds", "{left}",
                                                            "--out", "{work}/gpu-networks"], GPU)

    return [networks(f"gpu-transformers-{name}", 1, 5, TRANSFORMERS), networks(f"gpu-networks-{name}", 3, 9, NETWORKS), networks(f"gpu-networks-{name}-more", 3, 7, MORE),
            networks(f"gpu-networks-{name}-others", 3, 7, OTHERS), networks(f"gpu-networks-{name}-mixed", 3, 2, MIXED, "mixed"),
            Step(f"gpu-parity-{name}", 4, 2, "gpu_parity.py", ["{work}/models", "--make", "--nets", "resnet50,mobilenet_v2", "--styles", "residual,inputs", "--batches", "1,64", "--effort", "1", "--cache",
                                                              "{work}/gpu.times", "--pairs", "{rounds}"], ("onnx", "onnxruntime")),
            Step(f"gpu-encoders-{name}", 6, 6, "gpu_transformers.py", [folder, "--rounds", "{rounds}", "--seconds", "{left}", "--out", "{work}/gpu-encoders"], ("onnx", "torch"))]


def steps_here():
    """All rows of this machine, the most important first."""
    kind, cpus = level(), sorted(os.sched_getaffinity(0))
    two = parity.quiet_cores(2)
    steps = cpu_steps(f"{kind}-{len(cpus)}", len(cpus), cpus, False, has_bfloat16())
    if len(cpus) > 2:
        steps += cpu_steps(f"{kind}-2", 2, two, True, has_bfloat16())
    if kind == "vnni":  # one kind of machine: the records have one name
        steps += capped_steps(two)
    if kind == "vnni" and len(cpus) == 2:
        steps += other_steps(two)
    if gpu := gpu_time.device():
        steps += gpu_steps(re.sub(r"[^a-z0-9]+", "-", re.sub(r"^NVIDIA ", "", gpu.split(",")[0])).lower() if not re.search(r"[AHBL]\d+", gpu) else re.search(r"[AHBL]\d+", gpu)[0].lower())
    return sorted(steps, key=lambda s: s.importance)


def missing(step):
    """The packages that a row needs and this Python does not have (files here have the names of packages)."""
    found = [m for m in step.needs if importlib.machinery.PathFinder.find_spec(m, [p for p in sys.path if pathlib.Path(p or ".").resolve() != HERE]) is None]
    return found


def command_of(step, fill, rounds, beside=0):
    """The script's command for the record: without folders, and with the rounds of all calls. `beside`: so many networks are measured at a time."""
    said = [f"bench/{step.script}"]
    for word in step.words:
        if any(f"{{{key}}}" in word for key in ("work", "json", "left", "minutes", "octavo", "build")):
            if said[-1].startswith("--"):
                said.pop()
        else:
            said.append(word.replace("{data}/models/", "").format(**fill))
    return shlex.join(said + (["--rounds", str(rounds)] if step.by_round else [])) + (f", {beside} networks at a time on two cores each" if beside else "")
