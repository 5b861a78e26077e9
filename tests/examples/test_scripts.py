"""The examples as scripts: they start a server, say that what they check holds, and leave nothing behind."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from end_to_end.processes import wait_for
from examples.test_examples import EXAMPLES, SCRIPTS, failed, load

pytestmark = pytest.mark.long


def run(*command: str | Path, **variables: str) -> str:
    """Returns the output of a program of Python, which succeeds."""
    ended = subprocess.run(
        [sys.executable, *command],
        check=False,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


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


def test_the_factory_serves_three_layouts_of_a_size_that_is_not_divided(client):
    assert failed(load("ahead_of_time_factory").compare_layouts(client, 43)) == []


@pytest.mark.parametrize("rows", [4, 13, 4 * 7, 32])
def test_lhs_may_be_gathered_in_blocks_of_any_size(client, rows):
    assert failed(load("collective_matmul").gathered_lhs(client, rows, 12, 8)) == []


@pytest.mark.parametrize(("name", "options"), SCRIPTS.items())
def test_a_script_starts_a_server_and_leaves_no_process(name, options):
    mark = str(uuid.uuid4())
    output = run("-W", "error", EXAMPLES / f"{name}.py", *options, EXAMPLES_TEST_MARK=mark)
    wait_for(lambda: not marked(f"EXAMPLES_TEST_MARK={mark}"))  # the operating system may still tear one down
    assert "\nyes " in output
    assert "\nNO " not in output
