"""Which models and versions are served: found on disk, loaded, replaced while requests run, and taken away."""
import asyncio
import dataclasses
import functools
import os
import pathlib
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

from .. import build, load, tune
from .._errors import EngineFileError, Error, FileError, UsageError
from ._batcher import Batcher
from ._bounds import Widest
from ._errors import BadRequest, NotFound, Unavailable
from ._metrics import Metrics
from ._seats import Seats
from ._settings import Settings
from ._tensors import datatype_of, describe, dtype_of

Arrays = Dict[str, Any]
_BYTES_OF_NUMBER = 16  # of the largest request, for each number that is no binary data, where the shapes are open and so say nothing about how many there are
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclasses.dataclass(frozen=True)
class Source:
    """Files of one version. Engine files of several batch sizes belong together; an ONNX model stands alone."""
    name: str
    version: str
    files: Tuple[pathlib.Path, ...]

    @property
    def built(self) -> bool:
        """Whether it is a model that is built here, and not engine files."""
        return self.files[0].suffix == ".onnx"

    def state(self) -> Tuple[Any, ...]:
        """Changes when a file is replaced or written."""
        return tuple((f, s.st_mtime_ns, s.st_size, s.st_ino) for f in self.files for s in [os.stat(f)])


def find(argument: str) -> List[Source]:
    """What one MODEL of the command line names: FILE, FILE,FILE, a folder of versions, or a folder of files and such folders; NAME= or NAME:VERSION=
    before it says how it is called."""
    name, version, paths = named(argument)
    for path in paths:
        if not path.exists():
            raise FileError(f"cannot read model {str(path)!r}: no such file or folder")
    if len(paths) == 1 and paths[0].is_dir():
        return _find_in(paths[0], name)
    return [_source(name or paths[0].stem, version, paths)]


