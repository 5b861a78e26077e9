"""The table of resident arrays, by a clock that the tests set, and against a model of the contract in any order."""

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule
from rows import rows
from server.conftest import on_threads, refusal
from server.tables_of_names import OURS, THEIRS, Table, commit

from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.wire.token_fields import PrincipalLimits
from shardcall_server.frontend.memory.lease_timer import LeaseTimer
from shardcall_server.frontend.memory.leases import UntestedKernel
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray, ResidentArrayTable

MAX_BYTES, MAX_LEASE_BYTES, LEASE_S = 100, 70, 10.0


def leasing_table(**limits: Any) -> Table:
    """A table with a limit of each lease."""
    return Table(**{"max_lease_bytes": MAX_LEASE_BYTES, "lease_s": LEASE_S, "max_arrays": 1000, **limits})


@pytest.fixture
def table() -> Table:
    return leasing_table()


def test_an_array_is_returned_and_described_as_it_was_put(table):
    array_type = ArrayType((5, 2), np.dtype("int8"))
    mesh, placement = mesh_pb2.Mesh(device_ids=[3, 1]), kernel_pb2.ArrayPlacement(padded_shape=[8, 2])
    resident = table.array_table.reserve(OURS, 16).commit(7, array_type, mesh, placement, 16)
    assert table.array_table.find(resident.handle) is resident
    assert (resident.epoch, resident.lease_id, resident.type) == (7, OURS, array_type)
    assert len(resident.handle) == 16
    description = resident.describe()
    assert (description.handle, description.mesh) == (resident.handle, mesh)
    assert (description.placement, description.device_bytes) == (placement, 16)


def test_an_array_of_a_kernel_that_failed_a_test_since_is_listed_as_suspect():
    failed: set[UntestedKernel] = set()
    table = leasing_table(suspicion=lambda it: "kernel 'diff'" if failed & {*it.untested} else "").array_table
    early, others = (
        table.reserve(OURS, 1).commit(
            1, ArrayType((1,), np.dtype("int8")), mesh_pb2.Mesh(), kernel_pb2.ArrayPlacement(), 1, untested=untested
        )
        for untested in ((UntestedKernel("digest", "diff"),), ())
    )
    for suspects in (["", ""], ["kernel 'diff'", ""]):
        assert [table.describe(resident).suspect for resident in (early, others)] == suspects
        failed.update(early.untested)


def test_leases_list_their_arrays_oldest_first(table):
    ours = [table.put(nbytes=1), table.put(nbytes=2)]
    theirs = [table.put(THEIRS, nbytes=3)]
    early, late = table.array_table.reserve(OURS, 4), table.array_table.reserve(OURS, 5)
    ours += [commit(late, 5), commit(early, 4)]
    for lease_id, arrays in ((OURS, ours), (THEIRS, theirs), (b"u" * 16, [])):
        assert table.array_table.of_lease(lease_id) == arrays
    assert len({resident.array_id for resident in ours + theirs}) == 5


def test_lease_ids_and_handles_of_a_wrong_length_are_refused_and_nothing_is_deleted(table):
    kept = table.put()
    for length in (0, 15, 65):
        for do in (table.put, table.array_table.of_lease, table.array_table.renew):
            error = refusal(do, b"x" * length)
            assert (error.reason, error.field) == (Reason.MALFORMED_REQUEST, "lease_id")
            assert f"{length} bytes" in error.message
            assert "16 to 64" in error.message
    for wrong in (b"", b"x" * 15, b"x" * 17):
        missing = refusal(table.array_table.find, wrong, field="operand 1")
        kept_all = refusal(table.array_table.delete, [kept.handle, wrong])
        for error, field in ((missing, "operand 1"), (kept_all, "handles")):
            assert (error.reason, error.field) == (Reason.MALFORMED_REQUEST, field)
    assert table.array_table.find(kept.handle) is kept


