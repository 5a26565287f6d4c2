"""Which models and versions are served: found on disk, loaded, replaced while requests run, and taken away."""
import asyncio
import dataclasses
import os
import pathlib
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

from .. import build, load, tune
from .._errors import Error, FileError, UsageError
from ._batcher import Batcher
from ._errors import BadRequest, NotFound, Unavailable
from ._metrics import Metrics
from ._seats import Seats
from ._settings import Settings
from ._shapes import OpenBatcher
from ._tensors import datatype_of, describe, dtype_of

Arrays = Dict[str, Any]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclasses.dataclass(frozen=True)
class Source:
    """Files of one version. Engine files of several batch sizes belong together; an ONNX model stands alone."""
    name: str
    version: str
    files: Tuple[pathlib.Path, ...]

    def state(self) -> Tuple[Any, ...]:
        """Changes when a file is replaced or written."""
        return tuple((f, s.st_mtime_ns, s.st_size, s.st_ino) for f in self.files for s in [os.stat(f)])


def find(argument: str) -> List[Source]:
    """What one MODEL of the command line names: FILE, FILE,FILE, a folder of versions, or a folder of files and such folders; NAME= or NAME:VERSION=
    before it says how it is called."""
    name, version, rest = "", "1", argument
    named = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::([0-9]+))?=(.+)", argument)
    if named:
        name, version, rest = named[1], named[2] or "1", named[3]
    paths = [pathlib.Path(p) for p in rest.split(",") if p]
    for path in paths:
        if not path.exists():
            raise FileError(f"cannot read model {str(path)!r}: no such file or folder")
    if len(paths) == 1 and paths[0].is_dir():
        return _find_in(paths[0], name)
    return [_source(name or paths[0].stem, version, paths)]


def _find_in(folder: pathlib.Path, name: str, inner: bool = False) -> List[Source]:
    """`inner`: a folder of a folder, whose files belong together under its name. In a folder of many models each file is one of its own, unless `name` joins them."""
    versions = sorted((p for p in folder.iterdir() if p.is_dir() and p.name.isdigit()), key=lambda p: int(p.name))
    if versions:
        return [_source(name or folder.resolve().name, str(int(v.name)), sorted(_model_files(v))) for v in versions]
    files = sorted(_model_files(folder))
    if files and (name or inner):
        return [_source(name or folder.resolve().name, "1", files)]
    found = [_source(f.stem, "1", [f]) for f in files]
    if not name:
        found += [s for p in sorted(folder.iterdir()) if p.is_dir() for s in _find_in(p, "", True)]
    if not found and not inner:
        raise UsageError(f"{str(folder)!r} holds no models: it needs files (*.onnx, *.octavo), or NAME/VERSION/model.onnx or NAME/VERSION/*.octavo, VERSION a number")
    return found


def _model_files(folder: pathlib.Path) -> List[pathlib.Path]:
    return [p for p in folder.iterdir() if p.suffix in (".onnx", ".octavo", ".engine") and p.is_file()]


def _source(name: str, version: str, files: List[pathlib.Path]) -> Source:
    if not _NAME.fullmatch(name):
        raise UsageError(f"model name {name!r}: letters, digits, '.', '_' and '-', at most 128; give another as NAME=PATH")
    onnx = [f for f in files if f.suffix == ".onnx"]
    if not files or (onnx and len(files) > 1):
        raise UsageError(f"model {name!r} version {version}: {len(files)} files; one ONNX model, or engine files of different batch sizes, are needed")
    return Source(name, version, tuple(files))


