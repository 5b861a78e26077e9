"""Pictures beside a report, if matplotlib is installed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.asking import PEERS_DIR, peer_python


def picture(figure: Mapping[str, object], report: Path, part: str, peers_dir: Path = PEERS_DIR) -> str:
    """Draws a figure into a file beside a report; returns the line of the report that shows it.

    Args:
        figure: as `harness.plots` takes it.
        report: the file that the line is for.
        part: of the report, for the picture's name.
        peers_dir: where install_peers.py has put matplotlib.
    """
    python = peer_python(peers_dir, "plots")
    if not python.exists():
        return "No plot: matplotlib is not installed; see install_peers.py."
    target = report.resolve().with_name(f"{report.stem}-{part}.svg")
    command = [str(python), "-m", "harness.plots", str(target)]
    subprocess.run(command, input=json.dumps(figure), text=True, check=True, cwd=Path(__file__).parents[1])
    return f"![{figure['title']}]({target.name})"
