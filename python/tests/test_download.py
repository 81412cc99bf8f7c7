"""Downloads into files."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from collections.abc import Callable
from typing import Any

import fullbore
import pytest
import servers


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_and_its_progress_told(
    https: servers.Http2, secure: fullbore.Client, folder: pathlib.Path
) -> None:
    told: list[tuple[int, int | None]] = []
    path = folder / "large.bin"
    whole = servers.pattern(5 << 20)
    digest = "sha256:" + hashlib.sha256(whole).hexdigest()
    done = secure.download(
        https.url + "/large.bin?secret", path, checksum=digest, progress=lambda *now: told.append(now)
    )
    assert path.read_bytes() == whole
    assert (done.path, done.size, done.resumed, done.url) == (path, 5 << 20, 0, https.url + "/large.bin")
    assert told[-1] == (5 << 20, 5 << 20)
    assert names(folder) == ["large.bin"]


def test_several_connections_carry_it_if_they_are_asked_for(
    https: servers.Http2, secure: fullbore.Client, folder: pathlib.Path
) -> None:
    done = secure.download(https.url + "/large.bin", folder / "a", connections=3)
    assert (folder / "a").read_bytes() == servers.pattern(5 << 20)
    assert done.connections >= 1


def test_another_digest_is_an_error_and_leaves_nothing(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    with pytest.raises(fullbore.ChecksumError):
        client.download(server.url, folder / "a", checksum="sha256:" + "00" * 32)
    assert names(folder) == []


def test_a_download_that_breaks_off_continues(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    server.breaks = 2
    done = client.download(server.url + "/file", folder / "a")
    assert (folder / "a").read_bytes() == servers.pattern(100_000)
    assert done.size == 100_000
    assert server.ranges == [None, "bytes=40000-", "bytes=80000-"]


def test_the_next_call_continues_what_the_last_one_left(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    server.breaks, server.dies = 1, True
    with pytest.raises(fullbore.ConnectionLost):
        client.download(server.url + "/file", folder / "a", repeats=0)
    server.is_dead = False
    assert len(names(folder)) == 1 and names(folder)[0].endswith(".part")
    done = client.download(server.url + "/file", folder / "a")
    assert (done.size, done.resumed) == (100_000, 40_000)
    assert (folder / "a").read_bytes() == servers.pattern(100_000)
    assert names(folder) == ["a"]


def test_a_file_that_has_changed_starts_again(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    server.breaks = 1

    def change(received: int, _: int | None) -> None:
        server.file_version = 2

    server.file_size = 120_000
    client.download(server.url + "/file", folder / "a", progress=change)
    assert (folder / "a").read_bytes() == servers.pattern(120_000)


def test_a_callback_of_a_download_may_use_clients(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    texts: list[str] = []

    def tell(*_: object) -> None:
        # The download completes during one of these.
        texts.append(client.get(server.url + "/slow?0.2").text)

    server.breaks = 1
    assert client.download(server.url + "/file", folder / "a", progress=tell).size == 100_000
    assert len(texts) >= 2 and set(texts) == {"slow"}


def test_a_callback_that_raises_ends_its_download_only(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    from fullbore import _wait

    def tell(*_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        client.download(server.url + "/drip", folder / "a", progress=tell)
    inbox = _wait._inbox()
    while inbox.given_up:
        assert client.get(server.url).text == "hello"
    assert inbox.results == {}


def test_a_response_that_does_not_come_in_time_is_asked_for_again(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    client.download(server.url + "/hesitant", folder / "a", timeout=fullbore.Timeout(response=1))
    assert (folder / "a").read_bytes() == b"at last"
    assert server.counts["/hesitant"] >= 2


def test_a_server_that_always_breaks_off_at_the_start_is_given_up(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    with pytest.raises(fullbore.ConnectionLost):
        client.download(server.url + "/broken", folder / "a", repeats=1)
    assert names(folder) == []


def test_a_status_and_a_folder_that_is_missing_are_errors(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    with pytest.raises(fullbore.StatusError, match="404"):
        client.download(server.url + "/status?404", folder / "a")
    with pytest.raises(fullbore.FileError) as raised:
        client.download(server.url, folder / "missing" / "a")
    assert isinstance(raised.value, OSError)
    assert names(folder) == []


def left_part(server: servers.Server, client: fullbore.Client, folder: pathlib.Path) -> pathlib.Path:
    """The part that a download has left."""
    server.breaks, server.dies = 1, True
    with pytest.raises(fullbore.ConnectionLost):
        client.download(server.url + "/file", folder / "a", repeats=0)
    server.is_dead = False
    (name,) = names(folder)
    return folder / name


def spoil_by_link(part: pathlib.Path) -> None:
    other = part.with_name("other")
    part.replace(other)
    part.symlink_to(other)


def spoil_by_second_name(part: pathlib.Path) -> None:
    part.with_name("other").hardlink_to(part)


def spoil_by_mode(part: pathlib.Path) -> None:
    part.chmod(0o666)


def spoil_by_pipe(part: pathlib.Path) -> None:
    part.unlink()
    os.mkfifo(part)


def spoil_by_folder(part: pathlib.Path) -> None:
    part.unlink()
    part.mkdir()


@pytest.mark.skipif(os.name != "posix", reason="files have no owners and modes")
@pytest.mark.parametrize("spoil", [spoil_by_link, spoil_by_second_name, spoil_by_mode, spoil_by_pipe, spoil_by_folder])
def test_a_part_that_others_may_have_written_is_not_continued(
    spoil: Callable[[pathlib.Path], None], server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    part = left_part(server, client, folder)
    spoil(part)
    kept = names(folder)
    done = client.download(server.url + "/file", folder / "a")
    assert (done.size, done.resumed) == (100_000, 0)
    assert (folder / "a").read_bytes() == servers.pattern(100_000)
    # What was in the way is as it was.
    assert names(folder) == sorted(["a", *kept])
    if part.is_file():
        assert part.read_bytes() == servers.pattern(40_000)


@pytest.mark.skipif(os.name != "posix", reason="files have no locks")
def test_a_part_that_another_download_writes_is_not_continued(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    import fcntl

    part = left_part(server, client, folder)
    with part.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert client.download(server.url + "/file", folder / "a").resumed == 0
    assert part.read_bytes() == servers.pattern(40_000)
    assert (folder / "a").read_bytes() == servers.pattern(100_000)


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
def test_a_folder_of_others_has_no_parts(server: servers.Server, client: fullbore.Client, folder: pathlib.Path) -> None:
    part = left_part(server, client, folder)
    folder.chmod(0o777)
    assert client.download(server.url + "/file", folder / "a").resumed == 0
    assert names(folder) == ["a", part.name]


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
def test_a_new_file_has_the_mode_of_any_other_and_one_that_is_replaced_keeps_its_own(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    (folder / "other").write_bytes(b"")
    client.download(server.url + "/file", folder / "a")
    assert (folder / "a").stat().st_mode == (folder / "other").stat().st_mode
    (folder / "a").chmod(0o600)
    client.download(server.url + "/file", folder / "a")
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o600


def test_a_server_that_says_when_is_asked_again(
    server: servers.Server, client: fullbore.Client, folder: pathlib.Path
) -> None:
    server.busy = 2
    client.download(server.url + "/file", folder / "a")
    assert (folder / "a").read_bytes() == servers.pattern(100_000)
    server.busy = 3
    with pytest.raises(fullbore.StatusError, match="503"):
        client.download(server.url + "/file", folder / "a", repeats=1)


@pytest.mark.parametrize(
    ("options", "kind", "name"),
    [
        ({"checksum": "abc"}, ValueError, "checksum"),
        ({"checksum": "md5:" + "00" * 16}, ValueError, "checksum"),
        ({"checksum": "sha256:00"}, ValueError, "checksum"),
        ({"checksum": 5}, TypeError, "checksum"),
        ({"connections": 0}, ValueError, "connections"),
        ({"repeats": -1}, ValueError, "repeats"),
        ({"progress": 5}, TypeError, "progress"),
    ],
)
def test_a_wrong_argument_is_named(
    options: dict[str, Any], kind: type[Exception], name: str, client: fullbore.Client, folder: pathlib.Path
) -> None:
    with pytest.raises(kind, match=f"^{name}"):
        client.download("http://h/", folder / "a", **options)
    with pytest.raises(TypeError, match="^path"):
        client.download("http://h/", 5)  # type: ignore[arg-type]
