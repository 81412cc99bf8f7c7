"""zarr's `StoreTests` for fullbore's store. What is not read goes into the folder that `fullbore serve` serves.

`STOCK=1` runs them with zarr's `FsspecStore` over fsspec's own file system of HTTP.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import fsspec
import fullbore.zarr
import pytest
from zarr.core.buffer import Buffer, cpu
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests"))
import servers  # type: ignore[import-not-found]  # noqa: E402

_IS_STOCK = bool(os.environ.get("STOCK"))
_FOLDERS: dict[str, pathlib.Path] = {}


def _place(store: Any, key: str) -> pathlib.Path:
    base = store.fs_base if _IS_STOCK else store.url
    url = urlsplit(str(base))
    return _FOLDERS[url.netloc] / url.path.lstrip("/") / key


class _Writes:
    """The writes of the tests, which are no subject of theirs here."""

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()  # type: ignore[attr-defined]
        place = _place(self, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(value.to_bytes())

    async def delete(self, key: str) -> None:
        self._check_writable()  # type: ignore[attr-defined]
        _place(self, key).unlink(missing_ok=True)


class OverFullbore(_Writes, fullbore.zarr.Store):
    def __init__(self, url: str, read_only: bool = False) -> None:
        super().__init__(url)
        self._read_only = read_only

    def with_read_only(self, read_only: bool = False) -> OverFullbore:
        return OverFullbore(self.url, read_only)

    def __reduce__(self) -> Any:
        return OverFullbore, (self.url, self._read_only)


class OverFsspec(_Writes, FsspecStore):  # type: ignore[misc]
    def __init__(self, url: str, read_only: bool = False) -> None:
        files = fsspec.filesystem("http", asynchronous=True, skip_instance_cache=True)
        super().__init__(files, path=url, read_only=read_only)
        self.fs_base = url

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OverFsspec) and other.fs_base == self.fs_base

    def with_read_only(self, read_only: bool = False) -> OverFsspec:
        return OverFsspec(self.fs_base, read_only)

    def __reduce__(self) -> Any:
        return OverFsspec, (self.fs_base, self.read_only)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Http2]:
    folder = tmp_path_factory.mktemp("served")
    with servers.http2(folder, tmp_path_factory.mktemp("state"), tls=False) as server:
        _FOLDERS[urlsplit(server.url).netloc] = folder
        yield server


class TestStore(StoreTests[Any, cpu.Buffer]):
    store_cls = OverFsspec if _IS_STOCK else OverFullbore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, served: servers.Http2) -> Iterator[dict[str, Any]]:
        root = served.folder / "data.zarr"
        root.mkdir()
        yield {"url": f"{served.url.rstrip('/')}/data.zarr"}
        shutil.rmtree(root)

    async def set(self, store: Any, key: str, value: Buffer) -> None:
        place = _place(store, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(value.to_bytes())

    async def get(self, store: Any, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(_place(store, key).read_bytes())

    def test_store_repr(self, store: Any) -> None:
        assert store.fs_base if _IS_STOCK else store.url in repr(store)

    def test_store_supports_writes(self, store: Any) -> None:
        assert _IS_STOCK or not store.supports_writes

    def test_store_supports_listing(self, store: Any) -> None:
        assert _IS_STOCK or not store.supports_listing
