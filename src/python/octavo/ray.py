"""Octavo on a Ray cluster: `Predictor` for Ray Data, `deployment` for Ray Serve (docs/ray.md). Needs `pip install 'octavo[ray]'`.

>>> import ray, octavo.ray
>>> pictures = ray.data.read_binary_files("s3://bucket/photos", include_paths=True)
>>> results = pictures.map_batches(octavo.ray.Predictor, fn_constructor_args=["s3://bucket/model.onnx"],
...                                fn_constructor_kwargs={"picture": "bytes", "preset": "torch"}, batch_size=32, concurrency=4)
>>> results.write_parquet("s3://bucket/results")
"""
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy

from . import build, load, preprocess
from ._errors import Error, FileError, InputError, UsageError
from ._files import is_engine
from ._octavo import Engine

__all__ = ["Predictor", "deployment", "read_model"]

_Path = Union[str, "os.PathLike[str]"]
_PICTURE = ("preset", "resize", "crop", "letterbox", "scale", "mean", "std", "bgr", "layout")  # of octavo.preprocess


def read_model(path: _Path) -> bytes:
    """The bytes of a model or an engine file from wherever fsspec reads: a path of every node, "s3://...", "gs://...". Raises FileError."""
    import fsspec
    try:
        with fsspec.open(os.fspath(path), "rb") as file:
            return bytes(file.read())
    except (OSError, ValueError, ImportError) as e:
        raise FileError(f'cannot read model "{os.fspath(path)}": {e}') from e


def _engine(model: Any, batch: int, threads: int, options: Mapping[str, Any]) -> Engine:
    data = model if isinstance(model, (bytes, bytearray, memoryview)) else read_model(model)
    safety = {name: options[name] for name in ("verify", "code") if name in options}
    options = {name: value for name, value in options.items() if name not in safety}
    if is_engine(data):
        if options:
            raise UsageError(f"octavo.ray: {', '.join(sorted(options))}: an engine is built already\n  give the model that it was built from")
        return load(data, threads, **safety)
    if safety:
        raise UsageError(f"octavo.ray: {', '.join(sorted(safety))}: for engine files; this is a model, which holds no code and no signature")
    return build(bytes(data), threads=threads, **{"default_batch": batch, **options})


def _rows(engine: Engine) -> int:
    """The batch of an engine whose inputs and outputs all begin with it. Answers for one row could not be told from others' otherwise."""
    first = {t["shape"][0] if t["shape"] else None for t in [*engine.inputs, *engine.outputs]}
    rows = first.pop()
    if first or rows is None:
        shapes = ", ".join(f"{t['name']} {tuple(t['shape'])}" for t in [*engine.inputs, *engine.outputs])
        raise UsageError(f"octavo.ray: the first dimension of every input and output must be the same number, the batch; this engine has {shapes}")
    return rows


class _Runner:
    """One engine that takes any number of rows: in pieces of its batch, the last filled up with zeros."""

    def __init__(self, model: Any, batch: int, threads: int, options: Mapping[str, Any]) -> None:
        self.engine = _engine(model, batch, threads, options)
        self.rows = _rows(self.engine)

    def run(self, inputs: Mapping[str, Any]) -> Dict[str, Any]:
        count = len(next(iter(inputs.values())))
        found: Dict[str, List[Any]] = {t["name"]: [] for t in self.engine.outputs}
        for at in range(0, count, self.rows):
            piece = {}
            for name, rows in inputs.items():
                part = rows[at:at + self.rows]
                if len(part) < self.rows:
                    part = numpy.concatenate([part, numpy.zeros((self.rows - len(part), *part.shape[1:]), part.dtype)])
                piece[name] = part
            for name, rows in self.engine.run(piece).items():
                found[name].append(rows[:min(self.rows, count - at)])
        if count == 0:  # blocks can be empty; the run says what its results look like
            zeros = {t["name"]: numpy.zeros([d or 1 for d in t["shape"]], t["dtype"]) for t in self.engine.inputs}
            return {name: rows[:0] for name, rows in self.engine.run(zeros).items()}
        return {name: numpy.concatenate(parts) for name, parts in found.items()}


