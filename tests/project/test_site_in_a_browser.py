"""The documentation site in headless Chromium: no faults by axe, no overflow on a phone, a search that works."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.long
def test_the_site_has_no_faults_in_a_browser(
    root: Path, run: Callable[..., str], require: Callable[[bool, str], None], tmp_path: Path
) -> None:
    require((root / ".venv-docs/bin/mkdocs").exists(), "environment of the site, which make venv-docs makes")
    require(shutil.which("chromedriver") is not None, "Chromium with its driver")
    variables = ("GALLERY=false", "NO_MKDOCS_2_WARNING=1")
    run("env", *variables, ".venv-docs/bin/mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path)
    assert run(".venv-docs/bin/python", "site_pages/browser_check.py", tmp_path, timeout_s=590).endswith(" 0 faults\n")
