"""The kernels that come with shardcall."""

from __future__ import annotations

from shardcall_server.kernels.collective_matmul import CollectiveMatMul
from shardcall_server.kernels.diff import Diff
from shardcall_server.kernels.kernel import Kernel
from shardcall_server.kernels.matmul import MatMul


def kernels() -> tuple[Kernel, ...]:
    """One of each."""
    return (
        Diff(),
        MatMul(),
        CollectiveMatMul(),
    )
