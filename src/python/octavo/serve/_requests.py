"""One inference request, whichever protocol it came by: checked, run, counted."""
import dataclasses
import logging
import time
from typing import Any, Dict, List, Optional

from .. import __version__
from ._errors import BadRequest, Internal, ServeError, Unavailable
from ._metrics import Metrics
from ._models import Models, Version

Arrays = Dict[str, Any]
_log = logging.getLogger("octavo.serve")


@dataclasses.dataclass
class Request:
    """inputs: arrays by name; datatypes: the protocol's names; outputs: those asked for (None: all); classes: {output: how many of its largest
    values are asked for in place of all}; made: bytes of arrays that are no views of what was received."""
    model: str
    version: str
    id: str
    inputs: Arrays
    datatypes: Dict[str, str]
    outputs: Optional[List[str]] = None
    classes: Dict[str, int] = dataclasses.field(default_factory=dict)
    made: int = 0


@dataclasses.dataclass
class Response:
    version: Version
    id: str
    outputs: Arrays
    classes: Dict[str, int] = dataclasses.field(default_factory=dict)


class Service:
    """What both protocols ask."""

    def __init__(self, models: Models, metrics: Metrics) -> None:
        self.models, self.metrics = models, metrics
        self.ready = False
        self.stopping = False
        self.active = 0

    async def infer(self, request: Request, protocol: str) -> Response:
        start = time.monotonic()
        outcome, labels = "500", ("", "")
        self.active += 1
        try:
            model = self.model(request.model, request.version)
            labels = (model.name, model.version)
            outputs = await model.batcher.infer(request.inputs, rows_of(request, model))
            outcome = "ok"
            return Response(model, request.id, {n: outputs[n] for n in (request.outputs or model.output_names)}, request.classes)
        except ServeError as e:
            outcome = str(e.status)
            raise
        finally:
            self.active -= 1
            self.metrics.observe_request(*labels, protocol, outcome, time.monotonic() - start)

    def model(self, name: str, version: str) -> Version:
        """For a request that is to be answered."""
        if self.stopping:
            raise Unavailable("the server is stopping")
        return self.models.get(name, version)

    def metadata(self) -> Dict[str, Any]:
        return {"name": "octavo", "version": __version__,
                "extensions": ["binary_tensor_data", "classification", "model_configuration", "model_repository", "model_repository(unload_dependents)", "statistics"]}

    def model_metadata(self, name: str, version: str) -> Dict[str, Any]:
        model = self.models.get(name, version)
        return {**model.metadata, "versions": self.models.versions(name)}

    def statistics(self, name: str, version: str) -> List[Dict[str, Any]]:
        """Sums of the loaded versions, in nanoseconds, as Triton names them."""
        names = [name] if name else sorted({row["name"] for row in self.models.index() if row["state"] == "READY"})
        out = []
        for one in names:
            for number in [version] if version else self.models.versions(one) or [self.models.get(one).version]:
                model = self.models.get(one, number)
                s = self.metrics.of(model.name, model.version)

                def part(count: float, seconds: float) -> Dict[str, int]:
                    return {"count": int(count), "ns": int(seconds * 1e9)}
                out.append({"name": model.name, "version": model.version, "inference_count": int(s["rows"]), "execution_count": int(s["runs"]),
                            "inference_stats": {"success": part(s["ok"], s["seconds"]), "fail": part(s["failed"], 0.0),
                                                "queue": part(s["ok"], s["queue"]), "compute_infer": part(s["runs"], s["run"])}})
        return out


def rows_of(request: Request, model: Version) -> int:
    """The request's rows; checks all that it says against the model."""
    rows = model.rows_of(request.inputs, request.datatypes)
    for name in request.outputs or ():
        if name not in model.output_names:
            raise BadRequest(f"model {model.name!r} has no output {name!r}; it has {', '.join(map(repr, model.output_names))}")
    return rows


def known_error(error: Exception) -> ServeError:
    """An error as a client sees it, to be kept but not raised; one of ours goes to the log."""
    if isinstance(error, ServeError):
        return error.again()
    _log.exception("a request failed", exc_info=error)
    return internal(error)


def internal(error: BaseException) -> Internal:
    """An error of ours, for a client: its kind, not its insides."""
    return Internal(f"the server failed ({type(error).__name__}); its log has more")
