"""The Open Inference Protocol over gRPC. The messages are those of tritonclient, which its authors keep with the protocol."""
import asyncio
import logging
from typing import Any, AsyncIterator, Dict, List

import grpc
import numpy
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as rpc

from ._errors import BadRequest, NotFound, ServeError
from ._requests import Request, Response, Service, internal
from ._rest import refuse_parameters
from ._settings import Settings
from ._tensors import from_bytes, from_list, little_endian

_log = logging.getLogger("octavo.serve")
_CONTENTS = {"BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
             "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
             "FP32": "fp32_contents", "FP64": "fp64_contents"}


def parse(message: Any) -> Request:
    inputs: Dict[str, Any] = {}
    datatypes: Dict[str, str] = {}
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise BadRequest(f"{len(message.inputs)} inputs, but {len(raw)} raw_input_contents")
    for i, one in enumerate(message.inputs):
        if one.name in inputs:
            raise BadRequest(f"input {one.name!r} is given twice")
        for refused in one.parameters:
            raise BadRequest(f"input {one.name!r}: parameter {refused!r} is not supported")
        shape = list(one.shape)
        datatypes[one.name] = one.datatype
        if raw:
            if one.HasField("contents"):
                raise BadRequest(f"input {one.name!r} has contents beside raw_input_contents; give one of them")
            inputs[one.name] = from_bytes(one.name, one.datatype, shape, raw[i])
            continue
        field = _CONTENTS.get(one.datatype)
        if field is None:
            raise BadRequest(f"input {one.name!r}: {one.datatype or 'no datatype'} is taken as raw_input_contents only")
        inputs[one.name] = from_list(one.name, one.datatype, shape, numpy.asarray(getattr(one.contents, field)))
    for refused in ("sequence_id", "priority"):
        if refused in message.parameters and message.parameters[refused].WhichOneof("parameter_choice"):
            kind = message.parameters[refused].WhichOneof("parameter_choice")
            if getattr(message.parameters[refused], kind):
                raise BadRequest(f"parameter {refused!r} is not supported")
    return Request(message.model_name, message.model_version, message.id, inputs, datatypes, [o.name for o in message.outputs] or None)


def render(response: Response, raw: bool) -> Any:
    """Raw contents for requests that had them, and for types that have no other."""
    made = pb.ModelInferResponse(model_name=response.version.name, model_version=response.version.version, id=response.id)
    raw = raw or any(response.version.datatypes[name] not in _CONTENTS for name in response.outputs)
    for name, array in response.outputs.items():
        datatype = response.version.datatypes[name]
        one = made.outputs.add(name=name, datatype=datatype, shape=array.shape)
        if raw:
            made.raw_output_contents.append(bytes(little_endian(array)))
        else:
            getattr(one.contents, _CONTENTS[datatype]).extend(array.reshape(-1).tolist())
    return made


class Servicer(rpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """What is not here (shared memory, traces, log settings, model configuration) answers UNIMPLEMENTED."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self._service, self._settings = service, settings

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return pb.ServerReadyResponse(ready=self._service.ready and not self._service.stopping)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        try:
            self._service.models.get(request.name, request.version)
        except ServeError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        return pb.ServerMetadataResponse(**self._service.metadata())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        async with _guard(context):
            return pb.ModelMetadataResponse(**self._service.model_metadata(request.name, request.version))

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        async with _guard(context):
            return await self._infer(request)

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Answers in the order of the requests; an error is an answer, the stream goes on."""
        async for request in requests:
            try:
                yield pb.ModelStreamInferResponse(infer_response=await self._infer(request))
            except ServeError as e:
                yield pb.ModelStreamInferResponse(error_message=str(e), infer_response=pb.ModelInferResponse(id=request.id))

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        async with _guard(context):
            return pb.ModelStatisticsResponse(model_stats=[pb.ModelStatistics(**s) for s in self._service.statistics(request.name, request.version)])

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        rows = [r for r in self._service.models.index() if not request.ready or r["state"] == "READY"]
        return pb.RepositoryIndexResponse(models=[pb.RepositoryIndexResponse.ModelIndex(**r) for r in rows])

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        async with _guard(context):
            self._allowed()
            refuse_parameters(dict(request.parameters))
            await self._service.models.load(request.model_name)
            return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        async with _guard(context):
            self._allowed()
            await self._service.models.unload(request.model_name)
            return pb.RepositoryModelUnloadResponse()

    async def _infer(self, request: Any) -> Any:
        return render(await self._service.infer(parse(request), "grpc"), bool(request.raw_input_contents))

    def _allowed(self) -> None:
        if not self._settings.repository_api:
            raise NotFound("loading and unloading by clients is switched off")


class _guard:
    """Errors as gRPC statuses."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None or isinstance(error, asyncio.CancelledError):
            return
        if not isinstance(error, ServeError):
            _log.exception("a request failed")
            error = internal(error)
        await self._context.abort(grpc.StatusCode[error.code], str(error))


class _Decoding(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """A message that is no protocol buffer is the client's mistake; by itself grpc answers UNKNOWN and prints a traceback."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        def decode(data: bytes) -> Any:
            try:
                return handler.request_deserializer(data)
            except DecodeError as e:
                return e

        async def answer(request: Any, context: Any) -> Any:
            if isinstance(request, DecodeError):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the message is not a protocol buffer of this call: {request}")
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(answer, decode, handler.response_serializer)


def server(service: Service, settings: Settings) -> Any:
    """Not started, no port yet."""
    options: List[Any] = [("grpc.max_receive_message_length", settings.max_request), ("grpc.max_send_message_length", -1),
                          ("grpc.so_reuseport", 0), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.min_ping_interval_without_data_ms", 5000)]
    made = grpc.aio.server(interceptors=[_Decoding()], options=options, maximum_concurrent_rpcs=settings.max_connections)
    rpc.add_GRPCInferenceServiceServicer_to_server(Servicer(service, settings), made)
    return made
