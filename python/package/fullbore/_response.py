"""Responses."""

from __future__ import annotations

import json as json_
from collections.abc import AsyncIterator, Callable, Iterator
from email.message import Message
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from . import _checks, _errors, _wait
from ._headers import Headers
from ._native import Head, Reader
from ._waiters import current
from ._whole import PIECE, Whole

#: What `iter_bytes` yields at most, unless more is asked for at least.
_MOST = 1 << 20
#: And at least.
_LEAST = 64 << 10

#: What arrives: bytes, or their number.
_Arrived = TypeVar("_Arrived", bytes, int)
_Failure: TypeAlias = tuple[Any, ...]

_VERSIONS = {9: "HTTP/0.9", 10: "HTTP/1.0", 11: "HTTP/1.1", 20: "HTTP/2", 30: "HTTP/3"}


class _Response:
    """What both kinds have."""

    __slots__ = ("status", "url", "http_version", "headers", "_body", "_limit", "_content", "_is_closed", "__weakref__")

    def __init__(
        self,
        head: Head,
        body: Reader | None,
        limit: float | None,
        fields: list[tuple[bytes, bytes]] | None = None,
        content: bytes | None = None,
    ) -> None:
        #: The status, such as 200.
        self.status: int = head.status
        #: The URL behind all redirects.
        self.url: str = head.url
        #: ``"HTTP/2"``, ``"HTTP/1.1"`` or ``"HTTP/1.0"``.
        self.http_version: str = _VERSIONS[head.version]
        self.headers = Headers(head.headers if fields is None else fields)
        self._body = body
        self._limit = limit
        self._content = content
        self._is_closed = False

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def is_closed(self) -> bool:
        """Whether the response was closed."""
        return self._is_closed

    @property
    def content(self) -> bytes:
        """The body, once it was read."""
        if self._content is None:
            raise _errors.Closed("the body was not read: call read() first")
        return self._content

    @property
    def text(self) -> str:
        """The body as text, in the charset of ``content-type``, or UTF-8."""
        content, charset = self.content, self.charset or "utf-8"
        try:
            return content.decode("utf-8-sig" if charset == "utf-8" else charset, "replace")
        except LookupError:
            raise _errors.DecodeError(f"{self.url}: its charset {charset[:40]!r} is not known") from None

    @property
    def charset(self) -> str | None:
        """The charset that ``content-type`` names."""
        message = Message()
        message["content-type"] = self.headers.get("content-type", "")
        found = message.get_param("charset")
        return found.lower() if isinstance(found, str) and found else None

    def json(self) -> Any:
        """The body, parsed as JSON."""
        try:
            return json_.loads(self.content)
        except ValueError as error:
            raise _errors.DecodeError(f"{self.url}: the body is no JSON: {error}") from error

    @property
    def trailers(self) -> Headers:
        """The fields behind the body, once it was read."""
        return Headers((self._body.trailers() if self._body is not None else None) or [])

    def raise_for_status(self: Any) -> Any:
        """Raises :class:`StatusError` for 4xx and 5xx, and returns the response otherwise."""
        if self.status >= 400:
            error = _errors.StatusError(f"{self.url.split('?')[0]}: the server answered with {self.status}")
            error.status, error.url = self.status, self.url.split("?")[0]
            raise error
        return self

    def _reader(self) -> Reader:
        if self._body is None or self._is_closed:
            raise _errors.Closed("the response was closed")
        return self._body

    def _whole(self) -> bytes | None:
        """The rest of the body, if it is here."""
        data = self._reader().poll(None, None)
        if data is None or isinstance(data, bytes):
            return data
        raise _errors.of_native(data)

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._body is not None:
                self._body.close()

    def __repr__(self) -> str:
        return f"<fullbore.{type(self).__name__} {self.status} {self.http_version}>"


def _checked(found: _Arrived | _Failure) -> _Arrived:
    if isinstance(found, tuple):
        raise _errors.of_native(found)
    return found


