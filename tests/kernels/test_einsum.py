"""`einsum` is np.einsum on every mesh: the cases of its documentation, its rules for labels, and what it refuses."""

import numpy as np
import pytest
from rows import rows

from shardcall_core.call_error import Reason
from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.products.einsum import Einsum

EINSUM = Einsum()
F32 = np.dtype(np.float32)
MESH = {"a": 4, "b": 2}
MESHES = [{"a": 1}, MESH, {"a": 2, "b": 4}, {"a": 8, "b": 1}]

# Examples of np.einsum's documentation, then the rules that its text states.
TABLE = [
    ("ii", [(5, 5)]),
    ("ii->i", [(5, 5)]),
    ("ij->i", [(5, 6)]),
    ("...j->...", [(5, 6)]),
    ("ij->ji", [(11, 13)]),
    ("i,i", [(11,), (11,)]),
    ("ij,j", [(5, 6), (6,)]),
    (",ij", [(), (2, 3)]),
    ("i,j", [(2,), (5,)]),
    ("ijk,jil->kl", [(3, 4, 5), (4, 3, 2)]),
    ("k...,jk", [(3, 2), (4, 3)]),
    ("ki,...k->i...", [(3, 2), (4, 3)]),
    ("ij, jk -> ik", [(11, 13), (13, 9)]),
    ("ij,ij->", [(11, 13), (11, 13)]),
    ("ij,ij->ij", [(11, 13), (11, 13)]),
    ("ij->", [(11, 13)]),
    ("", [()]),
    ("i->...", [(3,)]),
    ("ij...->i...j", [(2, 3, 4)]),
    ("i...i", [(3, 5, 3)]),
    ("...ii->...i", [(5, 3, 3)]),
    ("iji,j->i", [(4, 5, 4), (5,)]),
    ("ij,jkl->ik", [(4, 5), (5, 6, 3)]),
    ("...ij,...jk", [(5, 1, 2, 3), (4, 3, 2)]),
    ("ij,jk", [(2, 1), (3, 4)]),
    ("i,i->i", [(3,), (1,)]),
    ("ij,jk", [(2, 0), (0, 4)]),
    ("ij,jk", [(0, 3), (3, 4)]),
    ("i->", [(0,)]),
    ("ijkl,klm->mij", [(2, 3, 4, 5), (4, 5, 6)]),
]


def arrays(values, shapes, dtype=np.float64):
    return [values.small(shape, np.dtype(dtype)) for shape in shapes]


def expected(subscripts, operands):
    return np.asarray(np.einsum(subscripts, *operands)) + 0.0


def check_table(run, values, mesh):
    cases = []
    for subscripts, shapes in TABLE:
        operands = arrays(values, shapes)
        cases.append((run.call(EINSUM, *operands, mesh=mesh, subscripts=subscripts), expected(subscripts, operands)))
    run.check_together(cases, padding=np.nan)


def test_the_documented_cases_are_numpys(run, values):
    check_table(run, values, MESH)


def test_auto_completes_partial_sums(run):
    types = ArrayType((16, 16), F32), ArrayType((16, 16), F32)
    how = {"mesh": MESH, "in_specs": [(None, "a"), ("a",)], "subscripts": "ij,jk"}
    resolved = run.resolve(EINSUM, *types, **how)
    assert resolved.strategy.name == "psum_scatter"
    assert "reduce-scatter completes the partial sums" in resolved.reason


OF_TYPES = [("ij,jk", [(9, 11), (11, 6)]), ("ij,k->ki", [(3, 5), (4,)]), ("ii", [(5, 5)]), ("ij->ji", [(5, 3)])]


def of_type(run, values, dtype, subscripts, shapes):
    """A call of small integers of a type, and the result of wide ones."""
    operands = arrays(values, shapes, dtype)
    wide = bool if dtype == np.bool_ else np.complex128 if dtype.kind == "c" else np.int64
    result = np.asarray(np.einsum(subscripts, *(operand.astype(wide) for operand in operands)))
    return run.call(EINSUM, *operands, mesh=MESH, subscripts=subscripts), result.astype(dtype)


def test_these_element_types(run, values):
    names = ["bool", "uint4", "int8", "float16", "float8_e4m3fn", "complex64"]
    run.check_together(of_type(run, values, NAMED[name], *OF_TYPES[i % 2]) for i, name in enumerate(names))


def test_a_diagonal_keeps_the_signs_of_zeros_and_subnormals(run, values, same_bits):
    arrays = [values.zeros_and_subnormals((9, 9), name) for name in ("bfloat16", "float32", "complex64")]
    how = {"subscripts": "ii->i", "mesh": {"x": 4}, "in_specs": [("x", None)]}
    run.check_together([(run.call(EINSUM, x, None, **how), x.diagonal()) for x in arrays], same_bits)


def test_preferred_element_type(run, values, same):
    lhs = values.small((9, 300), NAMED["bfloat16"])
    how = {"mesh": MESH, "subscripts": "ij->i", "preferred_element_type": "float32"}
    same(run(EINSUM, lhs, **how), lhs.astype(np.float32).sum(1))


@rows("equal", ["ij,jk->ik|ij,jk|ab , bc|xA,AB->xB|...j,jk->...k", "ij,jk->ki|mn,nk->km|zj,ja"])
def test_equal_calls_share_a_program(run, equal):
    types = ArrayType((4, 5), F32), ArrayType((5, 6), F32)
    calls = [run.resolve(EINSUM, *types, subscripts=subscripts).problem.parameters for subscripts in equal.split("|")]
    assert calls == calls[:1] * len(calls)


