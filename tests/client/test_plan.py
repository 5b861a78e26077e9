import pytest
from client.stream_server import HIT
from rows import rows

import shardcall
from shardcall import Array, Mesh, P
from shardcall._src.device_arrays import plan
from shardcall.v1 import array_pb2, kernel_pb2, mesh_pb2
from shardcall_core.placements import resharding
from shardcall_core.placements.placement import ArrayPlacement
from shardcall_core.types.errors import ProtocolError


def entry(*names):
    return mesh_pb2.PartitionSpecEntry(axis_names=names)


TYPE = {"element_type": array_pb2.ELEMENT_TYPE_FLOAT64, "shape": [3, 4]}
SPEC = {"entries": [entry("x"), entry()]}
ROWS = kernel_pb2.ArrayPlacement(type=TYPE, spec=SPEC, padded_shape=[4, 4], block_shape=[2, 4])
MESSAGE = kernel_pb2.Plan(
    kernel="diff",
    mesh={"axes": [{"name": "x", "size": 2}], "device_ids": [0, 1]},
    operands=[ROWS, {}],
    results=[ROWS],
    strategy="halo",
    strategy_reason="axis 0 is sharded",
    collectives=[kernel_pb2.Collective(kind="collective-permute", count=1, bytes_per_device=32768)],
    flops_per_device=12.0,
    memory=kernel_pb2.DeviceMemory(argument_bytes=64, output_bytes=65536, temp_bytes=0),
    key_digest="0123456789abcdef" * 4,
    key=[kernel_pb2.KeyPart(label="kernel", value="diff 1"), kernel_pb2.KeyPart(label="mesh", value="x=2")],
)
MISS = kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_MISS, explanation="mesh was x=4, is x=2")


def parsed_with(**more):
    """Returns the plan of the message and of more fields, whose program was cached."""
    message = kernel_pb2.Plan(**more)
    message.MergeFrom(MESSAGE)
    return plan.from_proto(message, HIT)


def test_a_plan_has_every_field_of_the_servers_message():
    parsed = plan.from_proto(MESSAGE, MISS)
    assert parsed.mesh == Mesh(x=2, device_ids=[0, 1])
    operand = ArrayPlacement(Array((3, 4), "float64"), P("x", None), (4, 4), (2, 4))
    assert (parsed.operands, parsed.results) == ((operand, None), (operand,))
    assert parsed.collectives == (plan.Collective("collective-permute", 1, 32768),)
    assert parsed.memory == plan.DeviceMemory(64, 65536, 0)
    assert list(parsed.key.items()) == [("kernel", "diff 1"), ("mesh", "x=2")]
    assert parsed.explanation == "mesh was x=4, is x=2"
    assert not parsed.cache_hit
    assert parsed_with().cache_hit
    assert hash(parsed) == hash(plan.from_proto(MESSAGE, MISS))


def test_a_plan_says_what_the_strategies_took_that_were_timed():
    took = {"halo": 0.0126, "gspmd": 0.12}
    timings = [{"strategy": name, "seconds": seconds, "run_count": 9} for name, seconds in took.items()]
    parsed = parsed_with(strategy_timings=timings)
    assert list(parsed.strategy_timings.items()) == list(took.items())
    assert parsed_with().strategy_timings == {}
    assert hash(parsed) == hash(parsed_with(strategy_timings=timings))


def test_a_plan_reports_whether_the_bits_are_the_same_on_every_mesh():
    parsed = parsed_with(reproducible=True)
    assert (parsed_with().reproducible, parsed.reproducible) == (False, True)
    assert "  bits         the same on every mesh\n" in str(parsed)


def test_print_and_repr_are_for_people():
    parsed = plan.from_proto(MESSAGE, MISS)
    assert repr(parsed) == str(parsed)
    assert str(parsed).splitlines() == [
        "diff on Mesh(x=2)",
        "  strategy     halo: axis 0 is sharded",
        "  operand 0    float64[3,4] P('x', None), blocks of (2, 4)",
        "  result 0     float64[3,4] P('x', None), blocks of (2, 4)",
        "  collectives  1 × collective-permute, 32,768 bytes a device",
        "  bits         may differ from mesh to mesh",
        "  work         12 FLOPs a device",
        "  passes       0.0 over operands and results, 0 bytes read and written a device, 0 fused loops",
        "  memory       64 + 65,536 + 0 bytes (operands + results + temporary) = 64.06 KiB a device",
        "  key          0123456789abcdef, compiled now",
        "  miss         mesh was x=4, is x=2",
    ]


def test_a_long_reason_for_a_miss_hangs():
    parts = [f"parameters.p{i} was {i}, is {i + 1}" for i in range(9)]
    parsed = plan.from_proto(MESSAGE, kernel_pb2.CacheAnswer(explanation="; ".join(parts)))
    first, *rest = str(parsed).partition("  miss  ")[2].splitlines()
    assert rest
    assert all(len(line) <= 100 and line.startswith(" " * 15) for line in rest)
    assert " ".join([first.strip(), *map(str.strip, rest)]) == "; ".join(parts)


@rows("which", [0, "operand 0", "operand", "result", "result 0"])
def test_visualize_draws_the_blocks_of_operands_and_results(which):
    parsed = parsed_with()
    title, _, drawing = parsed.visualize(which).partition("\n")
    assert title == f"{'result' if 'result' in str(which) else 'operand'} 0: float64[3,4] P('x', None) on Mesh(x=2)"
    assert drawing == "      0:4\n    ┌─────┐\n0:2 │  0  │\n    ├─────┤\n2:3 │  1  │\n    └─────┘"
    assert parsed.blocks(which).holders == {(0, 0): (0,), (1, 0): (1,)}


@rows("which", [1, 2, -1, "operand 1", "result 1", "x", ""])
def test_what_is_not_in_the_plan_cannot_be_drawn(which):
    with pytest.raises(shardcall.InvalidOperandError, match=r"there are: operand 0, result 0"):
        parsed_with().visualize(which)


def test_a_plan_reports_the_operands_that_move():
    there = mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="a", size=2)], device_ids=[1, 0])
    columns = mesh_pb2.PartitionSpec(entries=[entry(), entry("a")])
    message = kernel_pb2.Transfer(operand=0, mesh=there, spec=columns, received_bytes=1234, through_host=True)
    parsed = parsed_with(transfers=[message])
    (transfer,) = parsed.transfers
    assert (transfer.from_mesh, transfer.from_spec) == (Mesh(a=2, device_ids=[1, 0]), P(None, "a"))
    assert (transfer.type, transfer.to_mesh, transfer.to_spec) == (parsed.operands[0].type, parsed.mesh, P("x", None))
    assert resharding.transfer_to_proto(transfer) == message
    line = "from P(None, 'a') on Mesh(a=2, device_ids=[1, 0]), 1,234 bytes through the host"
    assert f"  transfer     operand 0 {line}\n" in str(parsed)
    assert parsed.visualize().caption == f"operand 0: float64[3,4] P('x', None) on Mesh(x=2), moved {line}"
    with pytest.raises(ProtocolError, match="no such operand"):
        parsed_with(transfers=[kernel_pb2.Transfer(operand=1)])
