"""The contract only grows: buf compares it with that of the last release."""

import shutil
from pathlib import Path

import pytest
import yaml
from project.conftest import Require, Run
from project.test_repository import kept

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def buf(root: Path, run: Run, require: Require) -> Path:
    require(shutil.which("npm") is not None and shutil.which("make") is not None, "npm and make")
    run("make", "--no-print-directory", "buf")
    return root / "protos/node_modules/.bin/buf"


def test_the_contract_fits_that_of_the_last_release(root: Path, buf: Path, run: Run) -> None:
    assert not run(buf, "breaking", "--against", kept(root)[-1], cwd=root / "protos")


def test_buf_has_all_of_its_rules_for_files_without_exceptions(root: Path) -> None:
    """Under them a removed, renamed, renumbered or retyped part is a fault, and an addition is none."""
    assert yaml.safe_load((root / "protos/buf.yaml").read_text())["breaking"] == {"use": ["FILE"]}
