"""What peers.py found, as text: docs/lab/performance.md, the README's table and docs/lab/performance.svg."""
import importlib.metadata
import re
import statistics

import chart
import roofline
import counterparts
from figures import steady_rounds
from peer import NAMES

TITLES = {"resnet50": "ResNet50", "mobilenet_v2": "MobileNetV2", "yolov8n": "YOLOv8n-like 640", "unet": "U-Net 256"}
AIMS = {"resnet50": 1.15, "mobilenet_v2": 1.6, "yolov8n": 1.7, "yolov8n inputs": 1.4, "unet": 1.05}  # one thread, batch 1
AIM_OTHER = 1.1
AMX_AIMS, AMX_OTHER = {"resnet50": 1.3, "yolov8n": 3.0}, 1.3  # where there are tile registers
AMX_PEAK = 1000  # GMAC/s of one core; without tiles it is less
COUNTED = ("float", "bfloat16")  # forms that are no 8-bit model

TEXT = """# Times beside ONNX Runtime and OpenVINO

Written by `bench/peers.py --write`. {machine}. Every measurement is a process of its own; the engines take turns on the same file, the
same inputs and the same cores{priority}; figures are medians over rounds of each process's median ({rounds}). The networks have the shapes of the real ones and
seeded weights; `residual`, `outputs`, `everywhere` and `inputs` are placements of Q/DQ pairs, int8 symmetric activations and weights per
output channel; `uint8` is the model that suits the peers, asymmetric uint8 activations; `float` is the unquantized one.

*Ratio*: the faster peer's time on this file ÷ Octavo's. *Against any form*: the fastest time of any peer on any form of the network (its uint8
file, its float or bfloat16 model) ÷ Octavo's. *Of peak*: multiplications a second, of what back-to-back {instruction} reach in the same
run ({peaks}). *Of the roofline*: of `bench/roofline.py`'s "tuned" figure at that peak. *Aim*: the ratio we hold ourselves to, or 85 % of
the peak where that is less (of "tuned" for MobileNetV2).
"""
AGREE = """
## Outputs

rms(outputs − reference) / rms(reference), the reference being ONNX Runtime without optimizations; every engine reads the same file of inputs, the one that it
is timed on. No two engines round the same
way between layers: a value that lies on a tie falls to either side, and behind a few such values every sum differs a little. So the measure
of agreement is what the other engines' optimizations change: an engine agrees where its difference is at most 1.25 times that of the nearest
other (or 2e-5), and at most 0.2 whatever the others do. An engine within 2e-5 rounds as the reference does and is no measure for others where there is a
second. Infinities and NaN must stand in the same places as in the reference; where the reference is all zeros, so must the outputs be.

"""
START = """
## Start and memory

One core (the build with an empty timing cache: two), one thread, batch 1. *Load*: mapping the engine file, its checksums, generating the
kernels. *Memory*: how far the process grew at its peak, up to and with its first results; of the engine file (which is what runs in service) and
of the ONNX file with a full timing cache.

"""


def machine(peers):
    """The processor and the versions, in words."""
    names = {"ort": "onnxruntime", "openvino": "openvino"}
    found = [f"{NAMES[p]} {importlib.metadata.version(names[p])}" for p in peers if p in names]
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            return ", ".join([line.split(":", 1)[1].strip(), *found])
    return ", ".join(found)


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in rows)])


def difference(ours, reference):
    """The largest rms(ours - reference) / rms(reference) of all outputs, dictionaries of float64 arrays. Infinite where an output is missing or has
    another size, where one of the two is not finite and the other is or differs, and where the reference is all zeros and ours is not."""
    import numpy as np

    worst = 0.0
    for name, expected in reference.items():
        if name not in ours or ours[name].size != expected.size:
            return float("inf")
        a, b = ours[name].reshape(-1), expected.reshape(-1)
        finite = np.isfinite(b)
        if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        error, size = (float(np.sqrt(np.mean(np.square(x)))) if x.size else 0.0 for x in (a[finite] - b[finite], b[finite]))
        if error > 0:
            worst = max(worst, error / size if size > 0 else float("inf"))
    return worst


