"""The client for threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, cast, overload

from . import _checks, _errors, _process, _request, _wait
from ._core import Core, many_items
from ._download import Downloaded, Ticker, arguments
from ._many import results
from ._native import Call, Feed, Head
from ._multipart import FileTypes
from ._request import Content, Prepared, QueryTypes, prepare
from ._response import Response
from ._timeout import Timeout

#: How long the connections of a client that is closed may take to end what is in progress.
_LAST_WAIT = 0.5


class Client(Core):
    """A client of HTTP/2 and HTTP/1.1. It keeps its connections: make one, and use it from as many threads as you like.

    Over HTTP/2 all requests to a server share a connection; further ones are opened where they are faster.
    """

    def request(
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
    ) -> Response:
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
        response = self._send(request, reads_body=True)
        response.read()
        return response

    @contextmanager
    def stream(
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
    ) -> Iterator[Response]:
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
        with self._send(request, reads_body=False) as response:
            yield response

    def get(self, url: object, **options: Any) -> Response:
        return self.request("GET", url, **options)

    def head(self, url: object, **options: Any) -> Response:
        return self.request("HEAD", url, **options)

    def options(self, url: object, **options: Any) -> Response:
        return self.request("OPTIONS", url, **options)

    def post(self, url: object, **options: Any) -> Response:
        return self.request("POST", url, **options)

    def put(self, url: object, **options: Any) -> Response:
        return self.request("PUT", url, **options)

    def patch(self, url: object, **options: Any) -> Response:
        return self.request("PATCH", url, **options)

    def delete(self, url: object, **options: Any) -> Response:
        return self.request("DELETE", url, **options)

    @overload
    def get_many(
        self,
        urls: Iterable[Any],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        at_once: int = 10_000,
        repeats: int = 3,
        errors: Literal["raise"] = "raise",
    ) -> list[Response]: ...

    @overload
    def get_many(
        self,
        urls: Iterable[Any],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        at_once: int = 10_000,
        repeats: int = 3,
        errors: Literal["return"],
    ) -> list[Response | _errors.Error]: ...

    def get_many(
        self,
        urls: Iterable[Any],
        *,
        headers: _checks.FieldTypes | None = None,
        timeout: Timeout | float | None = None,
        at_once: int = 10_000,
        repeats: int = 3,
        errors: str = "raise",
    ) -> list[Any]:
        """Gets many URLs, ``at_once`` at a time, and returns their responses in order.

        An item is a URL, or ``(url, start, end)`` for the bytes from ``start`` to the one before ``end``. Another status than
        2xx is an error. With ``errors="return"`` the list contains the errors; otherwise the first one ends all. A response
        with ``Retry-After`` (429, 503) is asked for again, up to ``repeats`` times.
        """
        items = many_items(urls)
        stops = _stops(errors)
        limits = self._limits_of(None if timeout is None else Timeout.of(timeout))
        at_once = _checks.whole("at_once", at_once, 1, 1 << 20)
        repeats = _checks.whole("repeats", repeats, 0, 1 << 20)
        fields = _checks.fields(headers)
        call = self._client().get_many(_wait.queue(), items, fields, limits, at_once, repeats, stops)
        return results(_wait.wait(call), Response)

    def download(
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
        """Downloads a file. See :class:`Downloaded` for what is returned.

        The file gets its name when it is complete. Until then it is beside it, with a name that ends in ``.part``. A download
        that breaks off continues: ``repeats`` times in a row without a byte, and in the next call. ``checksum`` is
        ``"sha256:..."`` (sha1, sha384, sha512). Several connections carry it where they are faster; ``connections`` fixes
        their number. ``progress`` is called with the bytes that are there and those of the whole, or ``None``; ``True`` shows
        a bar (tqdm, if it is installed).
        """
        fixed = arguments(url, path, headers, checksum, connections, repeats)
        limits = self._limits_of(None if timeout is None else Timeout.of(timeout))
        with Ticker(progress, str(path)) as ticker:
            call = self._client().download(
                _wait.queue(),
                fixed.url,
                str(fixed.path),
                fixed.headers,
                limits,
                fixed.checksum,
                fixed.connections,
                fixed.repeats,
                ticker.progress,
            )
            brought = _wait.wait(call, ticker.tick if ticker.is_needed else None)
            ticker.tick()
        return Downloaded.of(fixed.path, brought)

    def report(self) -> str | None:
        """What the connections have waited for, in words; ``None`` if nothing was received."""
        return cast("str | None", _wait.wait(self._client().report(_wait.queue())))

    def close(self) -> None:
        """Closes the connections. Requests in progress have half a second to end."""
        native, self._native = self._native, None
        was_closed, self._is_closed = self._is_closed, True
        if native is not None and not was_closed and self._generation == _process.generation:
            _wait.wait(native.shutdown(_wait.queue(), _LAST_WAIT))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, request: Prepared, *, reads_body: bool) -> Response:
        native, limits = self._client(), self._limits(request)
        queue = _wait.queue()
        feed = None if request.pieces is None else Feed(_process.runtime())
        body = request.body if feed is None else feed
        call = native.send(
            queue, request.method, request.url, request.headers, body, limits, reads_body, request.max_redirects
        )
        if feed is not None:
            _feed(feed, call, request)
        head = cast(Head, _wait.wait(call))
        timeout = request.timeout or self._timeout
        return Response(head, head.take_body(), timeout.read)


def _stops(errors: object) -> bool:
    if errors not in ("raise", "return"):
        raise ValueError(f'errors is {errors!r}; use "raise" or "return"')
    return errors == "raise"


def _feed(feed: Feed, call: Call, request: Prepared) -> None:
    """Feeds a body to a request. It stops when the server wants no more of it."""
    pieces: Any = request.pieces
    try:
        if not hasattr(pieces, "__iter__"):
            raise TypeError("content is an async iterable, which only AsyncClient takes")
        for piece in pieces:
            data = _request.piece(piece)
            if data and not _put(feed.push(_wait.queue(), data)):
                return
        _put(feed.finish(_wait.queue(), request.trailers))
    except BaseException as error:
        # The server is told that the body is not complete.
        _, full = feed.fail(_wait.queue(), f"{type(error).__name__}: {error}")
        for unwanted in (full, call):
            if unwanted is not None:
                _wait.give_up(unwanted)
        raise


def _put(given: tuple[bool | None, Call | None]) -> bool:
    wanted, call = given
    return bool(_wait.wait(call) if call is not None else wanted)
