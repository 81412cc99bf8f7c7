"""The limits on time of a request."""

from __future__ import annotations

from dataclasses import dataclass

from ._checks import limit


@dataclass(frozen=True, slots=True)
class Timeout:
    """The limits on time of a request, in seconds. ``None`` is no limit.

    A limit takes effect late by at most an eighth of the request's shortest limit, and never by more than 0.25 s.
    """

    #: Name resolution, TCP and TLS together. At most that of the client.
    connect: float | None = 30.0
    #: From the end of the request to the head of its response.
    response: float | None = None
    #: The next bytes of the response's body.
    read: float | None = None
    #: The next bytes of the request's body.
    write: float | None = None
    #: A connection, and a stream of it, that is free.
    pool: float | None = None
    #: From the call to the end of the response's body.
    total: float | None = None

    def __post_init__(self) -> None:
        for name in ("connect", "response", "read", "write", "pool", "total"):
            limit(f"timeout.{name}", getattr(self, name))

    @classmethod
    def of(cls, value: Timeout | float | None) -> Timeout:
        """A number is the limit of each wait; ``None`` limits nothing but connecting."""
        if isinstance(value, Timeout):
            return value
        if value is None:
            return cls()
        seconds = limit("timeout", value)
        return cls(connect=seconds, response=seconds, read=seconds, write=seconds, pool=seconds)

    def _native(
        self,
    ) -> tuple[float | None, float | None, float | None, float | None, float | None, float | None] | None:
        limits = (self.connect, self.response, self.read, self.write, self.pool, self.total)
        return None if limits == (None,) * 6 else limits
