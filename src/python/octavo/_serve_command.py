"""The command `octavo serve`."""
import argparse
import asyncio
import logging
import sys
from typing import Any, Dict, List

from ._arguments import real
from ._errors import EngineFileError, Error, FileError, InputError, ModelError, UnsupportedError, UsageError

PACKAGES = ["uvicorn>=0.30", "starlette>=0.40", "httptools", "uvloop", "orjson>=3.9", "prometheus-client>=0.20", "tritonclient[grpc]>=2.50"]  # as in pyproject.toml
_CODES = ((UsageError, 2), (ModelError, 3), (UnsupportedError, 4), (InputError, 5), (EngineFileError, 6), (FileError, 7))


def parser() -> argparse.ArgumentParser:
    """The options, for the command and for the command reference."""
    p = argparse.ArgumentParser(
        "octavo serve", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Answers inference requests in the Open Inference Protocol, over HTTP and gRPC (docs/serving.md).",
        epilog="MODEL is an ONNX model, an engine file, engine files of several batch sizes (a.octavo,b.octavo), a folder of\n"
               "versions (1/model.onnx, 2/model.onnx), or a folder of models and such folders; NAME= or NAME:VERSION= before it names it.\n"
               "Example: octavo serve digits=model.onnx --port 8000 --batch 1,8")
    p.add_argument("models", nargs="+", metavar="MODEL", help="model to serve, see below")
    p.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all (use --token-file and --tls-cert then) (%(default)s)")
    p.add_argument("--port", type=int, default=8000, help="HTTP port; 0: any free one (%(default)s)")
    p.add_argument("--grpc-port", type=int, default=8001, help="gRPC port; 0: any free one; -1: no gRPC (%(default)s)")
    p.add_argument("--batch", metavar="SIZES", help="batch sizes to tune ONNX models with an open batch for; the largest is the most rows of a run (1,2,4,8)")
    p.add_argument("--delay-ms", type=float, default=2.0, metavar="MS", help="how long a request may wait for others to fill a batch (%(default)s)")
    p.add_argument("--threads", type=int, default=None, help="threads of one run (default: the cores of this process divided by --instances)")
    p.add_argument("--instances", type=int, default=1, help="runs of one model at the same time (%(default)s)")
    p.add_argument("--queue", type=int, default=256, metavar="N", help="requests of one model that may wait; the next gets 429 (%(default)s)")
    p.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds that a request may wait for its run, then 504 (%(default)s)")
    p.add_argument("--body-timeout", type=float, default=30.0, metavar="S",
                   help="seconds that a head, a body or a message may take to arrive, then 408; also seconds that a client may take to read a response (%(default)s)")
    p.add_argument("--idle-timeout", type=float, default=120.0, metavar="S", help="seconds that a connection may be without a request, or a stream without a message (%(default)s)")
    p.add_argument("--stream-timeout", type=float, default=3600.0, metavar="S", help="seconds that a gRPC stream may last (%(default)s)")
    p.add_argument("--stream-messages", type=int, default=1_000_000, metavar="N", help="messages of one gRPC stream (%(default)s)")
    p.add_argument("--max-request-mb", type=float, default=64, metavar="MB", help="largest request, in MiB; above: 413 (%(default)s)")
    p.add_argument("--max-pending-mb", type=float, default=1024, metavar="MB",
                   help="memory for bodies, data decoded from them, and unread responses, in MiB; above: 429 (%(default)s)")
    p.add_argument("--max-connections", type=int, default=1024, metavar="N",
                   help="HTTP connections, gRPC connections, and gRPC calls at the same time; if there are more, the one that has waited longest for its client is closed (%(default)s)")
    p.add_argument("--grace", type=float, default=30.0, metavar="S", help="seconds to finish requests after SIGTERM or Ctrl-C (%(default)s)")
    p.add_argument("--device", help="as for octavo build (cpu)")
    p.add_argument("--effort", type=int, default=None, help="as for octavo build")
    p.add_argument("--timing-cache", default=None, metavar="FILE", help="as for octavo build")
    p.add_argument("--verify", default=None, metavar="PUBLIC.pem", help="load engine files only if they are signed with this public Ed25519 key (octavo build --sign signs); an engine file for a GPU is a program")
    p.add_argument("--code", default="file", choices=("file", "rebuild"), metavar="file|rebuild",
                   help="file: run the machine code in an engine file for a GPU; rebuild: do not use it, and compile the kernels again from the plan (docs/hostile.md) (%(default)s)")
    p.add_argument("--max-shapes", type=int, metavar="N", help="shapes of a model whose length, height, ... is open, for each size of --batch, whose engines are kept; if there are more, the least recently used one is dropped and made again (32 that were planned, and hundreds of those that use their constants)")
    p.add_argument("--tls-cert", default=None, metavar="FILE", help="certificate and its chain in PEM; both ports then accept only TLS")
    p.add_argument("--tls-key", default=None, metavar="FILE", help="its key in PEM, without a password")
    p.add_argument("--token-file", default=None, metavar="FILE", help="bearer tokens, one on each line; every request needs one (Authorization: Bearer TOKEN), except requests for the server's health")
    p.add_argument("--repository-token-file", default=None, metavar="FILE", help="bearer tokens of clients that may load and unload models (default: none may)")
    p.add_argument("--allow-host", action="append", default=[], metavar="NAME",
                   help="without tokens: a further name in Host (without port) that the server accepts, besides localhost, addresses and this machine's name; *: any")
    p.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN",
                   help="an origin such as https://app.example (without path) whose pages may send requests from a browser (default: none)")
    return p


