"""Products of arrays: matmul, einsum, and products whose communication the caller chooses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.element_types import NAMED, DType
from shardcall_core.functions import checks, einsum_labels
from shardcall_core.functions.contraction import Contraction, Labels
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import REQUIRED, Method, OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.functions.subscripts import operand_names
from shardcall_core.layouts.layout import ArrayType, OperandTypes, required

ROW, CONTRACTING, COLUMN = "row", "contracting", "column"
"""The labels of the axes of matrices; batch axes are labelled by their number."""

_PREFERRED = ParameterInfo(
    "preferred_element_type",
    "The element type in which products are summed up and returned, by name: one that holds every value of the "
    "factors' common type. Unset: that type itself, floats of 16 bits and less summed up in float32.",
    None,
    "npt.DTypeLike | None",
)


@dataclass(frozen=True)
class MatMulParameters:
    """The parameters of `matmul`; the preferred type is None where it is the factors' common type."""

    transpose_lhs: bool
    transpose_rhs: bool
    preferred_element_type: str | None


@dataclass(frozen=True)
class EinsumParameters:
    """The parameters of `einsum`; the preferred type is None where it is the operands' common type."""

    subscripts: str
    preferred_element_type: str | None


@dataclass(frozen=True)
class CollectiveMatMulParameters:
    """The parameters of `collective_matmul`."""

    axis_name: str


def rows() -> Iterator[Function]:
    """Yields the functions."""
    spec = "that of the operands, axis by axis, each mesh axis once; or the one that the strategy produces"
    operand_spec = "its own on the mesh, else the kernel's choice"
    lhs = OperandInfo("lhs", "The left factor, [K] or [..., M, K].", spec="lhs_spec")
    rhs = OperandInfo("rhs", "The right factor, [K] or [..., K, N].", spec="rhs_spec")
    swapped = "Swap the last two axes of {} first: it is {}."
    yield Function(
        "matmul",
        (lhs, rhs),
        (
            ParameterInfo("transpose_lhs", swapped.format("lhs", "[..., K, M]"), False, "bool"),
            ParameterInfo("transpose_rhs", swapped.format("rhs", "[..., N, K]"), False, "bool"),
            _PREFERRED,
        ),
        _matmul,
        spec,
        operand_spec=operand_spec,
        summary="The product of two matrices, of stacks of them, or of a matrix and a vector, as numpy.matmul.",
        method=Method(
            "lhs, rhs, *, transpose_lhs, transpose_rhs, preferred_element_type",
            "By default ``lhs`` is sharded by rows over the first mesh axis and ``rhs`` by columns over the second, if "
            "there is one; where one spec is set, the other shards the contracting axes alike. Leading axes are "
            "broadcast.",
        ),
        example="np.ones((2, 3)), np.ones((3, 4))",
    )
    labels = 'The labels of axes, such as "ij,jk->ik"; without "->" as NumPy completes it.'
    yield Function(
        "einsum",
        (
            OperandInfo("lhs", "The first array.", spec="lhs_spec"),
            OperandInfo("rhs", "The second array, if there are two.", True, spec="rhs_spec"),
            OperandInfo("others", "More arrays.", optional=True, repeated=True),
        ),
        (ParameterInfo(einsum_labels.FIELD, labels, REQUIRED, "str"), _PREFERRED),
        _einsum,
        spec,
        operand_spec=operand_spec,
        summary="The sum of products by Einstein's convention, as numpy.einsum.",
        method=Method(
            f"{einsum_labels.FIELD}, lhs, rhs, *others, preferred_element_type",
            "More than two arrays are multiplied in pairs, from the left, by the strategy ``gspmd``; their order "
            "decides the number of operations and the sizes of intermediate arrays. By default the first axis of the "
            "result that only one array has is sharded over a mesh axis of its own.",
        ),
        example="'ij,jk->ik', np.ones((2, 3)), np.ones((3, 4))",
    )
    yield Function(
        "collective_matmul",
        (
            OperandInfo("lhs", "The left factor, [M, K].", spec="lhs_spec"),
            OperandInfo("rhs", "The right factor, [K, N].", spec="rhs_spec"),
        ),
        (ParameterInfo("axis_name", "The mesh axis along which blocks travel.", REQUIRED, "str"),),
        _collective_matmul,
        spec,
        operand_spec=operand_spec,
        summary="The product of two matrices, multiplied while blocks travel along one mesh axis.",
        method=Method(
            "lhs, rhs, *, axis_name",
            "By default ``lhs`` is sharded by rows over ``axis_name``, by columns for strategies that exchange sums, "
            "and ``rhs`` so that the contracting axes are sharded alike. Where ``axis_name`` shards the contracting "
            "axis of both matrices, partial sums are exchanged; else the blocks of the matrix that it shards: of "
            "``lhs`` by rows and ``rhs`` by columns those of ``lhs``, unless ``out_spec`` keeps the rows sharded.",
        ),
        example="np.ones((8, 3)), np.ones((3, 4)), axis_name='x'",
    )


