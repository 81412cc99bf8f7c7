"""The exceptions of fullbore.

Each is an :class:`Error`. Those that the standard library has a name for are that exception too, so that ``except TimeoutError``,
``except ConnectionError`` and ``except ValueError`` work.
"""

from __future__ import annotations

import builtins
from typing import Any


class Error(Exception):
    """Any failure of a request, a response or a client."""

    #: A word for programs: what happened, more exactly than the class.
    kind: str = "other"
    #: The URL of the request, without name, password, query and fragment.
    url: str | None = None
    #: The HTTP/2 error code that was sent or received (RFC 9113 section 7).
    code: int | None = None
    #: The status of the response, if that is the error.
    status: int | None = None
    #: Whether the server certainly did not process the request, and may do so later.
    retryable: bool = False


class InvalidRequest(Error, ValueError):
    """The request cannot be sent: its URL, a field or its body is invalid."""


class InvalidURL(InvalidRequest):
    """The URL has no host, its scheme is neither ``http`` nor ``https``, or its port is none."""


class ConfigError(Error, ValueError):
    """A setting is out of range, or contradicts another one."""


class ConnectError(Error, ConnectionError):
    """No connection was made."""


class ResolveError(ConnectError):
    """The host name does not resolve."""


class ProxyError(ConnectError):
    """The proxy refused the connection, or did not act as one."""


class TLSError(ConnectError):
    """The TLS handshake failed."""


class CertificateError(TLSError):
    """The certificate of the server does not verify."""


class VersionError(ConnectError):
    """The server speaks no version of HTTP that may be used."""


class ProtocolError(Error):
    """The server broke a rule of HTTP."""


class ConnectionLost(Error, ConnectionError):
    """The connection ended before the message was complete."""


class Refused(Error):
    """The server did not process the request, which may be repeated."""


class StreamReset(Error):
    """The server reset the stream. ``code`` says why."""


class BodyError(Error):
    """A body was not complete: that of the request failed, or one was shorter or longer than announced."""


class RangeError(BodyError):
    """The server answered with another range than the one that was asked for."""


class ChecksumError(BodyError):
    """A downloaded file has another digest than the expected one."""


class TimeoutError(Error, builtins.TimeoutError):
    """A limit on time was exceeded."""


class ConnectTimeout(TimeoutError, ConnectError):
    """No connection was made in time."""


class PoolTimeout(TimeoutError):
    """No connection, and no stream of one, was free in time."""


class WriteTimeout(TimeoutError):
    """The server took no more of the body of the request in time."""


class ReadTimeout(TimeoutError):
    """No more of the body of the response came in time."""


class ResponseTimeout(ReadTimeout):
    """No response came in time."""


class Canceled(Error):
    """The request was canceled on this side."""


class Closed(Error, RuntimeError):
    """The client or the response was closed before."""


class StatusError(Error):
    """The status of the response is an error."""


class RedirectError(Error):
    """A redirect cannot be followed, or was one too many."""


class DecodeError(Error, ValueError):
    """A body is not what it was read as: JSON, text, or a content coding."""


class MemoryBudgetError(Error, MemoryError):
    """The memory budget of the client is exhausted."""


class FileError(Error, OSError):
    """The file of a download cannot be written."""


_BY_KIND: dict[str, type[Error]] = {
    "invalid_url": InvalidURL,
    "invalid_message": InvalidRequest,
    "config": ConfigError,
    "resolve": ResolveError,
    "connect": ConnectError,
    "proxy": ProxyError,
    "tls": TLSError,
    "certificate": CertificateError,
    "version": VersionError,
    "protocol": ProtocolError,
    "closed": ConnectionLost,
    "io": ConnectionLost,
    "refused": Refused,
    "reset": StreamReset,
    "body_length": BodyError,
    "body": BodyError,
    "range": RangeError,
    "checksum": ChecksumError,
    "timeout": TimeoutError,
    "connect_timeout": ConnectTimeout,
    "pool_timeout": PoolTimeout,
    "write_timeout": WriteTimeout,
    "read_timeout": ReadTimeout,
    "response_timeout": ResponseTimeout,
    "canceled": Canceled,
    "stream_closed": Closed,
    "status": StatusError,
    "redirect": RedirectError,
    "decode": DecodeError,
    "budget": MemoryBudgetError,
    "disk": FileError,
}


def of_native(failure: Any) -> BaseException:
    """The exception of a failure in the native module: its words in a tuple, or an exception already."""
    if isinstance(failure, BaseException):
        return failure
    kind, text, url, code, status, retryable, connect = failure
    of_kind = ConnectTimeout if kind == "timeout" and connect else _BY_KIND.get(kind, Error)
    error = of_kind(text)
    error.kind = kind
    error.url, error.code, error.status, error.retryable = url, code, status, retryable
    return error
