"""Type checkers of users know the types of what the client exports; `make lint` checks `typed_results.py`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

MIN_SCORE = 0.98


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed: pip install pyright")
def test_exported_symbols_have_types(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["pyright", "--verifytypes", "shardcall", "--ignoreexternal", "--outputjson"]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
    )
    completeness = json.loads(ran.stdout)["typeCompleteness"]
    names = [symbol["name"] for symbol in completeness["symbols"] if not symbol["isTypeKnown"] and symbol["isExported"]]
    assert completeness["completenessScore"] >= MIN_SCORE, names
