"""The exceptions of octavo. Their text says what was being done, what stopped it, where, and what to do next."""


class Error(Exception):
    """Base of everything octavo raises, except TypeError for arguments of the wrong type and MemoryError."""


class UsageError(Error, ValueError):
    """The caller asked for something that cannot be: an unknown option value, or facts of an engine whose shapes are still open."""


class ModelError(Error, ValueError):
    """The ONNX file is corrupt or contradicts itself."""


class UnsupportedError(Error, RuntimeError):
    """Valid, but not supported: an operator of the model, or an instruction set that this processor lacks."""


class InputError(Error, ValueError):
    """Names, shapes or types of arrays that do not fit the model."""


class EngineFileError(Error, ValueError):
    """An engine file that is damaged, truncated, foreign, or of another version."""


class FileError(Error, OSError):
    """A file cannot be read or written, or the system refuses memory or threads."""


class InternalError(Error, RuntimeError):
    """A mistake of octavo's own; please report it."""


class CancelledError(Error, RuntimeError):
    """The progress callback returned False."""


# In the order of octavo::Exception::Kind.
BY_KIND = (UsageError, ModelError, UnsupportedError, InputError, EngineFileError, FileError, InternalError, CancelledError)
