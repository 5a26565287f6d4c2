"""What a file is, by its first bytes."""
from typing import Any

_ENGINE = b"OCTAVO\x00\n"  # src/engine/file.h


def is_engine(data: Any) -> bool:
    """Whether bytes are an engine's; anything else is taken for an ONNX model."""
    return bytes(data[:len(_ENGINE)]) == _ENGINE
