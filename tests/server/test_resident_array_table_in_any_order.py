"""The table of resident arrays against a model of the contract, for random operations in any order."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule
from server.refusals import refusal
from server.tables_of_names import commit

from shardcall_core.call_error import Reason
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray, ResidentArrayTable

MAX_BYTES, MAX_LEASE_BYTES, LEASE_S = 100, 70, 10.0
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