def test_no_more_than_1024_arrays_are_deleted_at_once(table):
    kept = table.put()
    assert refusal(table.array_table.delete, [kept.handle] * 1025).reason is Reason.MALFORMED_REQUEST
    assert (table.array_table.delete([kept.handle] * 1024), table.deleted) == ([kept], [kept])


def test_the_error_of_a_lost_array_is_one_sentence_without_its_full_handle(table):
    gone = table.put()
    table.array_table.delete([gone.handle])
    error = refusal(table.array_table.find, gone.handle, field="operand 0")
    assert (error.reason, error.field) == (Reason.ARRAY_LOST, "operand 0")
    assert error.message == (
        f"no array on the mesh has the handle {gone.handle.hex()[:8]}…: it was deleted, its lease expired, or the mesh "
        "or the server restarted; put the array again"
    )


@rows(
    ("lease_id", "nbytes", "setting", "held", "cap"),
    [(OURS, 31, "max_resident_bytes_per_lease", 40, 70), (THEIRS, 21, "max_resident_bytes", 80, 100)],
)
def test_bytes_are_bounded_by_lease_and_in_all(lease_id, nbytes, setting, held, cap):
    table = leasing_table()
    table.put(nbytes=30)
    table.array_table.reserve(OURS, 10)
    table.put(THEIRS, nbytes=40)
    before = table.gauges()
    error = refusal(table.array_table.reserve, lease_id, nbytes)
    assert error.reason is Reason.RESIDENT_LIMIT
    option = f"--{setting.replace('_', '-')}"
    for word in (f"{nbytes} bytes", f"{held} bytes of the {cap} bytes", option, "delete arrays"):
        assert word in error.message
    assert error.metadata == {"limit": setting, "bytes": str(nbytes), "held_bytes": str(held), "limit_bytes": str(cap)}
    assert table.gauges() == before
    table.array_table.reserve(lease_id, min(nbytes - 1, 20))


def test_the_number_of_arrays_is_bounded_by_lease_and_in_all():
    table = leasing_table(max_arrays=5)
    ours = [table.put(nbytes=0), table.put(nbytes=0)]
    table.array_table.reserve(OURS, 0)
    assert "the arrays of this lease are 3, and 3 are allowed" in refusal(table.put, nbytes=0).message
    for _ in range(2):
        table.put(THEIRS, nbytes=0)
    error = refusal(table.put, THEIRS, nbytes=0)
    assert error.reason is Reason.RESIDENT_LIMIT
    assert "the arrays of all leases are 5" in error.message
    assert "--max-resident-arrays" in error.message
    table.array_table.delete([resident.handle for resident in ours])
    table.put(THEIRS, nbytes=0)


def test_a_reservation_that_is_left_uncommitted_releases_its_bytes(table):
    with suppress(KeyError), table.array_table.reserve(OURS, 50):
        raise KeyError
    with table.array_table.reserve(OURS, 50) as reservation:
        commit(reservation, 20)
    assert table.gauges() == (1, 20, 1)


def test_a_list_of_a_lease_renews_it_and_one_of_its_owner_does_not(table):
    kept, other = table.put(), table.put(THEIRS)
    table.now = 9.0
    assert table.array_table.of_lease(OURS) == [kept]
    assert table.array_table.of_owner("") == [kept, other], "the oldest first"
    assert table.array_table.of_owner("other") == []
    table.now = 18.9
    assert table.array_table.expire() == [other]
    table.now = 19.0
    assert table.array_table.expire() == [kept]


def test_a_lease_that_is_kept_without_a_client_outlasts_its_duration_and_no_more(table):
    kept, other = table.put(OURS), table.put(THEIRS)
    assert table.array_table.renew(OURS, min_s=35.0)
    for table.now, left in ((LEASE_S, [kept]), (34.0, [kept]), (35.0 + LEASE_S, [])):
        table.array_table.expire()
        assert table.array_table.of_owner("") == left
    assert (table.deleted, table.gauges()) == ([other, kept], (0, 0, 0))


