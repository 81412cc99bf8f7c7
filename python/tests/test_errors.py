"""What goes wrong, and the exceptions that it is."""

from __future__ import annotations

import pathlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import fullbore
import pytest
import servers


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_where_nobody_listens_is_no_connection(client: fullbore.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/a?secret"
    with pytest.raises(fullbore.ConnectError) as raised:
        client.get(url)
    assert isinstance(raised.value, ConnectionError)
    assert raised.value.url == url.removesuffix("?secret")
    assert raised.value.retryable and "secret" not in str(raised.value)


def test_a_name_that_does_not_resolve_says_so(client: fullbore.Client) -> None:
    with pytest.raises(fullbore.ResolveError, match="no-such-host.invalid"):
        client.get("http://no-such-host.invalid/")


@pytest.mark.parametrize("url", ["", "a b", "ftp://example.com/", "http://", "http://a:99999/", "http://\0/", "//h/"])
def test_an_invalid_url_is_an_error_of_its_value(url: str, client: fullbore.Client) -> None:
    with pytest.raises(fullbore.InvalidURL) as raised:
        client.get(url)
    assert isinstance(raised.value, ValueError)


def test_a_certificate_that_is_not_trusted_says_so(https: servers.Http2) -> None:
    with fullbore.Client(proxy=False) as client, pytest.raises(fullbore.CertificateError):
        client.get(https.url)


def test_any_certificate_is_taken_without_verification(https: servers.Http2) -> None:
    with fullbore.Client(proxy=False, verify=False) as client:
        assert client.get(https.url + "/7.bin").status == 200


def test_a_server_that_speaks_no_tls_is_an_error_of_tls(server: servers.Server, client: fullbore.Client) -> None:
    with pytest.raises(fullbore.TLSError):
        client.get(server.url.replace("http:", "https:"))


def test_a_body_that_breaks_off_is_a_lost_connection(server: servers.Server, client: fullbore.Client) -> None:
    with pytest.raises(fullbore.ConnectionLost):
        client.get(server.url + "/broken")
    with client.stream("GET", server.url + "/broken") as response:
        pieces = response.iter_bytes(1)
        assert next(pieces) == b"12345"
        for _ in range(2):
            with pytest.raises(fullbore.ConnectionLost):
                response.read()


def test_what_is_no_http_is_an_error_of_the_protocol() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, fullbore.Client(proxy=False) as client:

        def serve() -> None:
            with listener.accept()[0] as stream:
                stream.recv(1000)
                stream.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((fullbore.ProtocolError, fullbore.VersionError)):
            client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()


def test_a_server_that_is_silent_ends_at_the_limit_on_its_response(silent: str, client: fullbore.Client) -> None:
    with pytest.raises(fullbore.ResponseTimeout) as raised:
        client.get(silent, timeout=fullbore.Timeout(response=0.05))
    assert isinstance(raised.value, TimeoutError) and isinstance(raised.value, fullbore.ReadTimeout)
    with pytest.raises(fullbore.TimeoutError):
        client.get(silent, timeout=fullbore.Timeout(total=0.05))


def test_a_body_that_pauses_ends_at_the_limit_on_reading(server: servers.Server, client: fullbore.Client) -> None:
    limit = fullbore.Timeout(read=0.05)
    with pytest.raises(fullbore.ReadTimeout):
        client.get(server.url + "/drip", timeout=limit)
    with client.stream("GET", server.url + "/drip", timeout=limit) as response:
        assert next(response.iter_bytes(1)) == b"12345"
        with pytest.raises(fullbore.ReadTimeout):
            response.read()


def test_a_server_that_takes_no_body_ends_at_the_limit_on_writing(silent: str, client: fullbore.Client) -> None:
    with pytest.raises(fullbore.WriteTimeout):
        client.post(silent, content=b"x" * (64 << 20), timeout=fullbore.Timeout(write=0.1))


def test_no_free_connection_ends_at_the_limit_of_the_pool(server: servers.Server) -> None:
    with fullbore.Client(proxy=False, max_connections=1) as client, client.stream("GET", server.url + "/drip"):
        with pytest.raises(fullbore.PoolTimeout):
            client.get(server.url, timeout=fullbore.Timeout(pool=0.05))


def test_no_connection_ends_at_the_limit_on_connecting() -> None:
    # A full backlog: the kernel answers no further SYN.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        full = [socket.socket() for _ in range(4)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(address)
        url = f"http://127.0.0.1:{address[1]}/"
        with fullbore.Client(proxy=False) as client, pytest.raises(fullbore.ConnectTimeout):
            client.get(url, timeout=fullbore.Timeout(connect=0.1))
        with fullbore.Client(proxy=False, timeout=0.1) as client, pytest.raises(fullbore.ConnectTimeout) as raised:
            client.get(url)
        assert isinstance(raised.value, fullbore.ConnectError)
        for one in full:
            one.close()


def test_a_generator_that_raises_ends_its_request_with_its_own_exception(
    server: servers.Server, client: fullbore.Client
) -> None:
    def body() -> Iterator[bytes]:
        yield b"one"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        client.post(server.url + "/echo", content=body())
    assert client.get(server.url).text == "hello"


def test_a_body_of_another_length_than_announced_is_an_error(server: servers.Server, client: fullbore.Client) -> None:
    with pytest.raises(fullbore.Error):
        client.post(server.url + "/echo", content=[b"four"], headers={"content-length": "3"})


@pytest.mark.parametrize(
    ("options", "kind", "name"),
    [
        ({"headers": 5}, TypeError, "headers"),
        ({"headers": "a: b"}, TypeError, "headers"),
        ({"headers": [("a",)]}, TypeError, "headers"),
        ({"headers": {"a": 5}}, TypeError, "headers"),
        ({"headers": {"a b": "c"}}, ValueError, "headers"),
        ({"headers": {"a": "b\r\nc: d"}}, ValueError, "headers"),
        ({"headers": {"ä": "b"}}, ValueError, "headers"),
        ({"content": 5}, TypeError, "content"),
        ({"content": {"a": "b"}}, TypeError, "content"),
        ({"content": [5]}, TypeError, "content"),
        ({"content": b"a", "json": 1}, TypeError, "content, data and json"),
        ({"data": 5}, TypeError, "data"),
        ({"params": 5}, TypeError, "params"),
        ({"params": "a=b"}, TypeError, "params"),
        ({"auth": "me"}, TypeError, "auth"),
        ({"auth": ("a:b", "c")}, ValueError, "auth"),
        ({"timeout": "5"}, TypeError, "timeout"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"timeout": float("nan")}, ValueError, "timeout"),
    ],
)
def test_a_wrong_argument_is_named(
    options: dict[str, Any], kind: type[Exception], name: str, server: servers.Server, client: fullbore.Client
) -> None:
    with pytest.raises(kind, match=f"^{name}"):
        client.post(server.url + "/echo", **options)


