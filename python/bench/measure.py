"""Runs the clients of many_files.py in turns, and writes what each run took: `python measure.py round-trips|memory|large FILE`.

`round-trips` gets 1,000 files of 10 KB over several round trips, `memory` gets some numbers of them over 20 ms, and `large` one file
on loopback, beside `fullbore get`. The program is that of FULLBORE_BIN, or of a build of the repository. Each run has a process of
its own. FILE gets a row a run, separated by tabs.
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
LARGE = ["fullbore_content", "fullbore_stream", "fullbore_async_stream", "fullbore_download", "httpx_http2_stream"]
#: The program beside them, and where it saves the file.
PROGRAM = {"fullbore get": os.devnull, "fullbore get, saved": os.path.join(tempfile.gettempdir(), "fullbore-saved")}
ROUND_TRIPS = [0, 20, 100, 230]
COUNTS = [1_000, 4_000, 10_000]
FILE = 10_000
SIZES = {"64 MiB": 64 << 20, "1 GiB": 1 << 30}
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


def many(out: pathlib.Path, served: servers.Http2, round_trips: list[int], counts: list[int]) -> None:
    with out.open("a") as table:
        for milliseconds in round_trips:
            with link(served.url.rstrip("/"), milliseconds) as url:
                for count in counts:
                    for number in range(RUNS):
                        for client in MANY:
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
            for number in range(max(COUNTS) if what == "memory" else 1_000):
                (folder / str(number)).write_bytes(servers.pattern(FILE))
        with servers.http2(folder, state) as served:
            if what == "large":
                large(out, served)
            elif what == "memory":
                many(out, served, [20], COUNTS)
            else:
                many(out, served, ROUND_TRIPS, [1_000])


if __name__ == "__main__":
    main(*sys.argv[1:3])
