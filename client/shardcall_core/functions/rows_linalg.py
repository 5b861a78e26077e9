"""The decompositions, inverses and determinants of matrices in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardcall_core.functions import linalg_rules as rules
from shardcall_core.functions.function import Function, Operand

_OF_X = "that of ``x``"
_OF_BATCH = "that of the batch of ``x``"


def rows() -> Iterator[Function]:
    """Yields the functions."""
    x, number, real = (Operand("x", spec="spec"),), rules.numbers, rules.reals
    yield Function("cholesky", x, {"upper": False}, number, rules.cholesky, _OF_X)
    yield Function("inv", x, {}, number, rules.square, _OF_X)
    solved = Operand("x", spec="spec"), Operand("b", spec="b_spec")
    triangular: dict[str, Any] = {"lower": False, "trans": "N", "unit_diagonal": False}
    yield Function("solve_triangular", solved, triangular, number, rules.solve_triangular, "that of ``b``")
    yield Function("solve", solved, {}, number, rules.solve, "that of ``b``")
    yield Function("det", x, {}, number, rules.batch(1), _OF_BATCH)
    triangle: dict[str, Any] = {"UPLO": "L"}
    yield Function("eigvalsh", x, triangle, real, rules.eigvalsh, _OF_BATCH)
    yield Function("svdvals", x, {}, real, rules.svdvals, _OF_BATCH)
    yield Function("eigvals", x, {}, rules.complexes, rules.eigvals, _OF_BATCH)
    several: dict[str, Any] = {"result_spec": _OF_BATCH, "out_specs": ()}
    signs = rules.each(number, real)
    yield Function("slogdet", x, {}, number, rules.batch(2), each_type=signs, **several)
    yield Function("eigh", x, triangle, real, rules.eigh, each_type=rules.each(real, number), **several)
    yield Function("eig", x, {}, rules.complexes, rules.eig, **several)
    parameters = {"full_matrices": True}
    yield Function("svd", x, parameters, number, rules.svd, each_type=rules.each(number, real, number), **several)
    yield Function("qr", x, {"mode": "reduced"}, number, rules.qr, **several)
