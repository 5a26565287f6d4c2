"""NVRTC, which compiles kernels for NVIDIA GPUs, from NVIDIA's own wheel: `pip install octavo[cuda]`."""
import importlib.util
import os
import pathlib
from typing import Optional

_PLACES = ("cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12")


def find() -> Optional[str]:
    """The library's path in the installed packages; None: there is none."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for place in _PLACES:
            path = pathlib.Path(folder, place)
            if path.is_file():
                return str(path)
    return None


def announce() -> None:
    """Says where it is, unless the user has said so: the environment variable OCTAVO_NVRTC."""
    if "OCTAVO_NVRTC" not in os.environ:
        path = find()
        if path:
            os.environ["OCTAVO_NVRTC"] = path
