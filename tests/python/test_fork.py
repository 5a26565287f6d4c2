"""Engines in processes that fork after the first run: pre-forking servers, workers of data loaders. Each test forks in an interpreter of
its own, with a limit on its time, because the failure that it looks for is to wait for ever."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
QDQ = ROOT / "examples/digits/digits_qdq.onnx"

SETUP = """
import os, sys, threading, time, numpy as np, octavo
x = np.random.default_rng(0).uniform(0, 1, (1, 1, 16, 16)).astype(np.float32)
engine = octavo.build(sys.argv[1], shapes={"image": (1, 1, 16, 16)}, threads=int(sys.argv[2]), effort=0)
want = engine.run({"image": x})["head"]

def same():
    return np.array_equal(engine.run({"image": x})["head"], want)
"""


def run(body, threads=2):
    code = SETUP + body
    done = subprocess.run([sys.executable, "-c", code, str(QDQ), str(threads)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_child_and_parent_run(threads):
    out = run("""
for generation in range(3):
    pid = os.fork()
    if pid == 0:
        ok = all(same() for _ in range(20))
        if ok and generation == 2:  # and the child's child
            grandchild = os.fork()
            if grandchild == 0: os._exit(0 if same() else 1)
            ok = os.waitpid(grandchild, 0)[1] == 0
        os._exit(0 if ok else 1)
    assert same()
    assert os.waitpid(pid, 0)[1] == 0
print("ok")
""", threads)
    assert out == "ok\n"


def test_child_ends_like_any_process():
    """Destructors run in the child, too: nothing there may wait for threads of the parent."""
    assert run("""
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    del engine
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("ok")
""") == "ok\n"


def test_workers_of_a_pool():
    """As DataLoader does: the parent has run, its workers are forked."""
    assert run("""
import multiprocessing
def work(i):
    return same()
with multiprocessing.get_context("fork").Pool(3) as pool:
    assert all(pool.map(work, range(30)))
assert same()
print("ok")
""") == "ok\n"


def test_fork_while_another_thread_runs():
    assert run("""
stop = False
def load():
    while not stop: engine.run({"image": x})
threads = [threading.Thread(target=load) for _ in range(2)]
for t in threads: t.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0: os._exit(0 if same() and same() else 1)
    assert os.waitpid(pid, 0)[1] == 0
stop = True
for t in threads: t.join()
print("ok")
""") == "ok\n"


def test_fork_while_another_thread_builds():
    """The child does not wait for a build that only the parent's thread would finish."""
    assert run("""
open_engine = octavo.build(sys.argv[1], threads=2, effort=0)
batches = {"image": np.repeat(x, 3, 0)}
builder = threading.Thread(target=open_engine.run, args=(batches,))
builder.start()
pids = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if open_engine.run(batches)["head"].shape == (3, 10) else 1)
    pids.append(pid)
    time.sleep(0.02)
for pid in pids: assert os.waitpid(pid, 0)[1] == 0
builder.join()
print("ok")
""") == "ok\n"
