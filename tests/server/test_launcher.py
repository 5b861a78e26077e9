"""What the server's processes are started with."""

from __future__ import annotations

from shardcall_server.launcher import tuned_environment, worker_environment


def test_the_allocator_is_set_once():
    once = tuned_environment({"PATH": "/bin"})
    assert "glibc.malloc.mmap_threshold=4294967296" in once["GLIBC_TUNABLES"].split(":")
    assert once["PATH"] == "/bin"
    assert tuned_environment(once) == once


def test_what_the_keeper_set_stays():
    tuned = tuned_environment({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"})["GLIBC_TUNABLES"].split(":")
    assert [t for t in tuned if "arena_max" in t] == ["glibc.malloc.arena_max=4"]


def test_flags_of_the_keeper_come_last_and_win():
    flags = worker_environment({"XLA_FLAGS": "--xla_cpu_prefer_vector_width=256"})["XLA_FLAGS"].split()
    assert flags[-1] == "--xla_cpu_prefer_vector_width=256"
    assert any("terminate_timeout" in flag for flag in flags)
