"""Versions of names: whoever has seen what a restart has lost is refused, and nobody else."""

import itertools
from contextlib import closing

import numpy as np
import pytest
from rows import rows
from server.conftest import refusal, refused
from server.tables_of_names import OURS, THEIRS, Table

from shardcall.v1 import array_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.files.checkpoint_folder import Checkpoint, CheckpointArray, CheckpointFolder
from shardcall_server.frontend.memory import name_versions
from shardcall_server.frontend.memory.name_versions import (
    ANY,
    MAX_RESTORATIONS,
    NameHistory,
    check_seen,
    first_history,
    next_history,
    restored_history,
    version_of,
)

SAVED_AT_S = 1.8e9


@pytest.fixture(autouse=True)
def clock(monkeypatch) -> None:
    """A clock that never shows one time twice."""
    monkeypatch.setattr(name_versions, "now_us", itertools.count(1000).__next__)


def is_refused(history: NameHistory, seen: array_service_pb2.NameVersion) -> bool:
    try:
        check_seen("u", history, seen)
    except CallError:
        return True
    return False


def test_a_client_that_has_seen_lost_values_learns_of_which_moment_the_present_ones_are():
    saved = next_history(first_history(5))
    seen = version_of(next_history(saved))
    after = restored_history(saved, SAVED_AT_S)
    with refused(Reason.ARRAY_LOST, "went back to the checkpoint of 2027-01-15 08:00:00 UTC", "name") as error:
        check_seen("u", after, seen)
    assert error.value.metadata["version_seen"] == "3"
    assert error.value.metadata["version_restored"] == "2"
    assert "client.open('u')" in error.value.message
    for accepted in (ANY, version_of(saved), version_of(after)):
        check_seen("u", after, accepted)


@pytest.mark.parametrize("seed", range(4))
def test_exactly_those_who_have_seen_lost_values_are_refused(seed):
    draws = np.random.default_rng(seed)
    ids = itertools.count()
    history, values = first_history(5), [next(ids)]  # the values that the present ones come from
    saved, saved_values = history, values
    seen = []
    for action in draws.choice(["write", "save", "restart"], 150, p=[0.6, 0.2, 0.2]):
        if action == "write":
            history, values = next_history(history), [*values, next(ids)]
        elif action == "save":
            saved, saved_values = history, values
        else:
            history, values = restored_history(saved, SAVED_AT_S), saved_values
        seen.append((version_of(history), values[-1]))
        wrong = [value for version, value in seen if is_refused(history, version) != (value not in values)]
        assert not wrong
    assert any(is_refused(history, version) for version, _ in seen)
    assert not all(is_refused(history, version) for version, _ in seen)


def test_a_name_with_many_restarts_keeps_some_and_forgets_no_loss():
    history, lost, kept = first_history(5), [], []
    for _ in range(2 * MAX_RESTORATIONS):
        history = next_history(history)
        kept.append(version_of(history))
        lost.append(version_of(next_history(history)))
        history = restored_history(history, SAVED_AT_S)
    assert len(history.restorations) == MAX_RESTORATIONS
    assert all(is_refused(history, version) for version in lost)
    assert not any(is_refused(history, version) for version in kept[-MAX_RESTORATIONS + 2 :])


def test_a_checkpoint_without_versions_begins_a_history():
    history = restored_history(NameHistory(), SAVED_AT_S)
    assert is_refused(next_history(history), array_service_pb2.NameVersion(number=1, since_microseconds=1))
    assert not is_refused(history, version_of(history))


def version(table: Table, name: str = "u", owner: str = "") -> tuple[int, int]:
    described = table.array_table.describe(table.array_table.open(name, owner)).version
    return described.number, described.since_microseconds


def test_writes_and_replacements_of_a_name_are_counted():
    table = Table()
    first, second, third = (table.put(nbytes=1) for _ in range(3))
    table.array_table.name(first.handle, "u")
    table.array_table.name(first.handle, "u", keep_s=5.0)  # the same values
    assert version(table)[0] == 1
    table.array_table.name(second.handle, "u", expected=first.handle, lease_id=OURS)
    table.array_table.name(second.handle, "u", expected=first.handle, lease_id=OURS)  # once more
    assert version(table)[0] == 2
    table.array_table.name(third.handle, "u", replaces=True)
    assert version(table)[0] == 3
    assert not table.array_table.find(first.handle).describe().HasField("version")
    table.array_table.name(first.handle, "v")
    assert version(table, "v")[0] == 1


def test_the_guests_of_a_name_see_its_version():
    table = Table()
    ours, theirs = table.put(OURS, "me"), table.put(THEIRS, "you")
    table.array_table.name(ours.handle, "u", "me")
    table.array_table.share("u", "me", "you", may_write=True)
    guest = table.array_table.open("me/u", "you")
    table.array_table.name(theirs.handle, "me/u", "you", expected=guest.handle, lease_id=THEIRS)
    assert version(table, "me/u", "you") == version(table, "u", "me")
    assert version(table, "u", "me")[0] == 2


def test_a_name_of_a_checkpoint_is_awaited_while_the_mesh_restarts(tmp_path):
    with closing(CheckpointFolder(str(tmp_path))) as folder:
        with folder.changing():
            folder.write("", Checkpoint(arrays=[CheckpointArray(name="u")]))
        table = Table(checkpoints=folder).array_table
        folder.restored_epoch = 7
        for epoch, expected in [(6, Reason.ARRAY_LOST), (7, Reason.MESH_NOT_READY)]:
            table.remove_epoch(epoch)
            assert refusal(table.open, "u").reason is expected
        assert refusal(table.open, "v").reason is Reason.ARRAY_LOST


@rows("is_in_checkpoint, text", [(True, "went back to the checkpoint"), (False, "another one has its name")])
def test_a_name_of_the_mesh_before_is_refused_if_its_values_are_lost(is_in_checkpoint, text):
    table = Table()
    for _ in range(2):
        table.array_table.name(table.put(nbytes=1).handle, "u", replaces=True)
    resident = table.array_table.open("u")
    seen = resident.describe().version
    saved = first_history(seen.since_microseconds)
    table.array_table.remove_epoch(resident.epoch)
    with refused(Reason.ARRAY_LOST, "no array has the name"):
        table.array_table.open("u", seen=seen)
    again = table.array_table.reserve(OURS, 1)
    handle = again.commit(2, resident.type, resident.mesh, resident.placement, 1).handle
    history = restored_history(saved, SAVED_AT_S) if is_in_checkpoint else None
    table.array_table.name(handle, "u", history=history)
    with refused(Reason.ARRAY_LOST, text):
        table.array_table.open("u", seen=seen)
    assert table.array_table.open("u").handle == handle
