"""The examples of the guide and of both README.md run as they stand, against servers here."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import servers

PAGES = [servers.REPOSITORY / name for name in ("docs/guide/python.md", "README.md", "python/README.md")]
EXAMPLES = [
    example for page in PAGES for example in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
]

#: What an example imports that is no part of the package.
OPTIONAL = ("httpx", "requests", "fsspec", "zarr")


def run(code: list[str], folder: pathlib.Path, certificate: pathlib.Path | None) -> str:
    # They would lead away from here.
    away = re.compile(r".*_proxy|.*_ca_bundle", re.IGNORECASE)
    environment = {name: value for name, value in os.environ.items() if not away.fullmatch(name)}
    environment |= {"SSL_CERT_FILE": str(certificate), "PYTHONWARNINGS": "error"}
    command = [sys.executable, *code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=folder, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def site(https: servers.Http2) -> servers.Http2:
    (https.folder / "hello.txt").write_text("hello")
    zarr = pytest.importorskip("zarr")
    numpy = pytest.importorskip("numpy")
    if not (https.folder / "array.zarr").exists():
        values = numpy.arange(1_000_000, dtype="i8").reshape(1000, 1000)
        array = zarr.create_array(str(https.folder / "array.zarr"), shape=values.shape, chunks=(50, 50), dtype="i8")
        array[:] = values
    return https


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str, site: servers.Http2, server: servers.Server, folder: pathlib.Path) -> None:
    for name in re.findall(r"^import (\w+)$", example, re.MULTILINE):
        if name in OPTIONAL:
            pytest.importorskip(name)
    if "fsspec" in example:
        pytest.importorskip("aiohttp")
    # The certificate is for this name.
    here = site.url.replace("127.0.0.1", "localhost")
    code = example.replace("https://example.com", here).replace("http://api.example", server.url)
    assert code != example
    said = run(["-W", "default", "-c", code], folder, site.certificate)
    assert said or "print" not in code


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_cluster_sums_an_array(name: str, site: servers.Http2, folder: pathlib.Path) -> None:
    pytest.importorskip(name)
    program = servers.REPOSITORY / "python" / "examples" / f"{name}_sum.py"
    url = site.url.replace("127.0.0.1", "localhost") + "/array.zarr"
    said = run(["-W", "ignore", str(program), url, "2"], folder, site.certificate)
    assert int(said.split()[-1]) == sum(range(1_000_000))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 11