def test_another_time_replaces_the_one_for_which_a_lease_is_kept(table):
    table.put(OURS)
    table.array_table.renew(OURS, min_s=1000.0)
    table.array_table.renew(OURS)  # leaves it
    table.array_table.renew(OURS, min_s=1.0)
    table.now = LEASE_S
    assert len(table.array_table.expire()) == 1


def test_the_next_expiry_is_that_of_the_lease_named_longest_ago(table):
    assert table.array_table.next_expiry_s() == LEASE_S
    table.put(OURS)
    table.now = 4.0
    table.put(THEIRS)
    assert table.array_table.next_expiry_s() == 6.0
    table.now = 5.0
    table.array_table.renew(OURS)
    assert table.array_table.next_expiry_s() == 9.0
    table.now = 14.0
    assert table.array_table.next_expiry_s() == 0.0
    assert [resident.lease_id for resident in table.array_table.expire()] == [THEIRS]
    assert table.array_table.next_expiry_s() == 1.0


def test_the_table_may_be_used_by_its_callback():
    seen: list[int] = []

    def check_table(gone: Sequence[ResidentArray]) -> None:
        seen.append(len(table.of_lease(OURS)))

    table = leasing_table(on_delete=check_table).array_table
    deleting = threading.Thread(target=table.delete, args=[[commit(table.reserve(OURS, 1), 1).handle]], daemon=True)
    deleting.start()
    deleting.join(30)
    assert seen == [0]


def test_a_timer_ends_leases_and_names_by_itself_and_continues_when_the_mesh_cannot_be_notified():
    deletions = threading.Semaphore(0)

    def fail(gone: Sequence[ResidentArray]) -> None:
        deletions.release()
        raise OSError("the link is gone")

    table = leasing_table(lease_s=0.01, on_delete=fail)
    long = leasing_table(lease_s=3600.0, on_delete=fail, clock=time.monotonic)
    others = set(threading.enumerate())
    with closing(LeaseTimer(table.array_table)), closing(LeaseTimer(long.array_table)):
        for keep_s in (0.2, 0.01):
            table.put()
            table.now += 1
            assert deletions.acquire(timeout=30)
            assert table.gauges() == (0, 0, 0)
            long.array_table.name(long.put().handle, "u", keep_s=keep_s)
            assert deletions.acquire(timeout=120)
            assert long.array_table.count == 0
    assert "lease-timer" not in {thread.name for thread in set(threading.enumerate()) - others}


def test_threads_together_take_no_more_than_there_is():
    table = leasing_table().array_table
    held: list[None] = []  # of what the table counts as held, never more than that
    reserved: list[int] = []

    def work(lease_id: bytes) -> None:
        for _ in range(100):
            try:
                with table.reserve(lease_id, 20) as reservation:
                    held.append(None)
                    reserved.append(20 * len(held))
                    resident = commit(reservation, 20)
            except CallError as error:
                assert error.reason is Reason.RESIDENT_LIMIT  # noqa: PT017  # another thread holds the bytes
            else:
                held.pop()
                table.delete([resident.handle])

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        on_threads(work, (OURS, THEIRS) * 4)
    finally:
        sys.setswitchinterval(interval_s)
    assert max(reserved) <= MAX_BYTES
    assert (table.count, table.device_bytes, table.leases) == (0, 0, 0)
    table.reserve(OURS, MAX_LEASE_BYTES)
    table.reserve(THEIRS, MAX_BYTES - MAX_LEASE_BYTES)