def contraction_of_factors(lhs: ArrayType, rhs: ArrayType, parameters: MatMulParameters) -> Contraction:
    """Returns the contraction of a matrix product."""
    of_lhs = _labels(lhs, (ROW, CONTRACTING), (CONTRACTING,), transposed=parameters.transpose_lhs)
    of_rhs = _labels(rhs, (CONTRACTING, COLUMN), (CONTRACTING,), transposed=parameters.transpose_rhs)
    batch = max(of_lhs[:-2], of_rhs[:-2], key=len)
    result = (*batch, *(label for label in (ROW, COLUMN) if label in of_lhs + of_rhs))
    return Contraction.of((of_lhs, of_rhs), result, (lhs.shape, rhs.shape))


def _labels(operand: ArrayType, matrix: Labels, vector: Labels, *, transposed: bool) -> Labels:
    """Returns the labels of a factor; batch axes are counted from the right."""
    if operand.ndim == 1:
        return vector
    return (*(f"batch {i}" for i in range(operand.ndim - 2, 0, -1)), *(matrix[::-1] if transposed else matrix))


def contraction_of_arrays(operands: OperandTypes, parameters: EinsumParameters) -> Contraction:
    """Returns the contraction of canonical subscripts."""
    labels, result = einsum_labels.read(parameters.subscripts)
    return Contraction.of(labels, result, [operand.shape for operand in operands if operand is not None])


def _matmul(operands: OperandTypes, parameters: ParameterValues) -> Signature[MatMulParameters]:
    lhs, rhs = map(required, operands)
    transposes = {name: checks.boolean(parameters, name) for name in ("transpose_lhs", "transpose_rhs")}
    product = product_type(lhs, rhs, **transposes)
    dtype, preferred = _preferred(parameters, product.dtype)
    normal = MatMulParameters(**transposes, preferred_element_type=preferred)
    contraction_of_factors(lhs, rhs, normal).check_rank()
    return Signature(normal, (ArrayType(product.shape, dtype),))


def _einsum(operands: OperandTypes, parameters: ParameterValues) -> Signature[EinsumParameters]:
    present = [operand for operand in operands if operand is not None]
    if len(operands) > 2 and operands[1] is None:
        message = "rhs is left out and others are not; give arrays from the first on"
        raise CallError(Reason.OPERAND_COUNT, message, field="rhs")
    canonical = einsum_labels.canonical(checks.text(parameters, einsum_labels.FIELD), present)
    dtype, preferred = _preferred(parameters, checks.common_type(operand_names(len(present)), present))
    normal = EinsumParameters(canonical, preferred)
    contraction = contraction_of_arrays(operands, normal)
    contraction.check_rank()
    return Signature(normal, (ArrayType(contraction.shape, dtype),))


