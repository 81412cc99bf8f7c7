"""fsspec's abstract suite where it reads: files of a server of HTTP are got by fullbore's file system.

HTTP has no way to make folders and files, so the suite makes them in the folder that is served. `STOCK=1` runs it with
fsspec's own file system.
"""

from __future__ import annotations

import functools
import http.server
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import fullbore.fsspec
import pytest
from fsspec.implementations.http import HTTPFileSystem as Stock
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests

_Kind: Any = Stock if os.environ.get("STOCK") else fullbore.fsspec.HTTPFileSystem


class _Files(_Kind):  # type: ignore[misc]
    """Reads over HTTP, and writes into the folder that is served."""

    folder: pathlib.Path

    def _place(self, url: str) -> str:
        return str(self.folder) + urlsplit(url).path

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        os.makedirs(self._place(path), exist_ok=exist_ok)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        self.pipe_file(path, b"")

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        place = pathlib.Path(self._place(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(value)

    def pipe(self, path: str, value: bytes, **_: Any) -> None:
        self.pipe_file(path, value)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        LocalFileSystem().rm(self._place(path), recursive=recursive)


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, pathlib.Path]]:
    folder = tmp_path_factory.mktemp("served")
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()
        thread.join()


class TestGet(AbstractFixtures, AbstractGetTests):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, served: tuple[str, pathlib.Path]) -> Any:
        files = _Files(skip_instance_cache=True)
        files.folder = served[1]
        return files

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(part.rstrip("/") for part in parts)

    @pytest.fixture
    def fs_path(self, served: tuple[str, pathlib.Path]) -> str:
        return served[0]

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False
