"""The results of many requests."""

from __future__ import annotations

from typing import Any

from . import _errors


def results(brought: Any, kind: Any) -> list[Any]:
    """Heads and bodies as responses; errors as they are."""
    return [item if isinstance(item, _errors.Error) else kind(item[0], None, None, item[1]) for item in brought]
