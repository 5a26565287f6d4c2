"""The Open Inference Protocol over HTTP, with the binary tensor data extension and the model repository extension."""
import re
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple

import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import Route

from ._bodies import Bodies
from ._bounds import Widest, json_cost
from ._classes import count_of, largest, packed
from ._config import model_config
from ._errors import BadRequest, TooLarge
from ._guard import Guard, only
from ._requests import Request, Response, Service, known_error
from ._settings import Settings
from ._tensors import from_bytes, from_list, little_endian, to_list

JSON_LENGTH = "inference-header-content-length"
_NUMBER = re.compile("[0-9]{1,18}")
_SMALL = 1 << 20  # bytes of a body that is no inference


def parse(model: str, version: str, headers: Any, body: Any, widest: Widest, charge: Callable[[int], None]) -> Tuple[Request, Dict[str, Any]]:
    """The request in a body, and how its answer is written. `charge` is called with bytes that are made of it; negative: that are no longer there."""
    if JSON_LENGTH not in headers:
        return parse_parts(model, version, body, b"", widest, charge)
    length = headers[JSON_LENGTH]
    if not _NUMBER.fullmatch(length) or int(length) > len(body):
        raise BadRequest(f"Inference-Header-Content-Length is {length!r}, the body has {len(body)} bytes")
    return parse_parts(model, version, memoryview(body)[:int(length)], memoryview(body)[int(length):], widest, charge)


def parse_parts(model: str, version: str, text: Any, binary: Any, widest: Widest, charge: Callable[[int], None]) -> Tuple[Request, Dict[str, Any]]:
    cost = json_cost(text, widest)
    charge(cost)
    try:
        request, said = _request(model, version, _object(text), binary)
        charge(request.made)
    finally:
        charge(-cost)  # the JSON part's objects are gone
    return request, said


def _request(model: str, version: str, said: Dict[str, Any], binary: Any) -> Tuple[Request, Dict[str, Any]]:
    """Of a whole JSON part, of which what is returned keeps nothing but what the answer depends on."""
    inputs: Dict[str, Any] = {}
    datatypes: Dict[str, str] = {}
    at = made = 0
    for one in _list(said, "inputs"):
        name, datatype, shape = one.get("name"), one.get("datatype"), one.get("shape")
        if not isinstance(name, str) or not isinstance(datatype, str) or not isinstance(shape, list):
            raise BadRequest("each input needs a name, a datatype and a shape")
        if name in inputs:
            raise BadRequest(f"input {name!r} is given twice")
        datatypes[name] = datatype
        size = parameters(one).get("binary_data_size")
        if size is None:
            inputs[name] = from_list(name, datatype, shape, one.get("data"))
            made += inputs[name].nbytes
        elif isinstance(size, bool) or not isinstance(size, int) or size < 0 or at + size > len(binary):
            raise BadRequest(f"input {name!r}: binary_data_size is {size!r}, {len(binary) - at} bytes of binary data are left")
        else:
            inputs[name] = from_bytes(name, datatype, shape, binary[at:at + size])
            at += size
    if at != len(binary):
        raise BadRequest(f"{len(binary) - at} bytes of binary data belong to no input")
    outputs = _list(said, "outputs") if "outputs" in said else None
    names = None if outputs is None else [o.get("name") for o in outputs]
    if names is not None and not all(isinstance(n, str) for n in names):
        raise BadRequest("each requested output needs a name")
    classes = {o["name"]: count_of(o["name"], parameters(o)["classification"]) for o in outputs or [] if parameters(o).get("classification")}
    request_id = said.get("id", "")
    if not isinstance(request_id, str):
        raise BadRequest("id is not a string")
    for refused in ("sequence_id", "priority"):
        if parameters(said).get(refused):
            raise BadRequest(f"parameter {refused!r} is not supported")
    kept: Dict[str, Any] = {"parameters": {"binary_data_output": bool(parameters(said).get("binary_data_output", False))}}
    if outputs:
        kept["outputs"] = [{"name": o["name"], "parameters": {"binary_data": bool(v) for v in [parameters(o).get("binary_data")] if v is not None}} for o in outputs]
    return Request(model, version, request_id, inputs, datatypes, names, classes, made), kept  # type: ignore[arg-type]


