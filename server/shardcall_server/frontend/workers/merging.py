"""One answer out of those of all workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardcall.v1 import kernel_pb2
from shardcall_server.errors import Reason
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_worker.v1 import link_pb2

# No process waits for others in these, and what the others made is forgotten.
_MAY_FAIL_ALONE = (
    {"failure", "prepared", "candidates"},
    {"failure", "array_put"},
    {"failure", "known_answer_compiled"},
)
_MAY_REFUSE_ALONE = {"failure", "executed"}  # a process without devices of a call's mesh sees no flags of its checks


class DisagreementError(Exception):
    """The workers did not do the same: the mesh cannot go on.

    Attributes:
        failure: what one of them failed with that others did not; None where it was something else.
    """

    def __init__(self, reason: str, failure: link_pb2.Failure | None = None) -> None:
        super().__init__(reason)
        self.failure = failure


def failed_alone(host: str, failure: link_pb2.Failure) -> DisagreementError:
    """The error of workers of which one failed at what the others did."""
    return DisagreementError(f"host {host} alone failed: {failure.message}", failure)


def merge(
    answers: Sequence[link_pb2.WorkerMessage],
    hosts: Sequence[str],
    plan: kernel_pb2.Plan | None,
    table: BlockTable | None,
) -> link_pb2.WorkerMessage:
    """The answer to a command that all workers were sent.

    Args:
        answers: one of each worker, in the order of their processes.
        hosts: their names.
        plan: how the command's arrays lie on the mesh; needed where results come in the answers.
        table: tells which blocks are whose; None where there is but one worker.

    Raises:
        DisagreementError: they answered differently.
    """
    if len(answers) == 1:
        return answers[0]
    kinds = [answer.WhichOneof("answer") for answer in answers]
    failed = [i for i, kind in enumerate(kinds) if kind == "failure"]
    if failed:
        first = answers[failed[0]]
        if len(failed) < len(answers) and not _may_fail_alone({*kinds}, [answers[i].failure for i in failed]):
            raise failed_alone(hosts[failed[0]], first.failure)
        return first
    if len(set(kinds)) > 1:
        raise DisagreementError(f"the answers of the hosts were {', '.join(map(str, kinds))}")
    merged = link_pb2.WorkerMessage()
    merged.CopyFrom(answers[0])
    match kinds[0]:
        case "prepared":
            _check_fingerprints(answers, hosts)
            merged.prepared.from_disk = all(answer.prepared.from_disk for answer in answers)
        case "candidates":
            if any(answer.candidates != merged.candidates for answer in answers):
                raise DisagreementError("the hosts count other strategies for one call")
        case "executed":
            _merge_executed(merged.executed, [answer.executed for answer in answers], plan, table)
        case "known_answer_run":
            for answer in answers[1:]:  # a kernel that one host's compiler gets wrong is wrong on the mesh
                merged.known_answer_run.failures.extend(answer.known_answer_run.failures)
                merged.known_answer_run.untested.extend(answer.known_answer_run.untested)
        case "array_put":
            merged.array_put.place_seconds = max(answer.array_put.place_seconds for answer in answers)
    return merged


def _may_fail_alone(kinds: set[str | None], failures: Sequence[link_pb2.Failure]) -> bool:
    if kinds <= _MAY_REFUSE_ALONE:
        return all(failure.reason == Reason.INVALID_VALUE for failure in failures)
    return any(kinds <= alone for alone in _MAY_FAIL_ALONE)


def _check_fingerprints(answers: Sequence[link_pb2.WorkerMessage], hosts: Sequence[str]) -> None:
    """Refuses to launch what is not the same program everywhere: its processes might wait for each other for ever."""
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
    """The slowest worker's times, and results put together of what each has."""
    merged.place_seconds = max(answer.place_seconds for answer in answers)
    merged.execute_seconds = max(answer.execute_seconds for answer in answers)
    merged.gather_seconds = max(answer.gather_seconds for answer in answers)
    if not merged.inline_results:
        return
    assert plan is not None
    assert table is not None
    for i, placement in enumerate(plan.results):
        whole: np.ndarray | None = None
        for process, answer in enumerate(answers):
            kind, pieces = table.given(placement, plan.mesh, process)
            if whole is None:
                whole = np.empty(kind.shape, kind.dtype)
            memory = np.frombuffer(answer.inline_results[i], np.uint8)
            for piece in pieces:
                piece.of(whole)[...] = piece.view(memory, kind.dtype)
        assert whole is not None
        merged.inline_results[i] = whole.tobytes()