SAME, CAP = 2e-5, 0.2  # differences: of engines that round alike, and the largest that agrees whatever others do


def agreeing(found):
    """{engine: whether its difference is at most 1.25 times that of the nearest other engine that does not round as the reference does, or 2e-5, and at
    most CAP}; None where it is finite and no other engine's is, so that nothing can be judged."""
    out = {}
    for engine, own in found.items():
        others = [v for e, v in found.items() if e != engine and v != float("inf")]
        nearest = min([v for v in others if v > SAME] or others or [0.0])
        out[engine] = None if not others and SAME < own < float("inf") else own <= min(CAP, 1.25 * max(SAME, nearest))
    return out


class Found:
    """Results, by median. `results["steady"]`: without the rounds in which any engine took more than so many times its fastest."""

    def __init__(self, results):
        self.raw = results
        limit = results.get("steady")
        self.left_out = self.counted = 0

        self.ms = {}  # (net, form, threads, batch) -> {engine: milliseconds a run}
        for key, times in results["times"].items():
            net, form, config = key.split(" ")
            threads, batch = map(int, config.split("x"))
            kept = steady_rounds(times, limit)
            medians = {e: [v[i] for i in kept if i < len(v)] for e, v in times.items()}
            self.ms[net, form, threads, batch] = {e: statistics.median(v) for e, v in medians.items() if v}
            rounds = max(map(len, times.values()), default=0)
            self.left_out += rounds - len(kept)
            self.counted += rounds
        self.peak = {int(t): max(v) for t, v in results["peaks"].items()}
        self.typical = {int(t): statistics.median([p for p in v if not limit or p * limit >= max(v)]) for t, v in results["peaks"].items()}
        counts = {}  # configuration -> rounds
        for key, times in results["times"].items():
            counts[key.split(" ")[2]] = max([counts.get(key.split(" ")[2], 0), *map(len, times.values())])
        self.rounds = ", ".join(f"{n} with {c.replace('x', ' thread(s), batch ')}" for c, n in counts.items())
        if limit:
            self.rounds += (f"; {self.left_out} of {self.counted} rounds are left out for all engines, because one of them took more than {limit} times its "
                            "fastest: the host gives the core's units to others at times")

    def bound(self, net, threads):
        """roofline.bounds of one image, or None."""
        kernels = self.raw["work"].get(net)
        if not kernels or not self.typical.get(threads):  # no figure for processors without 8-bit dot instructions
            return None
        return roofline.bounds([roofline.Kernel(*k) for k in kernels], self.typical[threads] * 1e9)

    def fastest_form(self, net, threads, batch):
        """(milliseconds, form, engine) of the fastest peer on any form."""
        found = [(ms, form, e) for (n, form, t, b), times in self.ms.items() if (n, t, b) == (net, threads, batch)
                 for e, ms in times.items() if e != "octavo"]
        return min(found, default=None)


def aim_of(f, net, form, threads, batch, best):
    """The ratio to reach."""
    if form in ("uint8", *COUNTED):
        return None
    if net not in AIMS:
        return 1.0  # trained models: never below a peer
    amx = f.typical.get(1, 0) > AMX_PEAK
    if (threads, batch) != (1, 1):
        return AMX_OTHER if amx and batch == 1 else AIM_OTHER
    if amx:
        return AMX_AIMS.get(net, 1.0)
    aim, b = AIMS.get(f"{net} {form}", AIMS.get(net)), f.bound(net, 1)
    if b is None or aim is None:
        return aim
    return min(aim, best / (1e3 * (b["tuned"] if net == "mobilenet_v2" else b["ideal"]) / 0.85))