class Predictor:
    """What `Dataset.map_batches` takes: built once in each worker, then called with batches of columns.

    model     path or URL of an ONNX model or of an engine file, or the bytes of one. A model is built in each worker, for its processor; an
              engine file runs on processors that have what it was built for (`octavo build --cpu avx2` for the least of them).
    batch     rows of one run of a model with an open batch; the same as map_batches' batch_size is best. An engine file has its own.
    picture   the column of encoded pictures (JPEG, PNG), which octavo.preprocess makes the input of; preset, resize, crop, letterbox, scale,
              mean, std, bgr and layout are as there. None: the model's inputs are columns of numbers.
    inputs    {input of the model: column}, where their names differ.
    keep      columns that the results have too; None: all but those that the model reads.
    threads   of one run. Give the workers as many processors: map_batches(..., num_cpus=threads).
    errors    "raise": a picture that cannot be decoded ends the job. "column": its outputs are NaN (0 for integers), and the column
              "error" says why; it is empty for the others.
    options   those of octavo.build, where the model is built: effort, calibration, device, ...; verify and code of octavo.load, where it is an engine
              file. An engine file for a GPU is a program: load such files from others only with one of them.

    The result of a batch has the kept columns and one column for each output of the model. Rows depend on nothing but themselves, so that Ray
    may run a batch again when a worker was lost. Raises what octavo.build and octavo.preprocess raise, with the row's "path" if there is one.
    """

    def __init__(self, model: Any, batch: int = 32, *, picture: Optional[str] = None, inputs: Optional[Mapping[str, str]] = None,
                 keep: Optional[Sequence[str]] = None, threads: int = 1, errors: str = "raise", **options: Any) -> None:
        if errors not in ("raise", "column"):
            raise UsageError(f'octavo.ray: errors={errors!r}, needs "raise" or "column"')
        self._recipe = {name: options.pop(name) for name in _PICTURE if name in options}
        if self._recipe and picture is None:
            raise UsageError(f"octavo.ray: {', '.join(self._recipe)}: give the column of pictures as well: picture=\"bytes\"")
        self._runner = _Runner(model, batch, threads, options)
        self._picture, self._keep, self._errors = picture, keep, errors
        names = [t["name"] for t in self._runner.engine.inputs]
        if picture is not None and (len(names) != 1 or inputs):
            raise UsageError(f"octavo.ray: pictures are for models with one input; this one has {', '.join(names)}")
        unknown = sorted(set(inputs or {}) - set(names))
        if unknown:
            raise UsageError(f"octavo.ray: the model has no input {unknown[0]!r}; it has {', '.join(names)}")
        self._columns = {name: picture if picture is not None else (inputs or {}).get(name, name) for name in names}

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        missing = [c for c in self._columns.values() if c not in batch]
        if missing:
            raise InputError(f"octavo.ray: no column {missing[0]!r}; there are {', '.join(map(repr, batch))}")
        kept = [c for c in batch if c not in self._columns.values()] if self._keep is None else list(self._keep)
        out = {name: batch[name] for name in kept}
        failed: Dict[int, str] = {}
        if self._picture is not None:
            values = {next(iter(self._columns)): self._pictures(batch, failed)}
        else:
            values = {name: self._numbers(name, batch[column]) for name, column in self._columns.items()}
        for name, rows in self._runner.run(values).items():
            if name in out:
                raise UsageError(f"octavo.ray: column {name!r} is kept and is an output of the model as well; leave it out with keep=[...]")
            if failed:
                rows[list(failed)] = numpy.nan if rows.dtype.kind == "f" else 0
            out[name] = rows
        if self._errors == "column":
            count = len(batch[next(iter(self._columns.values()))])
            out["error"] = numpy.array([failed.get(i, "") for i in range(count)], dtype=object)
        return out

    def _pictures(self, batch: Dict[str, Any], failed: Dict[int, str]) -> Any:
        encoded = batch[str(self._picture)]
        info = self._runner.engine.inputs[0]
        made = numpy.zeros([len(encoded), *(d or 1 for d in info["shape"][1:])], info["dtype"])
        for i, one in enumerate(encoded):
            try:
                made[i] = preprocess(bytes(one), self._runner.engine, **self._recipe)[0]
            except Error as e:
                name = str(batch["path"][i]) if "path" in batch else f"row {i} of the batch"
                if self._errors == "raise":
                    raise type(e)(f"{name}: {e}") from e
                failed[i] = str(e)
        return made

    def _numbers(self, name: str, column: Any) -> Any:
        info = next(t for t in self._runner.engine.inputs if t["name"] == name)
        rows = numpy.asarray(column) if getattr(column, "dtype", None) != object else numpy.stack(list(column))
        want = tuple(info["shape"][1:])
        if rows.shape[1:] != want or str(rows.dtype) != info["dtype"]:
            raise InputError(f"octavo.ray: column for input {name!r} holds {rows.dtype} {rows.shape[1:]}, the model wants {info['dtype']} {want}")
        return rows


