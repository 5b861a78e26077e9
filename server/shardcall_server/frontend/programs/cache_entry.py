"""Compiled programs and the entries by which calls find them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from shardcall.v1 import kernel_pb2, kernel_service_pb2
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.programs.keys import CallKey, ProgramKey
from shardcall_server.link.wire import decode_operand_types
from shardcall_worker.v1 import link_pb2

HIT = kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_HIT)
_MAX_DIFFERENCES = 3  # that an explanation names
_GRAPH = "parameters.graph"
_MAX_SHOWN = 80  # characters of a value in it


@dataclass(eq=False)
class CachedProgram:
    """A program that the mesh holds.

    Attributes:
        key: the digest of its key.
        kernel: the name of its kernel.
        parts: the labelled parts of its key.
        results: the types of its results.
        program_bytes: the estimated memory that it takes.
        device_bytes: memory on all devices for operands, results and temporaries while it runs.
        owner: the client that had it compiled; empty for the server itself.
        compile_s: the seconds that the mesh took to compile it, or to load it.
        from_disk: whether it was loaded.
        kernels: the names of all kernels in it, of which a graph has several.
        known_answers: the names of the known-answer tests that vouch for it.
        trusted: whether these are known to have passed.
        is_sliced: whether it is a loop that runs in slices.
        iteration_s: the time of one of its iterations, in seconds; 0 before the first.
        is_slow: whether the last run took longer than 10 ms; True before the first.
        evicted: whether the mesh was sent its eviction; changes while the table's launch lock is held.
        aliases: the calls that find it, oldest first, and the memory of their plans in bytes.
        pins: the number of trials that need it; until it is 0, the program stays without aliases.
    """

    key: ProgramKey
    kernel: str
    parts: dict[str, str]
    results: tuple[ArrayType, ...]
    program_bytes: int
    device_bytes: int = 0
    owner: str = ""
    compile_s: float = 0.0
    from_disk: bool = False
    kernels: tuple[str, ...] = ()
    known_answers: tuple[str, ...] = ()
    trusted: bool = False
    is_sliced: bool = False
    iteration_s: float = 0.0
    is_slow: bool = True
    evicted: bool = False
    aliases: OrderedDict[CallKey, int] = field(default_factory=OrderedDict)
    pins: int = 0


def program_of(prepared: link_pb2.Prepared, owner: str, compile_s: float = 0.0) -> CachedProgram:
    """Returns the program that a worker describes."""
    results = decode_operand_types([result.type for result in prepared.plan.results])
    return CachedProgram(
        key=ProgramKey(prepared.plan.key_digest),
        kernel=prepared.plan.kernel,
        parts={part.label: part.value for part in prepared.plan.key},
        results=tuple(result for result in results if result is not None),
        program_bytes=prepared.program_bytes,
        device_bytes=prepared.device_bytes,
        owner=owner,
        compile_s=compile_s,
        from_disk=prepared.from_disk,
        kernels=tuple(prepared.kernels),
        is_sliced=prepared.is_sliced,
        known_answers=tuple(prepared.known_answers),
    )


@dataclass(frozen=True)
class CacheEntry:
    """A program as one call finds it.

    Attributes:
        program: the program.
        plan: its plan, with the reason for this call's strategy.
        answer: hit or miss, and the explanation.
    """

    program: CachedProgram
    plan: kernel_pb2.Plan
    answer: kernel_pb2.CacheAnswer

    def for_owner(self, owner: str) -> CacheEntry:
        """Returns the entry for a client that waited, without the differences from another client's programs.

        Args:
            owner: the client.
        """
        if self.program.owner == owner or not self.answer.explanation:
            return self
        answer = kernel_pb2.CacheAnswer()
        answer.CopyFrom(self.answer)
        answer.explanation = "another client had begun to compile the program"
        return replace(self, answer=answer)

    @cached_property
    def device_bytes(self) -> tuple[int, ...]:
        """The bytes that each result takes on the devices, counting copies on several of them."""
        return tuple(
            ArrayType(tuple(placement.block_shape), result_type.dtype).nbytes * len(self.plan.mesh.device_ids)
            for placement, result_type in zip(self.plan.results, self.program.results, strict=True)
        )

    @cached_property
    def plan_field(self) -> bytes:
        """The plan as the field of an `ExecuteResponse`, to be appended to the bytes of its other fields.

        It is large beside a small call's arrays, and the same in every answer.
        """
        return kernel_service_pb2.ExecuteResponse(plan=self.plan).SerializeToString()


def explain_miss(program: CachedProgram, cached: Iterable[CachedProgram]) -> kernel_pb2.CacheAnswer:
    """Returns the answer to a miss, which names the differences from the nearest key that is cached.

    Args:
        program: the program that was not cached.
        cached: the programs to compare with, those preferred among equally near ones first.
    """
    nearest = min(
        (_differences(program.parts, other.parts) for other in cached if other.kernel == program.kernel),
        key=len,
        default=None,
    )
    if nearest is None:
        explanation = f"no program of kernel {program.kernel} was cached for this client"
    else:
        named = (_difference_text(*difference) for difference in nearest[:_MAX_DIFFERENCES])
        more = f"; and {len(nearest) - _MAX_DIFFERENCES} more" if len(nearest) > _MAX_DIFFERENCES else ""
        explanation = f"the nearest cached program differs in {'; '.join(named)}{more}"
    return kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_MISS, explanation=explanation)


def _differences(ours: dict[str, str], theirs: dict[str, str]) -> list[tuple[str, str, str]]:
    return [
        (label, ours.get(label, "none"), theirs.get(label, "none"))
        for label in dict.fromkeys([*ours, *theirs])
        if ours.get(label) != theirs.get(label)
    ]


def _difference_text(label: str, ours: str, theirs: str) -> str:
    """Returns a difference; of values that are long or messages, only that they differ."""
    if label == _GRAPH:
        return f"{label}: other calls of kernels"
    if any(len(value) > _MAX_SHOWN or value.startswith(("{", "[{")) for value in (ours, theirs)):
        return f"{label}: another one here than there"
    return f"{label}: {ours} here, {theirs} there"
