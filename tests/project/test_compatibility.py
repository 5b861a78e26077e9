"""What docs/compatibility.md promises: the contract only grows, and the page lists what depends on private parts of JAX."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from packaging.version import Version

Run = Callable[..., str]
Breaks = Callable[[str, str, str], str]
MESH, ARRAY, SEGMENT = "mesh.proto", "array.proto", "segment_service.proto"


@pytest.fixture(scope="module")
def buf(root: Path, run: Run, require: Callable[[bool, str], None]) -> Path:
    require(shutil.which("npm") is not None and shutil.which("make") is not None, "npm and make")
    run("make", "--no-print-directory", "buf")
    return root / "protos/node_modules/.bin/buf"


@pytest.fixture
def breaks(root: Path, buf: Path, tmp_path: Path) -> Breaks:
    """Returns what buf reports of the present contract after one replacement, compared with the present one."""

    def compare(file: str, old: str, new: str) -> str:
        altered = tmp_path / "protos"
        for name in ("shardcall", "shardcall_worker"):
            shutil.copytree(root / "protos" / name, altered / name)
        shutil.copy(root / "protos/buf.yaml", altered)
        proto = altered / "shardcall/v1" / file
        text = proto.read_text()
        assert text.count(old) == 1
        proto.write_text(text.replace(old, new))
        command = (buf, "breaking", altered, "--against", root / "protos")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert not ended.stderr, ended.stderr
        assert (ended.returncode == 0) == (not ended.stdout)
        return ended.stdout

    return compare


def kept(root: Path) -> list[Path]:
    """Returns the descriptors of the contract of all releases, from the first to the last."""
    return sorted((root / "protos/released").iterdir(), key=lambda file: Version(file.stem))


def test_descriptors_of_the_last_release_are_kept(root: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(kept(root)[-1].read_bytes()).file
    contract = {file.name for file in files if file.package == "shardcall.v1"}
    present = {f"shardcall/v1/{proto.name}" for proto in (root / "protos/shardcall/v1").glob("*.proto")}
    assert contract
    assert contract <= present
    assert not {file.package for file in files} - {"shardcall.v1", "google.protobuf"}


def test_the_contract_fits_that_of_the_last_release(root: Path, buf: Path, run: Run) -> None:
    assert not run(buf, "breaking", "--against", kept(root)[-1], cwd=root / "protos")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        pytest.param(MESH, "  int64 size = 2;", "", id="a field is removed"),
        pytest.param(MESH, "int64 size = 2;", "int64 size = 3;", id="a field has another number"),
        pytest.param(MESH, "int64 size = 2;", "int32 size = 2;", id="a field has another type"),
        pytest.param(MESH, "int64 size = 2;", "repeated int64 size = 2;", id="a field has another label"),
        pytest.param(MESH, "int64 size = 2;", 'int64 size = 2 [json_name="n"];', id="a field has another name in JSON"),
        pytest.param(MESH, "int64 size = 2;", "int64 count = 2;", id="a field has another name"),
        pytest.param(MESH, "package shardcall.v1;", "package shardcall.v2;", id="the package has another name"),
        pytest.param(ARRAY, "  ELEMENT_TYPE_INT8 = ", "  ELEMENT_TYPE_INT7 = ", id="an enum value has another name"),
        pytest.param(SEGMENT, "rpc OpenSegment(", "rpc Open(", id="a method has another name"),
        pytest.param(SEGMENT, "rpc OpenSegment(", "rpc OpenSegment(stream ", id="a method takes a stream"),
        pytest.param(
            SEGMENT, "(OpenSegmentResponse) {", "(stream OpenSegmentResponse) {", id="a method answers a stream"
        ),
        pytest.param(SEGMENT, "service SegmentService {", "service Segments {", id="a service has another name"),
    ],
)
def test_a_breaking_change_of_the_contract_is_reported(breaks: Breaks, file: str, old: str, new: str) -> None:
    assert file in breaks(file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        pytest.param(MESH, "int64 size = 2;", "int64 size = 2;\n  bool periodic = 3;", id="a field"),
        pytest.param(MESH, "// A grid of", "message Cell {}\n\n// A grid of", id="a message"),
        pytest.param(
            SEGMENT,
            "service SegmentService {",
            "service SegmentService {\n  rpc Close(OpenSegmentRequest) returns (OpenSegmentResponse);",
            id="a method",
        ),
    ],
)
def test_an_addition_to_the_contract_is_allowed(breaks: Breaks, file: str, old: str, new: str) -> None:
    assert not breaks(file, old, new)


def test_the_page_lists_every_private_module_of_jax_that_the_server_uses(root: Path) -> None:
    sources = [file.read_text() for half in ("client", "server") for file in (root / half).rglob("*.py")]
    used = {name for text in sources for name in re.findall(r"\bjax\._src[\w.]*", text)}
    page = (root / "docs/compatibility.md").read_text()
    assert used
    assert set(re.findall(r"^\| `(jax\._src[\w.]*)`", page, re.MULTILINE)) == used


def test_the_versions_of_python_that_the_metadata_states_are_those_of_the_tests_and_the_image(root: Path) -> None:
    pyproject = tomllib.loads((root / "pyproject.toml").read_text())
    stated = [name.rpartition(" ")[2] for name in pyproject["project"]["classifiers"] if ":: Python ::" in name]
    images = re.findall(r"^FROM python:(\d+\.\d+)", (root / "Dockerfile").read_text(), re.MULTILINE)
    assert stated == sorted(set(images)) == [pyproject["tool"]["mypy"]["python_version"]]
    assert f"Python {stated[0]}" in (root / "docs/compatibility.md").read_text()


def test_the_page_states_the_versions_of_jax_that_pyproject_allows(root: Path) -> None:
    (jax,) = [
        requirement.removeprefix("jax")
        for requirement in tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"][
            "server"
        ]
        if re.match(r"jax\W", requirement)
    ]
    assert f"`jax{jax}`" in (root / "docs/compatibility.md").read_text()
