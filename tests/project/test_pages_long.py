"""The Python of every page, with arrays of the sizes that the page has; test_pages.py has the first pages alone."""

from pathlib import Path

import pytest
from project.blocks import PAGES, blocks_of, clients_of, run_python_of
from servers import ServerProcess

pytestmark = pytest.mark.long

WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clients_of(server.address, tmp_path, monkeypatch):
        run_python_of(page)
