"""Servers for the tests: one of HTTP/1.1 from the standard library, and the program `fullbore serve`."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator

REPOSITORY = pathlib.Path(__file__).parents[2]


class Handler(http.server.BaseHTTPRequestHandler):
    """What the path asks for."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int = 200, body: bytes = b"", headers: list[tuple[str, str]] | None = None) -> None:
        self.send_response(status)
        for name, value in headers or []:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        self.trailers: list[list[str]] = []
        if self.headers.get("transfer-encoding") == "chunked":
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            while line := self.rfile.readline().strip():
                name, _, value = line.decode().partition(":")
                self.trailers.append([name.lower(), value.strip()])
            return whole
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def do(self) -> None:
        path, _, query = self.path.partition("?")
        name = path.strip("/").split("/")[0] or "hello"
        page = getattr(self, f"page_{name}", None)
        if page is None:
            self.body()
            self.answer(404, b"not found")
        else:
            page(query)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do

    def page_hello(self, _: str) -> None:
        self.answer(body=b"hello", headers=[("content-type", "text/plain; charset=utf-8")])

    def page_echo(self, query: str) -> None:
        """What came, as JSON."""
        body = self.body()
        seen = {
            "method": self.command,
            "query": query,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "body": base64.b64encode(body).decode(),
            "trailers": self.trailers,
        }
        self.answer(body=json.dumps(seen).encode(), headers=[("content-type", "application/json")])

    def page_status(self, query: str) -> None:
        self.answer(int(query), b"status")

    def page_redirect(self, query: str) -> None:
        self.answer(302, headers=[("location", query or "/hello")])

    def page_headers(self, _: str) -> None:
        self.answer(headers=[("x-a", "1"), ("x-b", "2"), ("x-a", "3"), ("set-cookie", "k=v")])

    def page_latin(self, _: str) -> None:
        self.answer(body="café".encode("latin-1"), headers=[("content-type", "text/plain; charset=iso-8859-1")])

    def page_slow(self, query: str) -> None:
        """Waits before the response."""
        self.server.released.wait(float(query or 60))  # type: ignore[attr-defined]
        self.answer(body=b"slow")

    def page_drip(self, _: str) -> None:
        """Sends a half, and waits before the other one."""
        self.send_response(200)
        self.send_header("content-length", "10")
        self.end_headers()
        self.wfile.write(b"12345")
        self.wfile.flush()
        self.server.released.wait(60)  # type: ignore[attr-defined]
        self.wfile.write(b"67890")

    def page_broken(self, _: str) -> None:
        """Ends before the end."""
        self.send_response(200)
        self.send_header("content-length", "10")
        self.end_headers()
        self.wfile.write(b"12345")
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def page_garbled(self, _: str) -> None:
        """Sends a chunk, and then what is none."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\none\r\nthis is no size\r\n")
        self.wfile.flush()
        self.close_connection = True

    def page_hesitant(self, _: str) -> None:
        """Gives the first request no answer."""
        counts = self.server.counts  # type: ignore[attr-defined]
        counts[self.path] = counts.get(self.path, 0) + 1
        if counts[self.path] == 1:
            self.server.released.wait(60)  # type: ignore[attr-defined]
        self.answer(body=b"at last")

    def page_chunked(self, _: str) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("trailer", "x-after")
        self.end_headers()
        self.wfile.write(b"3\r\none\r\n3\r\ntwo\r\n0\r\nx-after: end\r\n\r\n")

    def page_large(self, query: str) -> None:
        self.answer(body=pattern(int(query)))

    def page_unsized(self, query: str) -> None:
        """A body without a length."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        body = pattern(int(query))
        self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))

    def page_boasting(self, query: str) -> None:
        """6 MiB of a body that is said to be longer."""
        self.send_response(200)
        self.send_header("content-length", query)
        self.end_headers()
        self.wfile.write(pattern(6 << 20))
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def page_later(self, query: str) -> None:
        """Says `Retry-After` the first times."""
        counts = self.server.counts  # type: ignore[attr-defined]
        counts[self.path] = counts.get(self.path, 0) + 1
        if counts[self.path] <= int(query):
            self.answer(503, headers=[("retry-after", "0")])
        else:
            self.answer(body=b"at last")

    def page_count(self, _: str) -> None:
        self.answer(body=json.dumps(self.server.counts).encode())  # type: ignore[attr-defined]

    def page_wrongrange(self, _: str) -> None:
        self.answer(206, b"xyz", [("content-range", "bytes 5-7/100")])

    def page_file(self, query: str) -> None:
        """A file of a version that breaks off after so many bytes, as long as there are breaks left."""
        server = self.server
        if server.busy > 0:  # type: ignore[attr-defined]
            server.busy -= 1  # type: ignore[attr-defined]
            self.answer(503, headers=[("retry-after", "0")])
            return
        if server.is_dead:  # type: ignore[attr-defined]
            self.close_connection = True
            return
        body = pattern(server.file_size)  # type: ignore[attr-defined]
        first = 0
        tag = f'"{server.file_version}"'  # type: ignore[attr-defined]
        range_ = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        server.ranges.append(self.headers.get("range"))  # type: ignore[attr-defined]
        if range_ and self.headers.get("if-range", tag) == tag:
            first = int(range_[1])
            self.send_response(206)
            self.send_header("content-range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("etag", tag)
        self.send_header("content-length", str(len(body) - first))
        self.end_headers()
        if server.breaks > 0:  # type: ignore[attr-defined]
            server.breaks -= 1  # type: ignore[attr-defined]
            server.is_dead = server.dies  # type: ignore[attr-defined]
            self.wfile.write(body[first : first + 40_000])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(body[first:])


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.released = threading.Event()
        self.counts: dict[str, int] = {}
        self.ranges: list[str | None] = []
        self.file_size = 100_000
        self.file_version = 1
        self.breaks = 0
        #: How often it says `Retry-After` before it sends a file.
        self.busy = 0
        #: Whether it answers no more once it has broken off.
        self.dies = self.is_dead = False

    def handle_error(self, *_: object) -> None:
        """Clients that go away are part of the tests."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def http1() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def pattern(size: int) -> bytes:
    """Bytes of which each part says where it is."""
    return b"".join(b"%015d\n" % place for place in range(0, size, 16))[:size]


def program() -> str | None:
    """The program `fullbore`: that of FULLBORE_BIN, or of a build of the repository."""
    names = [os.environ.get("FULLBORE_BIN"), *(str(REPOSITORY / f"target/{kind}/fullbore") for kind in ("debug", "release"))]
    found = [name for name in names if name and os.access(name, os.X_OK)]
    return found[0] if found else shutil.which("fullbore")


class Http2:
    """A folder that `fullbore serve` serves."""

    def __init__(self, url: str, folder: pathlib.Path, certificate: pathlib.Path | None, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.folder = folder
        self.certificate = certificate
        self.process = process


@contextlib.contextmanager
def http2(folder: pathlib.Path, state: pathlib.Path, *options: str, tls: bool = True) -> Iterator[Http2]:
    name = program()
    assert name is not None
    kind = "--self-signed" if tls else "--plaintext"
    command = [name, "serve", str(folder), kind, "--listen", "127.0.0.1:0", *options]
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert process.stdout is not None
        url = certificate = None
        while url is None or (tls and certificate is None):
            line = process.stdout.readline()
            assert line, "the server has ended"
            listening = re.search(r"listening on (\S+)", line)
            trusted = re.search(r"trust the certificate (\S+\.pem)", line)
            url = listening[1] if listening else url
            certificate = pathlib.Path(trusted[1]) if trusted else certificate
        yield Http2(url, folder, certificate, process)
    finally:
        process.kill()
        process.communicate()