def to_install() -> str:
    return f"pip install {' '.join(repr(p) for p in PACKAGES)}; or, with the wheel at hand: pip install \"$(ls octavo-*.whl)[serve]\""


def _bytes(option: str, mebibytes: float) -> int:
    return int(real(option, mebibytes, 0, 2**40) * 2**20)


def _given(args: argparse.Namespace) -> Dict[str, Any]:
    """Options that differ from their defaults, by their names, and MODEL."""
    defaults = vars(parser().parse_args(["MODEL"]))
    return {"MODEL" if name == "models" else "--" + name.replace("_", "-"): value for name, value in vars(args).items() if value != defaults[name]}


def main(arguments: List[str]) -> int:
    """Runs until it is stopped; returns the exit code of the other commands."""
    args = parser().parse_args(arguments)
    given = _given(args)
    for name, value in given.items():
        if value == "" or (isinstance(value, list) and "" in value):  # of a shell variable that is not set: it must not switch off what the option switches on
            print(f"error: {name}: the value is empty\n  give one, or leave the option out", file=sys.stderr)
            return 2
    try:
        from .serve import Server, Settings
    except ImportError as e:
        print(f"error: octavo serve needs a package that is not installed ({e.name})\n  to do: {to_install()}", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    try:
        sizes = tuple(int(b) for b in (args.batch or "1,2,4,8").split(","))
    except ValueError:
        print(f"error: --batch {args.batch}: give sizes such as 1,4,8", file=sys.stderr)
        return 2
    try:
        settings = Settings(
            host=args.host, port=args.port, grpc_port=None if args.grpc_port == -1 else args.grpc_port, batch=sizes, delay=args.delay_ms / 1e3,
            threads=args.threads, instances=args.instances, queue=args.queue, timeout=args.timeout, body_timeout=args.body_timeout,
            idle_timeout=args.idle_timeout, stream_timeout=args.stream_timeout, stream_messages=args.stream_messages, max_shapes=args.max_shapes,
            max_request=_bytes("--max-request-mb", args.max_request_mb), max_pending=_bytes("--max-pending-mb", args.max_pending_mb), max_connections=args.max_connections,
            grace=args.grace, device=args.device or "cpu", effort=args.effort, timing_cache=args.timing_cache, verify=args.verify, code=args.code, tls_cert=args.tls_cert, tls_key=args.tls_key,
            token_file=args.token_file, repository_token_file=args.repository_token_file, allow_host=tuple(args.allow_host), allow_origin=tuple(args.allow_origin))

        async def serve() -> None:
            await Server(args.models, settings, given={name: str(value) for name, value in given.items()}).run(signals=True)

        try:
            import uvloop
            uvloop.run(serve())
        except ImportError:
            asyncio.run(serve())
    except KeyboardInterrupt:
        return 130
    except Exception as e:
        from .serve import ServeError
        cause = e.__cause__ if isinstance(e, ServeError) and e.__cause__ is not None else e
        if not isinstance(cause, (Error, ServeError, OSError)):
            raise
        print(f"error: {e}", file=sys.stderr)
        return next((code for kind, code in _CODES if isinstance(cause, kind)), 7 if isinstance(cause, OSError) else 70)
    return 0