def _collective_matmul(operands: OperandTypes, parameters: ParameterValues) -> Signature[CollectiveMatMulParameters]:
    axis_name = checks.text(parameters, "axis_name")
    lhs, rhs = map(required, operands)
    for name, operand in (("lhs", lhs), ("rhs", rhs)):
        if operand.ndim != 2:
            message = f"{name} is {shorten(str(operand))}, of rank {operand.ndim}; give a matrix, or call matmul"
            raise checks.operand(name, message)
    return Signature(CollectiveMatMulParameters(axis_name), (product_type(lhs, rhs),))


def _preferred(parameters: ParameterValues, common: DType) -> tuple[DType, str | None]:
    """Returns the type of a product of factors of a common type, and the parameter in its normal form."""
    if parameters[_PREFERRED.name] is None:
        return common, None
    name = checks.text(parameters, _PREFERRED.name)
    wide = [dtype for dtype in NAMED.values() if _holds(dtype, common)]
    if (preferred := NAMED.get(name)) not in wide or preferred is None:
        allowed = ", ".join(sorted(dtype.name for dtype in wide))
        message = f"the common type of the factors is {common.name}; give one of: {allowed}"
        raise checks.invalid(_PREFERRED.name, name, message)
    return preferred, None if preferred == common else preferred.name


def _holds(dtype: DType, common: DType) -> bool:
    try:
        return bool(np.promote_types(dtype, common) == dtype)
    except TypeError:  # numpy.exceptions.DTypePromotionError
        return False


def product_type(
    lhs: ArrayType, rhs: ArrayType, *, transpose_lhs: bool = False, transpose_rhs: bool = False
) -> ArrayType:
    """Returns the result of ``lhs @ rhs``: `np.matmul`'s shape, `np.result_type`'s element type.

    Args:
        lhs: [K] or [..., M, K]; [..., K, M] where it is to be transposed.
        rhs: [K] or [..., K, N]; [..., N, K] where it is to be transposed.
        transpose_lhs: swap the last two axes of lhs first.
        transpose_rhs: swap the last two axes of rhs first.

    Raises:
        CallError: for scalars, vectors to be transposed, contracting axes of two sizes, batch axes that do not
            broadcast, and element types without a common type.
    """
    for name, operand, transposed in (("lhs", lhs, transpose_lhs), ("rhs", rhs, transpose_rhs)):
        if not operand.ndim:
            message = f"{name} is {operand}, of rank 0; give an array of rank 1 or more; to scale an array, multiply it"
            raise checks.operand(name, message)
        if transposed and operand.ndim == 1:
            message = f"{name} is {operand}, a vector; give an array of rank 2 or more, or False"
            raise checks.invalid(f"transpose_{name}", True, message)
    of_lhs = lhs.ndim - (2 if transpose_lhs else 1)
    of_rhs = rhs.ndim - (1 if transpose_rhs else 2) if rhs.ndim > 1 else 0
    shapes = f"lhs has shape {shorten(lhs.shape)} and rhs {shorten(rhs.shape)}"
    if lhs.shape[of_lhs] != rhs.shape[of_rhs]:
        message = (
            f"{shapes}; axis {of_lhs} of lhs ({lhs.shape[of_lhs]}) and axis {of_rhs} of rhs ({rhs.shape[of_rhs]}) are "
            "summed over and must be of one size"
        )
        raise checks.operand("rhs", message)
    try:
        batch = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    except ValueError:
        message = (
            f"{shapes}; all axes but the last two are matched from the right and must be of one size, or of size 1"
        )
        raise checks.operand("rhs", message) from None
    row_count = [lhs.shape[-1 if transpose_lhs else -2]] if lhs.ndim > 1 else []
    columns = [rhs.shape[-2 if transpose_rhs else -1]] if rhs.ndim > 1 else []
    return ArrayType((*batch, *row_count, *columns), checks.common_type(("lhs", "rhs"), (lhs, rhs)))
