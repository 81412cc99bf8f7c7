"""Checks of arguments. What is wrong is a ``TypeError`` or a ``ValueError`` with the name of the argument."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import SupportsIndex, TypeAlias

FieldTypes: TypeAlias = (
    Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[str, str]] | Iterable[tuple[bytes, bytes]]
)


def wrong_type(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {expected}, not {type(value).__name__}")


def limit(name: str, value: object) -> float | None:
    """A number of seconds, or ``None``."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, "a number of seconds or None", value)
    if math.isnan(value) or value < 0:
        raise ValueError(f"{name} is {value}; use 0 or more, or None")
    return float(value)


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """An ``int``, or what stands for one, as the integers of numpy do."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise wrong_type(name, "an int", value)
    number = operator.index(value)
    if number < least or (most is not None and number > most):
        range_ = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} is {number}; use {range_}")
    return number


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(name, "a bool", value)
    return value


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong_type(name, "a str", value)
    return value


def url(value: object, name: str = "url") -> str:
    """A URL as text: a ``str``, or an object of another library whose ``str`` it is."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bytes, bytearray, int, float, list, tuple, dict, set, os.PathLike)):
        raise wrong_type(name, "a str", value)
    return str(value)


def fields(value: FieldTypes | None, name: str = "headers") -> list[tuple[bytes, bytes]]:
    """Header fields as pairs of bytes."""
    if value is None:
        return []
    if isinstance(value, (str, bytes)):
        raise wrong_type(name, "a mapping or pairs", value)
    pairs: Iterable[object] = value.items() if isinstance(value, Mapping) else value
    try:
        iterator = iter(pairs)
    except TypeError:
        raise wrong_type(name, "a mapping or pairs", value) from None
    return [_field(name, pair) for pair in iterator]


def _field(name: str, pair: object) -> tuple[bytes, bytes]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{name} must have pairs of a name and a value, not {pair!r}")
    return _octets(name, pair[0], "ascii"), _octets(name, pair[1], "utf-8")


def _octets(name: str, value: object, coding: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise wrong_type(f"{name}: a name or value", "a str or bytes", value)
    try:
        return value.encode(coding)
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {value!r} has a letter that cannot be sent") from None
