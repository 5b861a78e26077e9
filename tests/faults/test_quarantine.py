"""Programs that ended the mesh three times are refused, and new ones of their owners; others are not."""

from __future__ import annotations

import pytest
from end_to_end.messages import token_of
from faults.long_programs import SIGNAL, WINDOW, convolve, works

import shardcall as sc


def test_a_program_that_took_too_long_three_times_is_refused_and_no_other(server_factory):
    server = server_factory("--max-execute-s", "1", devices=2, why="its programs take too long")
    with sc.connect(server.address) as client, sc.connect(server.address, token=token_of("guest")) as other:
        for _ in range(3):
            with pytest.raises(sc.DeadlineExceededError, match="longest that this server allows"):
                convolve(client)
        restarts = client.usage().mesh.restarts
        with pytest.raises(sc.ProgramRefusedError) as caught:
            convolve(client)
        assert caught.value.reason == "PROGRAM_REFUSED"
        other.convolve(SIGNAL[:1000], WINDOW[:10])
        works(other)
        assert client.usage().mesh.restarts == restarts
