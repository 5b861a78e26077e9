"""A package whose kernels cannot be loaded or built affects no other kernels, and its author gets the reason."""

import re
from pathlib import Path

import numpy as np
import pytest

import shardcall as sc

KERNELS = """
from shardcall_server.authoring import Kernel, OperandInfo, Signature, Strategy

def raises(problem, mesh):
    raise ValueError("the author's own mistake")

def leaves(problem, mesh):
    raise SystemExit("the author's own end")

def makes_too_little(problem, mesh):
    return lambda x: (x[:2],)

class Own(Kernel):
    version, summary, operands = 1, "Fails.", (OperandInfo("x", "Any."),)

    def __init__(self, build):
        self.name = build.__name__
        self.strategies = (Strategy("only", "The only one.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        return Signature(None, operands)

    def default_out_specs(self, problem, strategy):
        return problem.in_specs

class LeavesAtOnce(Own):
    def validate(self, operands, parameters):
        raise SystemExit("the author's own way out")

def leaves_at_once(problem, mesh):
    "Never called."

def kernels():
    return [*map(Own, (raises, leaves, makes_too_little)), LeavesAtOnce(leaves_at_once)]
"""
ENTRIES = """[shardcall.kernels]
ends = ends_when_imported:kernels
failing = failing_kernels:kernels
missing = failing_kernels:others
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the servers that are started find kernels that fail."""
    (tmp_path / "failing_kernels.py").write_text(KERNELS)
    (tmp_path / "ends_when_imported.py").write_text("raise SystemExit('usage: ends')\n")
    described = tmp_path / "failing_kernels-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: failing-kernels\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("package")
def test_failures_are_distinguished_from_the_compilers_refusals_and_shown_to_the_caller(capfd):
    with sc.local(devices=1) as client:
        for kernel in ("raises", "leaves", "makes_too_little"):
            with pytest.raises(sc.CompileFailedError, match=f"^the code of kernel '{kernel}' itself failed") as caught:
                client.call(kernel, np.arange(4.0))
            assert caught.value.metadata["error_id"] in str(caught.value)
            assert "author" not in str(caught.value)
        with pytest.raises(sc.InternalServerError, match="internal server error"):
            client.call("leaves_at_once", np.arange(4.0))
        assert client.diff([1.0, 4.0]).array == 3.0
    output = capfd.readouterr().err
    for entry in ("kernel=ends package=ends_when_imported:kernels", "kernel=missing package=failing_kernels:others"):
        assert f"shardcall server: error: a kernel could not be loaded {entry}\n" in output
    assert re.findall(r"^(?:\w+Error|SystemExit): .*", output, re.MULTILINE) == [
        "SystemExit: usage: ends",
        "AttributeError: module 'failing_kernels' has no attribute 'others'",
        "ValueError: the author's own mistake",
        "SystemExit: the author's own end",
        "AssertionError: makes_too_little/only promised float64[4] and made float64[2]",
        "SystemExit: the author's own way out",
    ]
