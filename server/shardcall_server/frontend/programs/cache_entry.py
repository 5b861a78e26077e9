"""A program that the mesh holds compiled, and what a call is told of it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardcall.v1 import array_pb2, kernel_pb2, kernel_service_pb2
from shardcall_server.kernels.layout import ArrayType

HIT = kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_HIT)
_MAX_TOLD = 3  # differences that an explanation names


@dataclass(eq=False)
class CachedProgram:
    """A program that the mesh holds.

    Attributes:
        key: the digest of its key.
        kernel: the name of its kernel.
        parts: the labelled parts of its key.
        results: the types of its results.
        program_bytes: the memory that it takes, at a guess.
        device_bytes: what operands, results and what lies between take on the devices while it runs.
        owner: the client that had it compiled; empty for the server itself.
        known_answers: the names of the known-answer tests that vouch for it.
        trusted: whether these have passed; False where that is not known.
        evicted: whether the mesh has been told to forget it; changes under the session's `order`.
        aliases: digests of the calls that find it, oldest first.
    """

    key: str
    kernel: str
    parts: dict[str, str]
    results: tuple[ArrayType, ...]
    program_bytes: int
    device_bytes: int = 0
    owner: str = ""
    known_answers: tuple[str, ...] = ()
    trusted: bool = False
    evicted: bool = False
    aliases: OrderedDict[bytes, None] = field(default_factory=OrderedDict)


@dataclass(frozen=True)
class CacheEntry:
    """A program, and how it was found.

    Attributes:
        program: the program.
        plan: what it does, with the reason why this call's strategy is what it is.
        answer: hit or miss, and why.
    """

    program: CachedProgram
    plan: kernel_pb2.Plan
    answer: kernel_pb2.CacheAnswer

    @cached_property
    def plan_field(self) -> bytes:
        """The plan as the field of an `ExecuteResponse`, to be appended to the bytes of its other fields.

        It is large beside a small call's arrays, and the same in every answer.
        """
        return kernel_service_pb2.ExecuteResponse(plan=self.plan).SerializeToString()


Words = tuple[bytes, tuple[ArrayType | None, ...], bool]
"""A call as its sender said it: the bytes of its message, the types of its operands, whether any array stays."""


def call_digest(call: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType], *, stays: bool = False) -> bytes:
    """What a call is looked up by: all that was said, with "auto" and unset specs in their places.

    Many such digests may lead to one program. Values are no part of it. Calls some of whose arrays stay have digests of
    their own, since other sizes are refused.
    """
    sha = hashlib.sha256(b"stays" if stays else b"")
    for message in (call, *operands):
        data = message.SerializeToString(deterministic=True)
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.digest()


def miss(plan: kernel_pb2.Plan, cached: Iterable[CachedProgram]) -> kernel_pb2.CacheAnswer:
    """Why a key was not there: what differs from the nearest key that is.

    Args:
        plan: what was asked for.
        cached: the programs that are there and may be told of, those preferred among equally near ones first.
    """
    parts = {part.label: part.value for part in plan.key}
    nearest = min(
        (_differences(parts, program.parts) for program in cached if program.kernel == plan.kernel),
        key=len,
        default=None,
    )
    return kernel_pb2.CacheAnswer(
        outcome=kernel_pb2.CACHE_OUTCOME_MISS,
        explanation=f"no program of kernel {plan.kernel} was cached for this client"
        if nearest is None
        else _told(parts, nearest),
    )


def _told(parts: dict[str, str], nearest: list[tuple[str, str]]) -> str:
    told = "; ".join(f"{label}: {parts.get(label, 'none')} here, {other} there" for label, other in nearest[:_MAX_TOLD])
    more = f"; and {len(nearest) - _MAX_TOLD} more" if len(nearest) > _MAX_TOLD else ""
    return f"the nearest cached program differs in {told}{more}"


def _differences(ours: dict[str, str], theirs: dict[str, str]) -> list[tuple[str, str]]:
    return [
        (label, theirs.get(label, "none"))
        for label in dict.fromkeys([*ours, *theirs])
        if ours.get(label) != theirs.get(label)
    ]
