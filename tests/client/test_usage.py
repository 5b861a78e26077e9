"""Text forms of a server's resource usage and of timings, and the list of published models."""

from types import SimpleNamespace
from typing import Any

from rows import rows

from shardcall._src.rpc.deadline import Deadline
from shardcall._src.services.models import PublishedModels
from shardcall.v1 import model_service_pb2, server_info_service_pb2, timing_pb2
from shardcall_core.types import timing as timings
from shardcall_core.types import usage as usages
from shardcall_core.types.timing import PHASES, Timing
from shardcall_core.types.usage import MeshState, PrincipalUsage, RunningLoop, Usage

# Usage


def test_usage_prints_as_a_table():
    memory = {"regions": 1, "bytes_in_use": 3 * 2**20, "bytes_high_water": 2**30, "bytes_idle": 2048, "segments": 4}
    arrays = {"leases": 2, "arrays": 5, "array_bytes": 2**20, "named_arrays": 3, "descriptors": 30}
    calls = {"calls": 7, "queued_calls": 3, "programs": 6, "program_device_bytes": 4096}
    exits = {"restarts": 2, "last_exit_reason": "it went", "seconds_since_exit": 20}
    mesh = MeshState(ready=True, ready_seconds=12.3, spare_ready=True, **exits)
    loops = (RunningLoop("a1", "alice", 1200, 8800, 3.4), RunningLoop("b2", "bob", 5, 2**62 - 5, 0.2))
    assert str(Usage(**memory, **arrays, **calls, mesh=mesh, loops=loops)).splitlines() == [
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
    assert str(MeshState()) == "not ready, no spare worker, restarted 0 times"


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
    ada = {"name": "ada", "arrays": 1, "max_bytes": 0, "weight": 1}
    message = server_info_service_pb2.GetUsageResponse(by_principal=[ada])
    assert usages.from_proto(message).by_principal == {"ada": PrincipalUsage(arrays=1, max_bytes=0)}


# Timings


def test_every_duration_of_the_contract_is_an_attribute():
    names = [field.name.removesuffix("_seconds") for field in timing_pb2.Timing.DESCRIPTOR.fields]
    assert names == [*PHASES, "total"]
    message = timing_pb2.Timing(**{f"{name}_seconds": i + 1.0 for i, name in enumerate(names)})
    timing = timings.from_proto(message, round_trip=9.0)
    assert [getattr(timing, name) for name in names] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert timing.transport == 1.0


def test_print_draws_an_aligned_table():
    assert str(Timing(receive=0.002, execute=0.005, total=0.008, round_trip=0.010)).splitlines() == [
        "receive           2.000 ms  20.0%  █████",
        "queue             0.000 ms   0.0%",
        "compile           0.000 ms   0.0%",
        "place             0.000 ms   0.0%",
        "execute           5.000 ms  50.0%  ████████████",
        "gather            0.000 ms   0.0%",
        "send              0.000 ms   0.0%",
        "total             8.000 ms  80.0%  ███████████████████",
        "transport         2.000 ms  20.0%  █████",
        "round_trip       10.000 ms 100.0%  ████████████████████████",
    ]


def test_one_line_has_the_longest_phases_and_no_exponents():
    timing = Timing(receive=0.001, execute=0.002, total=0.004, round_trip=0.01)
    assert repr(timing) == "<Timing 10 ms: transport 6 ms, execute 2 ms, receive 1 ms>"
    assert repr(Timing()) == "<Timing 0 ms>"
    assert repr(Timing(execute=2.4096, total=2.41, round_trip=2.41)).startswith("<Timing 2,410 ms: execute 2,410 ms")
    assert repr(Timing(execute=0.00123456, total=0.002, round_trip=0.002)).startswith("<Timing 2 ms: execute 1.23 ms")


@rows("timing", [Timing(), Timing(total=2.0, round_trip=1.0), Timing(queue=5.0, total=1.0)])
def test_odd_figures_draw_too(timing):
    assert len(str(timing).splitlines()) == 10
    assert max(map(len, str(timing).splitlines())) <= 60


# Models


NAMES = [f"m{i}" for i in range(7)]


class Transport:
    """A server whose answers have two models."""

    def __init__(self) -> None:
        self.stubs = SimpleNamespace(models=SimpleNamespace(ListModels=None))
        self.count = 0

    def unary(self, method: object, request: model_service_pb2.ListModelsRequest, deadline: Deadline) -> Any:
        self.count += 1
        following = [name for name in NAMES if name > request.after]
        models = [model_service_pb2.ModelDescription(name=name) for name in following[:2]]
        return model_service_pb2.ListModelsResponse(models=models, more=len(following) > len(models))


def test_models_of_several_answers_are_one_list():
    transport: Any = Transport()
    assert [model.name for model in PublishedModels(transport).all(Deadline(60))] == NAMES
    assert transport.count == 4
