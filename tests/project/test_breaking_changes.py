"""The contract only grows: buf reports every change of it that breaks a client, and no addition."""

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from project.conftest import Require, Run
from project.test_compatibility import kept

pytestmark = pytest.mark.long

Reported = Callable[[Sequence[tuple[str, str, str]]], set[tuple[str, str]]]
MESH, ARRAY, ERROR = "mesh.proto", "array.proto", "error.proto"
SEGMENT, INFO, PROFILE = "segment_service.proto", "server_info_service.proto", "profile_service.proto"


@pytest.fixture(scope="module")
def buf(root: Path, run: Run, require: Require) -> Path:
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
