"""The Open Inference Protocol over gRPC: its methods. The messages are those of tritonclient, which its authors keep with the protocol; the connections are
_grpc_connection's, and most inference requests go the short way (_grpc_infer)."""
from typing import Any, Awaitable, Callable, Dict, FrozenSet, List, Tuple

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2, service_pb2 as pb

from ._bodies import Bodies
from ._config import model_config
from ._errors import ServeError
from ._grpc_calls import Charge, Handler, Methods, StreamHandler
from ._grpc_connection import GrpcServer
from ._grpc_infer import Infers, decode, decode_infer, joined, parse, render
from ._guard import Guard
from ._requests import Service, known_error
from ._rest import refuse_parameters
from ._settings import Settings

_SERVICE = "/inference.GRPCInferenceService/"


class _Calls:
    """What is not here (shared memory, traces, log settings) answers UNIMPLEMENTED."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service, self._settings = service, settings

    async def server_live(self, request: Any) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def server_ready(self, request: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._service.ready and not self._service.stopping)

    async def model_ready(self, request: Any) -> Any:
        try:
            self._service.models.get(request.name, request.version)
        except ServeError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    async def server_metadata(self, request: Any) -> Any:
        return pb.ServerMetadataResponse(**self._service.metadata())

    async def model_metadata(self, request: Any) -> Any:
        return pb.ModelMetadataResponse(**self._service.model_metadata(request.name, request.version))

    async def model_config(self, request: Any) -> Any:
        model = self._service.models.get(request.name, request.version)
        return pb.ModelConfigResponse(config=json_format.ParseDict(model_config(model, self._settings), model_config_pb2.ModelConfig()))

    async def model_statistics(self, request: Any) -> Any:
        return pb.ModelStatisticsResponse(model_stats=[pb.ModelStatistics(**s) for s in self._service.statistics(request.name, request.version)])

    async def repository_index(self, request: Any) -> Any:
        rows = [r for r in self._service.models.index() if not request.ready or r["state"] == "READY"]
        return pb.RepositoryIndexResponse(models=[pb.RepositoryIndexResponse.ModelIndex(**r) for r in rows])

    async def load(self, request: Any) -> Any:
        refuse_parameters(dict(request.parameters))
        await self._service.models.load(request.model_name)
        return pb.RepositoryModelLoadResponse()

    async def unload(self, request: Any) -> Any:
        await self._service.models.unload(request.model_name)
        return pb.RepositoryModelUnloadResponse()

    async def stream_infer(self, data: bytes, charge: Charge) -> Tuple[List[Any], bool]:
        """One message of a stream: an error is its answer. What is waited with is the tensors alone, not the messages that they came in."""
        name = ""
        try:
            request, contents = decode_infer(data, self._service.models.widest(), charge)
            del data  # the tensors are views of it
            name, raw_inputs = request.id, bool(contents)
            parsed = parse(request, contents)
            del request, contents
            charge(parsed.made)
            text, raw = render(await self._service.infer(parsed, "grpc"), raw_inputs)
        except Exception as e:
            error = known_error(e)
            failed = pb.ModelInferResponse(id=name)
            return [pb.ModelStreamInferResponse(error_message=str(error), infer_response=failed).SerializeToString()], True
        response = b"".join(joined(text, raw))
        return [pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse.FromString(response)).SerializeToString()], False


def server(service: Service, settings: Settings, bodies: Bodies, guard: Guard) -> GrpcServer:
    """Not started."""
    calls = _Calls(service, settings)
    table: Dict[str, Tuple[Any, Callable[[Any], Awaitable[Any]]]] = {
        "ServerLive": (pb.ServerLiveRequest, calls.server_live), "ServerReady": (pb.ServerReadyRequest, calls.server_ready),
        "ModelReady": (pb.ModelReadyRequest, calls.model_ready), "ServerMetadata": (pb.ServerMetadataRequest, calls.server_metadata),
        "ModelMetadata": (pb.ModelMetadataRequest, calls.model_metadata), "ModelStatistics": (pb.ModelStatisticsRequest, calls.model_statistics),
        "ModelConfig": (pb.ModelConfigRequest, calls.model_config),
        "RepositoryIndex": (pb.RepositoryIndexRequest, calls.repository_index), "RepositoryModelLoad": (pb.RepositoryModelLoadRequest, calls.load),
        "RepositoryModelUnload": (pb.RepositoryModelUnloadRequest, calls.unload)}

    def unary(kind: Any, call: Callable[[Any], Awaitable[Any]]) -> Handler:
        async def answer(data: bytes) -> List[Any]:
            made = await call(decode(kind, data))
            return [made.SerializeToString()]
        return answer

    def paths(*names: str) -> FrozenSet[bytes]:
        return frozenset((_SERVICE + name).encode() for name in names)

    streams: Dict[bytes, StreamHandler] = {(_SERVICE + "ModelStreamInfer").encode(): calls.stream_infer}
    methods = Methods((_SERVICE + "ModelInfer").encode(), Infers(service, bodies), {(_SERVICE + name).encode(): unary(*row) for name, row in table.items()},
                      streams, bodies, settings, guard, public=paths("ServerLive", "ServerReady"), changing=paths("RepositoryModelLoad", "RepositoryModelUnload"))
    return GrpcServer(methods)
