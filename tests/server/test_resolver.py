"""Calls in Prepare commands are decoded, resolved and keyed once, however many of their candidates are compiled."""

from unittest.mock import Mock

import numpy as np
import pytest

import shardcall as sc
from shardcall._src.calls import call_request
from shardcall_core.call_error import CallError
from shardcall_server.compilation.keys import Platform
from shardcall_server.kernels.stencils.diff import Diff
from shardcall_server.mesh import resolver as module
from shardcall_server.mesh.resolver import Resolver
from shardcall_worker.v1 import link_pb2


@pytest.fixture
def steps(monkeypatch) -> dict[str, Mock]:
    """The steps, which count how often they run."""
    steps = {name: Mock(wraps=getattr(module, name)) for name in ("decode_request", "resolve", "kernel_key")}
    for name, step in steps.items():
        monkeypatch.setattr(module, name, step)
    return steps


def command(strategy: str = "", **parameters: int) -> link_pb2.Prepare:
    x = np.ones((64, 64))
    prepared = call_request.prepare("diff", [x], parameters, call_request.CallOptions(sc.Mesh(x=8), [sc.P("x", None)]))
    return link_pb2.Prepare(call=prepared.message, operands=prepared.type_messages(), strategy=strategy)


def resolver(max_open: int = 64) -> Resolver:
    return Resolver({"diff": Diff()}, Platform(device_kind="cpu", jax="0", flags=""), range(8), max_open)


def test_the_candidates_of_a_call_share_what_it_was_resolved_to(steps):
    fresh = resolver()
    rule, key = fresh.resolve(command(axis=0))
    assert len(rule.candidates) > 1
    for name in rule.candidates:
        resolved, candidate_key = fresh.resolve(command(name, axis=0))
        assert resolved.strategy.name == candidate_key.strategy == name
        assert resolved.problem is rule.problem
    assert len({fresh.resolve(command(name, axis=0))[1].digest() for name in rule.candidates}) == len(rule.candidates)
    assert key.digest() == fresh.resolve(command(rule.strategy.name, axis=0))[1].digest()
    assert [step.call_count for step in steps.values()] == [1, 1, 1]


def test_other_calls_and_those_no_longer_kept_are_resolved_anew(steps):
    fresh = resolver(max_open=1)
    for _ in range(2):
        for n in (1, 2):
            fresh.resolve(command(axis=0, n=n))
    assert [step.call_count for step in steps.values()] == [4, 4, 4]


def test_a_refused_call_is_refused_again(steps):
    fresh = resolver()
    for _ in range(2):
        with pytest.raises(CallError):
            fresh.resolve(command(axis=7))
    assert steps["resolve"].call_count == 2
