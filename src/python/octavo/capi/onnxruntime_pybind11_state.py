"""ONNX Runtime's exceptions, so that `except` clauses written for it catch what octavo.InferenceSession raises.

Each is one of octavo's own exceptions as well (octavo.InputError, octavo.ModelError, ...), which `octavo.build` and `octavo.load` raise.
"""
import errno
from typing import Type

from .._errors import CancelledError, EngineFileError, Error, FileError, InputError, InternalError, ModelError, UnsupportedError, UsageError


class Fail(Error, RuntimeError):
    """What has no name of its own: a file that cannot be read, work that was cancelled."""


class InvalidArgument(InputError, UsageError):
    """Names, types or shapes of a feed that do not fit; an option with a value that cannot be."""


class NoSuchFile(FileError, FileNotFoundError):
    """There is no file of that name."""


class NoModel(Fail):
    """ONNX Runtime's name, for `except` clauses; nothing here raises it."""


class EngineError(Fail):
    """ONNX Runtime's name, for `except` clauses; nothing here raises it."""


class RuntimeException(Error, RuntimeError):
    """A mistake of octavo's own; please report it."""


class InvalidProtobuf(ModelError, EngineFileError):
    """Bytes that are no ONNX model, or a damaged engine file."""


class ModelLoaded(Fail):
    """ONNX Runtime's name, for `except` clauses; nothing here raises it."""


class NotImplemented(UnsupportedError):  # noqa: A001, the name that ONNX Runtime has
    """An operator, type or instruction set that is not supported."""


class InvalidGraph(ModelError):
    """A model that contradicts itself."""


class EPFail(UnsupportedError, Fail):
    """The device that was asked for cannot run the model, or is not there."""


class _FileFail(Fail, FileError):
    pass


class _CancelledFail(Fail, CancelledError):
    pass


class _InternalFail(RuntimeException, InternalError):
    pass


def named(error: Error, parses: bool = True) -> Error:
    """The same error under ONNX Runtime's name. `parses`: of a ModelError, whether the bytes are an ONNX model at all."""
    if isinstance(error, (Fail, InvalidArgument, NoSuchFile, RuntimeException, InvalidProtobuf, NotImplemented, InvalidGraph)):
        return error
    kind: Type[Error]
    if isinstance(error, (InputError, UsageError)):
        kind = InvalidArgument
    elif isinstance(error, ModelError):
        kind = InvalidGraph if parses else InvalidProtobuf
    elif isinstance(error, UnsupportedError):
        kind = NotImplemented
    elif isinstance(error, EngineFileError):
        kind = InvalidProtobuf
    elif isinstance(error, FileError):
        kind = NoSuchFile if error.errno == errno.ENOENT else _FileFail
    elif isinstance(error, CancelledError):
        kind = _CancelledFail
    else:
        kind = _InternalFail
    if isinstance(error, FileError) and error.filename is not None:
        return kind(error.errno, error.strerror, error.filename)
    return kind(*error.args)
