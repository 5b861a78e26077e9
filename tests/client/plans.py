"""The message of a plan, and what is said of its cache."""

from shardcall.v1 import array_pb2, kernel_pb2, mesh_pb2


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