def test_the_leases_of_one_client_have_a_limit_together_and_those_of_others_have_theirs():
    table = leasing_table(max_lease_bytes=0, max_client_bytes=100, max_bytes=1 << 30).array_table
    with table.reserve(OURS, 60, "somebody"):
        error = refusal(table.reserve, THEIRS, 60, "somebody")
        assert (error.reason, error.metadata["limit"]) == (Reason.RESIDENT_LIMIT, "max_resident_bytes_per_client")
        assert "through all of its connections, hold 60 bytes of the 100 bytes" in error.message
        table.reserve(THEIRS, 60, "another").cancel()
    table.reserve(THEIRS, 60, "somebody").cancel()


def test_one_client_may_have_three_quarters_of_what_others_leave():
    table = leasing_table(max_bytes=160, max_lease_bytes=0, max_client_bytes=0).array_table
    assert table.lone_client_bytes == 120
    lone = commit(table.reserve(OURS, 120, "one"), 120)
    error = refusal(table.reserve, THEIRS, 31, "other")
    others = "other clients, which hold 120 bytes, leave of the 160 bytes"
    for text in ("takes 31 bytes", "connections, hold 0 bytes of the 30 bytes", others, "-bytes"):
        assert text in error.message
    assert error.metadata["limit"] == "max_resident_bytes"
    table.reserve(THEIRS, 30, "other")
    assert refusal(table.reserve, OURS, 1, "one").reason is Reason.RESIDENT_LIMIT  # less, as others have come
    table.delete([lone.handle], "one")
    table.reserve(b"l" * 16, 67, "other")  # of all leases of a client: 97 of 120
    anonymous = leasing_table(max_bytes=160, max_lease_bytes=0, max_client_bytes=0).array_table
    anonymous.reserve(OURS, 120)  # without authentication, every lease is a client
    assert "this lease hold 0 bytes of the 30 bytes" in refusal(anonymous.reserve, THEIRS, 31).message
    anonymous.reserve(THEIRS, 30)


def test_principals_may_choose_the_same_handles(table):
    """A client that chooses the handle of another's array cannot learn that it exists."""
    handle = b"h" * 16
    kept = {owner: table.put(OURS, owner, handle=handle) for owner in ("one", "other")}
    assert all(table.array_table.find(handle, owner) is resident for owner, resident in kept.items())
    error = refusal(table.put, OURS, "one", handle=handle)
    assert (error.reason, error.field) == (Reason.MALFORMED_REQUEST, "result_handles")
    assert table.array_table.delete([handle], "one") == [kept["one"]]
    assert table.array_table.find(handle, "other") is kept["other"]


def limited(**limits_of: PrincipalLimits) -> Table:
    """Returns a table with limits of principals alone, of 1000 bytes at most."""
    return leasing_table(limits_of=limits_of, max_bytes=1 << 30, max_lease_bytes=0, max_client_bytes=1000)


def test_a_principal_has_a_limit_of_arrays_through_all_leases_and_names():
    table = limited(ada=PrincipalLimits(max_arrays=2))
    first = table.put(nbytes=10, owner="ada")
    table.array_table.name(first.handle, "u", "ada")
    table.put(THEIRS, "ada", 10)
    error = refusal(table.put, owner="ada")
    assert error.reason is Reason.RESIDENT_LIMIT
    assert error.metadata == {"limit": "max_arrays", "held_arrays": "2", "limit_arrays": "2"}
    assert "the arrays of ada, through all of its connections, are 2, and 2 are allowed by max_arrays" in error.message
    assert "max_arrays of ada in the server's token file; delete arrays" in error.message
    for _ in range(3):
        table.put(nbytes=10, owner="bob")
    table.array_table.delete([first.handle], "ada")
    table.put(nbytes=10, owner="ada")
    assert table.array_table.by_owner() == {"ada": (2, 20), "bob": (3, 30)}


