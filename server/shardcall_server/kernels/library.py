"""The kernels that come with shardcall."""

from __future__ import annotations

from functools import cache

from shardcall_server.kernels.collective_matmul import CollectiveMatMul
from shardcall_server.kernels.convolve import Convolve
from shardcall_server.kernels.cumsum import CumSum
from shardcall_server.kernels.diff import Diff
from shardcall_server.kernels.einsum import Einsum
from shardcall_server.kernels.elementwise import elementwise
from shardcall_server.kernels.gradient import Gradient
from shardcall_server.kernels.graph import GraphKernel
from shardcall_server.kernels.kernel import Kernel
from shardcall_server.kernels.laplacian import Laplacian
from shardcall_server.kernels.matmul import MatMul
from shardcall_server.kernels.random import Normal, Permutation, RandInt, Uniform
from shardcall_server.kernels.reductions import reductions
from shardcall_server.kernels.relayout import Copy, Reshard, Transpose
from shardcall_server.kernels.roll import Roll
from shardcall_server.kernels.shift import Shift
from shardcall_server.kernels.table_axes import rows as axis_rows
from shardcall_server.kernels.table_creation import rows as creation_rows
from shardcall_server.kernels.table_elements import rows as element_rows
from shardcall_server.kernels.table_fft import rows as fft_rows
from shardcall_server.kernels.table_kernel import table_kernel
from shardcall_server.kernels.table_layouts import rows as layout_rows
from shardcall_server.kernels.table_linalg import rows as linalg_rows
from shardcall_server.kernels.table_slices import rows as slice_rows
from shardcall_server.kernels.table_statistics import rows as statistics_rows
from shardcall_server.kernels.table_updates import rows as update_rows


@cache
def kernels() -> tuple[Kernel, ...]:
    """Returns one kernel of each class, the same at every call."""
    single: tuple[Kernel, ...] = (
        Diff(),
        Shift(),
        Roll(),
        Gradient(),
        Laplacian(),
        CumSum(),
        Convolve(),
        MatMul(),
        Einsum(),
        CollectiveMatMul(),
        Uniform(),
        Normal(),
        RandInt(),
        Permutation(),
        *elementwise(),
        *reductions(),
        Reshard(),
        Copy(),
        Transpose(),
        *map(
            table_kernel,
            (
                *slice_rows(),
                *layout_rows(),
                *axis_rows(),
                *creation_rows(),
                *element_rows(),
                *statistics_rows(),
                *fft_rows(),
                *update_rows(),
                *linalg_rows(),
            ),
        ),
    )
    return (*single, GraphKernel({kernel.name: kernel for kernel in single}))
