"""Requests, from the arguments that people give."""

from __future__ import annotations

import base64
import json as json_
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import urlencode

from . import _checks, _files
from ._multipart import Form
from ._timeout import Timeout


Content: TypeAlias = "str | bytes | bytearray | memoryview | BinaryIO | Iterable[bytes] | AsyncIterable[bytes]"
QueryTypes: TypeAlias = "Mapping[str, Any] | Iterable[tuple[str, Any]]"

class Prepared:
    """A request that can be sent."""

    __slots__ = ("method", "url", "headers", "body", "pieces", "trailers", "timeout", "max_redirects")

    def __init__(self, method: str, url: str, headers: list[tuple[bytes, bytes]]) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        #: The whole body.
        self.body: bytes | None = None
        #: Or what is fed piece by piece.
        self.pieces: Iterable[bytes] | AsyncIterable[bytes] | None = None
        #: Fields behind the body.
        self.trailers: list[tuple[bytes, bytes]] | None = None
        self.timeout: Timeout | None = None
        self.max_redirects: int | None = None


def prepare(
    method: object,
    url: object,
    *,
    params: QueryTypes | None = None,
    headers: _checks.FieldTypes | None = None,
    content: Content | None = None,
    data: QueryTypes | None = None,
    json: object = None,
    files: object = None,
    trailers: _checks.FieldTypes | None = None,
    auth: tuple[str, str] | None = None,
    timeout: Timeout | float | None = None,
    max_redirects: int | None = None,
) -> Prepared:
    target = _checks.url(url)
    if params is not None:
        target = with_query(target, params)
    request = Prepared(_checks.text("method", method).upper(), target, _checks.fields(headers))
    if sum(given is not None for given in (content, data, json)) > 1:
        raise TypeError("content, data and json exclude each other: give one of them")
    if files is not None and (content is not None or json is not None):
        raise TypeError("files go with data, not with content or json")
    if files is not None:
        _set_form(request, Form(() if data is None else _items("data", data), files))
    elif content is not None:
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
    if max_redirects is not None:
        request.max_redirects = _checks.whole("max_redirects", max_redirects, 0, 2**32 - 1)
    if trailers is not None:
        _set_trailers(request, _checks.fields(trailers, "trailers"))
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


def _items(name: str, value: QueryTypes) -> list[tuple[str, Any]]:
    if isinstance(value, (str, bytes)) or not isinstance(value, (Mapping, Iterable)):
        raise _checks.wrong_type(name, "a mapping or pairs", value)
    try:
        pairs: Any = value.items() if isinstance(value, Mapping) else value
        return [(key, one) for key, one in pairs]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a mapping or pairs") from None


def _query(name: str, value: QueryTypes) -> str:
    try:
        return urlencode(_items(name, value), doseq=True)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a mapping or pairs") from None


def _add(headers: list[tuple[bytes, bytes]], name: bytes, value: bytes) -> None:
    """Adds a field, unless the request has one of the name."""
    if not any(known.lower() == name for known, _ in headers):
        headers.append((name, value))


def _set_form(request: Prepared, form: Form) -> None:
    # Always of this form: the boundary is in it.
    request.headers = [field for field in request.headers if field[0].lower() != b"content-type"]
    request.headers.append((b"content-type", form.content_type))
    size = form.size()
    if size is not None:
        _add(request.headers, b"content-length", str(size).encode())
    request.pieces = form


def _set_trailers(request: Prepared, trailers: list[tuple[bytes, bytes]]) -> None:
    request.trailers = trailers
    if request.pieces is None:
        request.pieces = () if request.body is None else (request.body,)
        request.body = None
    # In HTTP/1.1, only a body of chunks has fields behind it, and those that are announced are sent.
    request.headers = [field for field in request.headers if field[0].lower() != b"content-length"]
    if trailers:
        _add(request.headers, b"trailer", b", ".join(dict.fromkeys(name for name, _ in trailers)))


def _set_content(request: Prepared, content: object) -> None:
    if isinstance(content, bytes):
        request.body = content
    elif isinstance(content, str):
        request.body = content.encode()
    elif isinstance(content, (bytearray, memoryview)):
        # A copy: its owner may change it while it is sent.
        request.body = bytes(content)
    elif hasattr(content, "read"):
        size = _files.size(_files.binary("content", content))
        if size is not None:
            _add(request.headers, b"content-length", str(size).encode())
        request.pieces = _files.blocks(content)
    elif isinstance(content, (AsyncIterable, Iterable)) and not isinstance(content, Mapping):
        request.pieces = content
    else:
        try:
            request.body = bytes(memoryview(content))  # type: ignore[arg-type]
        except TypeError:
            expected = "a str, a buffer, a binary file, or an iterable of bytes"
            raise _checks.wrong_type("content", expected, content) from None


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
