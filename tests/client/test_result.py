"""Lazy parsing of a result's metadata."""

import dataclasses

import grpc
import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall._src.device_arrays import plan


def test_the_plan_is_read_when_it_is_asked_for_and_once(client, monkeypatch):
    read = []
    from_proto = plan.from_proto
    monkeypatch.setattr(plan, "from_proto", lambda *message: read.append(message) or from_proto(*message))
    result = client.call("echo", [1.0, 2.0])
    assert (result.cache_hit, result.explanation) == (False, "axis was 0, is 1")
    assert read == []
    assert result.plan is result.plan
    assert len(read) == 1
    assert (result.plan.cache_hit, result.plan.explanation) == (False, "axis was 0, is 1")
    assert result.plan == client.plan("echo", [1.0, 2.0])


def test_results_can_be_unpacked(client):
    result = client.call("echo", [1.0, 2.0])
    (array,) = result
    assert array is result.array


def test_a_result_of_one_element_is_a_number(client):
    result = client.call("echo", [2.0])
    assert (float(result), int(result), complex(result), bool(result)) == (2.0, 2, 2, True)
    with pytest.raises(TypeError, match="float"):
        float(client.call("echo", [1.0, 2.0]))


@rows("name", ["arrays", "timing", "plan", "cache_hit", "explanation", "array"])
def test_a_result_cannot_be_changed(client, name):
    result = client.call("echo", 1.0)
    for _ in range(2):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, None)
        getattr(result, name)


def test_a_plan_of_another_version_does_not_take_the_result_away(server, client):
    answer = server.execute

    def execute(request: object, context: grpc.ServicerContext) -> object:
        response = answer(request, context)
        response.plan.mesh.ClearField("axes")
        return response

    server.execute = execute
    result = client.call("echo", [1.0, 2.0])
    np.testing.assert_array_equal(result, [1.0, 2.0])
    with pytest.raises(shardcall.ProtocolError, match=r"describes an invalid mesh"):
        _ = result.plan
