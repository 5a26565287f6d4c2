"""`octavo serve`: models answered over HTTP and gRPC in the Open Inference Protocol (docs/serving.md). Needs the packages of octavo[serve].

>>> import asyncio
>>> from octavo.serve import Server, Settings
>>> asyncio.run(Server(["digits=model.onnx"], Settings(port=8000)).run())
"""
from typing import TYPE_CHECKING, Any

from ._errors import BadRequest, Busy, Internal, Late, NotFound, ServeError, SlowSender, TooLarge, Unavailable
from ._settings import Settings

if TYPE_CHECKING:
    from ._server import Server

__all__ = ["Server", "Settings", "ServeError", "BadRequest", "NotFound", "SlowSender", "TooLarge", "Busy", "Unavailable", "Late", "Internal"]


def __getattr__(name: str) -> Any:
    """Server needs packages that the others do not."""
    if name == "Server":
        from ._server import Server
        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
