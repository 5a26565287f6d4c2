"""The limits and choices of a server, checked."""
import dataclasses
import ipaddress
import os
import re
from typing import Optional, Tuple

from .._arguments import MOST_THREADS
from .._errors import UsageError


_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_.])?", re.IGNORECASE)
_IN_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?([^/:@]+)(?::[0-9]*)?(?:/.*)?", re.IGNORECASE)
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)(://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\]))(:[0-9]{1,5})?([/?#].*)?", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of `octavo serve`; seconds, bytes and counts.

    host             address to listen on; "0.0.0.0" for every address.
    port, grpc_port  TCP ports of HTTP and gRPC; 0: any free one (then in Server.port and Server.grpc_port); grpc_port None: no gRPC.
    batch            batch sizes to tune ONNX models whose batch is open for; the largest is the most rows of a run.
    delay            seconds that a request may wait for others to fill a batch while an engine is idle.
    instances        runs of one model at the same time. threads: threads of one run; None: the cores of this process over instances.
    queue            requests of one model that may wait; the next is answered with 429 or RESOURCE_EXHAUSTED.
    timeout          seconds that a request may wait for its run, then 504 or DEADLINE_EXCEEDED.
    body_timeout     seconds that the head of a request, a body or a message may take to arrive, each, then 408 or DEADLINE_EXCEEDED. Also seconds that a
                     client may take to read (64 kB of) a response, or for a handshake of TLS (10 at most), then its connection or call ends.
    idle_timeout     seconds that a connection may be without a request, and a stream between two messages.
    stream_timeout   seconds that a stream may last. stream_messages: messages that it may have.
    max_request      bytes of one request. max_pending: bytes held for clients at once: bodies, messages, data decompressed and decoded from them, and unread
                     responses.
    max_connections  open HTTP connections, gRPC connections, and gRPC calls at once. If there are more, the one that has waited longest for its client is closed.
    grace            seconds that requests get to finish when the server stops.
    device, effort, timing_cache   as for octavo.build.
    verify, code     of engine files, as for octavo.load: a file with a public key in PEM, with which they must be signed (None: any file is loaded), and "rebuild"
                     to compile kernels for a GPU again in place of the code in the file. Without one of them, an engine file for a GPU is a program that runs here.
    max_shapes       shapes of the inputs of one model version, where other dimensions than the first are open, whose engines are kept, for each of `batch`.
                     None: as many as octavo.build keeps (most_engines).
    tls_cert, tls_key  files in PEM: a certificate with its chain, and its key; both or none. With them both ports accept only TLS.
    token_file       a file of bearer tokens, one on each line. Every request needs one of them, except those for the server's health. None: no token is needed.
    repository_token_file  the same for loading and unloading models; None: clients may not. These tokens are good for everything else too.
    allow_host       further names that the server accepts in the Host header, besides addresses in digits, localhost, `host` and this machine's name; "*": all.
                     A name is without port, and stands for itself alone. With token_file, names are not checked.
    allow_origin     origins ("https://app.example") whose pages may send requests from a browser, each as browsers send it; none stands for all.
    """
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: Optional[int] = 8001
    batch: Tuple[int, ...] = (1, 2, 4, 8)
    delay: float = 0.002
    instances: int = 1
    threads: Optional[int] = None
    queue: int = 256
    timeout: float = 30.0
    body_timeout: float = 30.0
    idle_timeout: float = 120.0
    stream_timeout: float = 3600.0
    stream_messages: int = 1_000_000
    max_request: int = 64 << 20
    max_pending: int = 1 << 30
    max_connections: int = 1024
    grace: float = 30.0
    device: str = "cpu"
    effort: Optional[int] = None
    timing_cache: Optional[str] = None
    verify: Optional[str] = None
    code: str = "file"
    max_shapes: Optional[int] = None
    tls_cert: Optional[str] = None
    tls_key: Optional[str] = None
    token_file: Optional[str] = None
    repository_token_file: Optional[str] = None
    allow_host: Tuple[str, ...] = ()
    allow_origin: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name}={getattr(self, name)!r}: {rule}")
        for name in ("port", "grpc_port"):
            value = getattr(self, name)
            need(value is None or 0 <= value <= 65535, name, "a port is 0 to 65535")
        need(len(self.batch) > 0 and all(1 <= b <= 65536 for b in self.batch), "batch", "sizes are 1 to 65536")
        object.__setattr__(self, "batch", tuple(sorted(set(self.batch))))
        for name in ("instances", "queue", "max_connections"):
            need(1 <= getattr(self, name) <= 1 << 20, name, "must be 1 to 1048576")
        need(self.threads is None or 1 <= self.threads <= MOST_THREADS, "threads", f"must be 1 to {MOST_THREADS}")
        need(self.effort is None or 0 <= self.effort <= 5, "effort", "must be 0 to 5")
        need(self.code in ("file", "rebuild"), "code", 'known are "file" and "rebuild"')
        need(0 <= self.delay <= 60, "delay", "must be 0 to 60 seconds")
        for name in ("timeout", "body_timeout", "idle_timeout", "stream_timeout", "grace"):
            need(0 < getattr(self, name) <= 86400, name, "must be above 0 and at most 86400 seconds")
        need(self.stream_messages >= 1, "stream_messages", "must be at least 1")
        need(self.max_shapes is None or 1 <= self.max_shapes <= 4096, "max_shapes", "must be 1 to 4096")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("tls_cert and tls_key (--tls-cert and --tls-key) go together: a certificate and its key")
        for name in ("allow_host", "allow_origin"):
            need(not isinstance(getattr(self, name), str), name, "is a sequence of names")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for one in self.allow_host:
            check_host(one)
        for one in self.allow_origin:
            check_origin(one)
        need(self.verify != "", "verify", "is empty; give the file of a public key, or None to load files without a signature too")
        need(1 <= self.max_request <= (2 << 30) - 1, "max_request", "must be 1 to 2147483647 bytes")
        need(self.max_request <= self.max_pending < 1 << 62, "max_pending", f"must be at least max_request ({self.max_request}), and below 2^62")

    def run_threads(self) -> int:
        """Threads of one run."""
        if self.threads is not None:
            return self.threads
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // self.instances)


def check_host(name: str) -> None:
    """Of --allow-host. What can never be equal to a name in Host would be of no use. Raises UsageError."""
    if name == "*" or _HOST.fullmatch(name) or _address(name):
        return
    if "*" in name:
        raise UsageError(f"--allow-host {name}: a name stands for itself alone; give --allow-host once for each name, or --allow-host '*' for any name")
    found = _IN_URL.fullmatch(name)
    if found and _HOST.fullmatch(found[1]):
        raise UsageError(f"--allow-host {name}: give the name alone, it holds for every port: --allow-host {found[1]}")
    raise UsageError(f"--allow-host {name}: it is not a name such as models.example (addresses are accepted as they are, without brackets and port)")


def check_origin(origin: str) -> None:
    """Of --allow-origin: as browsers send it, or it would never be equal. Raises UsageError."""
    if origin in ("*", "null"):
        raise UsageError(f"--allow-origin {origin}: pages of anybody could then use the models through the browsers of their visitors; give --allow-origin once for each "
                         "origin, such as https://app.example")
    found = _ORIGIN.fullmatch(origin)
    if found is None:
        raise UsageError(f"--allow-origin {origin}: an origin is SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example")
    port = "" if (found[1].lower(), found[3]) in (("http", ":80"), ("https", ":443")) else found[3] or ""
    if found[4] or port != (found[3] or ""):
        raise UsageError(f"--allow-origin {origin}: browsers send an origin without path, and without the port that its scheme has anyway: "
                         f"--allow-origin {found[1]}{found[2]}{port}")


def _address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
