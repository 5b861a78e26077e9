"""Draws one figure: times over sizes, both logarithmic. Runs where matplotlib is; see install_peers.py.

python -m harness.plots FILE.svg < FIGURE.json
"""

from __future__ import annotations

import json
import sys

import matplotlib as mpl
from matplotlib import pyplot

_STYLES = {"ours": "-o", "floor": ":", "peer": "--s"}


def main() -> None:
    figure = json.load(sys.stdin)
    mpl.use("svg")
    # Text as text and no dates: the file is the same if the figures are.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "shardcall"})
    fig, axes = pyplot.subplots(figsize=(9, 6))
    for line in figure["lines"]:
        sizes, seconds = zip(*line["points"], strict=True)
        axes.plot(sizes, [s * 1e3 for s in seconds], _STYLES[line["group"]], label=line["name"], markersize=3)
    axes.set(xscale="log", yscale="log", xlabel=figure["x"], ylabel="ms, median", title=figure["title"])
    axes.set_xticks(figure["ticks"], figure["tick_names"])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    fig.savefig(sys.argv[1], metadata={"Date": None}, bbox_inches="tight")


if __name__ == "__main__":
    main()
