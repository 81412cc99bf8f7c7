"""The client for threads."""

from __future__ import annotations

import base64
import email
import io
import os
import pathlib
import pickle
import sys
import threading
from typing import Any

import fullbore
import pytest
import servers


def seen(response: fullbore.Response) -> dict[str, Any]:
    value = response.json()
    value["body"] = base64.b64decode(value["body"])
    return value


def test_a_response_has_its_status_fields_version_and_body(server: servers.Server, client: fullbore.Client) -> None:
    response = client.get(server.url)
    assert (response.status, response.http_version, response.text) == (200, "HTTP/1.1", "hello")
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.url == server.url + "/"
    response = client.get(server.url + "/headers")
    assert response.headers.get_list("X-A") == ["1", "3"]
    assert response.headers["x-a"] == "1, 3"
    assert (b"x-a", b"3") in response.headers.raw
    assert response.content == b""


def test_https_speaks_http2_with_a_certificate_that_is_trusted(https: servers.Http2, secure: fullbore.Client) -> None:
    response = secure.get(https.url + "/7.bin")
    assert response.http_version == "HTTP/2"
    assert response.content == servers.pattern(1007)
    assert secure.connections(https.url) == 1


def test_http2_with_prior_knowledge_speaks_http2_in_cleartext(https: servers.Http2, folder: pathlib.Path) -> None:
    with servers.http2(https.folder, folder, tls=False) as plain:
        with fullbore.Client(proxy=False, http2_prior_knowledge=True) as client:
            assert client.get(plain.url + "/7.bin").http_version == "HTTP/2"
        with fullbore.Client(proxy=False) as client:
            assert client.get(plain.url + "/7.bin").http_version == "HTTP/1.1"
        with fullbore.Client(proxy=False, http1=False) as client:
            assert client.get(plain.url + "/7.bin").http_version == "HTTP/2"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_each_method_is_sent(method: str, server: servers.Server, client: fullbore.Client) -> None:
    response = getattr(client, method.lower())(server.url + "/echo?a=b", params={"c": ["d", "e f"]})
    assert seen(response)["method"] == method
    assert seen(response)["query"] == "a=b&c=d&c=e+f"


def test_head_has_no_body(server: servers.Server, client: fullbore.Client) -> None:
    response = client.head(server.url)
    assert (response.content, response.headers["content-length"]) == (b"", "5")


@pytest.mark.parametrize(
    "content",
    [b"bytes", "bytes", bytearray(b"bytes"), memoryview(b"-bytes")[1:], io.BytesIO(b"bytes"), [b"by", b"", b"tes"], (b"by", "tes")],
    ids=lambda content: type(content).__name__,
)
def test_a_body_may_be_of_many_kinds(content: Any, server: servers.Server, client: fullbore.Client) -> None:
    assert seen(client.post(server.url + "/echo", content=content))["body"] == b"bytes"


