"""The wheel is a client that needs neither JAX nor the sources, and ships what type checkers need.

The sdist holds what the wheel is built from.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from project.conftest import Run
from servers import ServerProcess

import shardcall

pytestmark = pytest.mark.long

MIN_SCORE = 0.98
"""The part of the exported symbols that have types, as pyright counts; `make lint` checks `typed_results.py`."""
RunClient = Callable[[str], str]


def built(run: Run, target: str, folder: Path, **options: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder, **options)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def wheel(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(run, "wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def source(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that the sdist unpacks to."""
    archive = built(run, "sdist", folder := tmp_path_factory.mktemp("sdist"))
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module", params=["client", "client-protobuf6"])
def run_client(
    request: pytest.FixtureRequest, root: Path, run: Run, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> RunClient:
    """Returns how to run code in an environment of a locked client and the wheel alone."""
    target = tmp_path_factory.mktemp("venv") / request.param
    run(sys.executable, "-m", "venv", "--without-pip", target)
    python = target / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--require-hashes", "--requirement", root / "requirements" / f"{request.param}.txt")
    run(*pip, "--no-deps", "--no-index", wheel)
    return lambda code: run(python, "-I", "-W", "error", "-c", code, cwd=target, timeout_s=60)


def test_the_wheel_holds_the_five_packages_and_nothing_else(root: Path, wheel: Path) -> None:
    contents = archived_files(wheel).keys()
    packages = {"shardcall", "shardcall_core", "shardcall_inference", "shardcall_server", "shardcall_worker"}
    assert {top for name in contents if not (top := name.partition("/")[0]).endswith(".dist-info")} == packages
    sources = {
        file.relative_to(root / half).as_posix()
        for half in ("client", "server")
        for file in (root / half).rglob("*.py*")
        if "__pycache__" not in file.parts
    }
    assert "shardcall/v1/kernel_pb2.pyi" in sources
    page = [file.name for file in (root / "server/shardcall_server/frontend/web/static").iterdir()]
    assert len(page) == 5
    sources |= {f"shardcall_server/frontend/web/static/{name}" for name in page} | {"shardcall/py.typed"}
    assert not sources - contents
    assert [name for name in contents if name.endswith("licenses/LICENSE")]


def archived_files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_sdist_holds_what_the_wheel_and_the_stubs_are_built_from_and_nothing_else(source: Path) -> None:
    files = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert {path.name for path in source.iterdir()} == {"client", "server", "protos", *files}
    assert {path.name for path in (source / "client").iterdir()} == {"shardcall", "shardcall_core"}
    packages = {"shardcall_inference", "shardcall_server", "shardcall_worker"}
    assert {path.name for path in (source / "server").iterdir()} == packages
    assert not (source / "protos/node_modules").exists()


def test_the_sdist_builds_the_same_wheel(run: Run, source: Path, wheel: Path, tmp_path: Path) -> None:
    again = built(run, "wheel", tmp_path, cwd=source)
    assert (again.name, archived_files(again)) == (wheel.name, archived_files(wheel))


def test_the_version_is_that_of_the_client(wheel: Path) -> None:
    assert wheel.name.split("-")[1] == shardcall.__version__


def test_the_links_of_the_built_readme_lead_into_the_repository_at_this_version(root: Path, wheel: Path) -> None:
    (metadata,) = (
        data.decode() for name, data in archived_files(wheel).items() if name.endswith(".dist-info/METADATA")
    )
    targets = re.findall(r"\]\(([^)\s]+)\)", metadata)
    assert [target for target in targets if not target.startswith("https://")] == []
    repository = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    version = f"v{shardcall.__version__}"
    below = f"{repository}/blob/{version}/"
    pages = [target.removeprefix(below) for target in targets if target.startswith(repository)]
    raw = f"https://raw.githubusercontent.com/shardcall/shardcall/{version}/"  # a page of the repository is no picture
    pictures = [target.removeprefix(raw) for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", metadata)]
    paths = [page.partition("#")[0] for page in pages] + pictures
    assert len(pages) > 10
    assert pictures == ["docs/images/demo.svg"]
    assert [path for path in paths if not (root / path).exists()] == []


def test_the_client_comes_without_jax_and_describes_a_mesh(run_client: RunClient) -> None:
    code = (
        "import importlib.util, shardcall; print(shardcall.Mesh(x=8), *map(importlib.util.find_spec, ('jax', 'typer')))"
    )
    described, *others = run_client(code).rsplit(maxsplit=2)
    assert "8" in described
    assert others == ["None", "None"]


def test_the_client_gets_what_numpy_computes_through_a_unary_call_and_a_stream(
    run_client: RunClient, server: ServerProcess
) -> None:
    run_client(
        "import sys, numpy as np, shardcall as sc\n"
        f"with sc.connect({server.address!r}) as client:\n"
        "    for rows in (4, 4095):\n"
        "        x = np.arange(rows * 64, dtype='float64').reshape(rows, 64) ** 2\n"
        "        result = client.diff(x, axis=0, mesh=sc.Mesh(x=4), spec=sc.P('x', None))\n"
        "        np.testing.assert_array_equal(result.array, np.diff(x, axis=0), strict=True)\n"
        "assert 'jax' not in sys.modules\n"
    )


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