def _bounds(min_size: object) -> tuple[int, int]:
    least = _checks.whole("min_size", min_size, 1)
    return least, max(least, _MOST)


class Response(_Response):
    """A response. One of :meth:`Client.stream` has its body still to come; close it, or use it in ``with``."""

    __slots__ = ()

    def _arrived(self, poll: Callable[[], _Arrived | _Failure | None], least: int | None) -> _Arrived:
        """What ``poll`` brings when ``least`` bytes have arrived."""
        while (found := poll()) is None:
            _wait.wait(self._reader().wait(_wait.queue(), least, self._limit))
        return _checked(found)

    def _next(self, least: int | None, most: int | None) -> bytes:
        return self._arrived(lambda: self._reader().poll(least, most), least)

    def read(self) -> bytes:
        """Reads the whole body, and returns it."""
        if self._content is None:
            whole = self._whole()
            if whole is None:
                pieces = Whole(self._reader())
                while self._arrived(pieces.take, PIECE):
                    pass
                whole = pieces.content()
            self._content = whole
        return self._content

    def iter_bytes(self, min_size: int = _LEAST) -> Iterator[bytes]:
        """The body in pieces of at least ``min_size`` bytes but for the last one: 1 yields what is there."""
        least, most = _bounds(min_size)
        if self._content is not None:
            yield from (self._content,) if self._content else ()
            return
        while data := self._next(least, most):
            yield data

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fills a buffer, and returns how many bytes there are: fewer than it has room for only at the end."""
        view = memoryview(buffer).cast("B")
        if view.readonly:
            raise TypeError("buffer must be writable")
        if not view:
            return 0
        filled = 0
        while filled < len(view):
            place, least = filled, min(len(view) - filled, PIECE)
            taken = self._arrived(lambda: self._reader().poll_into(view, place, least, _MOST), least)
            if not taken:
                break
            filled += taken
        return filled

    def close(self) -> None:
        """Gives the rest of the body up: over HTTP/2 the stream is reset, over HTTP/1.1 the connection ends."""
        self._close()

    def __enter__(self) -> Response:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncResponse(_Response):
    """A response. One of :meth:`AsyncClient.stream` has its body still to come; close it, or use it in ``async with``."""

    __slots__ = ()

    async def _arrived(self, poll: Callable[[], _Arrived | _Failure | None], least: int | None) -> _Arrived:
        """What ``poll`` brings when ``least`` bytes have arrived."""
        while (found := poll()) is None:
            waiter = current()
            await waiter.wait(self._reader().wait(waiter.queue, least, self._limit))
        return _checked(found)

    async def _next(self, least: int | None, most: int | None) -> bytes:
        return await self._arrived(lambda: self._reader().poll(least, most), least)

    async def read(self) -> bytes:
        """Reads the whole body, and returns it."""
        if self._content is None:
            whole = self._whole()
            if whole is None:
                pieces = Whole(self._reader())
                while await self._arrived(pieces.take, PIECE):
                    pass
                whole = pieces.content()
            self._content = whole
        return self._content

    async def iter_bytes(self, min_size: int = _LEAST) -> AsyncIterator[bytes]:
        """The body in pieces of at least ``min_size`` bytes but for the last one: 1 yields what is there."""
        least, most = _bounds(min_size)
        if self._content is not None:
            if self._content:
                yield self._content
            return
        while data := await self._next(least, most):
            yield data

    async def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fills a buffer, and returns how many bytes there are: fewer than it has room for only at the end."""
        view = memoryview(buffer).cast("B")
        if view.readonly:
            raise TypeError("buffer must be writable")
        filled = 0
        while filled < len(view):
            place, least = filled, min(len(view) - filled, PIECE)
            taken = await self._arrived(lambda: self._reader().poll_into(view, place, least, _MOST), least)
            if not taken:
                break
            filled += taken
        return filled

    async def close(self) -> None:
        """Gives the rest of the body up: over HTTP/2 the stream is reset, over HTTP/1.1 the connection ends."""
        self._close()

    async def __aenter__(self) -> AsyncResponse:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
