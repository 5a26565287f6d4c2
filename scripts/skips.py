"""The tests that may be skipped, and on which machines: tests/skips.txt, compared with what a run did.

A line of the manifest: COUNT NEEDS PATTERN. NEEDS are words of NEEDS below, joined by "+"; "no-WORD" is the opposite of WORD. "*" in PATTERN stands for any
characters. A test of such a line is skipped exactly where one of its needs is not met, and COUNT tests match the line on every machine. A line
"last WORD: TEXT" says when and by what tests that need WORD last ran, where CI has no such machine; a line "checked LEVEL: TEXT" when the list was last held
against a run on a processor of this level.
Used by test_summary.py. Alone it prints what this machine has: skips.py [BUILD_DIR]
"""
import collections
import ctypes
import dataclasses
import importlib.util
import os
import pathlib
import platform
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "tests/skips.txt"
# /proc/cpuinfo, on purpose and not Octavo's own detection: where that is wrong, tests skip that should run.
FLAGS = {"avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, "avx512vnni": {"avx512_vnni"},
         "amx": {"amx_tile", "amx_int8", "amx_bf16"}}
EXTENSIONS = {"vbmi": "avx512vbmi", "avx512bf16": "avx512_bf16"}
PACKAGES = {"serving": ("uvicorn", "starlette", "httptools", "orjson", "prometheus_client", "tritonclient", "grpc", "hpack"), "ray": ("ray",),
            "torch": ("torch", "onnxscript"), "torchvision": ("torchvision",), "torchao": ("torchao",), "nncf": ("nncf",), "sklearn": ("sklearn",)}
NVRTC = ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so")
OTHERS = ("gpu", "nvrtc", "data", "full", "long", "wheel", "user", "mkdocs", "cores2", "linux6.12", "asan", "tsan", "uncapped", "never")
NEEDS = (*FLAGS, *EXTENSIONS, *PACKAGES, *OTHERS)
RECORDED = ("amx", "gpu")  # what the machines of CI lack: the manifest says when such tests last ran


def processor(flags, cap):
    """The words of a processor with these flags of /proc/cpuinfo, used up to `cap` (OCTAVO_CPU; "": all)."""
    level, _, taken = cap.partition(",")
    found, known = set(), set()
    for name, needed in FLAGS.items():
        known |= needed
        if not known <= flags or level == "portable":
            break
        found.add(name)
        if name == level:
            break
    if "avx512vnni" in found:
        found |= {word for word, flag in EXTENSIONS.items() if flag in flags and f"-{flag.replace('_', '')}" not in taken.split(",")}
    return found


def loads(names):
    for name in filter(None, names):
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            continue
    return False


