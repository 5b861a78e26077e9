"""The decompositions, inverses and determinants of matrices in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardcall_core.functions import linalg_rules as rules
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import OperandInfo

_OF_X = "that of ``x``"
_OF_BATCH = "that of the batch of ``x``"


def rows() -> Iterator[Function]:
    """Yields the functions."""
    x, number, real = (OperandInfo("x", spec="spec"),), rules.numbers, rules.reals
    yield Function.by_rules("cholesky", x, {"upper": False}, number, rules.cholesky, _OF_X)
    yield Function.by_rules("inv", x, {}, number, rules.square, _OF_X)
    solved = OperandInfo("x", spec="spec"), OperandInfo("b", spec="b_spec")
    triangular: dict[str, Any] = {"lower": False, "trans": "N", "unit_diagonal": False}
    yield Function.by_rules("solve_triangular", solved, triangular, number, rules.solve_triangular, "that of ``b``")
    yield Function.by_rules("solve", solved, {}, number, rules.solve, "that of ``b``")
    yield Function.by_rules("det", x, {}, number, rules.batch(1), _OF_BATCH)
    triangle: dict[str, Any] = {"UPLO": "L"}
    yield Function.by_rules("eigvalsh", x, triangle, real, rules.eigvalsh, _OF_BATCH)
    yield Function.by_rules("svdvals", x, {}, real, rules.svdvals, _OF_BATCH)
    yield Function.by_rules("eigvals", x, {}, rules.complexes, rules.eigvals, _OF_BATCH)
    several: dict[str, Any] = {"result_spec": _OF_BATCH, "out_specs": ()}
    signs = rules.types_by_result(number, real)
    yield Function.by_rules("slogdet", x, {}, number, rules.batch(2), result_types=signs, **several)
    yield Function.by_rules(
        "eigh", x, triangle, real, rules.eigh, result_types=rules.types_by_result(real, number), **several
    )
    yield Function.by_rules("eig", x, {}, rules.complexes, rules.eig, **several)
    parameters = {"full_matrices": True}
    yield Function.by_rules(
        "svd", x, parameters, number, rules.svd, result_types=rules.types_by_result(number, real, number), **several
    )
    yield Function.by_rules("qr", x, {"mode": "reduced"}, number, rules.qr, **several)
