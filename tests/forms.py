"""The two forms of a run: the short one leaves out long files."""

import re
from functools import cache
from pathlib import Path

SHORT = "not long"
"""The expression of markers (`-m`) that selects the short form."""
LONG_FOLDERS = ("numpy_suite",)
"""Folders whose tests are all long."""
_LONG_FILE = re.compile(r"^pytestmark = .*\bmark\.long\b", re.MULTILINE)


@cache
def is_long(path: Path) -> bool:
    """Returns whether the tests of a file are in the long form alone: by its folder, or by the mark in its head."""
    return path.parent.name in LONG_FOLDERS or _LONG_FILE.search(path.read_text()) is not None
