import copy
import pickle

import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall import Array, Mesh, P
from shardcall.v1 import kernel_service_pb2


def compile_diff(client, **keywords):
    return client.compile("diff", Array((2, 3), "float64"), axis=0, **keywords)


def test_compiling_sends_types_and_asks_for_the_text_when_it_is_read(server, client):
    assert compile_diff(client, prepend=0.0, mesh=Mesh(x=2), spec=P("x", None)).as_text() == "HloModule echo"
    first, second = server.requests
    assert isinstance(first, kernel_service_pb2.CompileRequest)
    assert [list(operand.shape) for operand in first.operands] == [[2, 3], []]
    assert len(first.call.in_specs) == 1
    assert (first.include_text, second.include_text) == (False, True)
    assert second.call == first.call


@rows("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_neither_it_nor_its_client_is_pickled_or_copied(client, use):
    with pytest.raises(TypeError, match=r"a client belongs to its process.*connect again in the other one"):
        use(client)
    with pytest.raises(TypeError, match=r"a compiled kernel belongs to its client.*connect again in the other one"):
        use(compile_diff(client))


def test_values_passed_at_compilation_are_bound(server, client):
    fd = compile_diff(client, append=7.0)
    x = np.arange(6.0).reshape(2, 3)
    first, second = fd(x).arrays
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, 7.0)
    compiled, sent = server.requests
    assert [operand.type.element_type != 0 for operand in sent.operands] == [True, False, True]
    assert sent.call == compiled.call


def test_types_passed_by_name_stay_unbound(client):
    fd = client.compile("matmul", rhs=Array((3, 2), "int8"), lhs=Array((2, 3), "int8"))
    result = fd(np.ones((2, 3), np.int8), np.zeros((3, 2), np.int8))
    assert [array.shape for array in result.arrays] == [(2, 3), (3, 2)]


@rows(
    ("operands", "error", "says"),
    [
        ([], shardcall.InvalidOperandError, r"takes by position 1 array, x float64\[2,3\]; it got no arrays; to give"),
        ([np.zeros((2, 3))] * 2, shardcall.InvalidOperandError, r"it got 2 arrays; .*shardcall.Array\(shape, dtype\)"),
        ([np.zeros((3, 2))], shardcall.InvalidOperandError, r"shape \(3, 2\) and the kernel was compiled for \(2, 3\)"),
        ([np.zeros((2, 3), "f4")], shardcall.OperandTypeError, r"float32 and the kernel .* float64; give array.astype"),
        ([[[1, 2, 3], [4, 5, 6]]], shardcall.OperandTypeError, r"int64"),
    ],
)
def test_other_arrays_are_refused_before_they_are_sent(server, client, operands, error, says):
    fd = compile_diff(client)
    sent = len(server.requests)
    with pytest.raises(error, match=says):
        fd(*operands)
    assert len(server.requests) == sent


@rows(
    ("operands", "named", "got"),
    [([np.zeros((2, 3)), 0.0], {}, "2 arrays"), ([np.zeros((2, 3))], {"prepend": 0.0}, "1 array and prepend=")],
)
def test_a_bound_operand_is_not_accepted_again(client, operands, named, got):
    with pytest.raises(shardcall.InvalidOperandError) as caught:
        compile_diff(client, prepend=0.0)(*operands, **named)
    assert str(caught.value) == (
        f"this compiled diff takes by position 1 array, x float64[2,3]; it got {got}; bound by value when it was "
        "compiled: prepend float64[]; to give an array with each call, compile with its type in its place: "
        "shardcall.Array(shape, dtype)"
    )
    assert caught.value.field == "operands"
    with pytest.raises(shardcall.InvalidOperandError, match=r"by position no arrays; it got 1 array; bound .*: x "):
        client.compile("diff", np.zeros((2, 3)), axis=0)(np.zeros((2, 3)))


def test_errors_name_open_operands_as_the_kernel_does(client):
    fd = client.compile("diff", np.zeros(3), None, Array(1, "float64"))
    with pytest.raises(shardcall.InvalidOperandError, match=r"^append has shape \(2,\)") as caught:
        fd([1.0, 2.0])
    assert caught.value.field == "append"


def test_results_declared_as_large_are_streamed_at_once(server, client):
    answer = server.compile(None, None)
    placement = answer.plan.results.add()
    placement.type.element_type = shardcall.v1.array_pb2.ELEMENT_TYPE_FLOAT64
    placement.type.shape.extend([1024, 1024])
    server.compile = lambda request, context: answer
    client.compile("echo", Array((), "float64"))(1.0)
    assert server.requests[1:] == ["stream"]
