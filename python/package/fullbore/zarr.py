"""A store for zarr: ``zarr.open_group(fullbore.zarr.Store("https://example.com/data.zarr"))``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as _Base
from zarr.core.buffer import Buffer, BufferPrototype

from . import _checks, _errors
from ._async_client import AsyncClient
from ._response import AsyncResponse

__all__ = ["Store"]

#: Statuses that say that there is no such key. Object stores answer 403 for a key of a folder that may not be listed.
_MISSING = (403, 404, 410)


class Store(_Base):
    """Reads the arrays and groups below a URL. HTTP has no lists of keys: consolidated metadata, or names that are known.

    The settings are those of :class:`fullbore.AsyncClient`. zarr asks for 10 chunks at a time unless
    ``zarr.config.set({"async.concurrency": 1000})``.
    """

    def __init__(self, url: str, *, read_only: bool = True, **settings: Any) -> None:
        if not read_only:
            raise ValueError("read_only is False; a store over HTTP is read-only")
        super().__init__(read_only=True)
        self.url = _checks.text("url", url).rstrip("/")
        self._settings = settings
        self._client = AsyncClient(**settings)

    @property
    def supports_writes(self) -> bool:
        return False

    @property
    def supports_deletes(self) -> bool:
        return False

    @property
    def supports_listing(self) -> bool:
        return False

    def with_read_only(self, read_only: bool = False) -> Store:
        if not read_only:
            raise ValueError("a store over HTTP is read-only")
        return Store(self.url, **self._settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and (other.url, other._settings) == (self.url, self._settings)

    def __hash__(self) -> int:
        return hash(self.url)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"fullbore.zarr.Store({self.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        # Copies of a client are one in each process.
        return {"url": self.url, "settings": self._settings, "client": self._client}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__init__(read_only=True)
        self.url, self._settings, self._client = state["url"], state["settings"], state["client"]

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if prototype is None:
            from zarr.core.buffer import default_buffer_prototype

            prototype = default_buffer_prototype()
        headers = {} if byte_range is None else {"range": _range(byte_range)}
        response = await self._client.get(f"{self.url}/{key}", headers=headers)
        if response.status in _MISSING:
            return None
        if response.status == 416:
            return prototype.buffer.from_bytes(b"")
        content = response.raise_for_status().content
        if byte_range is not None and response.status != 206:
            content = _cut(content, byte_range)
        return prototype.buffer.from_bytes(content)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """All in one call, but for ranges that are counted from the end."""
        wanted = list(key_ranges)
        found: list[Buffer | None] = [None] * len(wanted)
        places: list[int] = []
        urls: list[Any] = []
        for place, (key, byte_range) in enumerate(wanted):
            if byte_range is None:
                urls.append(f"{self.url}/{key}")
            elif isinstance(byte_range, RangeByteRequest) and byte_range.start < byte_range.end:
                urls.append((f"{self.url}/{key}", byte_range.start, byte_range.end))
            else:
                found[place] = await self.get(key, prototype, byte_range)
                continue
            places.append(place)
        for place, one in zip(places, await self._client.get_many(urls, errors="return"), strict=True):
            if isinstance(one, AsyncResponse):
                found[place] = prototype.buffer.from_bytes(one.content)
            elif isinstance(one, _errors.StatusError) and one.status == 416:
                found[place] = prototype.buffer.from_bytes(b"")
            elif not isinstance(one, _errors.StatusError) or one.status not in _MISSING:
                raise one
        return found

    async def exists(self, key: str) -> bool:
        response = await self._client.head(f"{self.url}/{key}")
        if response.status in _MISSING:
            return False
        response.raise_for_status()
        return True

    async def getsize(self, key: str) -> int:
        response = await self._client.head(f"{self.url}/{key}", headers={"accept-encoding": "identity"})
        if response.status in _MISSING:
            raise FileNotFoundError(key)
        response.raise_for_status()
        return int(response.headers["content-length"])

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()

    def list(self) -> AsyncIterator[str]:
        raise NotImplementedError("HTTP has no lists of keys")

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError("HTTP has no lists of keys")

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        raise NotImplementedError("HTTP has no lists of keys")


def _range(wanted: ByteRequest) -> str:
    if isinstance(wanted, RangeByteRequest):
        return f"bytes={wanted.start}-{wanted.end - 1}"
    if isinstance(wanted, OffsetByteRequest):
        return f"bytes={wanted.offset}-"
    if isinstance(wanted, SuffixByteRequest):
        return f"bytes=-{wanted.suffix}"
    raise ValueError(f"Unexpected byte_range, got {wanted}.")


def _cut(content: bytes, wanted: ByteRequest) -> bytes:
    """A range of the whole, from a server that has no ranges."""
    if isinstance(wanted, RangeByteRequest):
        return content[wanted.start : wanted.end]
    if isinstance(wanted, OffsetByteRequest):
        return content[wanted.offset :]
    return content[max(len(content) - wanted.suffix, 0) :]