def deployment(model: Any, name: str = "octavo", *, batch: int = 8, delay: float = 0.005, threads: int = 1, replicas: int = 1,
               picture: bool = False, **options: Any) -> Any:
    """A Ray Serve application that answers with the model: `serve.run(octavo.ray.deployment("model.onnx"))`.

    Requests of a replica that arrive within `delay` seconds are run together, up to `batch`. Over HTTP a request is the bytes of a picture where
    picture=True (then the arguments of octavo.preprocess may be among the options), else JSON {"inputs": {name: one row}}; the answer is JSON
    {output: row}, and status 400 with {"error": text} for what cannot be. From Python `handle.infer.remote({name: one row})` gives arrays.

    replicas, threads   copies of the model in the cluster, and processors that each has. Raises UsageError; ImportError without Ray Serve.
    """
    from ray import serve
    from starlette.responses import JSONResponse
    recipe = {k: options.pop(k) for k in _PICTURE if k in options}
    if recipe and not picture:
        raise UsageError(f"octavo.ray: {', '.join(recipe)}: is for pictures: picture=True")

    @serve.deployment(  # type: ignore[untyped-decorator,unused-ignore]
        name=name, num_replicas=replicas, ray_actor_options={"num_cpus": threads}, max_ongoing_requests=4 * batch)
    class Octavo:
        def __init__(self) -> None:
            self._runner = _Runner(model, batch, threads, options)

        @serve.batch(max_batch_size=batch, batch_wait_timeout_s=delay)  # type: ignore[untyped-decorator,unused-ignore]
        async def _run(self, rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
            joined = {n: numpy.stack([row[n] for row in rows]) for n in rows[0]}
            outputs = self._runner.run(joined)
            return [{n: array[i] for n, array in outputs.items()} for i in range(len(rows))]

        async def infer(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
            """One row: {input: array without the batch}. Raises InputError before it joins others, whose answers it could spoil."""
            wanted = {t["name"]: t for t in self._runner.engine.inputs}
            if set(inputs) != set(wanted):
                raise InputError(f"the model's inputs are {', '.join(wanted)}; the request has {', '.join(map(str, inputs)) or 'none'}")
            row = {}
            for n, t in wanted.items():
                try:
                    row[n] = numpy.asarray(inputs[n], dtype=t["dtype"])
                except (TypeError, ValueError, OverflowError) as e:
                    raise InputError(f"input {n!r}: {e}") from e
                if row[n].shape != tuple(t["shape"][1:]):
                    raise InputError(f"input {n!r} has shape {row[n].shape}, one row is {tuple(t['shape'][1:])}")
            result: Dict[str, Any] = await self._run(row)
            return result

        async def __call__(self, request: Any) -> Any:
            try:
                if picture:
                    info = self._runner.engine.inputs[0]
                    inputs = {info["name"]: preprocess(await request.body(), self._runner.engine, **recipe)[0]}
                else:
                    try:
                        inputs = dict((await request.json())["inputs"])
                    except (ValueError, KeyError, TypeError) as e:
                        raise InputError('the body must be JSON: {"inputs": {NAME: one row}}') from e
                outputs = await self.infer(inputs)
            except Error as e:
                return JSONResponse({"error": str(e)}, status_code=400)
            return {n: array.tolist() for n, array in outputs.items()}

    return Octavo.bind()  # type: ignore[attr-defined,unused-ignore]
