"""What peers.py found: as text, as tables of a record, and as docs/lab/performance.svg."""
import importlib.metadata
import statistics

import chart
import roofline
from figures import steady_rounds
from peer import NAMES

TITLES = {"resnet50": "ResNet50", "mobilenet_v2": "MobileNetV2", "yolov8n": "YOLOv8n-like 640", "unet": "U-Net 256"}
AIMS = {"resnet50": 1.15, "mobilenet_v2": 1.6, "yolov8n": 1.7, "yolov8n inputs": 1.4, "unet": 1.05}  # one thread, batch 1
AIM_OTHER = 1.1
AMX_AIMS, AMX_OTHER = {"resnet50": 1.3, "yolov8n": 3.0}, 1.3  # where there are tile registers
AMX_PEAK = 1000  # GMAC/s of one core; without tiles it is less
COUNTED = ("float", "bfloat16")  # forms that are no 8-bit model

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


def record_tables(results):
    """For figures.record: {"1 thread(s), batch 1": {"ResNet50, residual": {engine: [milliseconds of each round]}}}"""
    found = {}
    for key, times in results["times"].items():
        net, form, config = key.split(" ")
        threads, batch = config.split("x")
        found.setdefault(f"{threads} thread(s), batch {batch}", {})[f"{TITLES.get(net, net)}, {form}"] = times
    return found


def record_views(results):
    """How figures.py shows these tables: each engine, the ratio on this file, the one against any form of the network, and how near the peak it is."""
    f, views = Found(results), {}
    for (net, form, threads, batch), times in f.ms.items():
        view = views.setdefault(f"{threads} thread(s), batch {batch}", {
            "columns": [*([e, f"{n}, ms"] for e, n in NAMES.items()), ["best", "fastest other ÷ Octavo"], ["any", "the same, each other with its fastest form of the network"],
                        ["peak", "of the peak"], ["roofline", "of the roofline"]],
            "ratios": {"best": {"over": "octavo"}, "any": {"over": "octavo", "network": True, "except": list(COUNTED)}}, "facts": {}})
        bound = f.bound(net, threads)
        if bound and form not in COUNTED and "octavo" in times:
            view["facts"][f"{TITLES.get(net, net)}, {form}"] = {k: f"{100 * bound[b] * batch * 1e3 / times['octavo']:.0f} %" for k, b in (("peak", "ideal"), ("roofline", "tuned"))}
    engines = {e for times in f.ms.values() for e in times}
    for view in views.values():
        view["columns"] = [c for c in view["columns"] if c[0] not in NAMES or c[0] in engines]
        if not view["facts"]:
            view["columns"] = view["columns"][:-2]
    return views


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


def picture_of_record(found):
    """The same from a record of peers.py."""
    forms = {title: net for net, title in TITLES.items()}
    times = {}
    for row, of in found["tables"]["1 thread(s), batch 1"].items():
        net, form = row.rsplit(", ", 1)
        times[f"{forms.get(net, net)} {form} 1x1"] = of
    return picture(Found({"times": times, "peaks": {}, "work": {}, "steady": found["steady"], "machine": f"{found['machine']}, commit {found['commit']}"}))

