"""A package with a kernel of its own is installed, found by the server, checked and called."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

CHECK = """
import numpy as np
import shardcall as sc
from row_lengths import RowLengths
from shardcall_server.authoring import check

x = np.random.default_rng(0).standard_normal((13, 9))
expected = np.linalg.norm(x, axis=1)
report = check(RowLengths(), lambda x: np.linalg.norm(x, axis=1), x, rtol=1e-12, meshes=[{"x": 4, "y": 2}])
assert report.by_strategy["psum"] == report.cases > 10, report
print(report)
"""

CALL = """
import numpy as np
import shardcall as sc

x = np.random.default_rng(0).standard_normal((13, 9))
with sc.local(devices=8) as client:
    assert "row_lengths" in [kernel.name for kernel in client.kernels()]
    result = client.call("row_lengths", x, mesh=sc.Mesh(a=2, b=4), in_specs=[sc.P("a", "b")])
    np.testing.assert_allclose(result.array, np.linalg.norm(x, axis=1), rtol=1e-12)
    assert [c.opcode for c in result.plan.collectives] == ["all-reduce"]
    try:
        client.call("row_lengths", x[0])
    except sc.InvalidOperandError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def python(root: Path, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the example package, which has its dependencies from the tests' own."""
    target = tmp_path_factory.mktemp("own") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", target)
    (packages,) = target.glob("lib/python*/site-packages")
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "dependencies.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    python: Path = target / "bin/python"
    package = root / "examples/own_kernel"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--no-build-isolation", package)
    return python


def test_the_package_passes_the_check(run: Any, python: Path) -> None:
    assert "row_lengths: " in run(python, "-W", "error", "-c", CHECK, timeout_s=120)


def test_the_server_has_the_kernel(run: Any, python: Path) -> None:
    output = run(python, "-W", "error", "-c", CALL, timeout_s=120)
    assert "x is float64[9]; give a matrix of float32 or float64" in output


def test_the_example_is_40_lines(root: Path) -> None:
    (source,) = (root / "examples/own_kernel/src").rglob("*.py")
    assert len(source.read_text().splitlines()) <= 40
