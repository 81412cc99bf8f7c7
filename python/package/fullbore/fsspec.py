"""A file system for fsspec. ``fsspec.filesystem("https")`` is it after :func:`register`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Any

from . import _errors
from ._async_client import AsyncClient
from ._request import prepare, with_query
from ._response import AsyncResponse
from ._timeout import Timeout

try:
    import aiohttp
    from fsspec import register_implementation
    from fsspec.implementations.http import HTTPFileSystem as _Theirs
except ImportError as error:  # pragma: no cover
    raise ImportError('fullbore.fsspec needs fsspec with its HTTP: pip install "fsspec[http]"') from error

__all__ = ["HTTPFileSystem", "register"]

#: The requests of one call that are in progress at a time.
_AT_ONCE = 10_000
#: What a ``batch_size`` of -1, no limit, is for a client.
_ALL_AT_ONCE = 1 << 20


def register() -> None:
    """Makes :class:`HTTPFileSystem` that of ``http`` and ``https`` in this process."""
    for protocol in ("http", "https"):
        register_implementation(protocol, HTTPFileSystem, clobber=True)


class HTTPFileSystem(_Theirs):  # type: ignore[misc]
    """fsspec's file system of HTTP, over fullbore. Many files, and many ranges, are one call.

    ``client_kwargs`` are the settings of :class:`fullbore.AsyncClient`; ``headers`` those of each request.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("get_client", _session)
        super().__init__(*args, **options)

    async def _cat(self, path: Any, recursive: bool = False, on_error: str = "raise", batch_size: Any = None, **options: Any) -> Any:
        paths = await self._expand_path(path, recursive=recursive)
        start, end = options.pop("start", None), options.pop("end", None)
        found = await self._many([(url, start, end) for url in paths], on_error == "raise", options, batch_size)
        if len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path):
            return {url: one for url, one in zip(paths, found, strict=True) if on_error != "omit" or not isinstance(one, Exception)}
        if isinstance(found[0], Exception) and on_error == "omit":
            return {}
        return found[0]

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: Any = None,
        batch_size: Any = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        if not isinstance(paths, list):
            raise TypeError(f"paths must be a list, not {type(paths).__name__}")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError(f"starts and ends must be numbers, or as long as paths: {len(paths)}")
        return await self._many(list(zip(paths, starts, ends, strict=True)), on_error == "raise", options, batch_size)

    async def _many(self, items: list[tuple[str, Any, Any]], raises: bool, options: dict[str, Any], at_once: Any) -> list[Any]:
        """The bytes, or the exceptions, of URLs and their ranges, in order."""
        at_once = _ALL_AT_ONCE if at_once == -1 else at_once or _AT_ONCE
        session: _Session = await self.set_session()
        given = _Options({**self.kwargs, **options})
        wanted: list[Any] = []
        places: list[int] = []
        found: list[Any] = [b""] * len(items)
        for place, (url, start, end) in enumerate(items):
            url = with_query(_text(self.encode_url(url)), given.params)
            if start is None and end is None:
                wanted.append(url)
            elif start == end:
                continue
            elif (start or 0) >= 0 and end is not None and end > (start or 0):
                wanted.append((url, start or 0, end))
            else:
                # Counted from the end, whose place is asked for.
                found[place] = await self._one(items[place], raises, options)
                continue
            places.append(place)
        came = await session.client._get_many(
            wanted,
            headers=given.headers,
            timeout=given.timeout,
            max_redirects=given.max_redirects,
            at_once=at_once,
            is_lenient=True,
        )
        for place, one in zip(places, came, strict=True):
            found[place] = one.content if isinstance(one, AsyncResponse) else _exception(one, items[place][0])
            if raises and isinstance(found[place], Exception):
                raise found[place]
        return found

    async def _one(self, item: tuple[str, Any, Any], raises: bool, options: dict[str, Any]) -> Any:
        url, start, end = item
        try:
            return await self._cat_file(url, start, end, **options)
        except Exception as error:
            if raises:
                raise
            return error


async def _session(loop: Any = None, **settings: Any) -> _Session:
    """A client of these settings, and of those of aiohttp that have another name or form here."""
    auth, timeout = settings.pop("auth", None), settings.get("timeout")
    if auth is not None:
        settings["headers"] = {**(settings.get("headers") or {}), "Authorization": auth.encode()}
    if isinstance(timeout, aiohttp.ClientTimeout):
        connect = timeout.connect or timeout.sock_connect
        settings["timeout"] = Timeout(connect=connect, read=timeout.sock_read, total=timeout.total)
    if "trust_env" in settings:
        settings["proxy"] = bool(settings.pop("trust_env"))
    return _Session(AsyncClient(**settings))


