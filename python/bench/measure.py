"""Runs the clients of many_files.py in turns, and writes what each run took:

    python measure.py round-trips|memory|clients|packets|large FILE

`round-trips` gets 1,000 files of 10 KB over several round trips, and `memory` some numbers of them over 20 ms. `clients` gets 10,000
over 100 ms with further clients, and `packets` COUNT of them (1,000) over a path of packets that loses one in 1,000: it takes root, and
the program of FULLBORE_BENCH. `large` gets one file on loopback, beside `fullbore get`. The program is that of FULLBORE_BIN, or of a
build of the repository. Each run has a process of its own. FILE gets a row a run, separated by tabs.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
import servers  # type: ignore[import-not-found]  # noqa: E402

MANY = ["fullbore_many", "fullbore_tasks", "httpx_fullbore", "httpx_http2", "aiohttp_100", "obstore_default"]
CLIENTS = [
    "fullbore_get",
    "fullbore_many",
    "httpx_fullbore",
    "fsspec_fullbore",
    "zarr_fullbore",
    "httpx_http2",
    "aiohttp_100",
    "obstore_default",
    "niquests_http2",
    "pycurl_http2",
]
LARGE = ["fullbore_content", "fullbore_stream", "fullbore_async_stream", "fullbore_download", "httpx_http2_stream"]
#: The program beside them, and where it saves the file.
PROGRAM = {"fullbore get": os.devnull, "fullbore get, saved": os.path.join(tempfile.gettempdir(), "fullbore-saved")}
ROUND_TRIPS = [0, 20, 100, 230]
COUNTS = [1_000, 4_000, 10_000]
FILE = 10_000
SIZES = {"64 MiB": 64 << 20, "1 GiB": 1 << 30}
COUNT = int(os.environ.get("COUNT", "1000"))
RUNS = int(os.environ.get("RUNS", "5"))
HEADING = "client\tround trip ms\tfiles\trun\tseconds\tprocessor seconds\tpeak MiB\n"


@contextlib.contextmanager
def link(url: str, milliseconds: int) -> Iterator[str]:
    """A path with this round trip and 1 Gbit/s to the server; the server itself without one."""
    if milliseconds == 0:
        yield url
        return
    to = url.split("//")[1].strip("/")
    name = servers.program()
    assert name is not None
    command = [name, "link", "--to", to, "--listen", "127.0.0.1:0", "--rtt", f"{milliseconds}ms", "--rate", "1Gbit", "--handshake"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        listening = None
        while listening is None:
            line = process.stdout.readline()
            assert line, "the link has ended"
            listening = re.search(r"listening on (\S+)", line)
        yield "https://" + listening[1].replace("127.0.0.1", url.split("//")[1].rsplit(":", 1)[0])
    finally:
        process.kill()
        process.communicate()


def run(script: str, *arguments: str) -> list[str] | None:
    """What a client says: its name, the seconds, those of the processor and the memory."""
    ended = subprocess.run([sys.executable, str(HERE / script), *arguments], capture_output=True, text=True, timeout=600)
    if ended.returncode:
        print(arguments[0], ended.stderr[-300:], file=sys.stderr)
        return None
    return [figure.split()[0] for figure in ended.stdout.strip().split("\t")]


def get(title: str, url: str, certificate: str, target: pathlib.Path) -> list[str]:
    """What `fullbore get` takes for a large file."""
    name = servers.program()
    assert name is not None
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([name, "get", url, "--output", str(target), "--cacert", certificate], capture_output=True, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if target.is_file():
        target.unlink()
    return [title, f"{wall:.2f}", f"{used:.2f}", "-"]


def packets(out: pathlib.Path, folder: pathlib.Path, state: pathlib.Path) -> None:
    """Each run has a path of its own. Its losses are drawn from the number of the run."""
    name, bench = servers.program(), os.environ.get("FULLBORE_BENCH", "fullbore-bench")
    assert name is not None
    server = f"env XDG_STATE_HOME={state} {name} serve {folder} --self-signed --listen 10.91.0.1:8443"

    def path(seed: int, *command: str) -> str | None:
        options = ["--delay", "50ms", "--rate", "1Gbit", "--loss", "0.1%", "--cc", "cubic", "--seed", str(seed), "--server", server]
        ended = subprocess.run([bench, "packet-path", *options, "--", *command], capture_output=True, text=True, timeout=600)
        if ended.returncode:
            print(*command[2:3], ended.stderr[-600:], file=sys.stderr)
            return None
        return ended.stdout

    # The first server makes the certificate.
    path(0, "sleep", "0.3")
    certificate = next((state / "fullbore" / "self-signed").glob("*.pem"))
    with out.open("a") as table:
        for number in range(RUNS):
            for client in CLIENTS:
                script, url = str(HERE / "many_files.py"), "https://10.91.0.1:8443"
                said = path(number + 1, sys.executable, script, client, url, str(certificate), str(COUNT))
                for line in (said or "").splitlines():
                    if line.startswith(client + "\t"):
                        told = [figure.split()[0] for figure in line.split("\t")]
                        print("\t".join([client, "100", str(COUNT), str(number), *told[1:4]]), file=table, flush=True)


def many(out: pathlib.Path, served: servers.Http2, round_trips: list[int], counts: list[int], clients: list[str]) -> None:
    with out.open("a") as table:
        for milliseconds in round_trips:
            with link(served.url.rstrip("/"), milliseconds) as url:
                for count in counts:
                    for number in range(RUNS):
                        for client in clients:
                            told = run("many_files.py", client, url, str(served.certificate), str(count))
                            if told:
                                print("\t".join([told[0], str(milliseconds), str(count), str(number), *told[1:4]]), file=table, flush=True)


def large(out: pathlib.Path, served: servers.Http2) -> None:
    with out.open("a") as table:
        for size in SIZES:
            url = f"{served.url.rstrip('/')}/{size.replace(' ', '-')}"
            for number in range(RUNS):
                for client in [*PROGRAM, *LARGE]:
                    if client in PROGRAM:
                        told: list[str] | None = get(client, url, str(served.certificate), pathlib.Path(PROGRAM[client]))
                    else:
                        told = run("large_file.py", client, url, str(served.certificate))
                    if told:
                        print("\t".join([told[0], "0", size, str(number), *told[1:4]]), file=table, flush=True)


def main(what: str, name: str) -> None:
    out = pathlib.Path(name)
    out.write_text(HEADING)
    with tempfile.TemporaryDirectory() as place:
        folder, state = pathlib.Path(place, "files"), pathlib.Path(place, "state")
        folder.mkdir()
        if what == "large":
            for title, size in SIZES.items():
                with (folder / title.replace(" ", "-")).open("wb") as file:
                    for _ in range(size >> 20):
                        file.write(os.urandom(1 << 20))
        else:
            for number in range(10_000):
                (folder / str(number)).write_bytes(servers.pattern(FILE))
        if what == "packets":
            packets(out, folder, state)
            return
        with servers.http2(folder, state) as served:
            if what == "large":
                large(out, served)
            elif what == "memory":
                many(out, served, [20], COUNTS, MANY)
            elif what == "clients":
                many(out, served, [100], [10_000], CLIENTS)
            else:
                many(out, served, ROUND_TRIPS, [1_000], MANY)


if __name__ == "__main__":
    main(*sys.argv[1:3])
