"""Generated files are what their sources make: a page and methods of the functions, and the stubs of the protos."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from project import numpys_functions
from project.client_methods import PATH, source
from project.conftest import Require, Run
from project.numpys_functions import MEANINGLESS, functions


@pytest.mark.skipif(not np.__version__.startswith("2.4."), reason="the page is about NumPy 2.4")
def test_the_page_lists_the_functions():
    assert numpys_functions.PATH.read_text() == numpys_functions.page(), f"run {numpys_functions.__file__}"


def test_functions_without_a_meaning_are_functions_of_numpy():
    assert {name for names in MEANINGLESS.values() for name in names} <= set(functions(np))


def test_the_methods_are_those_of_the_table() -> None:
    assert PATH.read_text() == source(), "run `make functions`, and commit what it changes"


@pytest.fixture(scope="module")
def regenerated(root: Path, run: Run, require: Require, tmp_path_factory: pytest.TempPathFactory) -> Path:
    require(shutil.which("make") is not None, "make")
    run("make", "--no-print-directory", "venv-protos")
    target = tmp_path_factory.mktemp("stubs")
    run(root / "protos/generate", root / ".venv-protos/bin/python", target)
    return target


def stubs(below: Path) -> dict[str, bytes]:
    files = [file for half in ("client", "server") for file in (below / half).rglob("*_pb2*.py*")]
    return {str(file.relative_to(below)): file.read_bytes() for file in files if "__pycache__" not in file.parts}


def test_the_committed_stubs_are_byte_for_byte_the_generated_ones(root: Path, regenerated: Path) -> None:
    committed, generated = stubs(root), stubs(regenerated)
    assert committed.keys() == generated.keys(), "run `make protos`, and delete what no proto makes"
    stale = [name for name in generated if committed[name] != generated[name]]
    assert not stale, "run `make protos`; never edit a stub"


def test_every_proto_has_stubs(root: Path) -> None:
    sources = {Path(name).name.removesuffix("_pb2.py") for name in stubs(root) if name.endswith("_pb2.py")}
    protos = [proto for proto in (root / "protos").rglob("*.proto") if "node_modules" not in proto.parts]
    assert sources == {proto.stem for proto in protos}


def test_every_proto_names_its_package_in_go(root: Path) -> None:
    for proto in (root / "protos").glob("shardcall*/v1/*.proto"):
        package = proto.parent.parent.name
        path = f"github.com/shardcall/shardcall/gen/go/{package}/v1;{package.replace('_', '')}v1"
        assert f'option go_package = "{path}";\n' in proto.read_text(), proto
