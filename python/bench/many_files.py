"""Gets 10,000 files of 10 KB with one client, and says how long it took: `python many_files.py CLIENT URL CERTIFICATE [COUNT]`.

The files are URL/0 to URL/9999. With `list`, it says which clients there are. The server and the path are up to the caller:

    fullbore serve FOLDER --self-signed --listen 127.0.0.1:8443
    fullbore link --to 127.0.0.1:8443 --listen 127.0.0.1:8444 --rtt 100ms --rate 1Gbit --handshake
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any

Get = Callable[[list[str], str], int]


def fullbore_many(urls: list[str], certificate: str) -> int:
    import fullbore

    with fullbore.Client(verify=certificate, proxy=False) as client:
        return sum(len(response.content) for response in client.get_many(urls))


def fullbore_tasks(urls: list[str], certificate: str) -> int:
    import fullbore

    async def main() -> int:
        async with fullbore.AsyncClient(verify=certificate, proxy=False) as client:
            return sum(len(response.content) for response in await asyncio.gather(*(client.get(url) for url in urls)))

    return asyncio.run(main())


def _httpx(urls: list[str], **options: Any) -> int:
    import httpx

    async def main() -> int:
        async with httpx.AsyncClient(timeout=None, trust_env=False, **options) as client:
            return sum(len(response.content) for response in await asyncio.gather(*(client.get(url) for url in urls)))

    return asyncio.run(main())


def httpx_fullbore(urls: list[str], certificate: str) -> int:
    import fullbore.httpx

    return _httpx(urls, transport=fullbore.httpx.AsyncTransport(verify=certificate, proxy=False))


def httpx_http2(urls: list[str], certificate: str) -> int:
    return _httpx(urls, verify=ssl.create_default_context(cafile=certificate), http2=True)


def httpx_http1(urls: list[str], certificate: str) -> int:
    return _httpx(urls, verify=ssl.create_default_context(cafile=certificate))


def aiohttp_100(urls: list[str], certificate: str) -> int:
    import aiohttp

    async def main() -> int:
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=certificate))
        async with aiohttp.ClientSession(connector=connector) as session:

            async def get(url: str) -> int:
                async with session.get(url) as response:
                    return len(await response.read())

            return sum(await asyncio.gather(*map(get, urls)))

    return asyncio.run(main())


def fsspec_fullbore(urls: list[str], certificate: str) -> int:
    from fullbore.fsspec import HTTPFileSystem

    files = HTTPFileSystem(client_kwargs={"verify": certificate, "proxy": False})
    return sum(map(len, files.cat(urls).values()))


def obstore_default(urls: list[str], certificate: str) -> int:
    import obstore
    from obstore.store import HTTPStore

    origin = urls[0].rsplit("/", 1)[0]
    store = HTTPStore.from_url(origin, client_options={"allow_invalid_certificates": True})

    async def main() -> int:
        async def get(url: str) -> int:
            found = await obstore.get_async(store, url.rsplit("/", 1)[1])
            return len(await found.bytes_async())

        return sum(await asyncio.gather(*map(get, urls)))

    return asyncio.run(main())


CLIENTS: list[Get] = [
    fullbore_many,
    fullbore_tasks,
    httpx_fullbore,
    fsspec_fullbore,
    httpx_http2,
    httpx_http1,
    aiohttp_100,
    obstore_default,
]


def main() -> None:
    names = {client.__name__: client for client in CLIENTS}
    if sys.argv[1:] == ["list"]:
        print("\n".join(names))
        return
    name, url, certificate, count = (*sys.argv[1:], "10000")[:4]
    urls = [f"{url}/{number}" for number in range(int(count))]
    started = time.perf_counter()
    size = names[name](urls, certificate)
    wall = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert size == 10_000 * len(urls), size
    print(f"{name}\t{wall:.2f} s\t{used.ru_utime + used.ru_stime:.2f} s of processor\t{used.ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
