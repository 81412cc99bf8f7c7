"""Forms with files: ``multipart/form-data`` (RFC 7578)."""

from __future__ import annotations

import mimetypes
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TypeAlias

from . import _checks, _files

FileTypes: TypeAlias = (
    "bytes | bytearray | memoryview | str | BinaryIO | tuple[str | None, Any] | tuple[str | None, Any, str | None]"
)


class Form:
    """The parts of a form, in order: the fields, then the files."""

    def __init__(self, fields: Iterable[tuple[str, Any]], files: object) -> None:
        self._boundary = secrets.token_hex(16)
        self._parts: list[tuple[bytes, Any]] = []
        for name, value in fields:
            for one in value if isinstance(value, (list, tuple)) else (value,):
                self._parts.append((self._head(name, None, None), one if isinstance(one, bytes) else str(one).encode()))
        for name, file in _pairs(files):
            file_name, content, kind = _file(file)
            self._parts.append((self._head(name, file_name, kind), _content(content)))
        self._end = f"--{self._boundary}--\r\n".encode()

    @property
    def content_type(self) -> bytes:
        return f"multipart/form-data; boundary={self._boundary}".encode()

    def size(self) -> int | None:
        """The length of the body, unless that of a file is not known."""
        whole = len(self._end)
        for head, content in self._parts:
            size = len(content) if isinstance(content, bytes) else _files.size(content)
            if size is None:
                return None
            whole += len(head) + size + 2
        return whole

    def __iter__(self) -> Iterator[bytes]:
        for head, content in self._parts:
            yield head
            if isinstance(content, bytes):
                yield content
            else:
                yield from _files.blocks(content)
            yield b"\r\n"
        yield self._end

    def _head(self, name: str, file_name: str | None, kind: str | None) -> bytes:
        line = f'content-disposition: form-data; name="{_quoted("files: a name", name)}"'
        if file_name is not None:
            line += f'; filename="{_quoted("files: the name of a file", file_name)}"'
        if kind is not None:
            if not kind.isascii() or not kind.isprintable():
                raise ValueError(f"files: {kind!r} is no media type")
            line += f"\r\ncontent-type: {kind}"
        return f"--{self._boundary}\r\n{line}\r\n\r\n".encode()


def _pairs(files: object) -> Iterable[tuple[str, Any]]:
    if isinstance(files, (str, bytes)) or not isinstance(files, (Mapping, Iterable)):
        raise _checks.wrong_type("files", "a mapping or pairs", files)
    pairs: Any = files.items() if isinstance(files, Mapping) else files
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"files must have pairs of a name and a file, not {pair!r}")
        yield pair


def _file(file: Any) -> tuple[str | None, Any, str | None]:
    """The name of a file, its content and its type. Without a type the name tells it."""
    kind: str | None = None
    if isinstance(file, tuple):
        if len(file) not in (2, 3):
            raise TypeError("files: a file must be content, (name, content) or (name, content, type)")
        name, content = file[0], file[1]
        kind = file[2] if len(file) == 3 else None
    else:
        content, name = file, getattr(file, "name", None)
        name = os.path.basename(name) if isinstance(name, str) and name else "upload"
    if name is not None and kind is None:
        kind = mimetypes.guess_type(_checks.text("files: the name of a file", name))[0] or "application/octet-stream"
    return name, content, kind if kind is None else _checks.text("files: a type", kind)


def _content(content: Any) -> Any:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if hasattr(content, "read"):
        return _files.binary("files", content)
    try:
        return bytes(memoryview(content))
    except TypeError:
        raise _checks.wrong_type("files: a file", "a str, a buffer or a binary file", content) from None


def _quoted(what: str, name: object) -> str:
    """As browsers send it (HTML, section 4.10.21.8)."""
    text = _checks.text(what, name)
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
