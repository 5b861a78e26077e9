"""The promises of docs/compatibility.md: the contract only grows; the page lists the private parts of JAX in use."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from packaging.version import Version

Run = Callable[..., str]
Reported = Callable[[Sequence[tuple[str, str, str]]], set[tuple[str, str]]]
MESH, ARRAY, ERROR = "mesh.proto", "array.proto", "error.proto"
SEGMENT, INFO, PROFILE = "segment_service.proto", "server_info_service.proto", "profile_service.proto"


@pytest.fixture(scope="module")
def buf(root: Path, run: Run, require: Callable[[bool, str], None]) -> Path:
    require(shutil.which("npm") is not None and shutil.which("make") is not None, "npm and make")
    run("make", "--no-print-directory", "buf")
    return root / "protos/node_modules/.bin/buf"


@pytest.fixture
def reported(root: Path, buf: Path, tmp_path: Path) -> Reported:
    """Returns how to list the files and the rules that buf reports after replacements in the present contract."""

    def compare(changes: Sequence[tuple[str, str, str]]) -> set[tuple[str, str]]:
        altered = tmp_path / "protos"
        for name in ("shardcall", "shardcall_inference", "shardcall_worker"):
            shutil.copytree(root / "protos" / name, altered / name)
        shutil.copy(root / "protos/buf.yaml", altered)
        for file, old, new in changes:
            proto = altered / "shardcall/v1" / file
            text = proto.read_text()
            assert text.count(old) == 1, (file, old)
            proto.write_text(text.replace(old, new))
        command = (buf, "breaking", altered, "--against", root / "protos", "--error-format", "json")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert not ended.stderr, ended.stderr
        entries = [json.loads(line) for line in ended.stdout.splitlines()]
        return {(Path(entry["path"]).name, entry["type"]) for entry in entries}

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


BREAKING = [
    (MESH, "  repeated int64 device_ids = 2;", "", "FIELD_NO_DELETE"),
    (MESH, "message MeshAxis {", "message Axis {", "MESSAGE_NO_DELETE"),
    (MESH, "repeated MeshAxis axes", "repeated Axis axes", "FIELD_SAME_TYPE"),
    (SEGMENT, "bytes segment_id = 1;", "bytes segment_id = 7;", "FIELD_NO_DELETE"),
    (SEGMENT, "string socket_path = 3;", "bytes socket_path = 3;", "FIELD_SAME_TYPE"),
    (SEGMENT, "bytes ticket = 4;", "repeated bytes ticket = 4;", "FIELD_SAME_CARDINALITY"),
    (SEGMENT, "double ticket_seconds = 5;", "double seconds = 5;", "FIELD_SAME_NAME"),
    (SEGMENT, "Timing timing = 6;", 'Timing timing = 6 [json_name = "t"];', "FIELD_SAME_JSON_NAME"),
    (SEGMENT, "(OpenSegmentRequest) returns", "(stream OpenSegmentRequest) returns", "RPC_SAME_CLIENT_STREAMING"),
    (SEGMENT, "(OpenSegmentResponse) {", "(stream OpenSegmentResponse) {", "RPC_SAME_SERVER_STREAMING"),
    (ARRAY, "  ELEMENT_TYPE_INT8 = 2;", "", "ENUM_VALUE_NO_DELETE"),
    (ERROR, "ERROR_REASON_KERNEL_NOT_FOUND = 2;", "ERROR_REASON_NO_KERNEL = 2;", "ENUM_VALUE_SAME_NAME"),
    (INFO, "rpc GetServerInfo(", "rpc GetInfo(", "RPC_NO_DELETE"),
    (PROFILE, "service ProfileService {", "service ProfilerService {", "SERVICE_NO_DELETE"),
]


def test_every_breaking_change_of_the_contract_is_reported(reported: Reported) -> None:
    rules = reported([change[:3] for change in BREAKING])
    assert {(file, rule) for file, _, _, rule in BREAKING} == rules


def test_additions_to_the_contract_are_allowed(reported: Reported) -> None:
    method = "  rpc Close(OpenSegmentRequest) returns (OpenSegmentResponse);"
    assert not reported(
        [
            (MESH, "int64 size = 2;", "int64 size = 2;\n  bool periodic = 3;"),
            (MESH, "// A grid of", "message Cell {}\n\n// A grid of"),
            (ARRAY, "  ELEMENT_TYPE_INT8 = 2;", "  ELEMENT_TYPE_INT8 = 2;\n  ELEMENT_TYPE_INT1 = 99;"),
            (SEGMENT, "service SegmentService {", "service SegmentService {\n" + method),
        ]
    )


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
