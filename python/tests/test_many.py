"""Many URLs in one call."""

from __future__ import annotations

from typing import Any

import fullbore
import pytest
import servers


def test_many_urls_come_in_their_order(https: servers.Http2, secure: fullbore.Client) -> None:
    numbers = [*range(300)] * 3
    responses = secure.get_many((f"{https.url}/{number}.bin" for number in numbers), at_once=50)
    assert [response.content for response in responses] == [servers.pattern(1000 + number) for number in numbers]
    assert {response.http_version for response in responses} == {"HTTP/2"}
    assert secure.get_many([]) == []


def test_ranges_are_the_bytes_that_were_asked_for(https: servers.Http2, secure: fullbore.Client) -> None:
    url, whole = https.url + "/299.bin", servers.pattern(1299)
    ranges = [(0, 1), (5, 500), (1298, 1299), (1200, 5000)]
    responses = secure.get_many((url, start, end) for start, end in ranges)
    assert [response.content for response in responses] == [whole[start:end] for start, end in ranges]


def test_the_whole_from_a_server_without_ranges_is_cut(server: servers.Server, client: fullbore.Client) -> None:
    (response,) = client.get_many([(server.url + "/hello", 1, 4)])
    assert response.content == b"ell"


def test_a_wrong_range_is_an_error(server: servers.Server, client: fullbore.Client) -> None:
    with pytest.raises(fullbore.RangeError, match="bytes 0 to 3 were asked for"):
        client.get_many([(server.url + "/wrongrange", 0, 3)])
    (response,) = client.get_many([(server.url + "/wrongrange", 5, 8)])
    assert response.content == b"xyz"


def test_errors_are_raised_or_returned(server: servers.Server, client: fullbore.Client) -> None:
    urls = [server.url, server.url + "/status?404", "ftp://h/", server.url + "/broken", server.url]
    first, missing, invalid, broken, last = client.get_many(urls, errors="return")
    assert isinstance(first, fullbore.Response) and isinstance(last, fullbore.Response)
    assert isinstance(missing, fullbore.StatusError) and missing.status == 404
    assert isinstance(invalid, fullbore.InvalidURL)
    assert isinstance(broken, fullbore.ConnectionLost)
    with pytest.raises(fullbore.StatusError, match="404"):
        client.get_many(urls[:2])


def test_retry_after_is_obeyed_as_often_as_is_allowed(server: servers.Server, client: fullbore.Client) -> None:
    (response,) = client.get_many([server.url + "/later?3"])
    assert response.text == "at last"
    with pytest.raises(fullbore.StatusError, match="503"):
        client.get_many([server.url + "/later?2"], repeats=1)


def test_no_more_are_in_progress_than_allowed(server: servers.Server) -> None:
    with fullbore.Client(proxy=False, max_connections=50) as client:
        urls = [server.url + "/hello"] * 40
        client.get_many(urls, at_once=2)
        assert client.connections(server.url) <= 2


@pytest.mark.parametrize(
    ("urls", "options", "kind", "name"),
    [
        ("http://h/", {}, TypeError, "urls"),
        ([5], {}, TypeError, "urls"),
        ([("http://h/", 1)], {}, TypeError, "urls"),
        ([("http://h/", -1, 5)], {}, ValueError, "urls: start"),
        ([("http://h/", 5, 5)], {}, ValueError, "urls: end"),
        ([("http://h/", "1", 5)], {}, TypeError, "urls: start"),
        ([], {"at_once": 0}, ValueError, "at_once"),
        ([], {"repeats": -1}, ValueError, "repeats"),
        ([], {"errors": "ignore"}, ValueError, "errors"),
    ],
)
def test_a_wrong_argument_is_named(
    urls: Any, options: dict[str, Any], kind: type[Exception], name: str, client: fullbore.Client
) -> None:
    with pytest.raises(kind, match=f"^{name}"):
        client.get_many(urls, **options)
