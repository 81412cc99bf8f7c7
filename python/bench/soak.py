"""Runs requests for a time, and says whether anything grows or hangs: `python soak.py asyncio|dask|ray SECONDS`.

`asyncio` starts 10,000 tasks at a time, of which a third or more are canceled at some moment and some give a body up. `dask` and `ray` sum
an array of zarr on four processes, again and again. The server is `fullbore serve`, of FULLBORE_BIN or of a build of the repository.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import fullbore

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests"))
import servers  # type: ignore[import-not-found]  # noqa: E402

TASKS = 10_000
#: So many are started at once.
GROUP = 500
FILES = 200
#: No round takes this long: a task that is not over by then is stuck.
LONGEST_ROUND = 300.0
WORKERS = 4
#: Rows and columns of the array, in chunks of 10 by 100.
SHAPE = (2000, 10_000)


def resident(process: int | str = "self") -> float:
    """The memory of a process in MiB."""
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


class Report:
    """One line a round, and what grew from the first quarter of the time to the last one."""

    def __init__(self, seconds: float, names: str) -> None:
        self.began, self.seconds = time.monotonic(), seconds
        self.rounds: list[tuple[float, ...]] = []
        print("round\tseconds\t" + names, flush=True)

    def is_over(self) -> bool:
        return time.monotonic() - self.began >= self.seconds

    def add(self, *figures: float) -> None:
        self.rounds.append(figures)
        past = time.monotonic() - self.began
        print(f"{len(self.rounds)}\t{past:.1f}\t" + "\t".join(f"{figure:.1f}" for figure in figures), flush=True)

    def growth(self, place: int) -> float:
        quarter = max(len(self.rounds) // 4, 1)
        early = [figures[place] for figures in self.rounds[quarter : 2 * quarter] or self.rounds]
        late = [figures[place] for figures in self.rounds[-quarter:]]
        return max(late) / max(*early, 0.001)


async def one(client: fullbore.AsyncClient, url: str, number: int, chance: random.Random) -> int:
    place = f"{url}/{number % FILES}"
    if chance.random() < 0.1:
        async with client.stream("GET", place) as response:
            async for piece in response.iter_bytes(min_size=1):
                # The rest is given up.
                return -len(piece)
        return 0
    response = await client.get(place)
    assert response.content == servers.pattern(10_000 + number % FILES), place
    return 1


async def tasks(seconds: float, url: str, certificate: str) -> None:
    chance = random.Random(1)
    report = Report(seconds, "read\tgiven up\tcanceled\tMiB\thandles")
    async with fullbore.AsyncClient(verify=certificate, proxy=False) as client:
        while not report.is_over():
            started: list[asyncio.Task[int]] = []
            while len(started) < TASKS:
                numbers = range(len(started), len(started) + GROUP)
                group = [asyncio.create_task(one(client, url, number, chance)) for number in numbers]
                started += group
                # Some are canceled before they begin, and some once their request is sent.
                for task in chance.sample(group, GROUP // 10):
                    task.cancel()
                await asyncio.sleep(0)
                for task in chance.sample(group, GROUP // 3):
                    task.cancel()
            done, stuck = await asyncio.wait(started, timeout=LONGEST_ROUND)
            assert not stuck, f"{len(stuck)} tasks are stuck"
            assert len(asyncio.all_tasks()) == 1
            canceled = sum(task.cancelled() for task in done)
            results = [task.result() for task in done if not task.cancelled()]
            read = sum(result == 1 for result in results)
            del started, done, group
            report.add(read, len(results) - read, canceled, resident(), handles())
    print(f"memory of the last quarter to that of the second: {report.growth(3):.3f}; handles: {report.growth(4):.3f}")


def made(folder: pathlib.Path) -> int:
    """Makes the array, and returns its sum."""
    import numpy
    import zarr

    values = numpy.arange(SHAPE[0] * SHAPE[1], dtype="int64").reshape(SHAPE) % 1009
    array: Any = zarr.create_array(str(folder / "array.zarr"), shape=SHAPE, chunks=(10, 100), dtype="int64")
    array[:] = values
    return int(values.sum())


def repeated(seconds: float, expected: int, summed: Callable[[], int], memory: Callable[[], list[float]]) -> None:
    report = Report(seconds, "sum is right\tMiB of the largest process")
    while not report.is_over():
        found = summed()
        assert found == expected, (found, expected)
        report.add(1, max(memory()))
    print(f"memory of the last quarter to that of the second: {report.growth(1):.3f}")


def over_dask(seconds: float, url: str, expected: int) -> None:
    import dask.array as da
    import zarr
    from dask import distributed
    from fullbore.zarr import Store

    dask: Any = distributed
    arrays: Any = da
    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
    with dask.LocalCluster(n_workers=WORKERS, **options) as cluster, dask.Client(cluster) as client:
        client.run(zarr.config.set, {"async.concurrency": 1000})
        source: Any = zarr.open_array(Store(url, proxy=False), mode="r")

        def summed() -> int:
            return int(arrays.from_zarr(source, chunks=(500, 2500)).sum().compute())

        def memory() -> list[float]:
            return list(client.run(resident).values())

        repeated(seconds, expected, summed, memory)


def over_ray(seconds: float, url: str, expected: int) -> None:
    import ray
    import zarr
    from fullbore.zarr import Store

    class Worker:
        def __init__(self) -> None:
            zarr.config.set({"async.concurrency": 1000})
            self.source: Any = zarr.open_array(Store(url, proxy=False), mode="r")

        def part(self, first: int, end: int) -> int:
            return int(self.source[first:end].sum())

        def memory(self) -> float:
            return resident()

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    remote: Any = ray.remote(Worker)
    workers = [remote.remote() for _ in range(WORKERS)]
    step = SHAPE[0] // WORKERS

    def summed() -> int:
        asked = [worker.part.remote(step * place, step * (place + 1)) for place, worker in enumerate(workers)]
        return sum(ray.get(asked, timeout=LONGEST_ROUND))

    try:
        repeated(seconds, expected, summed, lambda: ray.get([worker.memory.remote() for worker in workers]))
    finally:
        ray.shutdown()


def main(kind: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, state = pathlib.Path(place, "files"), pathlib.Path(place, "state")
        folder.mkdir()
        if kind == "asyncio":
            for number in range(FILES):
                (folder / str(number)).write_bytes(servers.pattern(10_000 + number))
            with servers.http2(folder, state) as served:
                asyncio.run(tasks(seconds, served.url.rstrip("/"), str(served.certificate)))
            return
        expected = made(folder)
        with servers.http2(folder, state, tls=False) as served:
            {"dask": over_dask, "ray": over_ray}[kind](seconds, served.url.rstrip("/") + "/array.zarr", expected)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