def render(response: Response, said: Dict[str, Any]) -> Tuple[bytes, List[Any]]:
    """The JSON part of the answer, and the binary data behind it (none: all is JSON). Outputs as JSON numbers, or as binary data where the request asks for it."""
    everything = bool(parameters(said).get("binary_data_output", False))
    asked = {o["name"]: parameters(o) for o in said.get("outputs") or []}
    outputs: List[Dict[str, Any]] = []
    tail: List[Any] = []
    for name, array in response.outputs.items():
        datatype = response.version.datatypes[name]
        binary = asked.get(name, {}).get("binary_data", everything)
        if name in response.classes:
            shape, texts = largest(array, response.classes[name], response.version.batched)
            outputs.append({"name": name, "datatype": "BYTES", "shape": shape})
            if binary:
                tail.append(packed(texts))
                outputs[-1]["parameters"] = {"binary_data_size": len(tail[-1])}
            else:
                outputs[-1]["data"] = [text.decode() for text in texts]
            continue
        one = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if binary:
            data = little_endian(array)
            one["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        elif datatype == "BF16":
            raise BadRequest(f"output {name!r} is BF16, which is given as binary data only: ask with binary_data true")
        else:
            one["data"] = to_list(name, array)
        outputs.append(one)
    top = {"model_name": response.version.name, "model_version": response.version.version, "outputs": outputs}
    if response.id:
        top["id"] = response.id
    return orjson.dumps(top), tail


def application(service: Service, settings: Settings, bodies: Bodies, guard: Guard) -> Starlette:
    """The routes; most inference requests go the short way (_quick)."""
    Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]

    def answer(handler: Handler, public: bool = False, change: bool = False) -> Handler:
        async def guarded(request: HttpRequest) -> HttpResponse:
            try:
                headers = request.headers
                guard.admit(only(headers.getlist("host")), headers.get("origin", ""), headers.get("authorization", ""), public=public, change=change)
                return await handler(request)
            except ClientDisconnect:
                return HttpResponse(status_code=499)
            except Exception as e:
                error = known_error(e)
            more = {"Retry-After": "1"} if error.status in (429, 503) else {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
            return HttpResponse(orjson.dumps({"error": str(error)}), status_code=error.status, media_type="application/json", headers=more)
        return guarded

    def path(request: HttpRequest) -> Tuple[str, str]:
        return request.path_params["model"], request.path_params.get("version", "")

    async def live(_: HttpRequest) -> HttpResponse:
        return HttpResponse()

    async def ready(_: HttpRequest) -> HttpResponse:
        return HttpResponse(status_code=200 if service.ready and not service.stopping else 503)

    async def model_ready(request: HttpRequest) -> HttpResponse:
        service.models.get(*path(request))
        return HttpResponse()

    async def server_metadata(_: HttpRequest) -> HttpResponse:
        return _json(service.metadata())

    async def model_metadata(request: HttpRequest) -> HttpResponse:
        return _json(service.model_metadata(*path(request)))

    async def config(request: HttpRequest) -> HttpResponse:
        return _json(model_config(service.models.get(*path(request)), settings))

    async def stats(request: HttpRequest) -> HttpResponse:
        return _json({"model_stats": service.statistics(request.path_params.get("model", ""), request.path_params.get("version", ""))})

    async def infer(request: HttpRequest) -> HttpResponse:
        async with bodies.read(request, service.models.largest(path(request)[0])) as (body, charge):
            parsed, said = parse(*path(request), request.headers, body, service.models.widest(), charge)
            text, data = render(await service.infer(parsed, "http"), said)
            whole = b"".join([text, *data]) if data else text
            bodies.charge(len(whole))
        if not data:
            return _Answer(bodies, whole, media_type="application/json")
        return _Answer(bodies, whole, media_type="application/octet-stream", headers={JSON_LENGTH: str(len(text))})

    async def index(request: HttpRequest) -> HttpResponse:
        async with bodies.read(request, _SMALL) as (body, _):
            only_ready = _small(body).get("ready") is True
        return _json([r for r in service.models.index() if not only_ready or r["state"] == "READY"])

    async def load(request: HttpRequest) -> HttpResponse:
        async with bodies.read(request, _SMALL) as (body, _):
            refuse_parameters(parameters(_small(body)))
        await service.models.load(request.path_params["model"])
        return HttpResponse()

    async def unload(request: HttpRequest) -> HttpResponse:
        await service.models.unload(request.path_params["model"])
        return HttpResponse()

    async def metrics(_: HttpRequest) -> HttpResponse:
        text, kind = service.metrics.text()
        return HttpResponse(text, media_type=kind)

    async def missing(request: HttpRequest, _: Exception) -> HttpResponse:
        return HttpResponse(orjson.dumps({"error": f"no such address: {request.method} {request.url.path[:200]}"}), status_code=404, media_type="application/json")

    async def wrong_method(request: HttpRequest, _: Exception) -> HttpResponse:
        return HttpResponse(orjson.dumps({"error": f"{request.method} is not what {request.url.path[:200]} takes"}), status_code=405, media_type="application/json")

    def get(at: str, handler: Handler, public: bool = False) -> Route:
        return Route(at, answer(handler, public), methods=["GET"])

    def post(at: str, handler: Handler, change: bool = False) -> Route:
        return Route(at, answer(handler, change=change), methods=["POST"])

    routes = [get("/v2", server_metadata), get("/v2/health/live", live, True), get("/v2/health/ready", ready, True), get("/metrics", metrics),
              get("/v2/models/stats", stats), post("/v2/repository/index", index), post("/v2/repository/models/{model}/load", load, True),
              post("/v2/repository/models/{model}/unload", unload, True)]
    for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        routes += [get(f"{base}/ready", model_ready), get(f"{base}/stats", stats), get(f"{base}/config", config), post(f"{base}/infer", infer), get(base, model_metadata)]
    return Starlette(routes=routes, exception_handlers={404: missing, 405: wrong_method})


class _Answer(HttpResponse):
    """One whose bytes are charged until the connection takes them, which it does not while its client does not read an earlier answer."""

    def __init__(self, bodies: Bodies, content: bytes, **more: Any) -> None:
        super().__init__(content, **more)
        self._bodies, self._held = bodies, len(content)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._bodies.hold(-self._held)
            self._held = 0


def refuse_parameters(parameters: Dict[str, Any]) -> None:
    """Loading takes files that are on the server; what a client sends with it is refused, not ignored."""
    for name in parameters:
        raise BadRequest(f"load parameter {name!r} is not supported: models come from the server's own files")


def _json(value: Any) -> HttpResponse:
    return HttpResponse(orjson.dumps(value), media_type="application/json")


def _small(body: Any) -> Dict[str, Any]:
    """Of a request that is no inference; a body may be missing."""
    if len(body) > _SMALL:
        raise TooLarge(f"the request has {len(body)} bytes, the limit is {_SMALL}")
    json_cost(body, Widest())  # refuses what would be large
    return _object(body) if bytes(body).strip() else {}


def _object(body: Any) -> Dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise BadRequest(f"the body is not JSON: {e}") from None
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


def parameters(value: Dict[str, Any]) -> Dict[str, Any]:
    found: Optional[Any] = value.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadRequest("parameters is not a JSON object")
    return found


def _list(said: Dict[str, Any], name: str) -> List[Dict[str, Any]]:
    value = said.get(name)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BadRequest(f"{name} is not a list of objects")
    return value
