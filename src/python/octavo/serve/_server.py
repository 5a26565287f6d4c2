"""The life of a server: load, listen, answer, stop."""
import asyncio
import contextlib
import gc
import signal
import socket
import sys
from typing import Any, Callable, Iterator, List, Optional

import uvicorn

from .._errors import Error, FileError, UnsupportedError
from . import _effects, _rest
from ._bodies import Bodies
from ._doors import Doors
from ._guard import Guard
from ._http import connection
from ._limits import raise_file_limit
from ._metrics import Metrics
from ._models import Models
from ._quick import Quick
from ._requests import Service
from ._settings import Settings


class Server:
    """Serves models until it is told to stop.

    models    as on the command line: files, folders, NAME=PATH (docs/serving.md).
    say       function(line): what happened; None: lines on stderr.
    given     options of a command line as they were given, {"--device": "cuda"}: those without an effect are refused, or noted (_effects).

    All methods belong to one event loop. run() raises what building and loading raise, and FileError when a port is taken.
    """

    def __init__(self, models: List[str], settings: Optional[Settings] = None, say: Optional[Callable[[str], None]] = None,
                 given: Optional[_effects.Given] = None) -> None:
        self.settings = settings or Settings()
        self._arguments, self._given = models, given or {}
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self._metrics = Metrics()
        self.models = Models(models, self.settings, self._metrics, self._say)
        self.service = Service(self.models, self._metrics)
        self.port = self.grpc_port = 0
        self.started = asyncio.Event()
        self._stop = asyncio.Event()
        self._signals = 0

    def stop(self) -> None:
        """Finishes what was accepted, at most settings.grace seconds, then run() returns."""
        self._stop.set()

    async def run(self, signals: bool = False) -> None:
        """`signals`: SIGTERM and SIGINT stop it; a second one at once."""
        settings = self.settings
        http = _listen(settings.host, settings.port, "--port")  # taken ports are found before models are built
        grpc_server: Any = None
        grpc_socket: Optional[socket.socket] = None
        try:
            bodies, guard = Bodies(settings), Guard(settings)
            self.port = http.getsockname()[1]
            if settings.grpc_port is not None:
                grpc_server = _grpc_server(self.service, settings, bodies, guard)
                grpc_socket = _listen(settings.host, settings.grpc_port, "--grpc-port")
                self.grpc_port = grpc_socket.getsockname()[1]
            _effects.check_names(settings)
            _effects.refuse(self._arguments, self._given)
            warnings = [guard.open_to()]
            await self.models.load_all()
            warnings += _effects.look(self._arguments, self.models.loaded(), self._given)
            if signals:
                gc.freeze()  # what stays as long as the process is not looked at again
                gc.set_threshold(20_000, 20, 20)
                for number in (signal.SIGTERM, signal.SIGINT):
                    asyncio.get_running_loop().add_signal_handler(number, self._signalled)
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload, guard)
                warnings.append(raise_file_limit((1 if settings.grpc_port is None else 2) * settings.max_connections + 256))
            protocol, doors = connection(bodies, Quick(self.service, bodies), guard)
            config = uvicorn.Config(_rest.application(self.service, settings, bodies, guard), http=protocol, log_level="warning",  # type: ignore[arg-type]
                                    access_log=False, lifespan="off", ws="none", server_header=False, proxy_headers=False, timeout_keep_alive=86400, timeout_graceful_shutdown=max(1, int(settings.grace)))
            config.load()
            web = _Web(config)
            serving = asyncio.ensure_future(web.serve(sockets=[http]))
            if grpc_server is not None:
                await grpc_server.start(grpc_socket)
            while not web.started and not serving.done():
                await asyncio.sleep(0.005)
            self.service.ready = True
            self.started.set()
            for line in filter(None, warnings):
                self._say(line)
            s = "s" if settings.tls_cert is not None else ""
            self._say(f"ready: {_url('http' + s, settings.host, self.port)}" + (f", {_url('grpc' + s, settings.host, self.grpc_port)}" if grpc_server else ""))
            stopped = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait([stopped, serving], return_when=asyncio.FIRST_COMPLETED)
            await self._finish(web, serving, grpc_server, doors)
        finally:
            http.close()
            if grpc_socket is not None:
                grpc_socket.close()

    async def _finish(self, web: "_Web", serving: "asyncio.Future[None]", grpc_server: Any, doors: Doors) -> None:
        service = self.service
        service.stopping = True  # answered with 503 from here on; health says not ready
        self._say(f"stopping: {service.active} requests to finish, at most {self.settings.grace:g} s")
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.models.close(), self.settings.grace)
        left = service.active
        self.models.abandon()
        await asyncio.sleep(0)
        web.should_exit = True
        doors.close()
        if grpc_server is not None:
            await grpc_server.stop(1.0)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(serving, self.settings.grace)
        self._say("stopped" if left == 0 else f"stopped; {left} requests were not finished in time and were answered with 503")

    def _reload(self, guard: Guard) -> None:
        """SIGHUP: tokens and the certificate are read again."""
        try:
            guard.reload()
        except Error as e:
            self._say(f"error: {e}; the old tokens and the old certificate stay")
        else:
            self._say("read tokens and certificate again")

    def _signalled(self) -> None:
        self._signals += 1
        self.stop()
        if self._signals > 1:
            self._say("stopped at once")
            raise SystemExit(1)


class _Web(uvicorn.Server):
    """uvicorn, whose signal handlers would end it before the models have finished."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"  # an IPv6 address has colons of its own


def _listen(host: str, port: int, option: str) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(address)
            made.listen(2048)
            made.setblocking(False)
        except OSError:
            made.close()
            raise
        return made
    except OSError as e:
        raise FileError(f"cannot listen on {host} port {port}: {e.strerror or e}; give another as {option}, or 0 for any") from e


def _grpc_server(service: Service, settings: Settings, bodies: Bodies, guard: Guard) -> Any:
    try:
        from . import _grpc
    except ImportError as e:
        if "_http2" not in str(e):
            raise
        raise UnsupportedError("this build of Octavo has no gRPC: it was compiled without nghttp2 (Debian: libnghttp2-dev); --grpc-port -1 serves HTTP alone") from e
    return _grpc.server(service, settings, bodies, guard)
