"""Transports for httpx2: ``httpx2.Client(transport=fullbore.httpx2.Transport())``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

from ._httpx import transports

__all__ = ["AsyncTransport", "Transport"]

if TYPE_CHECKING:

    class Transport(httpx2.BaseTransport):
        """Sends the requests of an ``httpx2.Client``. The settings are those of :class:`fullbore.Client`."""

        def __init__(self, **settings: Any) -> None: ...

    class AsyncTransport(httpx2.AsyncBaseTransport):
        """Sends the requests of an ``httpx2.AsyncClient``. The settings are those of :class:`fullbore.AsyncClient`."""

        def __init__(self, **settings: Any) -> None: ...

else:
    Transport, AsyncTransport = transports(httpx2)
    for _kind in (Transport, AsyncTransport):
        _kind.__module__, _kind.__qualname__ = __name__, _kind.__name__
