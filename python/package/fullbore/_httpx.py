"""Transports for httpx and httpx2, which have the same interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from . import _errors
from ._async_client import AsyncClient
from ._client import Client
from ._request import Prepared
from ._response import _Response
from ._timeout import Timeout

#: What httpx does itself, and the proxies of the environment, which it leaves to a transport of others.
#: Its limit on connecting comes with each request, and cannot be longer than the client's.
_RAW: dict[str, Any] = {"max_redirects": 0, "decompression": False, "cookies": False, "timeout": Timeout(connect=None)}


def exception_of(httpx: Any, error: _errors.Error) -> Exception:
    """The exception of httpx for an error."""
    kinds: list[tuple[type[_errors.Error], Any]] = [
        (_errors.ConnectTimeout, httpx.ConnectTimeout),
        (_errors.PoolTimeout, httpx.PoolTimeout),
        (_errors.WriteTimeout, httpx.WriteTimeout),
        (_errors.TimeoutError, httpx.ReadTimeout),
        (_errors.ProxyError, httpx.ProxyError),
        (_errors.ConnectError, httpx.ConnectError),
        (_errors.InvalidURL, httpx.UnsupportedProtocol),
        (_errors.InvalidRequest, httpx.LocalProtocolError),
        (_errors.FileError, httpx.ReadError),
        (_errors.Canceled, httpx.ReadError),
        (_errors.MemoryBudgetError, httpx.ReadError),
    ]
    for kind, theirs in kinds:
        if isinstance(error, kind):
            return theirs(str(error))  # type: ignore[no-any-return]
    if error.kind == "io":
        return httpx.ReadError(str(error))  # type: ignore[no-any-return]
    if error.kind == "body":
        return httpx.WriteError(str(error))  # type: ignore[no-any-return]
    return httpx.RemoteProtocolError(str(error))  # type: ignore[no-any-return]


def prepared(request: Any, whole: Any) -> Prepared:
    """A request of httpx. ``whole`` is the class of its bodies that are bytes."""
    url = str(request.url)
    host = request.url.netloc
    headers = [
        (name, value)
        for name, value in request.headers.raw
        # What the URL says already, HTTP/2 has in `:authority`.
        if not (name.lower() == b"host" and value.lower() == host.lower())
    ]
    ours = Prepared(request.method, url, headers)
    if isinstance(request.stream, whole):
        ours.body = b"".join(request.stream) or None
    else:
        ours.pieces = request.stream
    limits = request.extensions.get("timeout") or {}
    read = limits.get("read")
    ours.timeout = Timeout(
        connect=limits.get("connect"), response=read, read=read, write=limits.get("write"), pool=limits.get("pool")
    )
    return ours


def response_of(httpx: Any, response: _Response, stream: Any) -> Any:
    return httpx.Response(
        response.status,
        headers=response.headers.raw,
        stream=stream,
        extensions={"http_version": response.http_version.encode()},
    )


def transports(httpx: Any) -> tuple[Any, Any]:
    """The two transports for a module that has httpx's interface."""

    class Stream(httpx.SyncByteStream):  # type: ignore[misc]
        def __init__(self, response: Any) -> None:
            self._response = response

        def __iter__(self) -> Iterator[bytes]:
            try:
                yield from self._response.iter_bytes(1)
            except _errors.Error as error:
                raise exception_of(httpx, error) from error

        def close(self) -> None:
            self._response.close()

    class AsyncStream(httpx.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, response: Any) -> None:
            self._response = response

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for piece in self._response.iter_bytes(1):
                    yield piece
            except _errors.Error as error:
                raise exception_of(httpx, error) from error

        async def aclose(self) -> None:
            await self._response.close()

    class Transport(httpx.BaseTransport):  # type: ignore[misc]
        """Sends the requests of an ``httpx.Client``. The settings are those of :class:`fullbore.Client`."""

        def __init__(self, **settings: Any) -> None:
            self._client = Client(**{**_RAW, **settings})

        def handle_request(self, request: Any) -> Any:
            try:
                response = self._client._send(prepared(request, httpx.ByteStream), reads_body=False)
            except _errors.Error as error:
                raise exception_of(httpx, error) from error
            return response_of(httpx, response, Stream(response))

        def close(self) -> None:
            self._client.close()

    class AsyncTransport(httpx.AsyncBaseTransport):  # type: ignore[misc]
        """Sends the requests of an ``httpx.AsyncClient``. The settings are those of :class:`fullbore.AsyncClient`."""

        def __init__(self, **settings: Any) -> None:
            self._client = AsyncClient(**{**_RAW, **settings})

        async def handle_async_request(self, request: Any) -> Any:
            try:
                response = await self._client._send(prepared(request, httpx.ByteStream), reads_body=False)
            except _errors.Error as error:
                raise exception_of(httpx, error) from error
            return response_of(httpx, response, AsyncStream(response))

        async def aclose(self) -> None:
            await self._client.aclose()

    return Transport, AsyncTransport