class _Options:
    """What the options of a request of aiohttp say. One that could not be followed is a ``TypeError``."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.headers = {str(name): str(value) for name, value in (options.pop("headers", None) or {}).items()}
        auth = options.pop("auth", None)
        if auth is not None:
            self.headers["Authorization"] = auth.encode()
        timeout = options.pop("timeout", None)
        total = getattr(timeout, "total", timeout)
        self.timeout = None if total is None else Timeout(total=total)
        self.params = options.pop("params", None) or {}
        follows = options.pop("allow_redirects", True)
        self.max_redirects = options.pop("max_redirects", None) if follows else 0
        self.body = {"content": options.pop("data", None), "json": options.pop("json", None)}
        for name, value in options.items():
            if name not in _WITHOUT_EFFECT and (name, value) not in _AS_IT_IS:
                text = "fullbore.fsspec has no such option of a request; client_kwargs has the settings of a client"
                raise TypeError(f"{name}: {text}")


#: Options of aiohttp that change nothing of what is returned.
_WITHOUT_EFFECT = frozenset({"read_bufsize", "skip_auto_headers", "trace_request_ctx"})
#: And those that say what is so without them.
_AS_IT_IS = (("ssl", True), ("ssl", None), ("proxy", None), ("raise_for_status", None))


def _text(url: Any) -> str:
    """A URL that can be sent."""
    text = str(url)
    if not text.isascii() or " " in text:
        raise aiohttp.InvalidURL(text, "it has characters that have to be encoded")
    return text


def _exception(error: _errors.Error, url: str) -> Exception:
    """What fsspec's own file system would raise."""
    if isinstance(error, _errors.StatusError):
        return FileNotFoundError(url) if error.status == 404 else _status_error(error.status or 0, str(error), url)
    if isinstance(error, _errors.InvalidURL):
        return aiohttp.InvalidURL(url, str(error))
    if isinstance(error, _errors.TimeoutError):
        return aiohttp.ServerTimeoutError(str(error))
    if isinstance(error, _errors.ConnectError):
        return aiohttp.ClientConnectionError(str(error))
    if isinstance(error, (_errors.ConnectionLost, _errors.BodyError, _errors.StreamReset)):
        return aiohttp.ClientPayloadError(str(error))
    return aiohttp.ClientError(str(error))


def _status_error(status: int, text: str, url: str) -> Exception:
    from multidict import CIMultiDict, CIMultiDictProxy
    from yarl import URL

    fields: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
    request = aiohttp.RequestInfo(URL(url), "GET", fields, URL(url))
    return aiohttp.ClientResponseError(request, (), status=status, message=text)


class _Session:
    """What fsspec uses of an ``aiohttp.ClientSession``."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.closed = False

    def get(self, url: Any, **options: Any) -> _Sent:
        return _Sent(self, "GET", url, options)

    def head(self, url: Any, **options: Any) -> _Sent:
        return _Sent(self, "HEAD", url, options)

    def post(self, url: Any, **options: Any) -> _Sent:
        return _Sent(self, "POST", url, options)

    def put(self, url: Any, **options: Any) -> _Sent:
        return _Sent(self, "PUT", url, options)

    async def close(self) -> None:
        self.closed = True
        await self.client.aclose()


class _Sent:
    """A request that is sent when it is awaited, or entered."""

    def __init__(self, session: _Session, method: str, url: Any, options: dict[str, Any]) -> None:
        self._session, self._method, self._url, self._options = session, method, url, options
        self._response: _Answer | None = None

    async def _send(self) -> _Answer:
        given = _Options(dict(self._options))
        url = _text(self._url)
        try:
            request = prepare(
                self._method,
                url,
                params=given.params,
                headers=given.headers,
                timeout=given.timeout,
                max_redirects=given.max_redirects,
                **given.body,
            )
            return _Answer(await self._session.client._send(request, reads_body=False), url)
        except _errors.Error as error:
            raise _exception(error, url) from error

    def __await__(self) -> Generator[Any, None, _Answer]:
        return self._send().__await__()

    async def __aenter__(self) -> _Answer:
        self._response = await self._send()
        return self._response

    async def __aexit__(self, *_: object) -> None:
        if self._response is not None:
            await self._response.__aexit__()


class _Answer:
    """What fsspec uses of an ``aiohttp.ClientResponse``."""

    def __init__(self, response: AsyncResponse, url: str) -> None:
        self._response = response
        self._asked = url
        self.status = response.status
        self.content = self

    @property
    def headers(self) -> Any:
        from multidict import CIMultiDict

        return CIMultiDict(self._response.headers.multi_items())

    @property
    def url(self) -> Any:
        from yarl import URL

        return URL(self._response.url, encoded=True)

    def raise_for_status(self) -> None:
        if self.status >= 400:
            raise _status_error(self.status, f"the server answered with {self.status}", self._asked)

    async def read(self, size: int = -1) -> bytes:
        """The rest, or as much as there is of it up to a size."""
        try:
            if size < 0:
                return await self._response.read()
            return await self._response._next(1, size) if size else b""
        except _errors.Error as error:
            raise _exception(error, self._asked) from error

    async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        return (await self.read()).decode(encoding or self._response.charset or "utf-8", errors)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        while piece := await self.read(size):
            yield piece

    def close(self) -> None:
        self._response._close()

    async def __aenter__(self) -> _Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._response._close()
        await asyncio.sleep(0)
