"""Products of arrays: matmul, einsum and collective matmul, and how their operands are sharded."""
