"""Text form of a server's resource usage."""

from shardcall.v1 import server_info_service_pb2
from shardcall_core.types.usage import MeshState, PrincipalUsage, RunningLoop, Usage, from_proto


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
        named_arrays=3,
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
        "arrays         5, 3 with names, 1 MiB on the devices",
        "leases         2",
        "open files     30",
        "mesh           ready for 12 s, a spare worker stands by, restarted 2 times; the last time 20 s ago: it went",
        "known answers  0 passed",
    ]


def test_a_mesh_that_is_down_says_so():
    assert str(MeshState()) == "not ready, no spare worker, restarted 0 times"


def test_what_principals_have_is_part_of_the_table():
    ada = PrincipalUsage(1200, 2048, 3, 1, 50, max_bytes=2**30, max_arrays=5000, max_file_bytes=2**20, weight=2)
    usage = Usage(*[0] * 9, by_principal={"ada": ada, "bob": PrincipalUsage(), "eve": PrincipalUsage(weight=0)})
    assert usage.summary["principals"].split("; ") == [
        "ada: 1,200 of 5,000 arrays, 2 KiB of 1 GiB on the devices, 3 programs, 1 calls in progress, 50 ended, files "
        "up to 1 MiB, weight 2",
        "bob: 0 arrays, 0 bytes on the devices, 0 programs, 0 calls in progress, 0 ended",
        "eve: 0 arrays, 0 bytes on the devices, 0 programs, 0 calls in progress, 0 ended, no token",
    ]
    assert "principals" not in Usage(*[0] * 9, by_principal={"": ada}).summary


def test_without_the_scope_the_table_is_of_the_caller():
    usage = Usage(*[0] * 9, by_principal={"ada": PrincipalUsage()}, is_partial=True)
    assert list(usage.summary) == ["principals", "mesh", "known answers"]
    assert usage.summary["mesh"] == "not ready"


def test_without_the_scope_the_other_numbers_are_none():
    usage = Usage(*[0] * 9, mesh=MeshState(ready=True), by_principal={"ada": PrincipalUsage()}, is_partial=True)
    values = usage.as_dict()
    assert values["arrays"] is values["leases"] is values["programs"] is values["loops"] is values["kernels"] is None
    assert values["mesh"]["spare_ready"] is values["mesh"]["restarts"] is None
    assert values["mesh"]["ready"]
    assert values["by_principal"]["ada"]["arrays"] == 0
    values = Usage(*[0] * 9).as_dict()
    assert values["arrays"] == 0
    assert values["mesh"]["spare_ready"] is False


def test_limits_that_are_not_set_are_none():
    message = server_info_service_pb2.GetUsageResponse(
        by_principal=[{"name": "ada", "arrays": 1, "max_bytes": 0, "weight": 1}]
    )
    assert from_proto(message).by_principal == {"ada": PrincipalUsage(arrays=1, max_bytes=0)}
