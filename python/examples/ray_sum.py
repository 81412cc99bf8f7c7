"""Sums a zarr array that a server has, on the processes of Ray: `python ray_sum.py URL [WORKERS]`."""

from __future__ import annotations

import sys
from typing import Any

import ray
import zarr
from fullbore.zarr import Store

#: Chunks that a process asks for at a time. zarr's default is 10: over 100 ms that is 100 chunks a second.
AT_ONCE = 1000


@ray.remote
def part(url: str, first: int, end: int) -> int:
    """The sum of some rows."""
    with zarr.config.set({"async.concurrency": AT_ONCE}):
        source: Any = zarr.open_array(Store(url), mode="r")
        return int(source[first:end].sum())


def total(url: str, workers: int = 4) -> int:
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    try:
        source: Any = zarr.open_array(Store(url), mode="r")
        rows, chunk = source.shape[0], source.chunks[0]
        # Whole chunks, so that none is read twice.
        step = max(rows // workers // chunk, 1) * chunk
        return sum(ray.get([part.remote(url, first, min(first + step, rows)) for first in range(0, rows, step)]))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    print(total(sys.argv[1], *map(int, sys.argv[2:])))
