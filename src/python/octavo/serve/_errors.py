"""What a request can be answered with besides a result: an HTTP status and the gRPC code of the same meaning."""


class ServeError(Exception):
    """Base; the text says what is wrong, both values, and the way out."""
    status = 500
    code = "INTERNAL"

    def again(self) -> "ServeError":
        """The same without a traceback. A kept error must not be one that was raised: its traceback holds the frames it went through, and if one of them holds
        it, requests and their data stay until the collector of cycles runs, which counts objects and not bytes."""
        return type(self)(*self.args)


class BadRequest(ServeError):
    """The request contradicts itself or the model: names, shapes, types, counts."""
    status = 400
    code = "INVALID_ARGUMENT"


class NotFound(ServeError):
    """No such model or version is loaded."""
    status = 404
    code = "NOT_FOUND"


class Unauthorized(ServeError):
    """A token is needed, or the one that came is not known."""
    status = 401
    code = "UNAUTHENTICATED"


class Forbidden(ServeError):
    """Not for this client: a page of another origin, a name that is not the server's, or something that the operator has not allowed."""
    status = 403
    code = "PERMISSION_DENIED"


class Cancelled(ServeError):
    """The client does not want the answer any more; nobody is told."""
    status = 499
    code = "CANCELLED"


class SlowSender(ServeError):
    """The body did not arrive in time."""
    status = 408
    code = "DEADLINE_EXCEEDED"


class TooLarge(ServeError):
    """The request is larger than the limit."""
    status = 413
    code = "RESOURCE_EXHAUSTED"


class Busy(ServeError):
    """The queue is full; try again later."""
    status = 429
    code = "RESOURCE_EXHAUSTED"


class Internal(ServeError):
    """The engine failed; nothing about the request explains it."""


class Unavailable(ServeError):
    """The server is stopping, or the model is being taken away."""
    status = 503
    code = "UNAVAILABLE"


class Late(ServeError):
    """The request waited longer than the limit and was dropped."""
    status = 504
    code = "DEADLINE_EXCEEDED"
