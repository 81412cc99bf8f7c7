"""A plugin of pytest: the clients of httpx's own tests have fullbore's transport where they would have httpx's."""

from __future__ import annotations

import ssl
from typing import Any

import fullbore.httpx
import httpx


def _settings(verify: Any, cert: Any, trust_env: bool, limits: Any, http2: bool) -> dict[str, Any]:
    return {
        "verify": True if isinstance(verify, ssl.SSLContext) else verify,
        "cert": cert,
        "proxy": trust_env,
        "max_connections": limits.max_connections or 100,
        "http2": http2,
    }


def _under(kind: Any, transport: Any) -> None:
    def init_transport(
        self: Any,
        verify: Any = True,
        cert: Any = None,
        trust_env: bool = True,
        http1: bool = True,
        http2: bool = False,
        limits: Any = None,
        transport: Any = None,
    ) -> Any:
        if transport is not None:
            return transport
        return ours(**_settings(verify, cert, trust_env, limits, http2))

    ours = transport
    kind._init_transport = init_transport


_under(httpx.Client, fullbore.httpx.Transport)
_under(httpx.AsyncClient, fullbore.httpx.AsyncTransport)
