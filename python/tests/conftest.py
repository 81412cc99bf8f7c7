"""Servers and clients that tests share."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import fullbore
import pytest
import servers


@pytest.fixture
def server() -> Iterator[servers.Server]:
    with servers.http1() as server:
        yield server


@pytest.fixture(scope="session")
def https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Http2]:
    if servers.program() is None:
        pytest.skip("the program fullbore is not built: cargo build -p fullbore-cli")
    folder = tmp_path_factory.mktemp("files")
    for number in range(300):
        (folder / f"{number}.bin").write_bytes(servers.pattern(1000 + number))
    (folder / "large.bin").write_bytes(servers.pattern(5 << 20))
    with servers.http2(folder, tmp_path_factory.mktemp("state")) as served:
        yield served


@pytest.fixture
def client() -> Iterator[fullbore.Client]:
    with fullbore.Client(proxy=False) as client:
        yield client


@pytest.fixture
def secure(https: servers.Http2) -> Iterator[fullbore.Client]:
    with fullbore.Client(proxy=False, verify=str(https.certificate)) as client:
        yield client


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path
