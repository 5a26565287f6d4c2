"""How the scripts about GPUs time PyTorch: alone (median_ms), or in turns with Octavo's engines, round after round (serve, Torch, rounds)."""
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading


def median_ms(run, x):
    """Milliseconds of run(x) by events of the GPU: the median of 40 runs behind 8."""
    import torch

    for _ in range(8):
        run(x)
    torch.cuda.synchronize()
    times = []
    for _ in range(40):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run(x)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def serve(run, x):
    """In a process of its own: compiles, says so, then measures once for each line that it reads. Between the lines the GPU is free."""
    import torch

    ms = median_ms(run, x)
    print(json.dumps({"ms": ms, "gpu": torch.cuda.get_device_name()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"ms": median_ms(run, x)}), flush=True)


class Torch:
    """A process that serves. `error`: why it does not (then `ms` returns None)."""

    def __init__(self, words, environment, seconds):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True)
        self.error, self.first, self.lines, self.ended = None, None, queue.Queue(), False
        threading.Thread(target=self.read, daemon=True).start()
        self.first = self.answer(seconds)
        if self.first is None:
            ended = self.ended
            self.close()
            self.log.seek(0)
            said = self.log.read().strip()[-300:]
            self.error = said if ended else f"no answer in {seconds:.0f} s. {said}"

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.ended = True
        self.lines.put(None)

    def answer(self, seconds):
        """The next line of JSON, or None."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def ms(self):
        """One round."""
        if self.error:
            return None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found = self.answer(60)
        return found["ms"] if found else None

    def close(self):
        self.process.kill()
        self.process.wait()


def rounds(torch, engines, bench, count, left):
    """{form: {"octavo": [ms], "torch": [ms]}} of the engines {form: file}: in each round PyTorch, then every engine in a process of its own, which `bench` measures.
    None where there was no time for all rounds, which `left` tells in seconds, or PyTorch failed."""
    found = {form: {"octavo": [], "torch": []} for form in engines}
    for _ in range(count):
        if left() < 4 * (len(engines) + 1):
            return None
        other = torch.ms()
        if other is None:
            return None
        for form, engine in engines.items():
            found[form]["octavo"].append(bench(engine))
            found[form]["torch"].append(other)
    return found


def device():
    """The GPU and its driver, in words."""
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return ", driver ".join(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", "))
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def count():
    """The GPUs that may be used."""
    if (said := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([d for d in said.split(",") if d])
    try:
        return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.splitlines())
    except (OSError, subprocess.CalledProcessError):
        return 0
