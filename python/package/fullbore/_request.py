"""Requests, from the arguments that people give."""

from __future__ import annotations

import base64
import io
import json as json_
import os
import stat
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import urlencode

from . import _checks
from ._timeout import Timeout


Content: TypeAlias = "str | bytes | bytearray | memoryview | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]"
QueryTypes: TypeAlias = "Mapping[str, Any] | Iterable[tuple[str, Any]]"

#: What is read of a file at a time.
_BLOCK = 256 << 10


class Prepared:
    """A request that can be sent."""

    __slots__ = ("method", "url", "headers", "body", "pieces", "timeout")

    def __init__(self, method: str, url: str, headers: list[tuple[bytes, bytes]]) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        #: The whole body.
        self.body: bytes | None = None
        #: Or what is fed piece by piece.
        self.pieces: Iterable[bytes] | AsyncIterable[bytes] | None = None
        self.timeout: Timeout | None = None


def prepare(
    method: object,
    url: object,
    *,
    params: QueryTypes | None = None,
    headers: _checks.FieldTypes | None = None,
    content: Content | None = None,
    data: QueryTypes | None = None,
    json: object = None,
    auth: tuple[str, str] | None = None,
    timeout: Timeout | float | None = None,
) -> Prepared:
    target = _checks.url(url)
    if params is not None:
        target = with_query(target, params)
    request = Prepared(_checks.text("method", method).upper(), target, _checks.fields(headers))
    if sum(given is not None for given in (content, data, json)) > 1:
        raise TypeError("content, data and json exclude each other: give one of them")
    if content is not None:
        _set_content(request, content)
    elif data is not None:
        request.body = _query("data", data).encode()
        _add(request.headers, b"content-type", b"application/x-www-form-urlencoded")
    elif json is not None:
        request.body = json_.dumps(json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        _add(request.headers, b"content-type", b"application/json")
    if auth is not None:
        _add(request.headers, b"authorization", basic(auth))
    if timeout is not None:
        request.timeout = Timeout.of(timeout)
    return request


def basic(auth: object) -> bytes:
    if not isinstance(auth, tuple) or len(auth) != 2 or not all(isinstance(part, str) for part in auth):
        raise _checks.wrong_type("auth", "a pair of strings", auth)
    name, password = auth
    if ":" in name:
        raise ValueError("auth: a name of Basic authorization has no colon (RFC 7617)")
    return b"Basic " + base64.b64encode(f"{name}:{password}".encode())


def with_query(url: str, params: QueryTypes) -> str:
    added = _query("params", params)
    if not added:
        return url
    rest, hash_, fragment = url.partition("#")
    joint = "" if rest.endswith(("?", "&")) else "&" if "?" in rest else "?"
    return f"{rest}{joint}{added}{hash_}{fragment}"


def _query(name: str, value: QueryTypes) -> str:
    if isinstance(value, (str, bytes)) or not isinstance(value, (Mapping, Iterable)):
        raise _checks.wrong_type(name, "a mapping or pairs", value)
    try:
        pairs: Any = value.items() if isinstance(value, Mapping) else value
        return urlencode(list(pairs), doseq=True)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a mapping or pairs") from None


def _add(headers: list[tuple[bytes, bytes]], name: bytes, value: bytes) -> None:
    """Adds a field, unless the request has one of the name."""
    if not any(known.lower() == name for known, _ in headers):
        headers.append((name, value))


def _set_content(request: Prepared, content: object) -> None:
    if isinstance(content, bytes):
        request.body = content
    elif isinstance(content, str):
        request.body = content.encode()
    elif isinstance(content, (bytearray, memoryview)):
        # A copy: its owner may change it while it is sent.
        request.body = bytes(content)
    elif isinstance(content, io.TextIOBase):
        raise _checks.wrong_type("content", "a file that is open in binary mode", content)
    elif hasattr(content, "read"):
        size = _size(content)
        if size is not None:
            _add(request.headers, b"content-length", str(size).encode())
        request.pieces = _blocks(content)
    elif isinstance(content, (AsyncIterable, Iterable)) and not isinstance(content, Mapping):
        request.pieces = content
    else:
        try:
            request.body = bytes(memoryview(content))  # type: ignore[arg-type]
        except TypeError:
            expected = "a str, a buffer, a binary file, or an iterable of bytes"
            raise _checks.wrong_type("content", expected, content) from None


def _size(file: Any) -> int | None:
    """What is left of a regular file."""
    try:
        status = os.fstat(file.fileno())
        return max(status.st_size - int(file.tell()), 0) if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _blocks(file: Any) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def piece(value: object) -> bytes:
    """One item of an iterable body."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except TypeError:
        raise _checks.wrong_type("content: an item", "bytes", value) from None
