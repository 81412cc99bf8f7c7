"""Transports for httpx: ``httpx.Client(transport=fullbore.httpx.Transport())``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from ._httpx import transports

__all__ = ["AsyncTransport", "Transport"]

if TYPE_CHECKING:

    class Transport(httpx.BaseTransport):
        """Sends the requests of an ``httpx.Client``. The settings are those of :class:`fullbore.Client`."""

        def __init__(self, **settings: Any) -> None: ...

    class AsyncTransport(httpx.AsyncBaseTransport):
        """Sends the requests of an ``httpx.AsyncClient``. The settings are those of :class:`fullbore.AsyncClient`."""

        def __init__(self, **settings: Any) -> None: ...

else:
    Transport, AsyncTransport = transports(httpx)
    for _kind in (Transport, AsyncTransport):
        _kind.__module__, _kind.__qualname__ = __name__, _kind.__name__
