"""Executes notebooks and writes their outputs into them.

python examples/notebooks/execute.py            all notebooks of this folder
python examples/notebooks/execute.py FILE ...   some of them
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

CELL_TIMEOUT_S = 300
FOLDER = Path(__file__).parent


def execute(file: Path) -> None:
    """Executes a notebook in its folder; keeps no times, process ids, versions of the kernel and bars of progress."""
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": FOLDER}},
    ).execute()
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not _is_hidden_bar(output)]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, file)


def _is_hidden_bar(output: Any) -> bool:
    """Returns whether an output is a bar that was shown while a call took long; it is empty after that."""
    return output.output_type == "display_data" and not any(map("".join, output.data.values()))


def main() -> int:
    """Executes the notebooks that the command line names."""
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    with tempfile.TemporaryDirectory() as folder:  # the user's profile of IPython is neither read nor changed
        os.environ["IPYTHONDIR"] = folder
        for file in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
            print(file)
            execute(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
