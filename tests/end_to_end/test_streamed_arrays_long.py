"""Puts and reads by call streams of every element type and layout, and where memory is short."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from client_parts import remote_arrays_of
from end_to_end.raw_stream import delete, opened, put
from end_to_end.test_round_trips import ELEMENT_TYPES, random_values

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (7, 5), (4, 3, 9), (3, 5000)], ids=str)
@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_arrays_of_every_element_type_and_layout_are_put_and_read(own_client, dtype, shape):
    x = random_values(shape, dtype, seed=len(shape))
    layouts = [x, x.copy(order="F"), np.repeat(x, 2, 0)[::2] if shape else x]
    if x.dtype.newbyteorder("S") != x.dtype and x.dtype.kind in "iufc":
        layouts.append(x.astype(x.dtype.newbyteorder(">")))
    placed: dict[str, Any] = {"mesh": {"x": 3}, "spec": ("x",)} if shape else {}
    there = [own_client.put(layout, **placed) for layout in layouts]
    copied = own_client.submit("copy", there[0])
    for array in (*there, copied, own_client.submit("copy", copied)):
        back = array.get()
        assert (back.shape, back.dtype, back.tobytes()) == (x.shape, x.dtype, x.tobytes())
        assert back.flags.writeable
        assert back.flags.owndata


def test_a_put_waits_for_earlier_deletions_if_memory_is_short(server_factory):
    server = server_factory("--max-resident-bytes", str(1 << 18), devices=1, why="it holds few bytes of arrays")
    x = np.ones(1 << 14)
    with opened(server) as stream:
        for number in range(0, 20, 2):
            first, second = os.urandom(16), os.urandom(16)
            stream.send(put(number, x, first), delete(first), put(number + 1, x, second), delete(second))
            stream.response(number)
            stream.response(number + 1)


def test_the_limits_of_arrays_are_those_of_the_rpc(server_factory, monkeypatch):
    server = server_factory("--max-resident-bytes", str(1 << 16), devices=1, why="it holds few bytes of arrays")
    with sc.connect(server.address) as client:
        h = client.put(np.zeros(6000))
        messages = []
        for streams in (True, False):
            with monkeypatch.context() as patch:
                if not streams:
                    patch.setattr(remote_arrays_of(client), "_stream_for", lambda nbytes: None)
                with pytest.raises(sc.ResourceExhaustedError) as caught:
                    client.put(np.zeros(6000))
                messages.append((caught.value.reason, caught.value.message))
        assert messages[0] == messages[1]
        assert messages[0][0] == "RESIDENT_LIMIT"
        for _ in range(20):  # arrays of dropped objects are deleted first
            del h
            h = client.put(np.zeros(6000))
        assert h.get().sum() == 0
