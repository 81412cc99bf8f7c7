"""Gets one large file, and says how long it took: `python large_file.py CLIENT URL CERTIFICATE`.

With `list`, it says which clients there are. The server and the path are up to the caller: see many_files.py.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

Get = Callable[[str, str], int]

#: Where a file is saved. To remove it is not measured.
FOLDER = tempfile.mkdtemp()

#: What takes long to import; that is not measured.
MODULES = {"httpx": ["httpx", "h2.connection"], "aiohttp": ["aiohttp"], "fullbore": ["fullbore"]}


def fullbore_content(url: str, certificate: str) -> int:
    import fullbore

    with fullbore.Client(verify=certificate, proxy=False) as client:
        return len(client.get(url).content)


def fullbore_stream(url: str, certificate: str) -> int:
    import fullbore

    with fullbore.Client(verify=certificate, proxy=False) as client, client.stream("GET", url) as response:
        return sum(map(len, response.iter_bytes()))


def fullbore_async_stream(url: str, certificate: str) -> int:
    import fullbore

    async def main() -> int:
        size = 0
        async with fullbore.AsyncClient(verify=certificate, proxy=False) as client:
            async with client.stream("GET", url) as response:
                async for piece in response.iter_bytes():
                    size += len(piece)
        return size

    return asyncio.run(main())


def fullbore_download(url: str, certificate: str) -> int:
    import fullbore

    with fullbore.Client(verify=certificate, proxy=False) as client:
        return int(client.download(url, os.path.join(FOLDER, "file")).size)


def _httpx_stream(url: str, **options: Any) -> int:
    import httpx

    async def main() -> int:
        size = 0
        async with httpx.AsyncClient(timeout=None, trust_env=False, **options) as client:
            async with client.stream("GET", url) as response:
                async for piece in response.aiter_raw():
                    size += len(piece)
        return size

    return asyncio.run(main())


def httpx_fullbore_stream(url: str, certificate: str) -> int:
    import fullbore.httpx

    return _httpx_stream(url, transport=fullbore.httpx.AsyncTransport(verify=certificate, proxy=False))


def httpx_http2_stream(url: str, certificate: str) -> int:
    return _httpx_stream(url, verify=ssl.create_default_context(cafile=certificate), http2=True)


def aiohttp_stream(url: str, certificate: str) -> int:
    import aiohttp

    async def main() -> int:
        size = 0
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=certificate))
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as response:
            async for piece in response.content.iter_any():
                size += len(piece)
        return size

    return asyncio.run(main())


CLIENTS: list[Get] = [
    fullbore_content,
    fullbore_stream,
    fullbore_async_stream,
    fullbore_download,
    httpx_fullbore_stream,
    httpx_http2_stream,
    aiohttp_stream,
]


def main() -> None:
    names = {client.__name__: client for client in CLIENTS}
    if sys.argv[1:] == ["list"]:
        print("\n".join(names))
        return
    name, url, certificate = sys.argv[1:]
    for module in MODULES[name.split("_")[0]]:
        importlib.import_module(module)
    started = time.perf_counter()
    size = names[name](url, certificate)
    wall = time.perf_counter() - started
    shutil.rmtree(FOLDER)
    used = resource.getrusage(resource.RUSAGE_SELF)
    processor = used.ru_utime + used.ru_stime
    print(f"{name}\t{wall:.2f} s\t{processor:.2f} s of processor\t{used.ru_maxrss >> 10} MiB\t{size} bytes")


if __name__ == "__main__":
    main()