def test_an_integer_of_another_library_is_one(server: servers.Server, client: fullbore.Client) -> None:
    class Integer:
        """As ``numpy.int64``."""

        def __init__(self, value: int) -> None:
            self.value = value

        def __index__(self) -> int:
            return self.value

    urls = [(server.url + "/hello", Integer(1), Integer(2))]
    (response,) = client.get_many(urls, at_once=Integer(5))  # type: ignore[call-overload]
    assert response.content == b"e"
    with pytest.raises(ValueError, match="^at_once is 0"):
        client.get_many(urls, at_once=Integer(0))  # type: ignore[call-overload]


@pytest.mark.parametrize("url", [None, 5, b"http://h/", ["http://h/"], pathlib.Path("/a")])
def test_a_url_of_another_type_is_named(url: Any, client: fullbore.Client) -> None:
    with pytest.raises(TypeError, match="^url must be a str"):
        client.get(url)
    with pytest.raises(TypeError, match="^method must be a str"):
        client.request(url, "http://h/")
    with pytest.raises(ValueError, match="^method"):
        client.request("A B", "http://h/")


@pytest.mark.parametrize(
    ("options", "kind", "name"),
    [
        ({"timeout": []}, TypeError, "timeout"),
        ({"http1": False, "http2": False}, ValueError, "http1 and http2"),
        ({"http2": 1}, TypeError, "http2"),
        ({"verify": 5}, TypeError, "verify"),
        ({"verify": "/no/such/file"}, ValueError, "verify"),
        ({"cert": 5}, TypeError, "cert"),
        ({"cert": ("/no/such/file", "/no/such/key")}, ValueError, "cert"),
        ({"proxy": None}, TypeError, "proxy"),
        ({"proxy": "ftp://h"}, ValueError, ".*the proxy ftp://h"),
        ({"max_connections": 0}, ValueError, "max_connections"),
        ({"max_connections": "8"}, TypeError, "max_connections"),
        ({"max_redirects": -1}, ValueError, "max_redirects"),
        ({"memory": 0}, ValueError, "memory"),
        ({"idle_timeout": 0}, ValueError, "idle_timeout"),
        ({"verify": b"no PEM"}, ValueError, ""),
        ({"nonsense": 1}, TypeError, ".*nonsense"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, Any], kind: type[Exception], name: str) -> None:
    with pytest.raises(kind, match=f"^{name}"):
        fullbore.Client(**options)
    with pytest.raises(kind, match=f"^{name}"):
        fullbore.AsyncClient(**options)


def test_every_kind_of_the_native_module_has_an_exception() -> None:
    from fullbore import _errors

    source = (pathlib.Path(__file__).parents[1] / "src" / "failure.rs").read_text()
    names = [line.split('"')[1] for line in source.split("fn name(")[1].splitlines() if "=> \"" in line]
    assert len(names) > 20
    assert [name for name in names if name not in _errors._BY_KIND and name != "other"] == []