REFUSED = [
    ("ij,jk", [(2, 3)], "subscripts", "has 2 terms and 1 operand came"),
    ("ij", [(2, 3), (3, 2)], "subscripts", "has 1 term and 2 operands came"),
    ("i", [(2, 3)], "subscripts", "has 1 label for lhs, which has 2 axes (shape (2, 3)); give each axis a label, or"),
    ("i.j", [(2, 3)], "subscripts", "has a '.' in the term of lhs that is not of one '...'"),
    ("é1", [(2, 3)], "subscripts", "has 'é' in the term of lhs; a term is letters"),
    ("ij->j->i", [(2, 3)], "subscripts", "has '-' in the term of the result"),
    ("ij->ii", [(2, 3)], "subscripts", "has 'i' more than once in the result; name it once"),
    ("ij->k", [(2, 3)], "subscripts", "has 'k' in the result, which no operand has"),
    ("...i->i", [(2, 3)], "subscripts", "lets ... stand for 1 axis that the result lacks; write ... there too"),
    ("ij,jk", [(2, 2), (3, 4)], "rhs", "axis 0 of rhs (3) and axis 1 of lhs (2) have one label, 'j'"),
    ("ii", [(2, 3)], "lhs", "axis 1 of lhs (3) and another axis of lhs (2) have one label, 'i'; give axes of one size"),
    ("ii->i", [(3, 1)], "lhs", "axis 1 of lhs (1) and another axis of lhs (3)"),
    ("...ij,...jk", [(5, 2, 3), (4, 3, 2)], "rhs", "axis 0 of rhs (4) and axis 0 of lhs (5) have one label, '...'"),
]


@rows("subscripts, shapes, field, says", REFUSED)
def test_what_numpy_refuses_is_refused(refused, subscripts, shapes, field, says):
    with pytest.raises((ValueError, UnicodeEncodeError)):
        np.einsum(subscripts, *map(np.ones, shapes))
    error = refused(EINSUM, *(ArrayType(shape, F32) for shape in shapes), subscripts=subscripts)
    assert error.field == field
    assert says in error.message


@rows(
    "how, field, says",
    [
        ({"subscripts": 3}, "subscripts", "of type int; subscripts is a string"),
        ({}, "subscripts", "give subscripts="),
        ({"subscripts": "ij", "preferred_element_type": "bfloat16"}, "preferred_element_type", "is float32; give"),
        (
            {"subscripts": "ii", "strategy": "psum", "in_specs": [("a",)]},
            "strategy",
            "axis 0 of lhs is sharded over 'a' and axis 1 of lhs over no mesh axis, and it serves corresponding axes",
        ),
    ],
)
def test_what_cannot_be_is_refused(refused, how, field, says):
    error = refused(EINSUM, ArrayType((8, 8), F32), mesh=MESH, **how)
    assert error.field == field
    assert says in error.message


def test_a_product_of_more_axes_than_an_array_may_have_is_refused(refused):
    many = ArrayType((1,) * 20, F32)
    subscripts = "abcdefghijklmnopqrst,ABCDEFGHIJKLMNOPQRST"
    assert (
        "the product has 40 axes; an array may have at most 32"
        in refused(EINSUM, many, many, subscripts=subscripts).message
    )


@pytest.mark.parametrize(("shape", "is_shared"), [((16, 16), True), ((128, 1), True), ((4, 4), False)])
def test_long_sums_along_two_axes_are_distributed_where_nothing_is_sharded(run, values, shape, is_shared):
    lhs, rhs = values.small((16, *shape), F32), values.small((*shape, 8), F32)
    how = {"subscripts": "ijk,jkl->il", "mesh": {"a": 8}, "in_specs": [(None,) * 3] * 2, "out_specs": [(None, None)]}
    how["strategy"] = "gspmd"
    assert (" all-gather(" in run.program(EINSUM, lhs, rhs, **how).compiled.as_text()) == is_shared
    np.testing.assert_array_equal(run(EINSUM, lhs, rhs, **how), np.einsum("ijk,jkl->il", lhs, rhs))


def test_products_of_many_halves_are_rounded_once(run):
    large = np.full((3, 3), 300, np.float16)
    actual = run(EINSUM, large, large, np.float16(1e-3) * large / 300, subscripts="ij,jk,kl->il", mesh={"x": 2})
    exact = large.astype(float) @ large.astype(float) @ (np.float16(1e-3) * large / 300).astype(float)
    np.testing.assert_array_equal(actual, exact.astype(np.float16))


def test_refusals_of_many_arrays_name_them(refused):
    x = ArrayType((4, 4), np.dtype(np.float32))
    error = refused(EINSUM, x, x, ArrayType((5, 4), x.dtype), subscripts="ij,jk,kl->il")
    assert (error.reason, error.field) == (Reason.INVALID_OPERAND, "others[0]")
    error = refused(EINSUM, x, None, x, subscripts="ij,jk->ik")
    assert (error.reason, error.field) == (Reason.OPERAND_COUNT, "rhs")
    error = refused(EINSUM, x, x, x, subscripts="ij,jk,kl->il", strategy="psum")
    assert "there are 3 arrays, and it multiplies two; these can: gspmd, auto" in error.message
    outer = ArrayType((1,) * 20, x.dtype)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"
    error = refused(
        EINSUM, outer, outer, outer, subscripts=f"{letters[:20]},{letters[20:]},{letters[:20]}->{letters[20:]}"
    )
    assert (error.reason, error.field) == (Reason.INVALID_OPERAND, "operands")
    assert "has 40 axes before the last of them" in error.message
