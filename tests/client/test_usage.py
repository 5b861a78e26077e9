"""Text form of a server's resource usage."""

from shardcall_core.types.usage import MeshState, RunningLoop, Usage


def test_usage_prints_as_a_table():
    usage = Usage(
        regions=1,
        bytes_in_use=3 * 2**20,
        bytes_high_water=2**30,
        bytes_idle=2048,
        segments=4,
        leases=2,
        arrays=5,
        array_bytes=2**20,
        descriptors=30,
        calls=7,
        queued_calls=3,
        programs=6,
        program_device_bytes=4096,
        mesh=MeshState(
            ready=True,
            ready_seconds=12.3,
            restarts=2,
            last_exit_reason="it went",
            seconds_since_exit=20,
            spare_ready=True,
        ),
        loops=(RunningLoop("a1", "alice", 1200, 8800, 3.4), RunningLoop("b2", "bob", 5, 2**62 - 5, 0.2)),
    )
    assert str(usage).splitlines() == [
        "calls          7, 3 of them queued",
        "loops          1,200 of 10,000 iterations in 3 s, alice; 5 iterations in 0 s, bob",
        "regions        1, 2 KiB more kept warm",
        "memory         3 MiB, 1 GiB at the highest",
        "segments       4",
        "programs       6, 4 KiB on the devices",
        "arrays         5, 1 MiB on the devices",
        "leases         2",
        "open files     30",
        "mesh           ready for 12 s, a spare worker stands by, restarted 2 times; the last time 20 s ago: it went",
        "known answers  0 passed",
    ]


def test_a_mesh_that_is_down_says_so():
    assert str(MeshState()) == "not ready, no spare worker, restarted 0 times"
