"""Drawings of array placement, and operands on different devices."""

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, call, check, mesh, operand

import shardcall as sc
from shardcall import P
from shardcall.v1 import kernel_service_pb2

AB = sc.Mesh(a=4, b=2)
X = np.random.default_rng(11).standard_normal((16, 16))


def test_what_stays_is_drawn_as_its_plan_draws_it(client):
    result = client.diff(X, axis=0, mesh=AB, spec=P("b", "a"), keep=True)
    with result.array as kept, client.put(X, mesh=AB, spec=P("b", "a")) as put:
        for array, which in ((put, "operand 0"), (kept, "result")):
            drawn, planned = array.visualize(), result.plan.visualize(which)
            assert planned.caption == f"{'result 0' if which == 'result' else which}: {drawn.caption}"
            assert drawn.grid == planned.grid == array.blocks() == result.plan.blocks(which)
            assert drawn.splitlines()[1:] == planned.splitlines()[1:]
            assert "<svg" in drawn._repr_svg_()
        assert "0:15" not in kept.visualize()
        assert "8:15 │" in kept.visualize()  # as its owner sees it, without padding


OTHERS = {
    "other devices": (sc.Mesh(x=4, device_ids=[4, 5, 6, 7]), "devices 4,5,6,7 as P('x', None)"),
    "some of the devices": (sc.Mesh(x=2), "Mesh(x=2) of devices 0,1 as"),
    "another order": (
        sc.Mesh(x=4, device_ids=[3, 2, 1, 0]),
        "3,2,1,0 as P('x', None), the same devices in another order",
    ),
}


@pytest.mark.parametrize(("other_mesh", "listed"), OTHERS.values(), ids=OTHERS)
def test_arrays_on_different_devices_are_combined_only_on_an_explicit_mesh(client, other_mesh, listed):
    with (
        client.put(X, mesh=sc.Mesh(x=4), spec=P("x")) as here,
        client.put(X + 1, mesh=other_mesh, spec=P("x")) as there,
    ):
        for ask in (client.matmul, lambda *operands: client.plan("matmul", *operands)):
            with pytest.raises(sc.ShardingError) as caught:
                ask(here, there)
            assert caught.value.field == "mesh"
            for part in (
                "lhs is on Mesh(x=4) of devices 0,1,2,3",
                "rhs on ",
                listed,
                "mesh=",
                "Client.reshard(array, mesh=…, keep=True)",
            ):
                assert part in str(caught.value)
        for common in (sc.Mesh(x=4), other_mesh, sc.Mesh(x=8)):
            np.testing.assert_allclose(client.matmul(here, there, mesh=common).array, X @ (X + 1))


def test_the_server_refuses_them_too(client, stub):
    with client.put(X, mesh=sc.Mesh(x=4)) as here, client.put(X, mesh=OTHERS["another order"][0]) as there:
        operands = [operand(X, resident={"handle": bytes.fromhex(array.handle)}) for array in (here, there)]
        request = kernel_service_pb2.ExecuteRequest(call=call("matmul"), operands=operands)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Execute(request, timeout=30)
        says = "operand 0 is placed on x=4 of devices 0,1,2,3 as P('x', None) and operand 1 on x=4 of devices 3,2,1,0"
        check(caught.value, INVALID, "INVALID_MESH", "mesh", says)
        assert "the same devices in another order" in caught.value.details()
        request.call.mesh.CopyFrom(mesh(x=4))
        answer = stub.Execute(request, timeout=30)
        np.testing.assert_allclose(np.frombuffer(answer.results[0].inline.data).reshape(16, 16), X @ X)


def test_arrays_of_the_same_devices_meet_whatever_their_meshes_and_host_arrays_anywhere(client):
    with client.put(X, mesh=AB, spec=P("a", "b")) as named, client.put(X, mesh=sc.Mesh(x=8), spec=P("x")) as line:
        assert client.matmul(named, line).plan.mesh.axes == AB.axes
        assert client.matmul(line, named).plan.mesh.axes == (("x", 8),)
    last = sc.Mesh(x=1, device_ids=[7])
    with client.put(X, mesh=last) as there:
        for operands in ((there, X), (X, there)):
            result = client.matmul(*operands)
            assert result.plan.mesh == last
            np.testing.assert_allclose(result.array, X @ X)
