"""What both clients have: their settings, and the native client of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from . import _checks, _errors, _process, _settings
from ._native import Client as Native
from ._request import Prepared
from ._timeout import Timeout

C = TypeVar("C", bound="Core")

#: Clients that were unpickled, by their type and settings: those of one process are one.
_shared: WeakValueDictionary[tuple[type, str], Any] = WeakValueDictionary()
_sharing = threading.Lock()


def _after_fork() -> None:
    # A thread of the parent may have held it.
    global _sharing
    _sharing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _unpickled(kind: type[C], given: dict[str, Any]) -> C:
    key = (kind, repr(sorted(given.items())))
    with _sharing:
        client = _shared.get(key)
        if client is None or client.is_closed:
            client = _shared[key] = kind(**given)
        return client


class Core:
    """The settings of a client, and the native one that is made of them when it is needed."""

    def __init__(
        self,
        *,
        timeout: Timeout | float | None = None,
        headers: _checks.FieldTypes | None = None,
        http1: bool = True,
        http2: bool = True,
        http2_prior_knowledge: bool = False,
        verify: bool | str | bytes | os.PathLike[str] = True,
        cert: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        proxy: bool | str = True,
        max_connections: int = 8,
        max_redirects: int = 10,
        decompression: bool = True,
        cookies: bool = False,
        memory: int = 512 << 20,
        idle_timeout: float = 30.0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in _settings.NAMES}
        self._given = given
        self._settings = _settings.checked(**given)
        self._timeout: Timeout = self._settings["timeout"]
        #: The connection has the limit of the client: most requests then have none of their own.
        self._default_limits = replace(self._timeout, connect=None)._native()
        self._native: Native | None = None
        self._generation = -1
        self._making = threading.Lock()
        self._is_closed = False
        # What is wrong with certificates or proxies is said now.
        self._client()

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""
        return self._is_closed

    @property
    def timeout(self) -> Timeout:
        """The limits on time of requests that have none of their own."""
        return self._timeout

    def _client(self) -> Native:
        """The native client. After a fork it is another one, with connections of its own."""
        if self._native is not None and self._generation == _process.generation:
            return self._native
        if self._is_closed:
            raise _errors.Closed("the client is closed")
        if self._generation != _process.generation:
            # A thread of the parent may have held it.
            self._making = threading.Lock()
        with self._making:
            if self._native is None or self._generation != _process.generation:
                runtime = _process.runtime()
                try:
                    self._native = Native(runtime, _settings.native(self._settings))
                except ValueError as error:
                    raise _errors.ConfigError(str(error)) from None
                self._generation = _process.generation
            return self._native

    def _limits(self, request: Prepared) -> Any:
        return self._limits_of(request.timeout)

    def _limits_of(self, timeout: Timeout | None) -> Any:
        if timeout is None:
            return self._default_limits
        if timeout.connect == self._timeout.connect:
            timeout = replace(timeout, connect=None)
        return timeout._native()

    def connections(self, url: str) -> int:
        """The number of connections to the origin of a URL that take requests."""
        return self._client().connections(_checks.url(url))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._given)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<fullbore.{type(self).__name__}, {state}>"


def many_items(items: Iterable[Any]) -> list[tuple[str, tuple[int, int] | None]]:
    """URLs, or a URL with the first byte and the one behind the last."""
    if isinstance(items, (str, bytes, Mapping)):
        raise _checks.wrong_type("urls", "an iterable of URLs, or of (url, start, end)", items)
    return [_item(item) for item in items]


def _item(item: object) -> tuple[str, tuple[int, int] | None]:
    if not isinstance(item, tuple):
        return _checks.url(item, "urls: an item"), None
    if len(item) != 3:
        raise TypeError(f"urls: an item must be a URL or (url, start, end), not {item!r}")
    url, start, end = item
    start = _checks.whole("urls: start", start, 0, 2**63)
    return _checks.url(url, "urls: an item"), (start, _checks.whole("urls: end", end, start + 1, 2**63))
