"""A cold call with the strategy "auto" is completed and keyed once, and sent again only with a candidate to compile."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from server.fake_calls import FakeServerCall
from server.test_program_cache import Session, done, failed, prepared

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.dispatch import execution as module
from shardcall_server.frontend.dispatch.compiled_call import CallTemplate
from shardcall_server.frontend.dispatch.execution import Execution
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_server.frontend.programs import keys
from shardcall_server.frontend.programs.program_cache import ProgramCache
from shardcall_server.frontend.programs.program_table import ProgramLimits
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2


@pytest.fixture
def counts(monkeypatch):
    """Returns how often a call was completed and keyed."""
    counts = {"completed": 0, "keyed": 0}
    abstract_call, sha256 = module.AbstractCall, keys.hashlib.sha256

    def completed(*arguments):
        counts["completed"] += 1
        return abstract_call(*arguments)

    def keyed(*arguments):
        counts["keyed"] += 1
        return sha256(*arguments)

    monkeypatch.setattr(module, "AbstractCall", completed)
    monkeypatch.setattr(keys, "hashlib", SimpleNamespace(sha256=keyed))
    return counts


@pytest.mark.parametrize(("refused", "sent"), [((), ["", "halo"]), (("halo",), ["", "halo", "gspmd"])])
def test_a_cold_call_is_keyed_once_and_a_cached_one_never(counts, refused, sent):
    strategies = []

    def answer(message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage]:
        strategies.append(strategy := message.prepare.strategy)
        if strategy in refused:
            return failed(CallError(Reason.OUT_OF_DEVICE_MEMORY, "too large"))
        candidates = link_pb2.Candidates(tuning_digest="0" * 64, strategies=["halo", "gspmd"])
        return prepared(strategy) if strategy else done(candidates=candidates)

    session = Session(answer)
    programs = ProgramCache(session, ProgramLimits(10, 1000, 1 << 20))  # type: ignore[arg-type]
    mesh = SimpleNamespace(programs=programs, kernels={}, ready=link_pb2.Ready(), session=session)
    call = FakeServerCall(set_program=lambda *arguments: None)

    async def mesh_of(call):
        return mesh

    execution = Execution(
        SimpleNamespace(mesh=mesh_of),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        SimpleNamespace(check=lambda program: None),  # type: ignore[arg-type]
        Settings(),
    )
    operand = OperandSource(ArrayType((8,), np.dtype(np.float64)))
    for _ in range(2):
        stage = execution.prepare(call, CallTemplate(kernel_pb2.KernelCall(kernel="diff")), [operand])  # type: ignore[arg-type]
        assert call.run(stage).entry.program.key == sent[-1]
    assert counts == {"completed": 1, "keyed": 1}
    assert strategies == sent
