"""How a thread waits for what it has started.

Each thread has a queue of completions and waits for its socket in ``select``: signals interrupt that as any other wait of Python,
and no thread of the runtime needs the interpreter.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import _errors, _process
from ._native import Call, Queue


class _Local(threading.local):
    def __init__(self) -> None:
        self.queue: Queue | None = None
        self.generation = -1
        #: What has completed of the calls that are kept.
        self.kept: dict[int, tuple[object, object] | None] = {}


_local = _Local()


def queue() -> Queue:
    """The queue of this thread."""
    if _local.queue is None or _local.generation != _process.generation:
        _local.queue, _local.generation = Queue(), _process.generation
    return _local.queue


def wait(call: Call, tick: Callable[[], None] | None = None, every: float = 0.1) -> object:
    """Waits for a call on this thread's queue, and returns what it brought. ``tick`` is called in between."""
    own, wanted = queue(), call.id
    early = _local.kept.get(wanted)
    if early is not None:
        return _outcome(*early)
    try:
        while True:
            found = None
            for done, value, failure in own.drain():
                if done == wanted:
                    found = value, failure
                elif done in _local.kept:
                    _local.kept[done] = value, failure
                # What else is in the queue was given up.
            if found is not None:
                return _outcome(*found)
            _readable(own, None if tick is None else every)
            if tick is not None:
                tick()
    except BaseException:
        call.cancel()
        raise


def _outcome(value: object, failure: object) -> object:
    if failure is not None:
        raise _errors.of_native(failure)
    return value


@contextmanager
def kept(call: Call) -> Iterator[None]:
    """Keeps the result of a call while its thread waits for others."""
    _local.kept[call.id] = None
    try:
        yield
    finally:
        del _local.kept[call.id]


if hasattr(select, "poll"):

    def _readable(own: Queue, limit: float | None) -> None:
        poll = select.poll()
        poll.register(own.fileno(), select.POLLIN)
        poll.poll(None if limit is None else limit * 1000)

else:

    def _readable(own: Queue, limit: float | None) -> None:
        select.select([own.fileno()], [], [], limit)
