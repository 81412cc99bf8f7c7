"""The client for asyncio and trio."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Literal, cast, overload

from . import _checks, _errors, _process, _request
from ._client import _LAST_WAIT, _stops
from ._core import Core, many_items
from ._download import Downloaded, Ticker, arguments
from ._many import results
from ._native import Call, Feed, Head
from ._multipart import FileTypes
from ._request import Content, Prepared, QueryTypes, prepare
from ._response import AsyncResponse
from ._timeout import Timeout
from ._waiters import Waiter, current

#: How often the progress of a download is told.
_TICK = 0.1


class AsyncClient(Core):
    """A client of HTTP/2 and HTTP/1.1 for asyncio and trio, with the arguments of :class:`Client`.

    It may be used from several event loops. A task that is cancelled cancels its request.
    """

    async def request(
        self,
        method: str,
        url: object,
        *,
        params: QueryTypes | None = None,
        headers: _checks.FieldTypes | None = None,
        content: Content | None = None,
        data: QueryTypes | None = None,
        json: object = None,
        files: Mapping[str, FileTypes] | Iterable[tuple[str, FileTypes]] | None = None,
        trailers: _checks.FieldTypes | None = None,
        auth: tuple[str, str] | None = None,
        timeout: Timeout | float | None = None,
        max_redirects: int | None = None,
    ) -> AsyncResponse:
        """Sends a request, and reads the whole response."""
        request = prepare(
            method,
            url,
            params=params,
            headers=headers,
            content=content,
            data=data,
            json=json,
            files=files,
            trailers=trailers,
            auth=auth,
            timeout=timeout,
            max_redirects=max_redirects,
        )
        response = await self._send(request, reads_body=True)
        await response.read()
        return response

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: object,
        *,
        params: QueryTypes | None = None,
        headers: _checks.FieldTypes | None = None,
        content: Content | None = None,
        data: QueryTypes | None = None,
        json: object = None,
        files: Mapping[str, FileTypes] | Iterable[tuple[str, FileTypes]] | None = None,
        trailers: _checks.FieldTypes | None = None,
        auth: tuple[str, str] | None = None,
        timeout: Timeout | float | None = None,
        max_redirects: int | None = None,
    ) -> AsyncIterator[AsyncResponse]:
        """Sends a request; the body of the response is read by whoever gets it."""
        request = prepare(
            method,
            url,
            params=params,
            headers=headers,
            content=content,
            data=data,
            json=json,
            files=files,
            trailers=trailers,
            auth=auth,
            timeout=timeout,
            max_redirects=max_redirects,
        )
        async with await self._send(request, reads_body=False) as response:
            yield response

    async def get(self, url: object, **options: Any) -> AsyncResponse:
        return await self.request("GET", url, **options)

    async def head(self, url: object, **options: Any) -> AsyncResponse:
        return await self.request("HEAD", url, **options)

    async def options(self, url: object, **options: Any) -> AsyncResponse:
        return await self.request("OPTIONS", url, **options)

    async def post(self, url: object, **options: Any) -> AsyncResponse:
        return await self.request("POST", url, **options)

    async def put(self, url: object, **options: Any) -> AsyncResponse:
        return await self.request("PUT", url, **options)

    async def patch(self, url: object, **options: Any) -> AsyncResponse:
        return await self.request("PATCH", url, **options)

    async def delete(self, url: object, **options: Any) -> AsyncResponse:
        return await self.request("DELETE", url, **options)

    @overload
    async def get_many(
        self,
        urls: Iterable[Any],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        at_once: int = 10_000,
        repeats: int = 3,
        errors: Literal["raise"] = "raise",
    ) -> list[AsyncResponse]: ...

    @overload
    async def get_many(
        self,
        urls: Iterable[Any],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        at_once: int = 10_000,
        repeats: int = 3,
        errors: Literal["return"],
    ) -> list[AsyncResponse | _errors.Error]: ...

    async def get_many(
        self,
        urls: Iterable[Any],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        at_once: int = 10_000,
        repeats: int = 3,
        errors: str = "raise",
    ) -> list[Any]:
        """Gets many URLs in one call: see :meth:`Client.get_many`."""
        return await self._get_many(
            urls, headers=headers, timeout=timeout, at_once=at_once, repeats=repeats, stops=_stops(errors)
        )

    async def _get_many(
        self,
        urls: Iterable[Any],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        at_once: int = 10_000,
        repeats: int = 3,
        stops: bool = False,
        is_lenient: bool = False,
        max_redirects: int | None = None,
    ) -> list[Any]:
        items = many_items(urls)
        limits = self._limits_of(None if timeout is None else Timeout.of(timeout))
        at_once = _checks.whole("at_once", at_once, 1, 1 << 20)
        repeats = _checks.whole("repeats", repeats, 0, 1 << 20)
        fields, waiter = _checks.fields(headers), current()
        call = self._client().get_many(
            waiter.queue, items, fields, limits, at_once, repeats, stops, is_lenient, max_redirects
        )
        return results(await waiter.wait(call), AsyncResponse)

    async def download(
        self,
        url: object,
        path: str | os.PathLike[str],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        checksum: str | None = None,
        connections: int | None = None,
        repeats: int = 5,
        progress: bool | Callable[[int, int | None], object] = False,
    ) -> Downloaded:
        """Downloads a file: see :meth:`Client.download`. ``progress`` is called at the end, and when the loop is asyncio's in
        between."""
        fixed = arguments(url, path, headers, checksum, connections, repeats)
        limits = self._limits_of(None if timeout is None else Timeout.of(timeout))
        waiter = current()
        with Ticker(progress, str(path)) as ticker:
            call = self._client().download(
                waiter.queue,
                fixed.url,
                str(fixed.path),
                fixed.headers,
                limits,
                fixed.checksum,
                fixed.connections,
                fixed.repeats,
                ticker.progress,
            )
            with waiter.ticking(ticker.tick if ticker.is_needed else None, _TICK):
                brought = await waiter.wait(call)
            ticker.tick()
        return Downloaded.of(fixed.path, brought)

    async def report(self) -> str | None:
        """What the connections have waited for, in words; ``None`` if nothing was received."""
        waiter = current()
        return cast("str | None", await waiter.wait(self._client().report(waiter.queue)))

    async def aclose(self) -> None:
        """Closes the connections. Requests in progress have half a second to end."""
        native, self._native = self._native, None
        was_closed, self._is_closed = self._is_closed, True
        if native is not None and not was_closed and self._generation == _process.generation:
            waiter = current()
            await waiter.wait(native.shutdown(waiter.queue, _LAST_WAIT))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, request: Prepared, *, reads_body: bool) -> AsyncResponse:
        native, limits, waiter = self._client(), self._limits(request), current()
        feed = None if request.pieces is None else Feed(_process.runtime())
        body = request.body if feed is None else feed
        call = native.send(
            waiter.queue, request.method, request.url, request.headers, body, limits, reads_body, request.max_redirects
        )
        ticket = waiter.enter(call)
        if feed is not None:
            await _feed(waiter, feed, call, request)
        head = cast(Head, await waiter.result(call, ticket))
        timeout = request.timeout or self._timeout
        return AsyncResponse(head, head.take_body(), timeout.read)


async def _feed(waiter: Waiter, feed: Feed, call: Call, request: Prepared) -> None:
    """Feeds a body to a request. It stops when the server wants no more of it."""
    pieces: Any = request.pieces
    try:
        if hasattr(pieces, "__aiter__"):
            async for piece in pieces:
                if not await _push(waiter, feed, piece):
                    return
        else:
            for piece in pieces:
                if not await _push(waiter, feed, piece):
                    return
        await _put(waiter, feed.finish(waiter.queue, request.trailers))
    except BaseException as error:
        # The server is told that the body is not complete.
        feed.fail(waiter.queue, f"{type(error).__name__}: {error}")
        waiter.forget(call)
        raise


async def _push(waiter: Waiter, feed: Feed, piece: object) -> bool:
    data = _request.piece(piece)
    return not data or await _put(waiter, feed.push(waiter.queue, data))


async def _put(waiter: Waiter, given: tuple[bool | None, Call | None]) -> bool:
    wanted, call = given
    return bool(await waiter.wait(call) if call is not None else wanted)
