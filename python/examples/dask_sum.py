"""Sums a zarr array that a server has, on the processes of a Dask cluster: `python dask_sum.py URL [WORKERS]`."""

from __future__ import annotations

import sys
from typing import Any

import dask.array as da
import zarr
from dask import distributed
from fullbore.zarr import Store

#: Chunks that a process asks for at a time. zarr's default is 10: over 100 ms that is 100 chunks a second.
AT_ONCE = 1000

#: A task of Dask gets a block of chunks. One chunk a task would be a thousand times the work for the scheduler.
BLOCK = 100


def total(url: str, workers: int = 4) -> int:
    # Dask has no types.
    dask: Any = distributed
    arrays: Any = da
    options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
    with dask.LocalCluster(n_workers=workers, **options) as cluster, dask.Client(cluster) as client:
        client.run(zarr.config.set, {"async.concurrency": AT_ONCE})
        source: Any = zarr.open_array(Store(url), mode="r")
        blocks = tuple(size * BLOCK for size in source.chunks)
        return int(arrays.from_zarr(source, chunks=blocks).sum().compute())


if __name__ == "__main__":
    print(total(sys.argv[1], *map(int, sys.argv[2:])))