def test_a_principal_has_a_limit_of_bytes_beside_that_of_all():
    table = limited(ada=PrincipalLimits(max_bytes=100), bob=PrincipalLimits(max_bytes=5000))
    table.array_table.name(table.put(nbytes=60, owner="ada").handle, "u", "ada")
    error = refusal(table.put, nbytes=41, owner="ada")
    assert error.metadata == {"limit": "max_bytes", "bytes": "41", "held_bytes": "60", "limit_bytes": "100"}
    assert "hold 60 bytes of the 100 bytes allowed by max_bytes of ada in the server's token file" in error.message
    table.put(nbytes=40, owner="ada")
    table.put(nbytes=1000, owner="bob")
    assert refusal(table.put, nbytes=1, owner="bob").metadata["limit"] == "max_resident_bytes_per_client"


def test_a_name_does_not_count_an_array_twice_and_a_lower_limit_keeps_it():
    table = limited(ada=PrincipalLimits(max_bytes=60, max_arrays=1))
    resident = table.put(nbytes=60, owner="ada")
    table.array_table.name(resident.handle, "u", "ada")
    table.array_table.name(resident.handle, "v", "ada")
    assert table.array_table.by_owner() == {"ada": (1, 60)}
    table.limits_of["ada"] = PrincipalLimits(max_bytes=0, max_arrays=10)
    assert refusal(table.put, nbytes=1, owner="ada").metadata["limit"] == "max_bytes"
    assert table.array_table.find(resident.handle, "ada").array_id == resident.array_id
    table.limits_of["ada"] = PrincipalLimits(max_bytes=61)
    table.array_table.delete([resident.handle, table.put(nbytes=1, owner="ada").handle], "ada")
    assert table.array_table.by_owner() == {}


SIZES = st.integers(0, 40)
NAMES = st.sampled_from([b"o" * 16, b"t" * 64])


@dataclass(eq=False)
class ModelLease:
    """A lease according to the contract: its arrays and its expiry."""

    ends: float
    live: dict[bytes, ResidentArray]
    pending: dict[Reservation, int]

    @property
    def nbytes(self) -> int:
        return sum(resident.device_bytes for resident in self.live.values()) + sum(self.pending.values())


