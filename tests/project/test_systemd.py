"""deploy/systemd: the unit is valid, hardened, and starts a server with settings that exist."""

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from project.blocks import ROOT
from project.conftest import Require, Run

from shardcall_server.settings import Settings

pytestmark = pytest.mark.long

MAX_EXPOSURE = 1.2


FOLDER = ROOT / "deploy/systemd"
UNIT = (FOLDER / "shardcall.service").read_text()


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment]  # names keep their case
    parser.read_string(UNIT)
    return dict(parser["Service"])


@pytest.fixture
def unit(tmp_path: Path, require: Require) -> Path:
    """Returns the unit with the command of this environment, which `systemd-analyze verify` looks for."""
    require(shutil.which("systemd-analyze") is not None, "systemd-analyze")
    path = tmp_path / "shardcall.service"
    path.write_text(UNIT.replace("/opt/shardcall/bin/shardcall", str(Path(sys.executable).parent / "shardcall")))
    return path


def test_systemd_finds_no_fault_in_the_unit(unit: Path) -> None:
    command = ["systemd-analyze", "verify", str(unit)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # Other units of the machine may have faults of their own.
    assert not [line for line in ended.stderr.splitlines() if "shardcall" in line]


def test_the_unit_is_exposed_no_more_than_documented(unit: Path, run: Run) -> None:
    report = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    match = re.search(r"exposure level for \S+: ([\d.]+)", report)
    assert match
    assert float(match[1]) <= MAX_EXPOSURE
    assert f"exposure level {MAX_EXPOSURE}" in (ROOT / "docs/deployment.md").read_text()


def test_the_unit_is_notified_and_drains(service: dict[str, str]) -> None:
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert float(service["WatchdogSec"]) >= 10
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) > Settings().drain_s + 5
    assert float(service["TimeoutStartSec"]) > Settings().start_timeout_s
    assert service["MemoryDenyWriteExecute"] == "no"


def test_the_settings_of_the_example_exist_and_are_in_folders_of_the_unit(service: dict[str, str]) -> None:
    values = tomllib.loads((FOLDER / "server.toml").read_text())
    assert set(values) <= set(Settings.model_fields)
    assert service["ExecStart"].endswith("/shardcall serve --config /etc/shardcall/server.toml")
    assert service["StateDirectory"] == service["CacheDirectory"] == "shardcall"
    assert values["cache_dir"] == "/var/cache/shardcall"
    assert values["array_dir"].startswith("/var/lib/shardcall/")