def rows_of(f, threads, batch):
    for (net, form, t, b), times in f.ms.items():
        ours, peers = times.get("octavo"), {e: ms for e, ms in times.items() if e != "octavo"}
        if (t, b) != (threads, batch) or not peers:
            continue
        best, bound = min(peers.values()), f.bound(net, threads)
        cells = [TITLES.get(net, net), form] + [f"{times[e] / batch:.3f}" if e in times else "–" for e in NAMES]
        if ours is None:
            yield cells + ["–"] * 5
            continue
        aim, any_form = aim_of(f, net, form, t, b, best), f.fastest_form(net, t, b)
        cells.append(f"**{best / ours:.2f}**")
        cells.append("–" if aim is None else f"{aim:.2f}" + ("" if best / ours >= aim else " missed"))
        cells.append("–" if form in COUNTED else f"{any_form[0] / ours:.2f} ({NAMES[any_form[2]]}, {any_form[1]})"
                     + (" **below 1**" if any_form[0] < ours else ""))
        if bound and form not in COUNTED:
            cells += [f"{100 * bound['ideal'] * batch * 1e3 / ours:.0f} %", f"{100 * bound['tuned'] * batch * 1e3 / ours:.0f} %"]
        else:
            cells += ["–", "–"]
        yield cells


def times_text(f):
    head = ["network", "form", *(f"{n}, ms an image" for n in NAMES.values()), "ratio", "aim", "against any form", "of peak", "of the roofline"]
    out = []
    for threads, batch in sorted({k[2:] for k in f.ms}, key=lambda c: (c[1], c[0])):
        rows = list(rows_of(f, threads, batch))
        if rows:
            out.append(f"\n## {threads} thread{'s' * (threads > 1)}, batch {batch}\n\n" + table(head, rows) + "\n")
    return "".join(out)


def scaling_text(f):
    rows = []
    for (net, form, t, b), times in f.ms.items():
        two = f.ms.get((net, form, 2, b), {})
        if t == 1 and two:
            rows.append([TITLES.get(net, net), form, str(b)] + [f"{times[e] / two[e]:.2f}" if e in times and e in two else "–" for e in NAMES])
    return "\n## Two threads over one\n\n" + table(["network", "form", "batch", *NAMES.values()], rows) + "\n" if rows else ""


def agree_text(results):
    rows = []
    for key, found in results["agree"].items():
        net, form, config = key.split(" ")
        verdicts = agreeing(found)
        cells = [f"{found[e]:.1e}" if e in found else "–" for e in NAMES]
        wrong = [NAMES[e] for e in NAMES if verdicts.get(e) is False]
        unjudged = [NAMES[e] for e in NAMES if e in verdicts and verdicts[e] is None]
        said = [*(["**no**: " + ", ".join(wrong)] if wrong else []), *(["not judged: " + ", ".join(unjudged)] if unjudged else [])]
        rows.append([TITLES.get(net, net), form, config, *cells, "; ".join(said) or "yes"])
    return AGREE + table(["network", "form", "threads x batch", *NAMES.values(), "agrees"], rows) + "\n" if rows else ""


def start_text(results):
    head = ["network", "build, empty cache", "build, full cache", "load", "first run", "OpenVINO: compile", "memory, engine", "memory, ONNX",
            "OpenVINO: memory", "ONNX Runtime: memory"]
    rows = []
    for net, s in results["start"].items():
        mb = [f"{s[k]['memory_kb'] / 1024:.0f} MB" if k in s else "–" for k in ("load", "full", "openvino", "ort")]
        rows.append([TITLES.get(net, net), f"{s['empty']['build_ms'] / 1e3:.2f} s", f"{s['full']['build_ms'] / 1e3:.2f} s", f"{s['load']['load_ms']:.1f} ms",
                     f"{s['load']['first_ms']:.1f} ms", f"{s['openvino']['build_ms'] / 1e3:.2f} s" if "openvino" in s else "–", *mb])
    return START + table(head, rows) + "\n" if rows else ""


def real_text(f):
    """The trained models, and int8 against our own float."""
    out = times_text(f)
    rows = []
    for (net, form, t, b), times in f.ms.items():
        own = f.ms.get((net, "float", t, b), {}).get("octavo")
        if form != "float" and own and "octavo" in times:
            rows.append([net, form, str(t), f"{own:.3f}", f"{times['octavo']:.3f}", f"{own / times['octavo']:.2f}"])
    return out + "\n## Int8 against our own float\n\n" + table(["network", "form", "threads", "float, ms", "int8, ms", "float ÷ int8"], rows) + "\n"