class Version:
    """One loaded version."""

    def __init__(self, source: Source, settings: Settings, metrics: Metrics) -> None:
        """Builds or loads; seconds to minutes. Raises octavo's errors. To be called on a thread."""
        self.source, self.name, self.version = source, source.name, source.version
        self.state = source.state()
        engines, self.batched, opened = _engines(source, settings)
        first = engines[max(engines)]
        self.most = max(settings.batch) if opened and self.batched else max(engines)
        self.sizes = list(settings.batch) if opened and self.batched else sorted(engines)
        self.open_shapes = opened is not None
        self.inputs = {t["name"]: t for t in first.inputs}
        outputs = opened.outputs if opened else describe(first.outputs, self.batched)
        self.metadata = {"name": self.name, "versions": [self.version], "platform": "octavo", "inputs": describe(first.inputs, self.batched), "outputs": outputs}
        self.datatypes = {t["name"]: t["datatype"] for t in self.metadata["inputs"] + self.metadata["outputs"]}
        self.output_names = [t["name"] for t in first.outputs]
        self.largest = settings.max_request if opened else min(settings.max_request, _largest(first.inputs))  # bytes of a request, decompressed
        self.running = 0
        self.known: Dict[bytes, Any] = {}  # of _quick
        self.leads: Dict[bytes, Any] = {}  # of _grpc_infer

        def batcher(engines: Dict[int, Any]) -> Batcher:
            for engine in engines.values():  # the first run makes code and memory ready
                engine.run({t["name"]: numpy.zeros([int(d) for d in t["shape"]], dtype_of(t["dtype"])) for t in engine.inputs})
            first = engines[max(engines)]
            only = first.inputs[0] if self.batched and not opened and len(first.inputs) == 1 else None
            seats = Seats([int(d) for d in only["shape"]], dtype_of(only["dtype"]), settings.max_pending // 4) if only else None
            return Batcher(engines, name=only["name"] if only else "", seats=seats, delay=settings.delay, instances=settings.instances, queue=settings.queue,
                           timeout=settings.timeout, observe=lambda *run: metrics.observe_run(self.name, self.version, *run),
                           waiting=metrics.waiting(self.name, self.version))

        self.batcher: Any = batcher(engines) if opened is None else OpenBatcher(lambda key: batcher(opened.engines(key)), self.batched, settings.max_shapes, settings.queue,
                                                                                settings.timeout)

    def rows_of(self, inputs: Arrays, datatypes: Dict[str, str]) -> int:
        """Checks names, types and shapes of a request against the model; its rows (0: the model is not batched)."""
        missing = [n for n in self.inputs if n not in inputs]
        if missing:
            raise BadRequest(f"input {missing[0]!r} of model {self.name!r} is missing")
        rows = 0
        for name, array in inputs.items():
            if name not in self.inputs:
                raise BadRequest(f"model {self.name!r} has no input {name!r}; it has {', '.join(map(repr, self.inputs))}")
            if datatypes[name] != self.datatypes[name]:
                raise BadRequest(f"input {name!r} is {datatypes[name]}, the model wants {self.datatypes[name]}")
            want = [-1 if d is None else int(d) for d in self.inputs[name]["shape"]]
            got = list(array.shape)
            fits = len(got) == len(want) and all(g == w or (w < 0 and g > 0) for g, w in zip(got[self.batched:], want[self.batched:]))
            if not self.batched:
                if not fits:
                    raise BadRequest(f"input {name!r} has shape {got}, the model wants {want}")
                continue
            if not fits or not 1 <= got[0] <= self.most:
                raise BadRequest(f"input {name!r} has shape {got}, the model wants [1..{self.most}, {str(want[1:])[1:]}")
            if rows not in (0, got[0]):
                raise BadRequest(f"input {name!r} has {got[0]} rows, another input {rows}")
            rows = got[0]
        return rows


def _largest(inputs: Sequence[Any]) -> int:
    """Bytes of the largest request in any form: numbers of JSON take up to 32 each."""
    return (1 << 20) + 32 * sum(int(numpy.prod([int(d) for d in t["shape"]], dtype=numpy.float64)) for t in inputs)


class Opened:
    """A model with other open dimensions than the first. `outputs`: as in metadata."""

    def __init__(self, name: str, model: Any, settings: Settings, outputs: List[Dict[str, Any]], batched: bool) -> None:
        self.outputs, self._name, self._model, self._settings, self._batched = outputs, name, model, settings, batched

    def engines(self, shapes: Tuple[Tuple[int, ...], ...]) -> Dict[int, Any]:
        """For inputs of these shapes (without the batch), in the order of their names. Builds. Raises octavo's errors."""
        names = sorted(t["name"] for t in self._model.inputs)
        if not self._batched:
            return {0: self._model.at(dict(zip(names, shapes)))}
        engines = {size: self._model.at({n: (size, *s) for n, s in zip(names, shapes)}) for size in self._settings.batch}
        _need_batch(self._name, engines)
        return engines


def _need_batch(name: str, engines: Dict[int, Any]) -> None:
    if not all(int(t["shape"][0]) == size if t["shape"] else False for size, e in engines.items() for t in e.outputs):
        raise UsageError(f"model {name!r}: an output does not have the batch as its first dimension, so requests cannot be told apart in a batch: "
                         "give engine files that were built with --shapes")


def _engines(source: Source, settings: Settings) -> Tuple[Dict[int, Any], bool, Optional[Opened]]:
    """{batch size: engine}, True; or {0: engine}, False where requests must not be joined. The third: of a model whose other dimensions are open."""
    threads = settings.run_threads()
    if source.files[0].suffix == ".onnx":
        options: Dict[str, Any] = {"device": settings.device, "threads": threads, "effort": settings.effort, "timing_cache": settings.timing_cache}
        model = build(source.files[0], **options, most_engines=settings.max_shapes * len(settings.batch))
        if not model.open:
            return {0: model}, False, None
        shapes = {t["name"]: t["shape"] for t in model.inputs}
        batched = all(shape and shape[0] is None for shape in shapes.values())
        if not batched and any(shape and shape[0] is None for shape in shapes.values()):
            raise UsageError(f"model {source.name!r}: the first dimension of some inputs is open, that of others is not ({shapes}): give engine files that were built with --shapes")
        if any(None in shape[batched:] for shape in shapes.values()):
            return {0: model}, batched, Opened(source.name, model, settings, _probed(source, shapes, batched, options), batched)
        tune(model, *({n: (size, *[int(d or 0) for d in s[1:]]) for n, s in shapes.items()} for size in settings.batch))
        engines = {size: model.at({n: (size, *[int(d or 0) for d in s[1:]]) for n, s in shapes.items()}) for size in settings.batch}
        _need_batch(source.name, engines)
        return engines, True, None
    loaded = [load(f.read_bytes(), threads) for f in source.files]  # bytes, not a mapping: a file overwritten in place must not end the server
    if len(loaded) == 1:
        return {0: loaded[0]}, False, None
    return _by_size(source, loaded), True, None


def _probed(source: Source, shapes: Dict[str, Any], batched: bool, options: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Outputs of a model with open dimensions as the protocol's metadata: what differs between two sizes is open (-1). Where no size that is tried can be built,
    their shapes are [-1]."""
    model = build(source.files[0], **{**options, "effort": 0})
    found: List[Any] = []
    for size in (64, 128, 224, 320, 640):
        try:
            found.append(model.at({n: [(2 if i == 0 and batched else size) if d is None else int(d) for i, d in enumerate(s)] for n, s in shapes.items()}).outputs)
        except Error:
            continue
        if len(found) == 2:
            break
    if len(found) < 2:
        return [{"name": t["name"], "datatype": datatype_of(t["dtype"]), "shape": [-1]} for t in model.outputs]
    return [{**one, "shape": [a if a == b else -1 for a, b in zip(one["shape"], other["shape"])]}
            for one, other in zip(describe(found[0], batched), describe(found[1], batched))]


def _by_size(source: Source, loaded: List[Any]) -> Dict[int, Any]:
    """Several engine files: their first dimensions are batch sizes, all else must agree."""
    def facts(engine: Any) -> Any:
        return [(t["name"], t["dtype"], tuple(t["shape"][1:])) for t in [*engine.inputs, *engine.outputs]]
    engines: Dict[int, Any] = {}
    for file, engine in zip(source.files, loaded):
        sizes = {t["shape"][0] if t["shape"] else None for t in [*engine.inputs, *engine.outputs]}
        if len(sizes) != 1 or None in sizes or facts(engine) != facts(loaded[0]):
            raise UsageError(f"model {source.name!r}: {str(file)!r} is not {str(source.files[0])!r} at another batch size: names, types and shapes "
                             "behind the first dimension must agree")
        size = int(sizes.pop())
        if size in engines:
            raise UsageError(f"model {source.name!r}: two engine files of batch {size}")
        engines[size] = engine
    return engines


class Models:
    """All versions by name. Lives on the event loop's thread; loading happens on others."""

    def __init__(self, arguments: List[str], settings: Settings, metrics: Metrics, say: Callable[[str], None]) -> None:
        self._arguments, self._settings, self._metrics, self._say = arguments, settings, metrics, say
        self._versions: Dict[str, Dict[str, Version]] = {}
        self._reasons: Dict[str, str] = {}
        self._lock = asyncio.Lock()  # one load at a time
        self._closing: List["asyncio.Task[None]"] = []

    def sources(self) -> Dict[str, List[Source]]:
        """What is on disk now, by name."""
        found: Dict[str, List[Source]] = {}
        for argument in self._arguments:
            for source in find(argument):
                if any(s.version == source.version for s in found.get(source.name, [])):
                    raise UsageError(f"model {source.name!r} version {source.version} is given twice; name one NAME:VERSION=PATH")
                found.setdefault(source.name, []).append(source)
        return found

    def get(self, name: str, version: str = "") -> Version:
        """The version, or the newest. Raises NotFound, Unavailable."""
        versions = self._versions.get(name)
        if versions is None:
            if name in self._reasons:
                raise Unavailable(f"model {name!r} is not loaded: {self._reasons[name]}")
            raise NotFound(f"no model {name!r}; the models are {', '.join(map(repr, sorted(self._versions))) or 'none'}")
        if not version:
            return versions[max(versions, key=int)]
        if version not in versions:
            raise NotFound(f"model {name!r} has no version {version!r}; it has {', '.join(sorted(versions, key=int))}")
        return versions[version]

    def versions(self, name: str) -> List[str]:
        return sorted(self._versions.get(name, {}), key=int)

    def largest(self, name: str = "") -> int:
        """Bytes that a request of this model, or of any, can need when it is decompressed."""
        some = self._versions.get(name, {}).values() if name else [v for vs in self._versions.values() for v in vs.values()]
        return max((v.largest for v in some), default=1 << 20)

    def most(self) -> int:
        """Rows of the largest batch of any model; at least 1."""
        return max((v.most for vs in self._versions.values() for v in vs.values()), default=1) or 1

    def index(self) -> List[Dict[str, str]]:
        rows = [{"name": n, "version": v, "state": "READY", "reason": ""} for n, vs in sorted(self._versions.items()) for v in sorted(vs, key=int)]
        return rows + [{"name": n, "version": "", "state": "UNAVAILABLE", "reason": r} for n, r in sorted(self._reasons.items()) if n not in self._versions]

    async def load_all(self) -> None:
        for name in self.sources():
            await self.load(name)

    async def load(self, name: str) -> List[str]:
        """Brings the versions of `name` to what is on disk: new and changed ones are loaded, then take over; the old ones answer what they
        have and go. On an error everything stays as it was. Returns the versions that were loaded."""
        async with self._lock:
            try:
                wanted = {s.version: s for s in self.sources().get(name, [])}
                if not wanted:
                    raise NotFound(f"no model {name!r} was given to the server")
                old = self._versions.get(name, {})
                new: Dict[str, Version] = {}
                for version, source in wanted.items():
                    if version in old and old[version].state == source.state():
                        new[version] = old[version]
                    else:
                        new[version] = await asyncio.to_thread(Version, source, self._settings, self._metrics)
            except (Error, OSError) as e:
                self._metrics.loads.labels(name, "failed").inc()
                raise BadRequest(f"model {name!r} cannot be loaded: {e}") from e
            self._versions[name] = new
            self._reasons.pop(name, None)
            self._metrics.loads.labels(name, "ok").inc()
            self._retire([v for k, v in old.items() if new.get(k) is not v])
            fresh = [k for k, v in new.items() if old.get(k) is not v]
            for version in fresh:
                made = new[version]
                how = f"batches of {', '.join(map(str, made.sizes))}" if made.batched else "requests one by one"
                how += ", built for each shape when it first comes" if made.open_shapes else ""
                self._say(f"model {name} version {version}: {how}")
            return fresh

    async def unload(self, name: str) -> None:
        async with self._lock:
            if name not in self._versions:
                raise NotFound(f"no model {name!r} is loaded")
            gone = self._versions.pop(name)
            self._reasons[name] = "unloaded"
            self._retire(list(gone.values()))
            self._say(f"model {name}: unloaded")

    def _retire(self, versions: List[Version]) -> None:
        self._closing = [t for t in self._closing if not t.done()]
        self._closing += [asyncio.ensure_future(v.batcher.close()) for v in versions]

    async def close(self) -> None:
        """Waits for every queue to empty."""
        self._retire([v for vs in self._versions.values() for v in vs.values()])
        await asyncio.gather(*self._closing)

    def abandon(self) -> None:
        for versions in self._versions.values():
            for version in versions.values():
                version.batcher.abandon()