def test_a_file_is_sent_with_its_length_and_a_generator_in_chunks(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    path = folder / "file"
    path.write_bytes(servers.pattern(2_000_000))
    with path.open("rb") as file:
        file.seek(16)
        came = seen(client.put(server.url + "/echo", content=file))
    assert came["body"] == servers.pattern(2_000_000)[16:]
    assert ["content-length", "1999984"] in came["headers"]
    came = seen(client.put(server.url + "/echo", content=(b"x" * 100_000 for _ in range(30))))
    assert came["body"] == b"x" * 3_000_000
    assert ["transfer-encoding", "chunked"] in came["headers"]


def test_json_forms_and_credentials_have_their_fields(server: servers.Server, client: fullbore.Client) -> None:
    came = seen(client.post(server.url + "/echo", json={"k": ["ä", None]}, auth=("me", "pass")))
    assert came["body"] == '{"k":["ä",null]}'.encode()
    assert ["content-type", "application/json"] in came["headers"]
    assert ["authorization", "Basic bWU6cGFzcw=="] in came["headers"]
    came = seen(client.post(server.url + "/echo", data={"a": "b c"}, headers={"x-one": "1"}))
    assert (came["body"], ["x-one", "1"] in came["headers"]) == (b"a=b+c", True)


def test_redirects_are_followed_up_to_their_limit(server: servers.Server, client: fullbore.Client) -> None:
    response = client.get(server.url + "/redirect")
    assert (response.text, response.url) == ("hello", server.url + "/hello")
    with pytest.raises(fullbore.RedirectError):
        client.get(server.url + "/redirect?/redirect?")
        client.get(server.url + "/redirect?" + "/redirect?" * 12)
    with fullbore.Client(proxy=False, max_redirects=0) as none:
        assert none.get(server.url + "/redirect").status == 302
        # A request may have a limit of its own.
        assert none.get(server.url + "/redirect", max_redirects=1).text == "hello"
    assert client.get(server.url + "/redirect", max_redirects=0).status == 302
    with pytest.raises(fullbore.RedirectError):
        client.get(server.url + "/redirect?/redirect?", max_redirects=1)
    with pytest.raises(ValueError, match="^max_redirects"):
        client.get(server.url, max_redirects=-1)


def test_a_redirect_from_http_to_https_negotiates_http_2(
    server: servers.Server, https: servers.Http2, secure: fullbore.Client
) -> None:
    response = secure.get(f"{server.url}/redirect?{https.url}/7.bin")
    assert (response.http_version, response.content) == ("HTTP/2", servers.pattern(1007))
    assert secure.get(server.url).http_version == "HTTP/1.1"


def test_a_form_has_fields_and_files(server: servers.Server, client: fullbore.Client, folder: pathlib.Path) -> None:
    path = folder / "a.txt"
    path.write_bytes(b"of a file")
    with path.open("rb") as file:
        files: Any = [
            ("one", file),
            ("two", ('b".json', b"{}")),
            ("three", (None, "no file")),
            ("four", ("c", memoryview(b"view"), "image/png")),
        ]
        seen = client.post(server.url + "/echo", data={"k": ["v", 5]}, files=files).json()
    fields = dict(seen["headers"])
    body = base64.b64decode(seen["body"])
    assert fields["content-length"] == str(len(body))
    message = email.message_from_bytes(b"content-type: " + fields["content-type"].encode() + b"\r\n\r\n" + body)
    parts: list[Any] = list(message.get_payload())
    found = [
        (part.get_param("name", header="content-disposition"), part.get_filename(), part["content-type"], part.get_payload(decode=True))
        for part in parts
    ]
    assert found == [
        ("k", None, None, b"v"),
        ("k", None, None, b"5"),
        ("one", "a.txt", "text/plain", b"of a file"),
        ("two", "b%22.json", "application/json", b"{}"),
        ("three", None, None, b"no file"),
        ("four", "c", "image/png", b"view"),
    ]
    # Of a file whose length nobody knows, the body comes in chunks.
    read, write = os.pipe()
    os.write(write, b"piped")
    os.close(write)
    with open(read, "rb") as pipe:
        seen = client.post(server.url + "/echo", files={"p": ("p", pipe)}).json()
    assert b"\r\n\r\npiped\r\n--" in base64.b64decode(seen["body"])
    assert dict(seen["headers"])["transfer-encoding"] == "chunked"
    for wrong, kind in (({"a": 5}, TypeError), ("text", TypeError), ({"a": ("x",)}, TypeError), ({"a": (5, b"")}, TypeError)):
        with pytest.raises(kind, match="^files"):
            client.post(server.url, files=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^files go with data"):
        client.post(server.url, files={}, json={})


@pytest.mark.parametrize("content", [None, b"body", [b"in", b"pieces"]])
def test_fields_behind_the_body_of_a_request_are_sent(content: Any, server: servers.Server, client: fullbore.Client) -> None:
    seen = client.post(server.url + "/echo", content=content, trailers={"x-after": "end"}).json()
    assert base64.b64decode(seen["body"]) == b"".join([content] if isinstance(content, bytes) else content or [])
    assert ["x-after", "end"] in seen["trailers"]
    with pytest.raises(ValueError, match="name of a field"):
        client.post(server.url, content=content, trailers={"x y": "z"})


def test_text_is_in_the_charset_that_the_response_names(server: servers.Server, client: fullbore.Client) -> None:
    assert client.get(server.url + "/latin").text == "café"


def test_a_status_is_an_error_when_it_is_asked_for(server: servers.Server, client: fullbore.Client) -> None:
    assert client.get(server.url).raise_for_status().status == 200
    response = client.get(server.url + "/status?503")
    with pytest.raises(fullbore.StatusError, match="503") as raised:
        response.raise_for_status()
    assert raised.value.status == 503


def test_a_body_is_read_in_pieces_of_the_size_that_is_asked_for(server: servers.Server, client: fullbore.Client) -> None:
    whole = servers.pattern(3_000_000)
    with client.stream("GET", server.url + "/large?3000000") as response:
        pieces = list(response.iter_bytes(500_000))
    assert b"".join(pieces) == whole
    assert all(len(piece) >= 500_000 for piece in pieces[:-1])
    buffer = bytearray(1_000_001)
    with client.stream("GET", server.url + "/large?3000000") as response:
        sizes = [response.readinto(buffer) for _ in range(4)]
        assert sizes == [1_000_001, 1_000_001, 999_998, 0]
        assert bytes(buffer[: sizes[2]]) == whole[2_000_002:]


@pytest.mark.parametrize("page", ["large", "unsized"])
def test_a_large_body_is_read_as_a_whole_with_and_without_a_length(
    page: str, server: servers.Server, client: fullbore.Client
) -> None:
    size = (9 << 20) + 7
    assert client.get(f"{server.url}/{page}?{size}").content == servers.pattern(size)
    with client.stream("GET", f"{server.url}/{page}?{size}") as response:
        begin = bytearray(5_000_003)
        assert response.readinto(begin) == len(begin)
        assert begin + response.read() == servers.pattern(size)


def test_a_large_body_is_in_memory_once(server: servers.Server, client: fullbore.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[io.BytesIO] = []

    class Kept(io.BytesIO):
        def __init__(self, content: bytes = b"") -> None:
            super().__init__(content)
            reserved.append(self)

    monkeypatch.setattr("fullbore._whole.BytesIO", Kept)
    content = client.get(f"{server.url}/large?{9 << 20}").content
    assert len(reserved) == 1
    # What has no copy of its own is the same object.
    assert reserved[0].getvalue() is content


@pytest.mark.parametrize("announced", [7 << 20, 1 << 30, 1 << 62])
def test_bytes_that_are_announced_and_do_not_come_take_no_memory(
    announced: int, server: servers.Server, client: fullbore.Client
) -> None:
    resource = pytest.importorskip("resource")
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    with pytest.raises(fullbore.Error) as raised:
        client.get(f"{server.url}/boasting?{announced}")
    assert not isinstance(raised.value, MemoryError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before < 256 << 20


def test_readinto_wants_a_buffer_that_can_be_written(server: servers.Server, client: fullbore.Client) -> None:
    with client.stream("GET", server.url) as response:
        with pytest.raises(TypeError, match="buffer must be writable"):
            response.readinto(memoryview(b"12345"))
        room = memoryview(bytearray(9))
        assert response.readinto(room[2:4]) == 2
        assert response.readinto(room[4:]) == 3
        assert room.tobytes() == b"\0\0hello\0\0"


def test_trailers_are_there_when_the_body_was_read(server: servers.Server, client: fullbore.Client) -> None:
    response = client.get(server.url + "/chunked")
    assert (response.content, dict(response.trailers)) == (b"onetwo", {"x-after": "end"})


def test_a_closed_response_reads_no_more(server: servers.Server, client: fullbore.Client) -> None:
    with client.stream("GET", server.url + "/large?3000000") as response:
        pass
    with pytest.raises(fullbore.Closed):
        response.read()
    with client.stream("GET", server.url + "/hello") as response:
        with pytest.raises(fullbore.Closed, match="call read"):
            _ = response.text


def test_a_closed_client_sends_no_more(server: servers.Server) -> None:
    with fullbore.Client(proxy=False) as client:
        client.get(server.url)
    assert client.is_closed
    with pytest.raises(fullbore.Closed, match="the client is closed"):
        client.get(server.url)
    client.close()


def test_many_threads_share_a_client(https: servers.Http2, secure: fullbore.Client) -> None:
    wrong: list[int] = []

    def get(first: int) -> None:
        for number in range(first, 300, 8):
            if secure.get(f"{https.url}/{number}.bin").content != servers.pattern(1000 + number):
                wrong.append(number)

    threads = [threading.Thread(target=get, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_report_says_what_was_waited_for(https: servers.Http2, secure: fullbore.Client) -> None:
    assert secure.report() is None
    secure.get(https.url + "/large.bin")
    report = secure.report()
    assert report is not None and report.startswith("HTTP/2: ") and "% of the time" in report


def test_a_pickled_client_has_the_same_settings_and_is_one_in_a_process(server: servers.Server) -> None:
    with fullbore.Client(proxy=False, headers={"x-mine": "1"}, timeout=7) as client:
        pickled = pickle.dumps(client)
    one, other = pickle.loads(pickled), pickle.loads(pickled)
    assert one is other
    assert one.timeout == fullbore.Timeout(7, 7, 7, 7, 7)
    assert ["x-mine", "1"] in seen(one.get(server.url + "/echo"))["headers"]
    one.close()
    assert pickle.loads(pickled) is not one
