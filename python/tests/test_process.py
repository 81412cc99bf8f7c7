"""Signals, forks, and each way in which a script ends."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import fullbore
import pytest
import servers

#: How often each way is run: all of them together 1,000 times with FULLBORE_ENDINGS=63.
REPEATS = int(os.environ.get("FULLBORE_ENDINGS", "2"))

PRELUDE = """
import asyncio, os, signal, sys, threading, time
import fullbore
url = sys.argv[1]
# Shells let what runs in the background ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
"""

#: Scripts, with the exit code that they end with.
ENDINGS = {
    "return": ("client = fullbore.Client(proxy=False); client.get(url)", 0),
    "exception": ("client = fullbore.Client(proxy=False); client.get(url); raise LookupError", 1),
    "exit": ("client = fullbore.Client(proxy=False); client.get(url); sys.exit(7)", 7),
    "exit in the middle": ("fullbore.Client(proxy=False).get(url + '/slow?0.05'); os._exit(3)", 3),
    "open stream": (
        "client = fullbore.Client(proxy=False); c = client.stream('GET', url + '/drip'); r = c.__enter__(); next(r.iter_bytes(1))",
        0,
    ),
    "daemon thread": (
        """
        client = fullbore.Client(proxy=False)
        def work():
            while True:
                try:
                    client.get(url)
                except fullbore.Error:
                    pass
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        """,
        0,
    ),
    "daemon thread that waits": (
        """
        client = fullbore.Client(proxy=False)
        threading.Thread(target=client.get, args=(url + "/slow",), daemon=True).start()
        time.sleep(0.05)
        """,
        0,
    ),
    "thread": (
        """
        client = fullbore.Client(proxy=False)
        threading.Thread(target=lambda: client.get(url + "/slow?0.05")).start()
        """,
        0,
    ),
    "asyncio": (
        """
        async def main():
            async with fullbore.AsyncClient(proxy=False) as client:
                await asyncio.gather(*(client.get(url) for _ in range(20)))
        asyncio.run(main())
        """,
        0,
    ),
    "asyncio in the middle": (
        """
        client = fullbore.AsyncClient(proxy=False)
        async def main():
            tasks = [asyncio.create_task(client.get(url + "/slow")) for _ in range(20)]
            await asyncio.sleep(0.05)
            sys.exit(5)
        asyncio.run(main())
        """,
        5,
    ),
    "asyncio with an open stream": (
        """
        client = fullbore.AsyncClient(proxy=False)
        async def main():
            context = client.stream("GET", url + "/drip")
            response = await context.__aenter__()
            await anext(response.iter_bytes(1))
            sys.exit(6)
        asyncio.run(main())
        """,
        6,
    ),
    "download in the middle": (
        """
        import tempfile
        client = fullbore.Client(proxy=False)
        path = os.path.join(tempfile.gettempdir(), f"fullbore-ending-{os.getpid()}")
        threading.Thread(target=client.download, args=(url + "/drip", path), daemon=True).start()
        time.sleep(0.05)
        """,
        0,
    ),
    "ctrl-c in asyncio": (
        """
        client = fullbore.AsyncClient(proxy=False)
        async def main():
            asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
            await asyncio.gather(*(client.get(url + "/slow") for _ in range(20)))
        asyncio.run(main())
        """,
        -signal.SIGINT,
    ),
    "ctrl-c in many": (
        """
        client = fullbore.Client(proxy=False)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        client.get_many([url, *[url + "/slow"] * 20])
        """,
        -signal.SIGINT,
    ),
    "ctrl-c": (
        """
        client = fullbore.Client(proxy=False)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        client.get(url + "/slow")
        """,
        -signal.SIGINT,
    ),
    "at exit": (
        """
        import atexit
        client = fullbore.Client(proxy=False)
        client.get(url)
        atexit.register(client.close)
        atexit.register(client.get, url)
        """,
        0,
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_each_way_to_end_ends_as_it_should(name: str, server: servers.Server) -> None:
    script, code = ENDINGS[name]
    for _ in range(REPEATS):
        command = [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(script), server.url]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode == code, ended.stderr
        for word in ("panic", "Fatal", "Aborted", "Warning", "never"):
            assert word not in ended.stderr, ended.stderr


def test_ctrl_c_reaches_a_thread_that_waits_and_the_client_goes_on(server: servers.Server, client: fullbore.Client) -> None:
    started = time.monotonic()
    previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            client.get(server.url + "/slow")
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert time.monotonic() - started < 30
    assert client.get(server.url).text == "hello"


def test_a_signal_whose_handler_returns_does_not_end_the_wait(server: servers.Server, client: fullbore.Client) -> None:
    seen: list[int] = []
    previous = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert client.get(server.url + "/slow?0.2").text == "slow"
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert seen == [signal.SIGALRM]


def test_the_handler_of_a_signal_may_use_a_client(server: servers.Server, client: fullbore.Client) -> None:
    texts: list[str] = []
    previous = signal.signal(signal.SIGALRM, lambda *_: texts.append(client.get(server.url + "/slow?0.5").text))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        # It completes while the handler waits.
        assert client.get(server.url + "/slow?0.2").text == "slow"
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert texts == ["slow"]


def get_in_child(client: fullbore.Client, url: str, answers: multiprocessing.SimpleQueue[str]) -> None:
    answers.put(client.get(url).text)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_client_works_in_a_child_of_each_kind(method: str, server: servers.Server, client: fullbore.Client) -> None:
    assert client.get(server.url).text == "hello"
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    children = [context.Process(target=get_in_child, args=(client, server.url, answers)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert [answers.get() for _ in children] == ["hello"] * 3
    assert client.get(server.url).text == "hello"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_response_of_the_parent_is_a_clear_error_in_a_forked_child(
    server: servers.Server, client: fullbore.Client
) -> None:
    with client.stream("GET", server.url + "/drip") as response:
        assert next(response.iter_bytes(1)) == b"12345"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                response.read()
            except RuntimeError as error:
                code = 0 if "before a fork" in str(error) else 2
            del response
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        server.released.set()
        assert response.read() == b"67890"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_while_a_thread_unpickles_a_client_does_not_hang_the_child(client: fullbore.Client) -> None:
    from fullbore import _core

    pickled = pickle.dumps(client)
    with _core._sharing:
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            pickle.loads(pickled)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forks_in_the_middle_of_many_requests_do_not_hang(https: servers.Http2, secure: fullbore.Client) -> None:
    import threading

    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            secure.get_many(f"{https.url}/{number}.bin" for number in range(100))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = 0 if secure.get(https.url + "/7.bin").content == servers.pattern(1007) else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
