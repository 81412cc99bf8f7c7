"""How a task of asyncio or trio waits for what it has started.

Each event loop has a queue of completions. The first completion of a batch makes the queue's socket readable, and the loop then
takes the whole batch: one wake-up, however many requests have completed.
"""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from . import _errors, _process
from ._native import Call, Queue


class Waiter(Protocol):
    """The queue of a loop, and the tasks that wait for it."""

    queue: Queue

    def enter(self, call: Call) -> Any:
        """Notes that somebody waits for a call. Its result is kept until then."""
        ...

    async def result(self, call: Call, ticket: Any) -> object:
        """Waits for it. If the task is cancelled, so is the call."""
        ...

    async def wait(self, call: Call) -> object:
        """Both of these."""
        ...

    def forget(self, call: Call) -> None:
        """Cancels a call that nobody will wait for."""
        ...

    def ticking(self, tick: Callable[[], None] | None, every: float) -> AbstractContextManager[None]:
        """Calls ``tick`` in between, where the loop allows it."""
        ...


class _Asyncio:
    """The waiter of a loop of asyncio. The loop owns it, as the reader of the queue's socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue = Queue()
        self.generation = _process.generation
        self._pending: dict[int, asyncio.Future[object]] = {}
        try:
            loop.add_reader(self.queue.fileno(), self._take)
        except NotImplementedError:
            # The loop of Windows watches no sockets.
            threading.Thread(target=_watch, args=(loop, self.queue, self._take), daemon=True).start()

    def enter(self, call: Call) -> asyncio.Future[object]:
        future = self._pending[call.id] = asyncio.get_running_loop().create_future()
        return future

    async def result(self, call: Call, ticket: asyncio.Future[object]) -> object:
        try:
            return await ticket
        except BaseException:
            call.cancel()
            raise
        finally:
            self._pending.pop(call.id, None)

    async def wait(self, call: Call) -> object:
        return await self.result(call, self.enter(call))

    def forget(self, call: Call) -> None:
        self._pending.pop(call.id, None)
        call.cancel()

    @contextmanager
    def ticking(self, tick: Callable[[], None] | None, every: float) -> Iterator[None]:
        if tick is None:
            yield
            return

        async def go_on() -> None:
            while True:
                await asyncio.sleep(every)
                tick()

        task = asyncio.get_running_loop().create_task(go_on())
        try:
            yield
        finally:
            task.cancel()

    def _take(self) -> None:
        for done, value, failure in self.queue.drain():
            future = self._pending.get(done)
            if future is None or future.done():
                continue
            if failure is None:
                future.set_result(value)
            else:
                future.set_exception(_errors.of_native(failure))
                # Whoever waits gets it; if the task was cancelled at the same time, nobody misses it.
                future.exception()


def _watch(loop: asyncio.AbstractEventLoop, queue: Queue, take: Any) -> None:
    while not loop.is_closed():
        ready, _, _ = select.select([queue.fileno()], [], [], 1.0)
        if not ready:
            continue
        taken = threading.Event()

        def step(taken: threading.Event = taken) -> None:
            take()
            taken.set()

        try:
            loop.call_soon_threadsafe(step)
        except RuntimeError:
            return
        taken.wait(1.0)


class _Trio:
    def __init__(self) -> None:
        import trio

        self.queue = Queue()
        self.generation = _process.generation
        self._pending: dict[int, _Ticket] = {}
        trio.lowlevel.spawn_system_task(self._watch, name="fullbore")

    async def _watch(self) -> None:
        import trio

        while True:
            await trio.lowlevel.wait_readable(self.queue.fileno())
            for done, value, failure in self.queue.drain():
                ticket = self._pending.get(done)
                if ticket is not None:
                    ticket.value, ticket.failure = value, failure
                    ticket.event.set()

    @contextmanager
    def ticking(self, tick: Callable[[], None] | None, every: float) -> Iterator[None]:
        yield

    def enter(self, call: Call) -> _Ticket:
        ticket = self._pending[call.id] = _Ticket()
        return ticket

    async def result(self, call: Call, ticket: _Ticket) -> object:
        try:
            await ticket.event.wait()
        except BaseException:
            call.cancel()
            raise
        finally:
            self._pending.pop(call.id, None)
        if ticket.failure is not None:
            raise _errors.of_native(ticket.failure)
        return ticket.value

    async def wait(self, call: Call) -> object:
        return await self.result(call, self.enter(call))

    def forget(self, call: Call) -> None:
        self._pending.pop(call.id, None)
        call.cancel()


class _Ticket:
    def __init__(self) -> None:
        import trio

        self.event = trio.Event()
        self.value: object = None
        self.failure: object = None


#: A waiter ends with its loop: what is pending in it has references to the loop.
_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Asyncio]] = WeakKeyDictionary()
_of_trio: Any = None


def current() -> Waiter:
    """The waiter of the loop that runs."""
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return _trio(trio)
    loop = asyncio.get_running_loop()
    known = _of_loops.get(loop)
    waiter = None if known is None else known()
    if waiter is None or waiter.generation != _process.generation:
        waiter = _Asyncio(loop)
        _of_loops[loop] = ref(waiter)
    return waiter


def _trio(trio: Any) -> Waiter:
    global _of_trio
    if _of_trio is None:
        _of_trio = trio.lowlevel.RunVar("fullbore")
    waiter: _Trio | None = _of_trio.get(None)
    if waiter is None or waiter.generation != _process.generation:
        waiter = _Trio()
        _of_trio.set(waiter)
    return waiter
