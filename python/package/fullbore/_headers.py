"""Header fields of a response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Headers(Mapping[str, str]):
    """Header fields. Names are compared without case. A name that occurs several times has its values joined by commas;
    :meth:`get_list` and :attr:`raw` have them one by one.
    """

    __slots__ = ("raw", "_by_name")

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        #: The fields as they came, in pairs.
        self.raw = raw
        self._by_name: dict[str, list[str]] | None = None

    def _values(self) -> dict[str, list[str]]:
        if self._by_name is None:
            by_name: dict[str, list[str]] = {}
            for name, value in self.raw:
                by_name.setdefault(name.decode("ascii", "replace").lower(), []).append(_text(value))
            self._by_name = by_name
        return self._by_name

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values()[name.lower()])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values()

    def get_list(self, name: str) -> list[str]:
        """All values of a name."""
        return list(self._values().get(name.lower(), ()))

    def multi_items(self) -> list[tuple[str, str]]:
        """Each field of its own."""
        return [(name, value) for name, values in self._values().items() for value in values]

    def __repr__(self) -> str:
        return f"Headers({self.multi_items()!r})"


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
