"""The examples as scripts: they start a server, say that what they check holds, and leave nothing behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from examples.test_examples import EXAMPLES, SCRIPTS, failed, load

pytestmark = pytest.mark.long

STOP_TIMEOUT_S = 10


def test_the_factory_serves_three_layouts_of_a_size_that_is_not_divided(client):
    assert failed(load("ahead_of_time_factory").compare_layouts(client, 43)) == []


@pytest.mark.parametrize("rows", [4, 13, 4 * 7, 32])
def test_lhs_may_be_gathered_in_blocks_of_any_size(client, rows):
    assert failed(load("collective_matmul").gathered_lhs(client, rows, 12, 8)) == []


@pytest.mark.parametrize(("name", "options"), SCRIPTS.items())
def test_a_script_starts_a_server_and_leaves_no_process(name, options):
    mark = f"EXAMPLES_TEST_MARK={uuid.uuid4()}"
    ended = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", *options],
        check=False,
        env={**os.environ, **dict([mark.split("=")])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout
    assert [left for left in marked(mark) if not ends(left)] == []
    assert "\nyes " in ended.stdout
    assert "\nNO " not in ended.stdout


def marked(mark: str) -> list[int]:
    """The ids of the processes whose environment holds a mark: a script's descendants inherit it."""
    indices = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if mark.encode() in variables:
            indices.append(int(path.parent.name))
    return indices


def ends(pid: int) -> bool:
    """Returns whether a process exits by itself; the operating system may still tear it down after the script."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([descriptor], [], [], STOP_TIMEOUT_S)
        return bool(readable)
    finally:
        os.close(descriptor)