def head_text(f):
    amx = f.typical.get(1, 0) > AMX_PEAK
    peaks = ", ".join(f"{v:.0f} GMAC/s on {t} thread{'s' * (t > 1)}" for t, v in sorted(f.typical.items())) or "not measured"
    priority = ", with real-time priority" if f.raw.get("realtime", True) else ""
    return TEXT.format(machine=f.raw["machine"], priority=priority, rounds=f.rounds, peaks=peaks, instruction="`tdpbusd`" if amx else "`vpdpbusd`")


def record_tables(results):
    """For figures.record: {"1 thread(s), batch 1": {"ResNet50, residual": {engine: [milliseconds of each round]}}}"""
    found = {}
    for key, times in results["times"].items():
        net, form, config = key.split(" ")
        threads, batch = config.split("x")
        found.setdefault(f"{threads} thread(s), batch {batch}", {})[f"{TITLES.get(net, net)}, {form}"] = times
    return found


def text(results, real):
    f = Found(results)
    return real_text(f) + agree_text(results) if real else times_text(f) + scaling_text(f) + start_text(results) + agree_text(results)


def picture(f):
    """Images a second on one thread, as parts of Octavo's."""
    groups = []
    for (net, form, t, b), times in f.ms.items():
        if (t, b) != (1, 1) or form in COUNTED or "octavo" not in times:
            continue
        groups.append((f"{TITLES.get(net, net)}, {form}",
                       [(times["octavo"] / times[e], f"{1e3 / times[e]:.0f} images/s") if e in times else None for e in NAMES]))
    note = f"One thread, batch 1; bars: speed beside Octavo's. {f.raw['machine']}."
    return chart.bars("8-bit inference on one core", note, groups, list(NAMES.values()))


README_ROWS = (("resnet50", "residual"), ("mobilenet_v2", "residual"), ("yolov8n", "outputs"), ("yolov8n", "inputs"), ("unet", "residual"))


def readme_table(f):
    """One thread, batch 1, the five rows of README_ROWS; the page has all of them."""
    rows = []
    for (net, form, t, b), times in f.ms.items():
        if (net, form) not in README_ROWS or "octavo" not in times or len(times) < 2 or (t, b) != (1, 1):
            continue
        best, any_form = min(ms for e, ms in times.items() if e != "octavo"), f.fastest_form(net, t, b)
        rows.append([TITLES.get(net, net), form, *(f"{times[e] / b:.3f}" if e in times else "–" for e in NAMES),
                     f"{best / times['octavo']:.2f}", f"{any_form[0] / times['octavo']:.2f}"])
    return table(["network", "placement", *(f"{n}, ms" for n in NAMES.values()), "faster peer ÷ Octavo", "the same, each peer with its fastest form of the model"], rows)


def write(results, real, name):
    """docs/lab/performance.md (what stands behind its mark is kept), the picture and the README's table; docs/lab/performance-real.md; or, with a name,
    docs/lab/performance-NAME.md."""
    f, docs = Found(results), counterparts.ROOT / "docs/lab"
    if real:
        said = (f"# Trained models beside ONNX Runtime and OpenVINO\n\nWritten by `bench/peers.py --real --write`. {results['machine']}; medians over rounds ({f.rounds}), "
                "as docs/lab/performance.md says. `_u8`: activations written as uint8 with zero points 128 higher, the same values; `float`: the "
                "unquantized file. *Aim*: not below the faster peer.\n")
        (docs / "performance-real.md").write_text(said + text(results, True), encoding="utf-8")
        return
    path, mark = docs / (f"performance-{name}.md" if name else "performance.md"), "<!-- by hand from here -->"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    kept = "\n" + mark + old.split(mark, 1)[1] if mark in old else ""
    path.write_text(head_text(f) + text(results, False) + kept, encoding="utf-8")
    if name:
        return
    (docs / "performance.svg").write_text(picture(f), encoding="utf-8")
    readme = counterparts.ROOT / "README.md"
    block = f"<!-- peers:begin -->\n{readme_table(f)}\n<!-- peers:end -->"
    readme.write_text(re.sub(r"<!-- peers:begin -->.*<!-- peers:end -->", lambda _: block, readme.read_text(encoding="utf-8"), flags=re.S), encoding="utf-8")
