"""httpx, httpx2, requests, fsspec and zarr over fullbore."""

from __future__ import annotations

import asyncio
import importlib
import json
import pathlib
import pickle
import socket
from collections.abc import Iterator
from typing import Any

import fullbore
import pytest
import servers


@pytest.fixture(params=["httpx", "httpx2"])
def httpx(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.fixture
def transports(httpx: Any) -> Any:
    return importlib.import_module(f"fullbore.{httpx.__name__}")


def nobody() -> str:
    """A URL where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_httpx_sends_and_receives_over_http2(httpx: Any, transports: Any, https: servers.Http2) -> None:
    transport = transports.Transport(proxy=False, verify=str(https.certificate))
    with httpx.Client(transport=transport) as client:
        response = client.get(https.url + "/7.bin")
        assert (response.status_code, response.http_version) == (200, "HTTP/2")
        assert response.content == servers.pattern(1007)
        with client.stream("GET", https.url + "/large.bin") as response:
            assert b"".join(response.iter_bytes()) == servers.pattern(5 << 20)


def test_httpx_follows_redirects_keeps_cookies_and_decodes_itself(
    httpx: Any, transports: Any, server: servers.Server
) -> None:
    with httpx.Client(transport=transports.Transport(proxy=False)) as client:
        assert client.get(server.url + "/redirect").status_code == 302
        response = client.get(server.url + "/redirect", follow_redirects=True)
        assert (response.text, len(response.history)) == ("hello", 1)
        client.get(server.url + "/headers")
        came = client.post(server.url + "/echo", content=iter([b"one", b"two"])).json()
        assert ["cookie", "k=v"] in came["headers"]
        assert came["body"] == "b25ldHdv"


def test_many_tasks_of_httpx_share_a_connection(httpx: Any, transports: Any, https: servers.Http2) -> None:
    async def main() -> None:
        transport = transports.AsyncTransport(proxy=False, verify=str(https.certificate))
        async with httpx.AsyncClient(transport=transport) as client:
            responses = await asyncio.gather(*(client.get(f"{https.url}/{number}.bin") for number in range(300)))
            assert [response.content for response in responses] == [servers.pattern(1000 + number) for number in range(300)]
            assert transport._client.connections(https.url) == 1

    asyncio.run(main())


def test_errors_are_those_of_httpx(httpx: Any, transports: Any, server: servers.Server, https: servers.Http2) -> None:
    with httpx.Client(transport=transports.Transport(proxy=False)) as client:
        with pytest.raises(httpx.ConnectError):
            client.get(nobody())
        with pytest.raises(httpx.ConnectError):
            client.get(https.url)
        with pytest.raises(httpx.ReadTimeout):
            client.get(server.url + "/slow", timeout=0.05)
        with pytest.raises(httpx.RemoteProtocolError):
            client.get(server.url + "/broken")
        with pytest.raises(httpx.UnsupportedProtocol):
            client.get("ftp://h/")
        with client.stream("GET", server.url + "/drip", timeout=0.1) as response, pytest.raises(httpx.ReadTimeout):
            response.read()
        assert client.get(server.url).text == "hello"

    async def main() -> None:
        async with httpx.AsyncClient(transport=transports.AsyncTransport(proxy=False)) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(nobody())
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(server.url + "/broken")

    asyncio.run(main())


def test_every_error_has_a_counterpart_in_httpx(httpx: Any, transports: Any) -> None:
    from fullbore import _errors, _httpx

    for kind in _errors._BY_KIND:
        error = _errors.of_native((kind, "text", None, None, None, False, False))
        assert isinstance(_httpx.exception_of(httpx, error), httpx.TransportError)  # type: ignore[arg-type]


@pytest.fixture
def session() -> Iterator[Any]:
    requests = pytest.importorskip("requests")
    from fullbore.requests import Adapter

    with requests.Session() as session:
        session.trust_env = False
        for scheme in ("http://", "https://"):
            session.mount(scheme, Adapter())
        yield session


def test_requests_sends_and_receives_over_http2(session: Any, https: servers.Http2) -> None:
    response = session.get(https.url + "/large.bin", verify=str(https.certificate))
    assert (response.status_code, response.raw.version, response.reason) == (200, 20, "OK")
    assert response.content == servers.pattern(5 << 20)
    with session.get(https.url + "/large.bin", verify=str(https.certificate), stream=True) as response:
        assert b"".join(response.iter_content(100_000)) == servers.pattern(5 << 20)


def test_requests_follows_redirects_keeps_cookies_and_sends_bodies(session: Any, server: servers.Server) -> None:
    response = session.get(server.url + "/redirect")
    assert (response.text, len(response.history)) == ("hello", 1)
    session.get(server.url + "/headers")
    came = session.post(server.url + "/echo", data=iter([b"one", b"two"])).json()
    assert ["cookie", "k=v"] in [[name, value] for name, value in came["headers"]]
    assert came["body"] == "b25ldHdv"


def test_errors_are_those_of_requests(session: Any, server: servers.Server, https: servers.Http2) -> None:
    from requests import exceptions

    with pytest.raises(exceptions.ConnectionError):
        session.get(nobody())
    with pytest.raises(exceptions.SSLError):
        session.get(https.url)
    with pytest.raises(exceptions.ReadTimeout, match="Read timed out"):
        session.get(server.url + "/slow", timeout=0.05)
    with pytest.raises(exceptions.ChunkedEncodingError):
        session.get(server.url + "/broken")
    with session.get(server.url + "/garbled", stream=True) as response, pytest.raises(exceptions.ChunkedEncodingError):
        list(response.iter_content(10))
    with pytest.raises(exceptions.ConnectionError):
        session.get(server.url + "/drip", timeout=0.1)
    with pytest.raises(OSError, match="invalid path: /garbage"):
        session.get(https.url, verify="/garbage")
    with pytest.raises(ValueError, match="must be an int, float or None"):
        session.get(server.url, timeout="5")
    assert session.get(server.url).text == "hello"


def test_the_limit_on_connecting_is_that_of_each_request(session: Any, server: servers.Server) -> None:
    import fullbore.httpx

    assert session.get(server.url, timeout=60).text == "hello"
    (client,) = session.get_adapter(server.url)._clients.values()
    assert client.timeout.connect is None
    assert fullbore.httpx.Transport()._client.timeout.connect is None
    assert fullbore.httpx.AsyncTransport()._client.timeout.connect is None


def test_a_session_of_requests_is_pickled(session: Any, server: servers.Server) -> None:
    again = pickle.loads(pickle.dumps(session))
    assert again.get(server.url).text == "hello"
    again.close()


@pytest.fixture
def files(https: servers.Http2) -> Any:
    pytest.importorskip("aiohttp")
    pytest.importorskip("fsspec")
    from fullbore.fsspec import HTTPFileSystem

    settings = {"proxy": False, "verify": str(https.certificate)}
    return HTTPFileSystem(client_kwargs=settings, skip_instance_cache=True)


def test_fsspec_gets_many_files_and_ranges_in_one_call(files: Any, https: servers.Http2) -> None:
    urls = [f"{https.url}/{number}.bin" for number in range(300)]
    came = files.cat(urls)
    assert [came[url] for url in urls] == [servers.pattern(1000 + number) for number in range(300)]
    whole = servers.pattern(1299)
    url = urls[299]
    ranges = [(0, 10), (5, 5), (100, None), (None, 7), (-20, None), (1000, 5000)]
    came = files.cat_ranges([url] * len(ranges), [start for start, _ in ranges], [end for _, end in ranges])
    assert came == [whole[start:end] for start, end in ranges]
    assert files.cat(url) == whole
    assert files.cat_file(url, 3, 9) == whole[3:9]
    # -1 is no limit.
    assert len(files.cat(urls, batch_size=-1)) == len(urls)


def test_fsspec_follows_the_options_of_a_request_or_says_that_it_does_not(files: Any, https: servers.Http2) -> None:
    url = https.url + "/7.bin"
    whole = servers.pattern(1007)
    assert files.cat(url, start=3, end=9) == whole[3:9]
    assert files.cat([url], start=-5) == {url: whole[-5:]}
    with pytest.raises(TypeError, match="^foo: "):
        files.cat(url, foo=True)
    with pytest.raises(TypeError, match="^foo: "):
        files.cat_file(url, foo=True)


@pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")
def test_fsspec_takes_the_settings_of_aiohttp_that_have_another_name(server: servers.Server) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    pytest.importorskip("fsspec")
    from fullbore.fsspec import HTTPFileSystem

    settings = {"auth": aiohttp.BasicAuth("me", "secret"), "timeout": aiohttp.ClientTimeout(total=30), "trust_env": False}
    files = HTTPFileSystem(client_kwargs=settings, skip_instance_cache=True)
    for got in (files.cat(server.url + "/echo"), files.cat_file(server.url + "/echo")):
        assert ["authorization", "Basic bWU6c2VjcmV0"] in json.loads(got)["headers"]
    assert files.cat_file(server.url + "/redirect") == b"hello"
    assert files.cat_file(server.url + "/redirect", allow_redirects=False) == b""


def test_fsspec_says_what_is_missing(files: Any, https: servers.Http2) -> None:
    urls = [https.url + "/7.bin", https.url + "/none.bin"]
    with pytest.raises(FileNotFoundError):
        files.cat(urls)
    assert list(files.cat(urls, on_error="omit")) == urls[:1]
    assert isinstance(files.cat(urls, on_error="return")[urls[1]], FileNotFoundError)
    assert not files.exists(urls[1])
    with pytest.raises(FileNotFoundError):
        files.cat_ranges(urls, 0, 5, on_error="raise")


def test_fsspec_opens_files(files: Any, https: servers.Http2, folder: pathlib.Path) -> None:
    whole = servers.pattern(5 << 20)
    with files.open(https.url + "/large.bin", block_size=100_000) as file:
        file.seek(3_000_000)
        assert file.read(10) == whole[3_000_000:3_000_010]
    with files.open(https.url + "/large.bin", block_size=0) as file:
        assert file.read() == whole
    files.get(https.url + "/large.bin", str(folder / "a"))
    assert (folder / "a").read_bytes() == whole
    assert files.info(https.url + "/7.bin")["size"] == 1007


def test_fsspec_has_it_for_https_only_when_it_is_asked() -> None:
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.http import HTTPFileSystem as theirs
    from fullbore.fsspec import HTTPFileSystem, register

    assert fsspec.get_filesystem_class("https") is theirs
    register()
    try:
        assert fsspec.get_filesystem_class("https") is HTTPFileSystem
    finally:
        for protocol in ("http", "https"):
            fsspec.register_implementation(protocol, theirs, clobber=True)


def test_zarr_reads_an_array(tmp_path_factory: pytest.TempPathFactory) -> None:
    zarr = pytest.importorskip("zarr")
    numpy = pytest.importorskip("numpy")
    from fullbore.zarr import Store

    if servers.program() is None:
        pytest.skip("the program fullbore is not built: cargo build -p fullbore-cli")
    folder = tmp_path_factory.mktemp("array")
    values = numpy.arange(40_000, dtype="i4").reshape(200, 200)
    array = zarr.create_array(store=str(folder / "a.zarr"), shape=values.shape, chunks=(20, 20), dtype="i4", fill_value=-1)
    array[:100] = values[:100]
    with servers.http2(folder, tmp_path_factory.mktemp("state")) as served, zarr.config.set({"async.concurrency": 200}):
        store = Store(served.url + "/a.zarr", proxy=False, verify=str(served.certificate))
        read = zarr.open_array(store, mode="r")
        assert (read[:100] == values[:100]).all()
        # Chunks that are not there have the value that fills.
        assert (read[100:] == -1).all()
        copies = [pickle.loads(pickle.dumps(store)) for _ in range(2)]
        assert copies == [store, store]
        assert copies[0]._client is copies[1]._client
        behind = zarr.abc.store.RangeByteRequest(10**6, 10**6 + 1)
        buffers = zarr.core.buffer.default_buffer_prototype()
        for copy in copies:
            one = asyncio.run(copy.get("zarr.json", buffers, behind))
            (other,) = asyncio.run(copy.get_partial_values(buffers, [("zarr.json", behind)]))
            assert one.to_bytes() == other.to_bytes() == b""
        with pytest.raises(ValueError, match="read-only"):
            read[0, 0] = 1


def test_the_package_names_what_an_optional_module_needs() -> None:
    assert fullbore.Client.__module__ == "fullbore"
