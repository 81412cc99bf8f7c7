"""The client for asyncio and trio."""

from __future__ import annotations

import asyncio
import base64
import gc
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import fullbore
import pytest
import servers

trio = pytest.importorskip("trio")

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine in a loop of its own."""
    if request.param == "trio":
        return lambda main: trio.run(main)
    return lambda main: asyncio.run(main())  # type: ignore[arg-type]


async def at_once(*tasks: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Runs tasks together, in either loop."""
    results: list[Any] = [None] * len(tasks)

    async def one(place: int) -> None:
        results[place] = await tasks[place]()

    if trio.lowlevel.in_trio_run():
        async with trio.open_nursery() as nursery:
            for place in range(len(tasks)):
                nursery.start_soon(one, place)
    else:
        await asyncio.gather(*(one(place) for place in range(len(tasks))))
    return results


def test_many_tasks_share_a_client(run: Run, https: servers.Http2) -> None:
    async def main() -> None:
        async with fullbore.AsyncClient(proxy=False, verify=str(https.certificate)) as client:

            async def get(number: int) -> bool:
                response = await client.get(f"{https.url}/{number}.bin")
                return response.content == servers.pattern(1000 + number)

            assert all(await at_once(*(lambda number=number: get(number) for number in range(300))))
            assert client.connections(https.url) == 1
            many = await client.get_many(f"{https.url}/{number}.bin" for number in range(300))
            assert [response.content for response in many] == [servers.pattern(1000 + number) for number in range(300)]
            assert "HTTP/2: " in str(await client.report())

    run(main)


def test_bodies_are_sent_and_received_in_pieces(run: Run, server: servers.Server) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"x" * 100_000

    async def main() -> None:
        async with fullbore.AsyncClient(proxy=False) as client:
            for content in (pieces(), [b"x" * 3_000_000]):
                response = await client.post(server.url + "/echo", content=content)
                assert base64.b64decode(response.json()["body"]) == b"x" * 3_000_000
            whole = servers.pattern(3_000_000)
            async with client.stream("GET", server.url + "/large?3000000") as response:
                assert b"".join([piece async for piece in response.iter_bytes(500_000)]) == whole
            buffer = bytearray(2_000_000)
            async with client.stream("GET", server.url + "/large?3000000") as response:
                assert [await response.readinto(buffer) for _ in range(3)] == [2_000_000, 1_000_000, 0]
            for page in ("large", "unsized"):
                response = await client.get(f"{server.url}/{page}?9000000")
                assert response.content == servers.pattern(9_000_000)
            response = await client.get(server.url + "/chunked")
            assert (response.text, response.trailers["X-After"]) == ("onetwo", "end")

    run(main)


def test_a_download_is_told_of(run: Run, server: servers.Server, folder: pathlib.Path) -> None:
    told: list[Any] = []

    async def main() -> None:
        async with fullbore.AsyncClient(proxy=False) as client:
            server.breaks = 1
            done = await client.download(server.url + "/file", folder / "a", progress=lambda *now: told.append(now))
            assert done.size == 100_000

    run(main)
    assert told[-1] == (100_000, 100_000)
    assert (folder / "a").read_bytes() == servers.pattern(100_000)


def test_errors_reach_the_task_that_waits(run: Run, server: servers.Server) -> None:
    async def main() -> None:
        async with fullbore.AsyncClient(proxy=False) as client:
            with pytest.raises(fullbore.ConnectionLost):
                await client.get(server.url + "/broken")
            with pytest.raises(fullbore.ResponseTimeout):
                await client.get(server.url + "/slow", timeout=fullbore.Timeout(response=0.05))
            with pytest.raises(fullbore.InvalidURL):
                await client.get("ftp://h/")

            async def body() -> AsyncIterator[bytes]:
                yield b"one"
                raise LookupError("mine")

            with pytest.raises(LookupError, match="mine"):
                await client.post(server.url + "/echo", content=body())
            assert (await client.get(server.url)).text == "hello"
        with pytest.raises(fullbore.Closed):
            await client.get(server.url)

    run(main)


def test_a_task_that_is_cancelled_ends_its_request() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1000):
                pass
            gone.set()
            writer.close()

        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with fullbore.AsyncClient(proxy=False) as client:
            url = "http://127.0.0.1:%d/" % listener.sockets[0].getsockname()[1]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get(url), 0.2)
            await gone.wait()
            task = asyncio.create_task(client.get(url))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        listener.close()
        # The connection of the last request may come only now.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        await asyncio.sleep(0.01)
        await listener.wait_closed()

    asyncio.run(main())


def test_a_task_of_trio_that_is_cancelled_ends_its_request(server: servers.Server) -> None:
    async def main() -> None:
        async with fullbore.AsyncClient(proxy=False) as client:
            with trio.move_on_after(0.1) as scope:
                await client.get(server.url + "/slow")
            assert scope.cancelled_caught
            assert (await client.get(server.url)).text == "hello"

    trio.run(main)


def test_a_read_that_is_cancelled_loses_no_bytes(server: servers.Server) -> None:
    async def main() -> None:
        async with fullbore.AsyncClient(proxy=False) as client, client.stream("GET", server.url + "/drip") as response:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(response.read(), 0.1)
            server.released.set()
            assert await response.read() == b"1234567890"

    asyncio.run(main())


def test_a_client_is_used_from_two_loops_one_after_another(server: servers.Server) -> None:
    client = fullbore.AsyncClient(proxy=False)

    async def get() -> str:
        return (await client.get(server.url)).text

    async def leave() -> None:
        task = asyncio.create_task(client.get(server.url + "/slow"))
        await asyncio.sleep(0.05)
        assert not task.done()

    assert [asyncio.run(get()) for _ in range(3)] == ["hello"] * 3
    # A loop that ends in the middle of a request.
    asyncio.run(leave())
    assert asyncio.run(get()) == "hello"
    assert trio.run(get) == "hello"
    asyncio.run(client.aclose())
    gc.collect()


def test_a_loop_that_goes_on_after_a_fork_has_another_queue(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from fullbore import _process, _waiters

    async def main() -> None:
        before = _waiters.current()
        assert _waiters.current() is before
        monkeypatch.setattr(_process, "generation", _process.generation + 1)
        assert _waiters.current() is not before

    run(main)


def test_loops_that_have_ended_leave_nothing(server: servers.Server) -> None:
    from fullbore import _waiters

    client = fullbore.AsyncClient(proxy=False)

    async def get() -> str:
        return (await client.get(server.url)).text

    async def leave() -> None:
        asyncio.ensure_future(client.get(server.url + "/slow"))
        await asyncio.sleep(0.01)

    gc.collect()
    before = len(_waiters._of_loops)
    assert [asyncio.run(get()) for _ in range(50)] == ["hello"] * 50
    for _ in range(5):
        asyncio.run(leave())
    gc.collect()
    assert len(_waiters._of_loops) <= before
    asyncio.run(client.aclose())


def test_a_download_that_is_cancelled_leaves_no_file_that_nobody_continues(
    server: servers.Server, folder: pathlib.Path
) -> None:
    async def main() -> None:
        async with fullbore.AsyncClient(proxy=False) as client:
            task = asyncio.create_task(client.download(server.url + "/drip", folder / "a"))
            while not list(folder.iterdir()):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # Its task in the runtime ends soon.
            async with asyncio.timeout(60):
                while list(folder.iterdir()):
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_without_a_loop_it_is_an_error_of_the_runtime() -> None:
    client = fullbore.AsyncClient(proxy=False)
    sent = client.get("http://h/")
    with pytest.raises(RuntimeError, match="no running event loop"):
        sent.send(None)
