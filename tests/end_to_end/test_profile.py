"""`with client.profile(…)`: a recording of what the devices do, fetched, and nothing left of it on the server."""

import gzip
import json
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import open_channel
from end_to_end.processes import wait_for
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from servers import DEVICES

import shardcall as sc
from shardcall.v1 import profile_service_pb2, profile_service_pb2_grpc

X = np.random.default_rng(0).standard_normal((512, 64))
ACROSS = {"mesh": sc.Mesh(x=DEVICES), "spec": sc.P("x", None)}
"""A call that cannot do without a collective."""


def xplane():
    """The class of an `.xplane.pb`: of its schema what names planes and events, since XProf is no dependency."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="xplane_parts.proto", package="parts", syntax="proto3")

    def message(message_name, /, **fields):
        message_type = file.message_type.add(name=message_name)
        for field_name, (number, field_type, is_repeated) in fields.items():
            label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            one = message_type.field.add(name=field_name, number=number, label=label)
            one.type = field.TYPE_STRING if field_type is str else field.TYPE_MESSAGE
            if field_type is not str:
                one.type_name = f".parts.{field_type}"

    message("Metadata", name=(2, str, False))
    message("Entry", value=(2, "Metadata", False))  # of a map: its key is left out
    message("Plane", name=(2, str, False), event_metadata=(4, "Entry", True))
    message("Space", planes=(1, "Plane", True))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("parts.Space"))


def events(folder: Path) -> set[str]:
    """The names of the events in a profile's two files, which must both hold some."""
    (trace,), (plane,) = folder.glob("*.trace.json.gz"), folder.glob("*.xplane.pb")
    shown = {
        event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] if "name" in event
    }
    space = xplane().FromString(plane.read_bytes())
    recorded = {entry.value.name for one in space.planes for entry in one.event_metadata}
    assert any("CPU" in one.name for one in space.planes)
    assert shown
    assert recorded
    return shown | recorded


def left_on_the_server() -> list[str]:
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("shardcall_profile_")]


@pytest.fixture
def profiles(recorder):
    with open_channel(recorder.address) as channel:
        yield profile_service_pb2_grpc.ProfileServiceStub(channel)


def test_what_ran_before_is_not_in_it(recorder, tmp_path):
    recorder.diff(X, axis=0, **ACROSS)
    with recorder.profile(tmp_path) as profile:
        recorder.diff(X, axis=0, **ACROSS)
    quiet = recorder.profile(tmp_path)
    with quiet:
        pass
    assert any("ppermute" in event for event in events(profile.path))
    assert not any("ppermute" in event for event in events(quiet.path))


def test_programs_are_called_by_kernel_and_strategy_and_phases_have_their_request(recorder, recording, tmp_path):
    with recorder.profile(tmp_path) as profile:
        plan = recorder.diff(X, axis=0, **ACROSS).plan
    assert plan.strategy == "halo"
    assert "jit_diff_halo" in recorder.compile("diff", X, axis=0, **ACROSS).as_text()
    assert any("jit_diff_halo" in event for event in events(profile.path))
    (trace,) = profile.path.glob("*.trace.json.gz")
    shown = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    phases = {event["name"]: event["args"] for event in shown if event.get("name", "").startswith("shardcall ")}
    assert set(phases) == {f"shardcall {name}" for name in ("place", "launch", "execute", "gather")}
    assert {(phase["kernel"], phase["strategy"]) for phase in phases.values()} == {("diff", "halo")}
    (request_id,) = {phase["request_id"] for phase in phases.values()}
    assert re.fullmatch(r"[0-9a-f]+", request_id)


def test_neither_the_names_of_files_contain_that_of_the_machine_nor_the_files_its_folders(recorder, tmp_path):
    with recorder.profile(tmp_path / "traces") as profile:
        recorder.diff(X, axis=0, **ACROSS)
    assert {file.name for file in profile.path.iterdir()} == {"mesh.trace.json.gz", "mesh.xplane.pb"}
    assert str(tmp_path).encode() not in (profile.path / "mesh.xplane.pb").read_bytes()


def test_a_profile_that_is_not_stopped_is_discarded(recorder, profiles, tmp_path):
    profiles.StartProfile(profile_service_pb2.StartProfileRequest(max_seconds=0.1), timeout=60)
    wait_for(lambda: left_on_the_server() == [])
    with pytest.raises(sc.InvalidRequestError, match=r"the last one ran for 0.1 s, its max_seconds, and was discarded"):
        recorder.profile(tmp_path / "traces").stop()
    with recorder.profile(tmp_path / "traces") as profile:
        recorder.diff(X, axis=0, **ACROSS)
    assert events(profile.path)
