"""Downloads into files: their arguments, their progress, and what they return."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from . import _checks
from ._native import Progress


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file that was downloaded."""

    path: Path
    #: Its length in bytes.
    size: int
    #: The bytes of it that were there already.
    resumed: int
    #: The most connections that carried it.
    connections: int
    #: The URL behind all redirects, without its query.
    url: str

    @classmethod
    def of(cls, path: Path, brought: Any) -> Downloaded:
        return cls(path, *brought)


@dataclass(frozen=True, slots=True)
class Arguments:
    url: str
    path: Path
    headers: list[tuple[bytes, bytes]]
    checksum: tuple[str, bytes] | None
    connections: int | None
    repeats: int


def arguments(
    url: object, path: object, headers: Any, checksum: object, connections: object, repeats: object
) -> Arguments:
    if not isinstance(path, (str, os.PathLike)):
        raise _checks.wrong_type("path", "a path", path)
    return Arguments(
        _checks.url(url),
        Path(path),
        _checks.fields(headers),
        _digest(checksum),
        None if connections is None else _checks.whole("connections", connections, 1, 1 << 16),
        _checks.whole("repeats", repeats, 0, 1 << 20),
    )


def _digest(checksum: object) -> tuple[str, bytes] | None:
    if checksum is None:
        return None
    name, colon, digest = _checks.text("checksum", checksum).partition(":")
    try:
        if not colon:
            raise ValueError
        return name.lower(), bytes.fromhex(digest)
    except ValueError:
        raise ValueError(f'checksum is {checksum!r}; write it as "sha256:" and the digest in hexadecimal') from None


class Ticker:
    """Tells how far a download is: a callback, a bar, or nobody."""

    def __init__(self, progress: object, name: str) -> None:
        self.progress = Progress()
        self._bar: Any = None
        self._tell: Callable[[int, int | None], object] | None = None
        if progress is True:
            self._bar = _bar(os.path.basename(name))
            self._tell = None if self._bar is None else self._move
        elif callable(progress):
            self._tell = progress
        elif progress is not False:
            raise _checks.wrong_type("progress", "a bool or a callable", progress)

    @property
    def is_needed(self) -> bool:
        return self._tell is not None

    def tick(self) -> None:
        if self._tell is not None:
            self._tell(*self.progress.get())

    def _move(self, received: int, total: int | None) -> None:
        self._bar.total = total
        self._bar.update(received - self._bar.n)

    def __enter__(self) -> Ticker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(name: str) -> Any:
    try:
        tqdm: Any = importlib.import_module("tqdm")
    except ImportError:
        return None
    return tqdm.tqdm(desc=name, unit="B", unit_scale=True, unit_divisor=1024)
