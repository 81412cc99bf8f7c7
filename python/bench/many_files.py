"""Gets 10,000 files of 10 KB with one client, and says how long it took: `python many_files.py CLIENT URL CERTIFICATE [COUNT]`.

The files are URL/0 to URL/9999. With `list`, it says which clients there are. The server and the path are up to the caller:

    fullbore serve FOLDER --self-signed --listen 127.0.0.1:8443
    fullbore link --to 127.0.0.1:8443 --listen 127.0.0.1:8444 --rtt 100ms --rate 1Gbit --handshake
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import resource
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Get = Callable[[list[str], str], int]


def fullbore_get(urls: list[str], certificate: str) -> int:
    """The program, of FULLBORE_BIN: its start is measured too."""
    command = [os.environ.get("FULLBORE_BIN", "fullbore"), "get", "--input", "-", "--discard", "--quiet", "--cacert", certificate]
    subprocess.run(command, input="\n".join(urls), text=True, check=True)
    return 10_000 * len(urls)


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


def _httpx(urls: list[str], httpx: Any = None, **options: Any) -> int:
    if httpx is None:
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


def httpx2_http2(urls: list[str], certificate: str) -> int:
    import httpx2

    return _httpx(urls, httpx2, verify=ssl.create_default_context(cafile=certificate), http2=True)


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


def niquests_http2(urls: list[str], certificate: str) -> int:
    import niquests

    with niquests.Session(multiplexed=True) as session:
        session.trust_env = False
        responses = [session.get(url, verify=certificate) for url in urls]
        session.gather()
        return sum(len(response.content or b"") for response in responses)


def pyreqwest_http2(urls: list[str], certificate: str) -> int:
    from pathlib import Path

    from pyreqwest.client import ClientBuilder

    async def main() -> int:
        builder = ClientBuilder().add_root_certificate_pem(Path(certificate).read_bytes()).no_proxy()
        async with builder.build() as client:

            async def get(url: str) -> int:
                response = await client.get(url).build().send()
                return len(await response.bytes())

            return sum(await asyncio.gather(*map(get, urls)))

    return asyncio.run(main())


def curl_cffi_http2(urls: list[str], certificate: str) -> int:
    from curl_cffi.requests import AsyncSession

    async def main() -> int:
        async with AsyncSession(verify=certificate, max_clients=100, trust_env=False) as session:
            return sum(len(response.content) for response in await asyncio.gather(*map(session.get, urls)))

    return asyncio.run(main())


def pycurl_http2(urls: list[str], certificate: str) -> int:
    """One connection of HTTP/2 with 1,000 requests at a time."""
    import pycurl

    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
    multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
    multi.setopt(pycurl.M_MAX_CONCURRENT_STREAMS, 1000)
    size = 0

    def begin(handle: Any, url: str) -> None:
        handle.pieces = []
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.WRITEFUNCTION, handle.pieces.append)
        multi.add_handle(handle)

    left = iter(urls)
    for url in itertools.islice(left, 1000):
        handle = pycurl.Curl()
        handle.setopt(pycurl.CAINFO, certificate)
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.PIPEWAIT, 1)
        handle.setopt(pycurl.NOPROXY, "*")
        begin(handle, url)
    running = 1
    while running:
        running = multi.perform()[1]
        more = 1
        while more:
            more, done, failed = multi.info_read()
            if failed:
                raise OSError(failed[0][2])
            for handle in done:
                size += len(b"".join(handle.pieces))
                multi.remove_handle(handle)
                if (following := next(left, None)) is not None:
                    begin(handle, following)
                    running = 1
        if running:
            # `select` does not see a connection that waits for another one's requests to end.
            multi.select(0.01)
    return size


def fsspec_stock(urls: list[str], certificate: str) -> int:
    from fsspec.implementations.http import HTTPFileSystem

    files = HTTPFileSystem(ssl=ssl.create_default_context(cafile=certificate))
    return sum(map(len, files.cat(urls).values()))


def _zarr(store: Any, urls: list[str]) -> int:
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    zarr.config.set({"async.concurrency": 1_000})

    async def main() -> int:
        keys = [url.rsplit("/", 1)[1] for url in urls]
        found = await asyncio.gather(*(store.get(key, default_buffer_prototype()) for key in keys))
        return sum(len(buffer) for buffer in found)

    return sync(main())


def zarr_fullbore(urls: list[str], certificate: str) -> int:
    import fullbore.zarr

    return _zarr(fullbore.zarr.Store(urls[0].rsplit("/", 1)[0], verify=certificate, proxy=False), urls)


def zarr_fsspec(urls: list[str], certificate: str) -> int:
    from zarr.storage import FsspecStore

    options = {"ssl": ssl.create_default_context(cafile=certificate)}
    return _zarr(FsspecStore.from_url(urls[0].rsplit("/", 1)[0], storage_options=options, read_only=True), urls)


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
    fullbore_get,
    fullbore_many,
    fullbore_tasks,
    httpx_fullbore,
    fsspec_fullbore,
    zarr_fullbore,
    httpx_http2,
    httpx2_http2,
    httpx_http1,
    aiohttp_100,
    niquests_http2,
    pyreqwest_http2,
    curl_cffi_http2,
    pycurl_http2,
    fsspec_stock,
    zarr_fsspec,
    obstore_default,
]


#: What takes long to import; that is not measured.
MODULES = {
    "fullbore_many": ["fullbore"],
    "fullbore_tasks": ["fullbore"],
    "httpx_fullbore": ["fullbore.httpx"],
    "fsspec_fullbore": ["fullbore.fsspec"],
    "zarr_fullbore": ["fullbore.zarr"],
    "httpx_http2": ["httpx"],
    "httpx2_http2": ["httpx2"],
    "httpx_http1": ["httpx"],
    "aiohttp_100": ["aiohttp"],
    "niquests_http2": ["niquests"],
    "pyreqwest_http2": ["pyreqwest.client"],
    "pycurl_http2": ["pycurl"],
    "curl_cffi_http2": ["curl_cffi.requests"],
    "fsspec_stock": ["fsspec.implementations.http"],
    "zarr_fsspec": ["zarr.storage", "fsspec.implementations.http"],
    "obstore_default": ["obstore.store"],
}


def main() -> None:
    names = {client.__name__: client for client in CLIENTS}
    if sys.argv[1:] == ["list"]:
        print("\n".join(names))
        return
    name, url, certificate, count = (*sys.argv[1:], "10000")[:4]
    urls = [f"{url}/{number}" for number in range(int(count))]
    for module in MODULES.get(name, ()):
        importlib.import_module(module)
    started = time.perf_counter()
    size = names[name](urls, certificate)
    wall = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN if name == "fullbore_get" else resource.RUSAGE_SELF)
    assert size == 10_000 * len(urls), size
    print(f"{name}\t{wall:.2f} s\t{used.ru_utime + used.ru_stime:.2f} s of processor\t{used.ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