class TableStateMachine(RuleBasedStateMachine):
    """A table with two leases and a mesh that restarts.

    Attributes:
        leases: those that are there.
        settled: reservations that were committed or cancelled.
        deletions: arrays whose deletion the mesh is to be notified of.
        ever: every handle and array id that was given.
        waited: whether time has passed and nothing has looked at the clock since.
    """

    reservations = Bundle("reservations")
    handed_out = Bundle("handed_out")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.gone: list[ResidentArray] = []
        self.table = ResidentArrayTable(lambda: MAX_BYTES, MAX_LEASE_BYTES, LEASE_S, self.gone.extend, lambda: self.now)
        self.leases: dict[bytes, ModelLease] = {}
        self.settled: set[Reservation] = set()
        self.deletions: list[ResidentArray] = []
        self.ever: set[bytes | int] = set()
        self.waited = False
        self.epoch = 0
        self.restart()

    def sweep(self) -> None:
        """Removes expired leases, as the table does whenever it is used."""
        self.waited = False
        for name, lease in list(self.leases.items()):
            if lease.ends <= self.now and lease.pending:
                lease.ends = self.now + LEASE_S
            elif lease.ends <= self.now:
                self.deletions += lease.live.values()
                del self.leases[name]

    def drop_empty(self) -> None:
        self.leases = {name: lease for name, lease in self.leases.items() if lease.live or lease.pending}

    def renew(self, name: bytes) -> None:
        if name in self.leases:
            self.leases[name].ends = self.now + LEASE_S

    def fits(self, lease: ModelLease, nbytes: int) -> bool:
        in_all = sum(lease.nbytes for lease in self.leases.values())
        return lease.nbytes + nbytes <= MAX_LEASE_BYTES and in_all + nbytes <= MAX_BYTES

    @rule(seconds=st.sampled_from([0.5, 4.0, 9.5, 10.0]))
    def wait(self, seconds):
        self.now += seconds
        self.waited = True

    @rule(target=reservations, name=NAMES, nbytes=SIZES)
    def reserve(self, name, nbytes):
        self.sweep()
        self.renew(name)
        lease = self.leases.get(name) or ModelLease(self.now + LEASE_S, {}, {})
        if not self.fits(lease, nbytes):
            assert refusal(self.table.reserve, name, nbytes).reason is Reason.RESIDENT_LIMIT
            return multiple()
        reservation = self.table.reserve(name, nbytes)
        assert reservation.array_id not in self.ever
        self.ever.add(reservation.array_id)
        self.leases[name] = lease
        lease.pending[reservation] = nbytes
        return reservation

    @rule(reservation=reservations)
    def cancel(self, reservation):
        if reservation not in self.settled:  # else the table is not used
            self.sweep()
        reservation.cancel()
        self.settled.add(reservation)
        for lease in self.leases.values():
            lease.pending.pop(reservation, None)
        self.drop_empty()

    @rule(target=handed_out, reservation=reservations, nbytes=SIZES, late=st.booleans())
    def commit(self, reservation, nbytes, late):
        self.sweep()
        epoch = self.epoch - late
        if reservation in self.settled:
            with pytest.raises(RuntimeError):
                commit(reservation, nbytes, epoch=epoch)
            return multiple()
        self.settled.add(reservation)
        lease = next(lease for lease in self.leases.values() if reservation in lease.pending)
        lease.pending.pop(reservation)
        if late or not self.fits(lease, nbytes):
            expected = Reason.ARRAY_LOST if late else Reason.RESIDENT_LIMIT
            assert refusal(commit, reservation, nbytes, epoch=epoch).reason is expected
            if not late:
                self.deletions.append(self.gone[-1])
                assert self.deletions[-1].array_id == reservation.array_id
            self.drop_empty()
            return multiple()
        resident = commit(reservation, nbytes, epoch=epoch)
        assert resident.handle not in self.ever
        self.ever.add(resident.handle)
        lease.live[resident.handle] = resident
        self.renew(resident.lease_id)
        return resident

    @rule(resident=handed_out)
    def find(self, resident):
        self.sweep()
        lease = self.leases.get(resident.lease_id)
        if lease is not None and resident.handle in lease.live:
            assert self.table.find(resident.handle) is resident
            self.renew(resident.lease_id)
        else:
            assert refusal(self.table.find, resident.handle).reason is Reason.ARRAY_LOST

    @rule(chosen=st.lists(handed_out, max_size=4))
    def delete(self, chosen):
        self.sweep()
        there = []
        for resident in dict.fromkeys(chosen):
            lease = self.leases.get(resident.lease_id)
            if lease is not None and lease.live.pop(resident.handle, None):
                there.append(resident)
        assert self.table.delete([resident.handle for resident in chosen]) == there
        self.deletions += there
        self.drop_empty()

    @rule(name=NAMES)
    def renew_by_name(self, name):
        self.sweep()
        assert self.table.renew(name) == (name in self.leases and bool(self.leases[name].live))
        self.renew(name)

    @rule()
    def expire(self):
        before = len(self.deletions)
        self.sweep()
        assert set(self.table.expire()) == set(self.deletions[before:])

    @rule()
    def restart(self):
        self.table.remove_epoch(self.epoch)
        for lease in self.leases.values():
            lease.live.clear()
        self.drop_empty()
        self.epoch += 1

    @precondition(lambda self: not self.waited)
    @invariant()
    def holds_what_the_model_holds(self):
        leases = self.leases.values()
        live = [resident for lease in leases for resident in lease.live.values()]
        assert (self.table.count, self.table.leases) == (len(live), len(leases))
        assert self.table.device_bytes == sum(resident.device_bytes for resident in live)
        assert set(self.gone) == set(self.deletions)
        assert len(self.gone) == len(self.deletions)


TestAnySequence = TableStateMachine.TestCase
TestAnySequence.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
