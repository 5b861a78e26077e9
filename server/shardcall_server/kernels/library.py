"""The kernels that come with shardcall."""

from __future__ import annotations

from functools import cache

from shardcall_server.kernels.array_functions.creation import rows as creation_rows
from shardcall_server.kernels.array_functions.elements import rows as element_rows
from shardcall_server.kernels.array_functions.fft import rows as fft_rows
from shardcall_server.kernels.array_functions.function_kernel import table_kernel
from shardcall_server.kernels.array_functions.indexed_elements import rows as update_rows
from shardcall_server.kernels.array_functions.linalg import rows as linalg_rows
from shardcall_server.kernels.array_functions.movement import rows as layout_rows
from shardcall_server.kernels.array_functions.relayout import Copy, Reshard, Transpose
from shardcall_server.kernels.array_functions.slices import rows as slice_rows
from shardcall_server.kernels.array_functions.sorts import rows as axis_rows
from shardcall_server.kernels.array_functions.special_functions import rows as special_rows
from shardcall_server.kernels.array_functions.statistics import rows as statistics_rows
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.elementwise.elementwise import elementwise
from shardcall_server.kernels.elementwise.random import Normal, Permutation, RandInt, Uniform
from shardcall_server.kernels.elementwise.reductions import reductions
from shardcall_server.kernels.graphs.graph_kernel import GraphKernel
from shardcall_server.kernels.products.collective_matmul import CollectiveMatMul
from shardcall_server.kernels.products.einsum import Einsum
from shardcall_server.kernels.products.matmul import MatMul
from shardcall_server.kernels.stencils.convolve import Convolve
from shardcall_server.kernels.stencils.cumsum import CumSum
from shardcall_server.kernels.stencils.diff import Diff
from shardcall_server.kernels.stencils.gradient import Gradient
from shardcall_server.kernels.stencils.laplacian import Laplacian
from shardcall_server.kernels.stencils.roll import Roll
from shardcall_server.kernels.stencils.shift import Shift


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
                *special_rows(),
                *statistics_rows(),
                *fft_rows(),
                *update_rows(),
                *linalg_rows(),
            ),
        ),
    )
    return (*single, GraphKernel({kernel.name: kernel for kernel in single}))
