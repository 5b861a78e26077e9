"""Timeouts that are refused, and the longest that are not."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall._src.rpc.deadline import MAX_TIMEOUT_S, deadline_after

INVALID = [
    *(0, -1.5, math.nan, math.inf, True, "5", np.array(5.0), 1j, Decimal(5), np.float32("nan")),
    *(1e10, 10**400, 10**5000, -(10**400), Fraction(10**400, 3), Fraction(1, 10**400)),  # too long, no text, no float
]
CALLS = [
    lambda client, kept, timeout: client.call("echo", 1.0, timeout=timeout),
    lambda client, kept, timeout: client.submit("echo", 1.0, timeout=timeout),
    lambda client, kept, timeout: client.get(kept, timeout=timeout),
    lambda client, kept, timeout: kept.get(timeout=timeout),
    lambda client, kept, timeout: client.put(1.0, timeout=timeout),
    lambda client, kept, timeout: client.plan("echo", 1.0, timeout=timeout),
    lambda client, kept, timeout: client.synchronize(timeout=timeout),
    lambda client, kept, timeout: shardcall.connect(client.address, connect_timeout=timeout),
    lambda client, kept, timeout: shardcall.local(start_timeout=timeout),
]


@rows("timeout", INVALID)
@rows("call", CALLS)
def test_what_is_no_timeout_is_refused_before_anything_is_sent(shared_client, memory, call, timeout):
    kept = shared_client.put(np.arange(3.0))
    sent = len(memory.server.requests)
    with pytest.raises(shardcall.InvalidParameterError, match="at most 1e\\+09") as caught:
        call(shared_client, kept, timeout)
    assert caught.value.message.startswith("timeout is ")
    assert len(caught.value.message) < 200
    assert len(memory.server.requests) == sent


@rows("timeout", [1, 2.5, MAX_TIMEOUT_S, 10**9, Fraction(1, 2), np.float32(3), np.int8(3), np.float64(0.25)])
def test_numbers_of_all_types_are_timeouts(shared_client, timeout):
    assert deadline_after(timeout, 0).timeout_s == float(timeout)
    assert type(deadline_after(timeout, 0).timeout_s) is float
    assert shared_client.call("echo", 1.0, timeout=timeout).array == 1.0
    shared_client.synchronize(timeout=timeout)


@rows(
    "call",
    [
        lambda client, timeout: client.open("none", timeout=timeout),  # which is none of its errors
        lambda client, timeout: client.plan("echo", 1.0, timeout=timeout),
        lambda client, timeout: client.list(timeout=timeout),
        lambda client, timeout: client.call("echo", np.ones(1 << 17), timeout=timeout),
    ],
)
def test_a_call_whose_time_has_passed_is_not_sent(shared_client, memory, call):
    sent = len(memory.server.requests)
    with pytest.raises(shardcall.DeadlineExceededError, match="1e-09 s passed before it was sent"):
        call(shared_client, 1e-9)
    assert len(memory.server.requests) == sent
