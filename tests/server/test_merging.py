"""One answer merged from those of several workers, and disagreements that end the mesh."""

import numpy as np
import pytest
from rows import rows

from shardcall.v1 import array_pb2, kernel_pb2, mesh_pb2, server_info_service_pb2
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.frontend.workers.merging import DisagreementError, merge
from shardcall_server.frontend.workers.startup_barrier import StartupBarrier
from shardcall_worker.v1 import link_pb2

HOSTS = ("a", "b")


def prepared(fingerprint: bytes = b"1", key: str = "k", *, from_disk: bool = False) -> link_pb2.WorkerMessage:
    plan = kernel_pb2.Plan(kernel="diff", key_digest=key)
    answer = link_pb2.Prepared(plan=plan, fingerprint=fingerprint, from_disk=from_disk)
    return link_pb2.WorkerMessage(call_id=1, prepared=answer)


def failure(reason: str = "INVALID_OPERAND", message: str = "no") -> link_pb2.WorkerMessage:
    return link_pb2.WorkerMessage(call_id=1, failure=link_pb2.Failure(reason=reason, message=message))


def executed(*results: bytes, seconds: float = 0.0) -> link_pb2.WorkerMessage:
    times = dict.fromkeys(("place_seconds", "execute_seconds", "gather_seconds"), seconds)
    return link_pb2.WorkerMessage(call_id=1, executed=link_pb2.Executed(inline_results=results, **times))


def candidates(*strategies: str) -> link_pb2.WorkerMessage:
    return link_pb2.WorkerMessage(call_id=1, candidates=link_pb2.Candidates(strategies=strategies))


def merged(*answers: link_pb2.WorkerMessage) -> link_pb2.WorkerMessage:
    return merge(answers, HOSTS[: len(answers)], None, None)


def test_what_one_worker_says_is_the_answer():
    answer = prepared()
    assert merged(answer) is answer


def test_the_same_program_and_the_same_strategies_on_all_are_one_answer():
    assert merged(prepared(), prepared()).prepared.fingerprint == b"1"
    both = merged(candidates("ring", "psum"), candidates("ring", "psum"))
    assert list(both.candidates.strategies) == ["ring", "psum"]


def test_a_program_was_on_disk_only_if_all_had_it_there():
    assert merged(prepared(from_disk=True), prepared(from_disk=True)).prepared.from_disk
    assert not merged(prepared(from_disk=True), prepared()).prepared.from_disk


PUT = link_pb2.WorkerMessage(call_id=1, array_put=link_pb2.ArrayPut())
DISK_ERRORS = [failure(reason) for reason in ("FILE_LIMIT", "FILES_UNAVAILABLE", "FILE_NOT_FOUND")]
VALUE_ERRORS = [failure(reason) for reason in ("INVALID_VALUE", "INDEX_OUT_OF_RANGE", "INVALID_MATRIX")]


@rows(
    "answers",
    [
        *[(failure(), failure(message="neither")), (failure(), prepared()), (prepared(), failure())],  # to compile
        *((executed(), error) for error in DISK_ERRORS),  # of one host
        *((executed(), error) for error in VALUE_ERRORS),  # a host without devices of the mesh does not see them
        *((error, answer) for error in VALUE_ERRORS for answer in (executed(), error)),
        (PUT, failure("OUT_OF_DEVICE_MEMORY")),
    ],
)
def test_some_failures_of_one_host_fail_the_call_and_end_no_mesh(answers):
    assert merged(*answers).failure.message == "no"


@rows(
    ("answers", "says"),
    [
        ((executed(), failure()), "host b alone failed: no"),
        ((executed(), failure("FILE_DAMAGED")), "host b alone failed: no"),  # others may wait in a collective
        ((executed(), failure("OUT_OF_DEVICE_MEMORY")), "host b alone failed: no"),
        ((prepared(), executed()), "were prepared, executed"),
        ((prepared(), prepared(b"2")), "hosts a and b compiled different programs for kernel diff"),
        ((prepared(), prepared(key="other")), "hosts a and b compiled different programs for kernel diff"),
        ((candidates("ring", "psum"), candidates("psum", "ring")), "different strategies"),
    ],
)
def test_other_answers_of_one_host_end_the_mesh(answers, says):
    with pytest.raises(DisagreementError, match=says):
        merged(*answers)


def test_the_slowest_hosts_times_are_reported():
    answer = merged(executed(seconds=1.0), executed(seconds=2.0)).executed
    assert (answer.place_seconds, answer.execute_seconds, answer.gather_seconds) == (2.0, 2.0, 2.0)


def test_results_in_the_answers_are_put_together():
    """Rows 0 and 1 are the first host's, row 2 the second's; each sends the block that it has."""
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    placement = kernel_pb2.ArrayPlacement(
        type=array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT32, shape=[3, 2]),
        padded_shape=[4, 2],
        spec=mesh_pb2.PartitionSpec(entries=[mesh_pb2.PartitionSpecEntry(axis_names=["x"])]),
    )
    mesh = mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="x", size=2)], device_ids=[0, 1])
    plan = kernel_pb2.Plan(mesh=mesh, results=[placement])
    table = BlockTable([server_info_service_pb2.Device(id=i, process_index=i) for i in range(2)])
    answers = [executed(rows[:2].tobytes()), executed(rows[2:].tobytes())]
    merged_bytes = merge(answers, HOSTS, plan, table).executed.inline_results[0]
    np.testing.assert_array_equal(np.frombuffer(merged_bytes, np.float32).reshape(3, 2), rows)


def ready(jax: str = "1", devices: int = 2) -> link_pb2.Ready:
    return link_pb2.Ready(
        devices=[server_info_service_pb2.Device(id=i) for i in range(devices)],
        versions=server_info_service_pb2.Versions(jax=jax),
    )


@rows(("other", "what"), [(ready(jax="2"), "versions"), (ready(devices=3), "devices")])
def test_a_mesh_is_ready_when_all_workers_are_and_those_that_cannot_be_one_are_distinguished(other, what):
    startup_barrier = StartupBarrier(HOSTS)
    assert startup_barrier.add(0, ready()) is None
    with pytest.raises(DisagreementError, match=f"the {what} of hosts a and b differ"):
        startup_barrier.add(1, other)
    assert startup_barrier.add(1, ready()) == ready()
