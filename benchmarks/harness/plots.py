"""Draws one figure, of lines over sizes or of bars. It needs matplotlib; see install_peers.py.

python -m harness.plots FILE.svg < FIGURE.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot

_STYLES = {"ours": "-o", "floor": ":", "peer": "--s"}


def main() -> None:
    figure = json.load(sys.stdin)
    mpl.use("svg")
    # Text stays text, and there are no dates, so that equal figures give equal files.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "shardcall"})
    fig = draw_lines(figure) if "lines" in figure else draw_bars(figure)
    fig.savefig(sys.argv[1], metadata={"Date": None}, bbox_inches="tight")


def draw_lines(figure: dict[str, Any]) -> Any:
    """Draws times over sizes, on logarithmic axes."""
    fig, axes = pyplot.subplots(figsize=(9, 6))
    for line in figure["lines"]:
        sizes, seconds = zip(*line["points"], strict=True)
        axes.plot(sizes, [s * 1e3 for s in seconds], _STYLES[line["group"]], label=line["name"], markersize=3)
    axes.set(xscale="log", yscale="log", xlabel=figure["x"], ylabel="ms, median", title=figure["title"])
    axes.set_xticks(figure["ticks"], figure["tick_names"])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def draw_bars(figure: dict[str, Any]) -> Any:
    """Draws a group of bars for each row, with a bar for each series, and a line at the floor."""
    rows, series = figure["rows"], figure["bars"]
    height = 0.8 / len(series)
    fig, axes = pyplot.subplots(figsize=(9, 0.9 + len(rows) * (0.14 + 0.1 * len(series))))
    for i, (name, values) in enumerate(series.items()):
        axes.barh([r + i * height for r in range(len(rows))], values, height, label=name)
    axes.set_yticks([r + 0.4 - height / 2 for r in range(len(rows))], rows, fontsize=7)
    axes.invert_yaxis()
    axes.axvline(figure["floor"], color="black", linestyle=":", label=figure["floor_name"])
    axes.set(xscale=figure["scale"], xlabel=figure["x"], title=figure["title"])
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


if __name__ == "__main__":
    main()
