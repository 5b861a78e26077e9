"""The decompositions, inverses and determinants of matrices in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardcall_core.functions import linalg_rules as rules
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import OperandInfo, ParameterInfo

_SQUARE = OperandInfo(
    "x", "The matrices [..., N, N], of float32 or wider; integers and bool are computed in float64.", spec="spec"
)
_B = OperandInfo("b", "The right-hand sides: [N], or [..., N, K].", spec="b_spec")
_UPLO = ParameterInfo("UPLO", "Which triangle of the matrices is read: L or U.", "L")
_MATRICES = OperandInfo(
    "x", "The matrices [..., M, N], of float32 or wider; integers and bool are computed in float64.", spec="spec"
)

_OF_X = "that of ``x``"
_OF_BATCH = "that of the batch of ``x``"


def rows() -> Iterator[Function]:
    """Yields the functions."""
    number, real = rules.numbers, rules.reals
    yield Function.by_rules(
        "cholesky",
        (_SQUARE,),
        (
            ParameterInfo(
                "upper",
                "True for upper triangular factors, of the upper triangles; else lower ones, of the lower.",
                False,
            ),
        ),
        number,
        rules.cholesky,
        _OF_X,
        summary="The Cholesky factors of Hermitian matrices that are positive definite, as numpy.linalg.cholesky.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "inv",
        (_SQUARE,),
        (),
        number,
        rules.square,
        _OF_X,
        summary="The inverses of matrices, as numpy.linalg.inv.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "solve_triangular",
        (_SQUARE, _B),
        (
            ParameterInfo("lower", "True to read the lower triangles of the matrices, else the upper ones.", False),
            ParameterInfo(
                "trans", "N for the matrices, T for their transposes, C for their conjugate transposes.", "N"
            ),
            ParameterInfo("unit_diagonal", "True to take the diagonals for ones.", False),
        ),
        number,
        rules.solve_triangular,
        "that of ``b``",
        summary="The solutions of linear equations of triangular matrices, as scipy.linalg.solve_triangular.",
        example="[[2.0, 1.0], [1.0, 3.0]], [1.0, 2.0]",
    )
    yield Function.by_rules(
        "solve",
        (_SQUARE, _B),
        (),
        number,
        rules.solve,
        "that of ``b``",
        summary="The solutions of linear equations, as numpy.linalg.solve.",
        example="[[2.0, 1.0], [1.0, 3.0]], [1.0, 2.0]",
    )
    yield Function.by_rules(
        "det",
        (_SQUARE,),
        (),
        number,
        rules.batch(1),
        _OF_BATCH,
        summary="The determinants of matrices, as numpy.linalg.det.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "eigvalsh",
        (_SQUARE,),
        (_UPLO,),
        real,
        rules.eigvalsh,
        _OF_BATCH,
        summary="The eigenvalues of Hermitian matrices, as numpy.linalg.eigvalsh.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "svdvals",
        (_MATRICES,),
        (),
        real,
        rules.svdvals,
        _OF_BATCH,
        summary="The singular values of matrices, as numpy.linalg.svdvals.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "eigvals",
        (_SQUARE,),
        (),
        rules.complexes,
        rules.eigvals,
        _OF_BATCH,
        summary="The eigenvalues of matrices, complex, as numpy.linalg.eigvals; on CPUs.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    several: dict[str, Any] = {"result_spec": _OF_BATCH, "out_specs": ()}
    signs = rules.types_by_result(number, real)
    yield Function.by_rules(
        "slogdet",
        (_SQUARE,),
        (),
        number,
        rules.batch(2),
        result_types=signs,
        **several,
        summary="The signs of determinants and the logarithms of their sizes, as numpy.linalg.slogdet.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "eigh",
        (_SQUARE,),
        (_UPLO,),
        real,
        rules.eigh,
        result_types=rules.types_by_result(real, number),
        **several,
        summary="The eigenvalues and eigenvectors of Hermitian matrices, as numpy.linalg.eigh.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "eig",
        (_SQUARE,),
        (),
        rules.complexes,
        rules.eig,
        **several,
        summary="The eigenvalues and eigenvectors of matrices, complex, as numpy.linalg.eig; on CPUs.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "svd",
        (_MATRICES,),
        (
            ParameterInfo(
                "full_matrices",
                "True for square matrices U and Vh; else they have as many vectors as there are values.",
                True,
            ),
        ),
        number,
        rules.svd,
        result_types=rules.types_by_result(number, real, number),
        **several,
        summary="The singular value decompositions U, S, Vh of matrices, as numpy.linalg.svd.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
    yield Function.by_rules(
        "qr",
        (_MATRICES,),
        (ParameterInfo("mode", "reduced, or complete for square matrices Q.", "reduced"),),
        number,
        rules.qr,
        **several,
        summary="The QR decompositions of matrices, as numpy.linalg.qr.",
        example="[[2.0, 1.0], [1.0, 3.0]]",
    )
