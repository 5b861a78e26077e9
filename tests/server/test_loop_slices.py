"""Slices of loops are as long as others may wait, and shorter beside other launches."""

import time
from types import SimpleNamespace

from shardcall_server.frontend.dispatch.loop_slices import LoopSlices
from shardcall_worker.v1 import link_pb2, loop_pb2


def executed(ran, *, left=10**9, iteration_s=0.001):
    return link_pb2.Executed(progress=loop_pb2.LoopProgress(left=left, ran=ran, seconds=ran * iteration_s))


def test_slices_are_shorter_for_some_time_after_other_launches(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    slices = LoopSlices(SimpleNamespace(iteration_s=0.0), slice_s=0.5, grants=0)
    assert slices.first().max_iterations == 1
    assert slices.after(executed(1), grants=1).max_iterations == 16
    assert slices.after(executed(1000), grants=2).max_iterations == 500
    assert slices.after(executed(500), grants=5).max_iterations == 10
    now += 0.4
    assert slices.after(executed(10), grants=6).max_iterations == 10
    now += 0.2
    assert slices.after(executed(10), grants=7).max_iterations == 160
    assert slices.after(executed(160, left=0), grants=8) is None
    assert slices.ran == 1 + 1000 + 500 + 10 + 10 + 160
