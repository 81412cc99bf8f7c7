"""The runtime of this process: made when it is first needed, made anew after a fork, ended before the interpreter."""

from __future__ import annotations

import atexit
import os
import threading

from . import _errors
from ._native import Runtime

#: How long the end of the interpreter waits for the threads of the runtime.
_LAST_WAIT = 1.0


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runtime: Runtime | None = None
        self.is_over = False


_state = _State()
#: Counts the forks that led to this process, and its end. What was made under another number is not used again.
generation = 0


def runtime() -> Runtime:
    """The runtime of this process."""
    state = _state
    if state.runtime is not None:
        return state.runtime
    with state.lock:
        if state.is_over:
            raise _errors.Closed("the interpreter is about to end; no request can be sent any more")
        if state.runtime is None:
            state.runtime = Runtime()
        return state.runtime


def _after_fork() -> None:
    global _state, generation
    # The native objects of the parent know that they are not to be dropped here.
    _state = _State()
    generation += 1


def _at_exit() -> None:
    global generation
    generation += 1
    with _state.lock:
        ended, _state.runtime, _state.is_over = _state.runtime, None, True
    if ended is not None:
        ended.shutdown(_LAST_WAIT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
