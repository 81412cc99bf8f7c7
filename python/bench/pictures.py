"""Draws what measure.py has written: `python pictures.py ROUND-TRIPS.tsv MEMORY.tsv FOLDER`.

It writes python-round-trips.svg and python-memory.svg into the folder, and prints the medians as tables of Markdown.
"""

from __future__ import annotations

import math
import pathlib
import statistics
import sys
from collections.abc import Callable

#: The clients of many_files.py, their names, and their colours in light and dark.
CLIENTS = {
    "fullbore_many": ("fullbore, get_many", "#1a7f37", "#3fb950"),
    "fullbore_tasks": ("fullbore, tasks", "#4d9e66", "#7ee787"),
    "httpx_fullbore": ("httpx over fullbore", "#0a5cc2", "#6cb2ff"),
    "obstore_default": ("obstore", "#8250df", "#bc8cff"),
    "aiohttp_100": ("aiohttp, 100 connections", "#bc4c00", "#f0883e"),
    "httpx_http2": ("httpx, HTTP/2", "#cf222e", "#ff7b72"),
}
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 210, 34, 48

Medians = dict[str, dict[float, float]]


def medians(path: str, across: str, figure: str) -> Medians:
    heading, *rows = [line.split("\t") for line in pathlib.Path(path).read_text().splitlines()]
    client, x, y = heading.index("client"), heading.index(across), heading.index(figure)
    runs: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        runs.setdefault((row[client], float(row[x])), []).append(float(row[y]))
    found: Medians = {name: {} for name in CLIENTS}
    for (name, place), figures in runs.items():
        if name in found:
            found[name][place] = statistics.median(figures)
    return {name: points for name, points in found.items() if points}


def ticks(least: float, most: float) -> list[float]:
    """1, 2 and 5 of each power of ten between two figures."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    return [factor * 10.0**power for power in powers for factor in (1, 2, 5) if least <= factor * 10.0**power <= most]


def picture(title: str, across: str, up: str, found: Medians, shown: Callable[[float], str]) -> str:
    """Lines over places that are one as far from the next as the other, with a logarithmic scale."""
    places = sorted({place for points in found.values() for place in points})
    figures = [figure for points in found.values() for figure in points.values()]
    low, high = min(figures) / 1.25, max(figures) * 1.25

    def x(place: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * places.index(place) / max(len(places) - 1, 1)

    def y(figure: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(figure / low) / math.log(high / low)

    light = "".join(f".c{place}{{stroke:{colour}}}.t{place}{{fill:{colour}}}" for place, (_, colour, _) in enumerate(CLIENTS.values()))
    dark = "".join(f".c{place}{{stroke:{colour}}}.t{place}{{fill:{colour}}}" for place, (_, _, colour) in enumerate(CLIENTS.values()))
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="t">',
        f'<title id="t">{title}</title>',
        "<style>.back{fill:#fff}.text{fill:#1f2328}.dim{fill:#656d76}.line{stroke:#d8dee4}" + light,
        "@media (prefers-color-scheme: dark){.back{fill:#0d1117}.text{fill:#e6edf3}.dim{fill:#8d96a0}.line{stroke:#30363d}" + dark + "}</style>",
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
        "<g font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\" font-size=\"13\">",
        f'<text class="text" x="{LEFT}" y="20">{up}</text>',
    ]
    for tick in ticks(low, high):
        svg.append(f'<path class="line" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>')
        svg.append(f'<text class="dim" x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for place in places:
        svg.append(f'<text class="dim" x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{shown(place)}</text>')
    svg.append(f'<text class="text" x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{across}</text>')
    # Names stand beside the ends of their lines, with room for each.
    ends = sorted(found, key=lambda name: y(found[name][max(found[name])]))
    last = -math.inf
    for name in ends:
        number = list(CLIENTS).index(name)
        points = sorted(found[name].items())
        path = "L".join(f"{x(place):.1f} {y(figure):.1f}" for place, figure in points)
        svg.append(f'<path class="c{number}" d="M{path}" fill="none" stroke-width="2"/>')
        svg.extend(f'<circle class="t{number}" cx="{x(place):.1f}" cy="{y(figure):.1f}" r="3"/>' for place, figure in points)
        last = max(last + 16, y(points[-1][1]) + 4)
        svg.append(f'<text class="t{number}" x="{WIDTH - RIGHT + 10}" y="{last:.1f}">{CLIENTS[name][0]}</text>')
    return "\n".join([*svg, "</g></svg>", ""])


def table(found: Medians, across: str, shown: Callable[[float], str], digits: int) -> str:
    places = sorted({place for points in found.values() for place in points})
    lines = [f"| {across} | " + " | ".join(map(shown, places)) + " |", "|---|" + "---|" * len(places)]
    for name, points in found.items():
        cells = [f"{points[place]:.{digits}f}" if place in points else "–" for place in places]
        lines.append(f"| {CLIENTS[name][0]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(round_trips: str, memory: str, folder: str) -> None:
    def in_ms(place: float) -> str:
        return f"{place:g} ms"

    def in_files(place: float) -> str:
        return f"{place:,.0f}"

    seconds = medians(round_trips, "round trip ms", "seconds")
    title = "Seconds for 1,000 files of 10 KB by round trip, for six clients"
    svg = picture(title, "round trip", "seconds", seconds, in_ms)
    pathlib.Path(folder, "python-round-trips.svg").write_text(svg)
    print(table(seconds, "seconds", in_ms, 2), end="\n\n")
    peaks = medians(memory, "files", "peak MiB")
    title = "Peak memory in MiB by the number of files of 10 KB, for six clients"
    svg = picture(title, "files of 10 KB", "peak memory, MiB", peaks, in_files)
    pathlib.Path(folder, "python-memory.svg").write_text(svg)
    print(table(peaks, "MiB", in_files, 0))


if __name__ == "__main__":
    main(*sys.argv[1:4])
