"""Merges the answers of all workers into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import OF_VALUES, Reason
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_worker.v1 import link_pb2

# Commands in which no process waits for the others; the results of the others are discarded.
_MAY_FAIL_ALONE = (
    {"failure", "prepared", "candidates"},
    {"failure", "array_put"},
    {"failure", "known_answer_compiled"},
)
_MAY_REFUSE_ALONE = {"failure", "executed"}
# A process without devices of a call's mesh sees no flags of its checks, and no process waits for another's disk. The
# directory of a save whose caller has left is removed before some processes have written their chunks and after others.
_REFUSED_ALONE = OF_VALUES | {Reason.FILE_LIMIT, Reason.FILES_UNAVAILABLE, Reason.FILE_NOT_FOUND}


class DisagreementError(Exception):
    """The workers answered differently, so the mesh cannot continue.

    Attributes:
        failure: the failure of the one worker that failed alone; None if none did.
    """

    def __init__(self, reason: str, failure: link_pb2.Failure | None = None) -> None:
        super().__init__(reason)
        self.failure = failure


def failed_alone(host: str, failure: link_pb2.Failure) -> DisagreementError:
    """Returns the error for a worker that failed at a command in which the others succeeded."""
    return DisagreementError(f"host {host} alone failed: {failure.message}", failure)


def merge(
    answers: Sequence[link_pb2.WorkerMessage],
    hosts: Sequence[str],
    plan: kernel_pb2.Plan | None,
    table: BlockTable | None,
) -> link_pb2.WorkerMessage:
    """Returns the merged answer to a command that was sent to all workers.

    Args:
        answers: one of each worker, in the order of their processes.
        hosts: the names of their hosts.
        plan: the placement of the command's arrays; needed if results come in the answers.
        table: the blocks of each process; None if there is only one worker.

    Raises:
        DisagreementError: the workers answered differently.
    """
    if len(answers) == 1:
        return answers[0]
    outcomes = [answer.WhichOneof("answer") for answer in answers]
    failed = [i for i, outcome in enumerate(outcomes) if outcome == "failure"]
    if failed:
        first = answers[failed[0]]
        if len(failed) < len(answers) and not _may_fail_alone({*outcomes}, [answers[i].failure for i in failed]):
            raise failed_alone(hosts[failed[0]], first.failure)
        return first
    if len(set(outcomes)) > 1:
        raise DisagreementError(f"the answers of the hosts were {', '.join(map(str, outcomes))}")
    merged = link_pb2.WorkerMessage()
    merged.CopyFrom(answers[0])
    match outcomes[0]:
        case "prepared":
            _check_fingerprints(answers, hosts)
            merged.prepared.from_disk = all(answer.prepared.from_disk for answer in answers)
        case "candidates":
            if any(answer.candidates != merged.candidates for answer in answers):
                raise DisagreementError("the hosts list different strategies for one call")
        case "executed":
            _merge_executed(merged.executed, [answer.executed for answer in answers], plan, table)
        case "known_answer_run":
            for answer in answers[1:]:  # a kernel that fails on one host fails on the mesh
                merged.known_answer_run.failures.extend(answer.known_answer_run.failures)
                merged.known_answer_run.untested.extend(answer.known_answer_run.untested)
        case "array_put":
            merged.array_put.place_seconds = max(answer.array_put.place_seconds for answer in answers)
    return merged


def _may_fail_alone(outcomes: set[str | None], failures: Sequence[link_pb2.Failure]) -> bool:
    if outcomes <= _MAY_REFUSE_ALONE:
        return all(failure.reason in _REFUSED_ALONE for failure in failures)
    return any(outcomes <= alone for alone in _MAY_FAIL_ALONE)


def _check_fingerprints(answers: Sequence[link_pb2.WorkerMessage], hosts: Sequence[str]) -> None:
    """Refuses a program that differs between the hosts: its processes could deadlock."""
    first = answers[0].prepared
    for host, answer in zip(hosts, answers, strict=True):
        prepared = answer.prepared
        if (prepared.fingerprint, prepared.plan.key_digest) != (first.fingerprint, first.plan.key_digest):
            raise DisagreementError(
                f"hosts {hosts[0]} and {host} compiled different programs for kernel {first.plan.kernel}"
            )


def _merge_executed(
    merged: link_pb2.Executed,
    answers: Sequence[link_pb2.Executed],
    plan: kernel_pb2.Plan | None,
    table: BlockTable | None,
) -> None:
    """Merges the times of the slowest worker and the pieces of the results of all workers."""
    merged.place_seconds = max(answer.place_seconds for answer in answers)
    merged.execute_seconds = max(answer.execute_seconds for answer in answers)
    merged.gather_seconds = max(answer.gather_seconds for answer in answers)
    if progress := next((answer.progress for answer in answers if answer.HasField("progress")), None):
        merged.progress.CopyFrom(progress)
        if progress.left:
            merged.ClearField("inline_results")
    if not merged.inline_results:
        return
    assert plan is not None
    assert table is not None
    for i, placement in enumerate(plan.results):
        result: np.ndarray | None = None
        for process, answer in enumerate(answers):
            array_type, pieces = table.gathered(placement, plan.mesh, process)
            if result is None:
                result = np.empty(array_type.shape, array_type.dtype)
            memory = np.frombuffer(answer.inline_results[i], np.uint8)
            for piece in pieces:
                piece.of(result)[...] = piece.view(memory, array_type.dtype)
        assert result is not None
        merged.inline_results[i] = result.tobytes()
