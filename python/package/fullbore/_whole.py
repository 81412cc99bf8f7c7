"""Collects a large body into one ``bytes``, which is in memory once."""

from __future__ import annotations

from io import BytesIO

from ._native import Reader

#: What is waited for at a time, and the most that is copied at a time.
PIECE = 256 << 10
_MOST = 1 << 20

#: The most memory that is reserved because a length announces it. No page of it is touched before its bytes have come.
_MOST_RESERVED = 1 << 30


class Whole:
    """A body that arrives.

    The memory of a known length is reserved at once, so that each byte is copied once. Neither `BytesIO(data)` nor `getvalue` copies:
    a `BytesIO` shares its `bytes`, and writes into it while nobody else has it.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        try:
            self._pieces = BytesIO(bytes(min(reader.announced() or 0, _MOST_RESERVED)))
        except MemoryError:
            self._pieces = BytesIO()
        self._view = self._pieces.getbuffer()
        self._filled = 0

    def take(self) -> int | tuple[object, ...] | None:
        """Takes bytes that have arrived, and returns how many: 0 at the end, `None` if one has to wait, or the failure."""
        if self._filled < len(self._view):
            taken = self._reader.poll_into(self._view, self._filled, PIECE, _MOST)
            if isinstance(taken, int):
                self._filled += taken
            return taken
        # The length was not known, or is more than what was reserved.
        data = self._reader.poll(PIECE, _MOST)
        if not isinstance(data, bytes):
            return data
        if data:
            self._view.release()
            self._pieces.seek(self._filled)
            self._filled += self._pieces.write(data)
            self._view = memoryview(b"")
        return len(data)

    def content(self) -> bytes:
        """What was taken."""
        self._view.release()
        self._pieces.truncate(self._filled)
        return self._pieces.getvalue()
