"""The results of many requests."""

from __future__ import annotations

from typing import Any

from . import _errors


def results(brought: Any, kind: Any) -> list[Any]:
    """Heads, fields and bodies as responses; failures as exceptions. They take the place of what was brought."""
    results: list[Any] = brought
    for place, item in enumerate(results):
        if item is None:
            raise MemoryError("there was no memory for a response")
        results[place] = kind(item[0], None, None, *item[1:]) if len(item) == 3 else _errors.of_native(item)
    return results
