"""`octavo serve` without Python's collector of reference cycles. What a client leaves behind must be freed when the last reference goes: the collector runs after
so many new objects, not after so many bytes, and a few cycles hold any amount of memory until then. SIGUSR1 prints which objects of the server only the
collector would free, and the bytes that all such objects hold: cycles: {"kinds": {NAME: COUNT}, "bytes": BYTES}."""
import collections
import gc
import json
import runpy
import signal
import sys


def tell(*_):
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    kinds = collections.Counter(type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("octavo."))
    data = {id(held): len(held) for one in gc.garbage for held in gc.get_referents(one) if isinstance(held, (bytes, bytearray))}
    gc.garbage.clear()
    print("cycles:", json.dumps({"kinds": kinds, "bytes": sum(data.values())}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    gc.disable()
    signal.signal(signal.SIGUSR1, tell)
    runpy.run_module("octavo", run_name="__main__", alter_sys=True)
