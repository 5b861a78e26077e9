"""The notebooks: their committed outputs are those of their cells."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from examples.test_scripts import run
from rows import rows

pytestmark = pytest.mark.long

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples/notebooks"
FILES = sorted(NOTEBOOKS.glob("*.ipynb"))


def cells(file: Path) -> list[dict[str, Any]]:
    """Returns the cells of code of a notebook."""
    return [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> list[object]:
    """Returns what a cell shows; of a cell whose output depends on the machine only the kinds of its outputs."""
    varies = "varies" in cell["metadata"].get("tags", ())
    return [kinds(output) if varies else content(output) for output in cell["outputs"]]


def kinds(output: dict[str, Any]) -> object:
    return output["output_type"], sorted(output.get("data", ()))


def content(output: dict[str, Any]) -> object:
    """Returns the kinds of an output and its text; tests/client has tests of the drawings."""
    return kinds(output), "".join(output.get("data", {}).get("text/plain", output.get("text", "")))


@rows("file", FILES)
def test_every_cell_was_executed_from_the_first_to_the_last(file: Path) -> None:
    assert [cell["execution_count"] for cell in cells(file)] == list(range(1, len(cells(file)) + 1))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_notebook_shows_what_its_cells_return(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / file.name
    shutil.copy(file, copy)
    run(NOTEBOOKS / "execute.py", copy)
    for committed, executed in zip(cells(file), cells(copy), strict=True):
        assert shown(executed) == shown(committed), "run make notebooks, and look at what it changes"