def named(argument: str) -> Tuple[str, str, List[pathlib.Path]]:
    """The parts of one MODEL: its name (empty: none is given), its version, its paths."""
    name, version, rest = "", "1", argument
    found = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::([0-9]+))?=(.+)", argument)
    if found:
        name, version, rest = found[1], found[2] or "1", found[3]
    paths = [pathlib.Path(p) for p in rest.split(",") if p]
    if not paths:
        raise UsageError(f"model {argument!r}: no file is named")
    return name, version, paths


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
        self.device: str = first.device
        self.any_rows = opened is not None and self.batched  # every number of rows runs as it is
        self.most = opened.most if opened else max(engines)
        self.sizes = list(range(1, self.most + 1)) if self.any_rows else sorted(engines)
        self.open_shapes = opened is not None and opened.keyed
        self.inputs = {t["name"]: t for t in first.inputs}
        outputs = opened.outputs if opened else describe(first.outputs, self.batched)
        self.metadata = {"name": self.name, "versions": [self.version], "platform": "octavo", "inputs": describe(first.inputs, self.batched), "outputs": outputs}
        self.datatypes = {t["name"]: t["datatype"] for t in self.metadata["inputs"] + self.metadata["outputs"]}
        self.output_names = [t["name"] for t in first.outputs]
        self.largest = settings.max_request if self.open_shapes else min(settings.max_request, _largest(first.inputs, self.most))  # bytes of a request, decompressed
        self.widest = _widest(first.inputs, len(self.output_names), self.most, self.largest // _BYTES_OF_NUMBER if self.open_shapes else 0)
        self.running = 0
        self.known: Dict[bytes, Any] = {}  # of _quick
        self.leads: Dict[bytes, Any] = {}  # of _grpc_infer

        if opened is None:
            for engine in engines.values():  # the first run makes code and memory ready
                engine.run({t["name"]: numpy.zeros([int(d) for d in t["shape"]], dtype_of(t["dtype"])) for t in engine.inputs})
        only = first.inputs[0] if self.batched and not self.open_shapes and len(first.inputs) == 1 else None
        seats = Seats([self.most, *[int(d) for d in only["shape"][1:]]], dtype_of(only["dtype"]), settings.max_pending // 4) if only else None
        self.batcher = Batcher(engines, name=only["name"] if only else "", seats=seats, delay=settings.delay, instances=settings.instances, queue=settings.queue,
                               timeout=settings.timeout, observe=functools.partial(metrics.observe_run, self.name, self.version),  # not this object: it holds the batcher
                               waiting=metrics.waiting(self.name, self.version), most=self.most if self.any_rows else 0, keyed=self.open_shapes)

    def rows_of(self, inputs: Arrays, datatypes: Dict[str, str]) -> int:
        """Checks names, types and shapes of a request against the model; its rows (0: the model is not batched)."""
        for name in inputs:  # before what is missing: it may be a misspelled name
            if name not in self.inputs:
                raise BadRequest(f"model {self.name!r} has no input {name!r}; it has {', '.join(map(repr, self.inputs))}")
        missing = [n for n in self.inputs if n not in inputs]
        if missing:
            raise BadRequest(f"input {missing[0]!r} of model {self.name!r} is missing")
        rows = 0
        for name, array in inputs.items():
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


def _largest(inputs: Sequence[Any], rows: int) -> int:
    """Bytes of the largest request in any form: numbers of JSON take up to 32 each."""
    return (1 << 20) + 32 * sum(int(numpy.prod([rows if d is None else int(d) for d in t["shape"]], dtype=numpy.float64)) for t in inputs)


def _widest(inputs: Sequence[Any], outputs: int, rows: int, opened: int) -> Widest:
    """`opened`: the most elements where shapes are open; else 0."""
    shapes = [[rows if d is None else int(d) for d in t["shape"]] for t in inputs]
    elements = sum(int(numpy.prod(s, dtype=numpy.float64)) for s in shapes)
    lists = sum(int(numpy.prod(s[:i], dtype=numpy.float64)) for s in shapes for i in range(len(s)))
    return Widest(len(inputs) + outputs, opened or elements, opened or lists)


@dataclasses.dataclass(frozen=True)
class Opened:
    """Of an engine that is open. `outputs`: as in metadata. `most`: rows of a run; 0: requests are not joined. `keyed`: other dimensions than the first are open."""
    outputs: List[Dict[str, Any]]
    most: int
    keyed: bool


def _engines(source: Source, settings: Settings) -> Tuple[Dict[int, Any], bool, Optional[Opened]]:
    """{batch size: engine}, True; or {0: engine}, False where requests must not be joined. The third: of an open engine, which is then {0: engine}."""
    threads = settings.run_threads()
    if source.built:
        options: Dict[str, Any] = {"device": settings.device, "threads": threads, "effort": settings.effort, "timing_cache": settings.timing_cache}
        model = build(source.files[0], **options, most_engines=settings.max_shapes and settings.max_shapes * len(settings.batch))
        if not model.open:
            return {0: model}, False, None
        return _open(source, model, settings, True)
    loaded = [_load(f, threads, settings) for f in source.files]
    if len(loaded) == 1:
        return _open(source, loaded[0], settings, False) if loaded[0].open else ({0: loaded[0]}, False, None)
    return _by_size(source, loaded), True, None


def _load(file: pathlib.Path, threads: int, settings: Settings) -> Any:
    """Bytes, not a mapping: a file that is overwritten in place must not end the server, and is not read again after its signature was checked."""
    try:
        return load(file.read_bytes(), threads, verify=settings.verify, code=settings.code)
    except EngineFileError as e:
        raise EngineFileError(re.sub('"/proc/self/fd/[0-9]+"', lambda _: f'"{file}"', str(e))) from None


def _open(source: Source, model: Any, settings: Settings, tunes: bool) -> Tuple[Dict[int, Any], bool, Optional[Opened]]:
    """An ONNX model (`tunes`: for the batch sizes of the settings), or an engine file for a range of shapes or for several."""
    shapes = {t["name"]: t["shape"] for t in model.inputs}
    batched = all(shape and shape[0] is None for shape in shapes.values())
    if not batched and any(shape and shape[0] is None for shape in shapes.values()):
        raise UsageError(f"model {source.name!r}: the first dimension of some inputs is open, that of others is not ({shapes}): give engine files that were built with --shapes")
    keyed = any(None in shape[batched:] for shape in shapes.values())

    def at(rows: int, size: int) -> Dict[str, List[int]]:
        return {n: [(rows if i == 0 and batched else size) if d is None else int(d) for i, d in enumerate(s)] for n, s in shapes.items()}
    most = max(settings.batch) if batched else 0
    if batched and not tunes:  # the rows that it serves
        fits = [rows for rows in range(1, most + 1) if _takes(model, at, rows)]
        most = len(fits)
        if not fits or fits[-1] != most:  # of some batch sizes: requests have one of them, as they come
            batched, keyed, most = False, True, 0
    sizes = _SIZES if keyed else (1,)
    tuned = [1] if not batched else sorted({settings.batch[0], settings.batch[-1]}) if keyed else list(settings.batch)
    for size in sizes if tunes else ():
        try:
            tune(model, *(at(rows, size) for rows in tuned))
            break
        except Error:
            if not keyed:
                raise
    found: List[Any] = []
    for size in sizes:
        if len(found) < 2 and _takes(model, at, most or 1, size):
            found.append(model.at(at(most or 1, size)))
    if not found:
        return {0: model}, batched, Opened([{"name": t["name"], "datatype": datatype_of(t["dtype"]), "shape": [-1]} for t in model.outputs], most, keyed)
    if batched and not all(t["shape"] and t["shape"][0] == most for e in found for t in e.outputs):
        raise UsageError(f"model {source.name!r}: an output does not have the batch as its first dimension, so requests cannot be told apart in a batch: "
                         "give engine files that were built with --shapes")
    found[0].run({t["name"]: numpy.zeros([int(d) for d in t["shape"]], dtype_of(t["dtype"])) for t in found[0].inputs})  # makes code and memory ready
    outputs = [{**one, "shape": [a if a == b else -1 for a, b in zip(one["shape"], other["shape"])]}
               for one, other in zip(describe(found[0].outputs, batched), describe(found[-1].outputs, batched))]
    return {0: model}, batched, Opened(outputs, most, keyed)


_SIZES = (64, 128, 224, 320, 640, 32, 16, 8, 1)  # of open dimensions that are not the batch: tried until some can be built, to see what outputs are


def _takes(model: Any, at: Callable[[int, int], Dict[str, List[int]]], rows: int, size: int = 0) -> bool:
    for tried in (size,) if size else _SIZES:
        try:
            model.at(at(rows, tried))
            return True
        except Error:
            continue
    return False


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

    def widest(self) -> Widest:
        """The most that a request of any model has."""
        some = [v.widest for vs in self._versions.values() for v in vs.values()]
        return some[0] if len(some) == 1 else Widest(*map(max, zip(Widest(), *some)))

    def most(self) -> int:
        """Rows of the largest batch of any model; at least 1."""
        return max((v.most for vs in self._versions.values() for v in vs.values()), default=1) or 1

    def loaded(self) -> List[Version]:
        return [v for vs in self._versions.values() for v in vs.values()]

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
                how = f"batches of 1 to {made.most}" if made.any_rows else f"batches of {', '.join(map(str, made.sizes))}" if made.batched else "requests one by one"
                how += ", of any shape" if made.open_shapes else ""
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
