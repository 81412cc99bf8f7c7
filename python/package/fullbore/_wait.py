"""How a thread waits for what it has started.

Each thread has a queue of completions and waits for its socket in ``select``: signals interrupt that as any other wait of Python,
and no thread of the runtime needs the interpreter.

Waits nest: a callback, the handler of a signal or a finalizer may use a client while its thread waits. So a wait takes the results
of all calls from the queue, and leaves those of others to them.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable

from . import _errors, _process
from ._native import Call, Queue

#: The longest sleep, in seconds. An inner wait may have taken the result of an outer one, and the byte that announced it, while the
#: outer one sleeps: Python resumes its sleep after the handler of a signal (PEP 475).
_LONGEST_SLEEP = 1.0


class _Inbox:
    """The queue of a thread, and what was taken from it."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.generation = _process.generation
        #: What has completed, and whose wait has not taken it yet.
        self.results: dict[int, tuple[object, object]] = {}
        #: The calls that nobody waits for, and whose results are still to come.
        self.given_up: set[int] = set()

    def take(self) -> None:
        """Takes what has completed from the queue."""
        for done, value, failure in self.queue.drain():
            if done in self.given_up:
                self.given_up.remove(done)
            else:
                self.results[done] = value, failure

    def give_up(self, call: Call) -> None:
        call.cancel()
        if self.results.pop(call.id, None) is None:
            self.given_up.add(call.id)


class _Local(threading.local):
    inbox: _Inbox | None = None


_local = _Local()


def _inbox() -> _Inbox:
    inbox = _local.inbox
    if inbox is None or inbox.generation != _process.generation:
        inbox = _local.inbox = _Inbox()
    return inbox


def queue() -> Queue:
    """The queue of this thread."""
    return _inbox().queue


def wait(call: Call, tick: Callable[[], None] | None = None, every: float = 0.1) -> object:
    """Waits for a call on this thread's queue, and returns what it brought. ``tick`` is called in between."""
    inbox = _inbox()
    sleep = _LONGEST_SLEEP if tick is None else min(every, _LONGEST_SLEEP)
    try:
        inbox.take()
        while call.id not in inbox.results:
            _readable(inbox.queue, sleep)
            if tick is not None:
                tick()
            inbox.take()
        value, failure = inbox.results.pop(call.id)
    except BaseException:
        inbox.give_up(call)
        raise
    if failure is not None:
        raise _errors.of_native(failure)
    return value


def give_up(call: Call) -> None:
    """Cancels a call that nobody will wait for."""
    _inbox().give_up(call)


if hasattr(select, "poll"):

    def _readable(own: Queue, limit: float) -> None:
        poll = select.poll()
        poll.register(own.fileno(), select.POLLIN)
        poll.poll(limit * 1000)

else:

    def _readable(own: Queue, limit: float) -> None:
        select.select([own.fileno()], [], [], limit)
