"""Transfers of operands that are on the mesh: compiled calls refuse them, plans report them."""

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, details, mesh, spec

import shardcall as sc
from shardcall import P
from shardcall.v1 import kernel_service_pb2

X = np.arange(64.0).reshape(16, 4)
DIFF = np.diff(X, axis=1)
MESH, ROWS = sc.Mesh(x=4), P("x", None)
TURNED = sc.Mesh(x=4, device_ids=[3, 2, 1, 0])

# A placement, and the bytes of a transfer from there to rows over the first four devices.
ELSEWHERE = {
    "another spec": (MESH, P(None, "x"), 3 * 128),
    "another order": (TURNED, ROWS, 512),
    "another mesh": (sc.Mesh(x=2), ROWS, 512 - 128),
    "other devices": (sc.Mesh(x=4, device_ids=[4, 5, 6, 7]), ROWS, 512),
    "replicated": (MESH, P(), 0),
}


@pytest.fixture(scope="module")
def fd(client):
    return client.compile("diff", sc.Array(X.shape, "float64"), axis=1, mesh=MESH, spec=ROWS)


@pytest.mark.parametrize(("mesh", "layout", "moved"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_compiled_call_refuses_to_move_an_operand_unless_it_may(client, fd, mesh, layout, moved):
    with client.put(X, mesh=mesh, spec=layout) as h:
        with pytest.raises(
            sc.ShardingError, match=r"^x is float64\[16,4\] placed as .*compiled for P\('x', None\)"
        ) as no:
            fd(h)
        assert no.value.field == "x"
        assert "client.reshard(" in str(no.value)
        assert f"reshard=True, which moves {moved:,} bytes" in str(no.value)
        result = fd(h, reshard=True)
        np.testing.assert_array_equal(result.array, DIFF)
        (transfer,) = result.plan.transfers
        assert (transfer.operand, transfer.received_bytes, transfer.through_host) == (0, moved, False)
        assert (transfer.from_mesh, transfer.to_mesh, transfer.to_spec) == (h.mesh, fd.plan.mesh, ROWS)
        assert transfer.from_spec == h.spec
        with pytest.raises(sc.ShardingError):  # that one call was allowed it and no other
            fd(h)


def test_an_operand_of_an_equivalent_placement_is_not_moved(client, fd):
    named_otherwise = sc.Mesh(a=2, b=2)
    with client.put(X, mesh=MESH, spec=ROWS) as h, client.put(X, mesh=named_otherwise, spec=P(("a", "b"))) as same:
        for array in (h, same, X):
            result = fd(array)
            np.testing.assert_array_equal(result.array, DIFF)
            assert result.plan.transfers == ()
            assert "transfer" not in str(result.plan)
            assert result.plan.mesh == fd.plan.mesh


def test_the_error_s_remedy_is_one(client, fd):
    with client.put(X, mesh=TURNED, spec=ROWS) as h:
        there = client.reshard(h, mesh=fd.plan.mesh, out_spec=fd.plan.operands[0].spec, keep=True).array
        with there:
            np.testing.assert_array_equal(fd(there, keep=True).array.get(), DIFF)


def test_what_is_compiled_without_a_mesh_runs_where_it_was_compiled_for(client):
    compiled = client.compile("diff", sc.Array(X.shape, "float64"), axis=1)
    assert compiled.plan.mesh.size == 1
    with client.put(X, mesh=MESH, spec=ROWS) as h:
        with pytest.raises(sc.ShardingError, match=r"on Mesh\(x=4\), and the kernel was compiled for .*Mesh\(x=1\)"):
            compiled(h)
        result = compiled(h, reshard=True)
        assert (result.plan.key_digest, result.cache_hit) == (compiled.plan.key_digest, True)
        np.testing.assert_array_equal(result.array, DIFF)


def test_reshard_of_compile_allows_it_to_every_call(client):
    options = {"lhs_spec": ROWS, "rhs_spec": P(), "mesh": MESH}
    with client.put(np.ones((4, 4)), mesh=MESH, spec=ROWS) as weights, client.put(X, mesh=TURNED, spec=ROWS) as h:
        with pytest.raises(sc.ShardingError, match=r"^rhs is .*compile with reshard=True"):
            client.compile("matmul", sc.Array(X.shape, "float64"), weights, **options)
        compiled = client.compile("matmul", sc.Array(X.shape, "float64"), weights, reshard=True, **options)
        assert [transfer.operand for transfer in compiled.plan.transfers] == [1]
        result = compiled(h)
        np.testing.assert_array_equal(result.array, X @ np.ones((4, 4)))
        assert [transfer.operand for transfer in result.plan.transfers] == [0, 1]
        with pytest.raises(sc.ShardingError, match=r"^lhs "):
            compiled(h, reshard=False)


def test_plans_and_results_of_ordinary_calls_report_what_moves(client):
    options = {"axis": 0, "mesh": MESH, "spec": P(None, "x")}
    with client.put(X, mesh=MESH, spec=ROWS) as h:
        planned, result = client.plan("diff", h, **options), client.diff(h, **options)
        np.testing.assert_array_equal(result.array, np.diff(X, axis=0))
        assert planned.transfers == result.plan.transfers
        assert [(t.operand, t.received_bytes) for t in planned.transfers] == [(0, 384)]
        assert "  transfer     operand 0 from P('x', None), 384 bytes between devices\n" in str(planned)
        assert repr(planned) == str(planned)
        assert "moved from P('x', None), 384 bytes between devices" in planned.visualize().caption
        assert "moved" not in planned.visualize("result").caption
        # The same program, cached under the same key, for an array that needs no transfer.
        with client.put(X, mesh=MESH, spec=P(None, "x")) as other:
            assert client.plan("diff", other, **options).transfers == ()
            assert client.diff(other, **options).plan.key_digest == result.plan.key_digest
        assert client.diff(X, **options).plan.transfers == ()


def test_an_array_padded_otherwise_is_reported_to_move_through_the_host(client):
    with client.put(np.ones((5, 4)), mesh=MESH, spec=ROWS) as h:
        (transfer,) = client.diff(h, mesh=MESH, spec=P(None, "x"), keep=True).plan.transfers
        assert (transfer.through_host, transfer.received_bytes) == (True, 160)


def test_a_stream_s_plan_reports_it_too(server):
    x = np.ones((1 << 10, 1 << 9))
    with sc.connect(server.address, shared_memory=False) as streaming, streaming.put(x, mesh=MESH, spec=ROWS) as h:
        (transfer,) = streaming.diff(h, axis=0, mesh=MESH, spec=P(None, "x")).plan.transfers
        assert transfer.received_bytes == x.nbytes * 3 // 4


def resident(client, stub, refuse=True, **where):
    with client.put(X, **where) as h:
        taken = kernel_service_pb2.Operand(resident=kernel_service_pb2.ResidentArray(handle=bytes.fromhex(h.handle)))
        rows = call(mesh=mesh(x=4), in_specs=[spec(("x",), ())])
        request = kernel_service_pb2.ExecuteRequest(call=rows, operands=[taken], refuse_transfers=refuse)
        return stub.Execute(request, timeout=60)


def test_the_server_refuses_where_the_request_says_so(client, stub):
    for refuse, where in ((True, {"mesh": MESH, "spec": ROWS}), (False, {"mesh": TURNED, "spec": ROWS})):
        assert len(resident(client, stub, refuse, **where).plan.transfers) == (not refuse)
    with pytest.raises(grpc.RpcError) as caught:
        resident(client, stub, mesh=TURNED, spec=ROWS)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    entries = details(caught.value)
    assert entries["ErrorInfo"].reason == "TRANSFER_REQUIRED"
    assert entries["ErrorInfo"].metadata["bytes"] == "512"
    assert entries["BadRequest"].field_violations[0].field == "operand 0"
    assert "on Mesh(x=4, device_ids=[3, 2, 1, 0]), and the program takes it as P('x', None)" in caught.value.details()