def here(build, data, environment=os.environ):
    """The words that hold on this machine, for this build."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.M)
    words = set(flags[1].split()) if flags else set()
    found = processor(words, environment.get("OCTAVO_CPU", ""))
    uncapped = not (processor(words, "") - found) & set(FLAGS)
    found |= {word for word, names in PACKAGES.items() if all(importlib.util.find_spec(name) for name in names)}
    cache = build / "CMakeCache.txt"
    set_to = re.search(r"^OCTAVO_SANITIZE:\w+=(.*)$", cache.read_text(encoding="utf-8"), re.M) if cache.exists() else None
    sanitizers = set_to[1].split(",") if set_to else []
    holds = {"gpu": any(pathlib.Path("/dev").glob("nvidia[0-9]*")), "nvrtc": loads((environment.get("OCTAVO_NVRTC"), *NVRTC)),
             "data": (data / "models").is_dir(), "full": bool(environment.get("OCTAVO_FULL") or environment.get("OCTAVO_LONG")), "long": bool(environment.get("OCTAVO_LONG")), "user": os.geteuid() != 0,
             "wheel": bool(environment.get("OCTAVO_LONG") or environment.get("OCTAVO_WHEEL") or list((ROOT / "dist").glob("octavo-*x86_64.whl"))),
             "cores2": len(os.sched_getaffinity(0)) >= 2, "linux6.12": tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 12),
             "mkdocs": (ROOT / "build/site-venv/bin/mkdocs").exists(), "asan": "address" in sanitizers, "tsan": "thread" in sanitizers, "uncapped": uncapped, "never": False}
    return found | {word for word, held in holds.items() if held}


@dataclasses.dataclass
class Line:
    count: int
    needs: tuple
    pattern: str

    def unmet(self, machine):
        return [n for n in self.needs if (n[3:] in machine if n.startswith("no-") else n not in machine)]

    def __post_init__(self):
        self.expression = re.compile(re.escape(self.pattern).replace(r"\*", ".*"))
        self.beginning = self.pattern.partition("*")[0]  # most names have another one: looked at first, as it takes a tenth of the time

    def matches(self, name):
        return name.startswith(self.beginning) and self.expression.fullmatch(name) is not None

    def __str__(self):
        return f"{self.count} {'+'.join(self.needs)} {self.pattern}"


def parse(text):
    """([Line], {word: text of its "last" line}). ValueError names a line that means nothing."""
    lines, last = [], {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if record := re.fullmatch(r"(?:last|(checked)) (\S+): (.+)", line):
            last[f"checked {record[2]}" if record[1] else record[2]] = record[3]
            continue
        parts = line.split(maxsplit=2)
        if len(parts) != 3 or not parts[0].isdigit():
            raise ValueError(f'skips.txt:{number}: "{line}" is not "COUNT NEEDS PATTERN"')
        needs = tuple(parts[1].split("+"))
        for need in needs:
            if need.removeprefix("no-") not in NEEDS:
                raise ValueError(f'skips.txt:{number}: nothing is known of "{need}"; known are {", ".join(NEEDS)}')
        lines.append(Line(int(parts[0]), needs, parts[2].strip()))
    for word in RECORDED:
        if any(word in line.needs for line in lines) and word not in last:
            raise ValueError(f'skips.txt: tests need {word}, and no line "last {word}: ..." says when they last ran')
    return lines, last


def expand(results, lines):
    """A module that pytest skipped whole is one result, NAME::*: it becomes as many as its line counts."""
    out = []
    for name, kind, reason in results:
        whole = [line for line in lines if line.pattern == name] if name.endswith("::*") else []
        out += [(name, kind, reason)] * (whole[0].count if whole else 1)
    return out


def compare(results, lines, machine, whole):
    """What is wrong with [(name, "passed" | "failed" | "skipped", reason)], expanded, by the manifest. `whole`: every test was to run, so none may be missing."""
    wrong = []
    for name, kind, reason in dict.fromkeys(results):
        found = [line for line in lines if line.matches(name)]
        unmet = [need for line in found for need in line.unmet(machine)]
        if kind == "skipped" and not found:
            wrong.append(f"{name} was skipped ({reason[:150]}), and no line of tests/skips.txt expects that. Make it run, or add: 1 NEEDS {name}")
        elif kind == "skipped" and not unmet:
            wrong.append(f'{name} was skipped ({reason[:150]}), though this machine has all that its line asks for: "{found[0]}"')
        elif kind == "passed" and unmet:
            why = "its line says that it never runs" if "never" in unmet else f"this machine does not meet {', '.join(unmet)}"
            wrong.append(f"{name} passed, though {why}: it tested nothing, or its line in tests/skips.txt is wrong")
    names = collections.Counter(name for name, _, _ in results)
    for line in lines if whole else []:
        n = sum(count for name, count in names.items() if line.matches(name))
        if n < line.count:
            wrong.append(f'{line.count - n} of the {line.count} tests of the line "{line}" are missing: neither passed nor skipped')
        elif n > line.count:
            wrong.append(f'{n} tests match the line "{line}": write {n} {"+".join(line.needs)} {line.pattern}')
    return wrong


def missing(name, lines, machine):
    """What a skipped test lacks here, by its lines: "needs amx"; empty: nothing that they know."""
    unmet = sorted({need for line in lines if line.matches(name) for need in line.unmet(machine)})
    return f"needs {' and '.join(unmet)}".replace("needs never", "never run, by their parameters") if unmet else ""


def notes(results, lines, last, machine):
    """Of each word of RECORDED that this machine lacks: how many tests that was, and when they last ran."""
    for word in RECORDED:
        n = sum(kind == "skipped" and any(word in line.unmet(machine) and line.matches(name) for line in lines) for name, kind, _ in results)
        if n:
            yield f"needs {word} ({n} tests): {last[word]}"


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release")
    has = here(folder, pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT / "../shared")))
    print(f"has: {' '.join(w for w in NEEDS if w in has)}\nlacks: {' '.join(w for w in NEEDS if w not in has)}")
