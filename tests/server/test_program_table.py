"""The table of programs alone: aliases, pins and evictions."""

import threading

import pytest

from shardcall.v1 import kernel_pb2
from shardcall_server.frontend.programs.cache_entry import HIT, CachedProgram, CacheEntry
from shardcall_server.frontend.programs.keys import CallKey, ProgramKey
from shardcall_server.frontend.programs.program_table import ProgramLimits, ProgramTable


@pytest.fixture
def evicted() -> list[str]:
    return []


@pytest.fixture
def table(evicted) -> ProgramTable:
    return ProgramTable(ProgramLimits(2, 1000, 0), lambda program: evicted.append(program.key), threading.RLock())


def add(table: ProgramTable, key: str, *calls: str) -> CachedProgram:
    program = CachedProgram(ProgramKey(key), "diff", {}, (), 10)
    table.add(program)
    for call in calls:
        table.alias(CallKey(call.encode()), CacheEntry(program, kernel_pb2.Plan(), HIT))
    return program


def test_calls_find_the_program_that_they_were_aliased_to_last(table, evicted):
    first = add(table, "first", "x", "y")
    second = add(table, "second", "x")
    assert (table.get(CallKey(b"x")).program, table.get(CallKey(b"y")).program) == (second, first)
    table.alias(CallKey(b"y"), CacheEntry(second, kernel_pb2.Plan(), HIT))
    assert evicted == ["first"]  # no call finds it any more


def test_a_program_that_is_pinned_twice_stays_without_aliases_for_two_unpins(table, evicted):
    program = add(table, "pinned", "x")
    table.pin(program)
    table.pin(program)
    add(table, "other", "x")
    table.unpin(program)
    assert evicted == []
    table.unpin(program)
    assert (evicted, program.evicted, table.get_program(program.key)) == (["pinned"], True, None)


def test_the_bounds_hold_for_pinned_programs_too(table, evicted):
    program = add(table, "pinned", "x")
    table.pin(program)
    add(table, "b", "y")
    add(table, "c", "z")
    assert evicted == ["pinned"]
    assert table.get(CallKey(b"x")) is None
    table.unpin(program)
    assert evicted == ["pinned"]


def test_an_evicted_program_gets_no_aliases(table):
    program = add(table, "a", "x")
    add(table, "b")
    add(table, "c")
    table.alias(CallKey(b"y"), CacheEntry(program, kernel_pb2.Plan(), HIT))
    assert table.get(CallKey(b"y")) is None


def test_the_oldest_aliases_are_dropped(evicted):
    table = ProgramTable(
        ProgramLimits(2, 1000, 0, max_aliases=2), lambda program: evicted.append(program.key), threading.RLock()
    )
    add(table, "a", "x", "y", "z")
    assert [table.get(CallKey(call)) is not None for call in (b"x", b"y", b"z")] == [False, True, True]
