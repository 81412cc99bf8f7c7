"""The settings of a client, checked."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

from . import _checks
from ._timeout import Timeout

#: What each client may hold of what it has received, in bytes.
_MEMORY = 512 << 20


def checked(
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
    memory: int = _MEMORY,
    idle_timeout: float = 30.0,
) -> dict[str, Any]:
    """The settings, as the native client takes them, but for ``timeout``."""
    if not _checks.flag("http1", http1) | _checks.flag("http2", http2):
        raise ValueError("http1 and http2 are both False; a client speaks one of them")
    if not isinstance(proxy, (bool, str)):
        raise _checks.wrong_type("proxy", "a URL, True for those of the environment, or False", proxy)
    idle = _checks.limit("idle_timeout", idle_timeout)
    if not idle:
        raise ValueError(f"idle_timeout is {idle_timeout}; use more than 0")
    connect = Timeout.of(timeout).connect
    return {
        "timeout": Timeout.of(timeout),
        "headers": _checks.fields(headers),
        "connect_timeout": float("inf") if connect is None else connect,
        "http1": http1,
        "http2": http2,
        "http2_prior_knowledge": _checks.flag("http2_prior_knowledge", http2_prior_knowledge),
        "verify": _trusted(verify),
        "cert": _certificate(cert),
        "proxy": proxy,
        "max_connections": _checks.whole("max_connections", max_connections, 1, 2**32 - 1),
        "max_redirects": _checks.whole("max_redirects", max_redirects, 0, 2**32 - 1),
        "decompression": _checks.flag("decompression", decompression),
        "cookies": _checks.flag("cookies", cookies),
        "memory": _checks.whole("memory", memory, 1, 2**63 - 1),
        "idle_timeout": idle,
    }


#: The names of all settings.
NAMES = frozenset(checked.__kwdefaults__ or ())


def _trusted(verify: object) -> bool | bytes:
    """True for the platform's certificates, False for any, or those of a PEM text or file."""
    if isinstance(verify, (bool, bytes)):
        return verify
    if isinstance(verify, ssl.SSLContext):
        raise TypeError(
            "verify must be a bool, a path or PEM, not SSLContext: fullbore has a TLS of its own. Give the file of the certificates"
        )
    if isinstance(verify, (str, os.PathLike)):
        return _file("verify", verify)
    raise _checks.wrong_type("verify", "a bool, the path of a PEM file, or PEM as bytes", verify)


def _certificate(cert: object) -> tuple[bytes, bytes] | None:
    if cert is None:
        return None
    if isinstance(cert, (str, os.PathLike)):
        both = _file("cert", cert)
        return both, both
    if not isinstance(cert, tuple) or len(cert) != 2:
        raise _checks.wrong_type("cert", "a path, or a pair of the paths of a certificate and its key", cert)
    return _file("cert", cert[0]), _file("cert", cert[1])


def _file(name: str, path: object) -> bytes:
    if not isinstance(path, (str, os.PathLike)):
        raise _checks.wrong_type(name, "a path", path)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"{name}: {error}") from error


def native(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only Python knows."""
    return {name: value for name, value in settings.items() if name != "timeout"}
