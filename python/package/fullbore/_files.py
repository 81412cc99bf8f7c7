"""Files as bodies of requests."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import Any

from . import _checks

#: What is read of a file at a time.
_BLOCK = 256 << 10


def binary(name: str, file: Any) -> Any:
    """The file, which must not be one of text."""
    if isinstance(file, io.TextIOBase):
        raise _checks.wrong_type(name, "a file that is open in binary mode", file)
    return file


def size(file: Any) -> int | None:
    """What is left of a regular file."""
    try:
        status = os.fstat(file.fileno())
        return max(status.st_size - int(file.tell()), 0) if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def blocks(file: Any) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block
