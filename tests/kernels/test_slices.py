"""Slices of arrays, and arrays with values in slices, are NumPy's bit for bit, and move no more than they must."""

import re

import numpy as np
import pytest
from kernels.test_movement import assert_same_bits

from shardcall_core.functions.indexing import basic_index
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.analysis import collectives
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
COLLECTIVE = re.compile(r"all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter")


def in_long_form(*values):
    return pytest.param(*values, marks=pytest.mark.long)


LAYOUTS = [({"x": 8}, ("x", None)), ({"x": 3}, ("x", None)), ({"a": 4, "b": 2}, (("b", "a"), None))]
BOTH_SHARDED = [({"a": 4, "b": 2}, ("a", "b")), ({"a": 2, "b": 3}, ("b", "a"))]


def index(x, key):
    """The operands and parameters of a call of getitem, by NumPy's own rules."""
    starts, sizes, steps, dropped, inserted = basic_index(x.shape, key)
    return np.array(starts, np.int64), {"sizes": sizes, "steps": steps, "dropped": dropped, "inserted": inserted}


def check_slice(run, x, key, mesh, spec):
    starts, parameters = index(x, key)
    result = run(KERNELS["getitem"], x, starts, mesh=mesh, in_specs=[spec], padding=7, **parameters)
    assert_same_bits(result, np.asarray(x[key]))


ROWS = [  # of 61 rows
    np.s_[1:-1],
    np.s_[9:-5],
    np.s_[:30],
    np.s_[25:],
    np.s_[40:44],
    np.s_[33],
    np.s_[5:5],
    np.s_[::-1],
    np.s_[50:3:-1],
    np.s_[::2],
    np.s_[1::7],
    np.s_[-2::-5],
    np.s_[20:31, None],
]
OTHER_ROWS = [np.s_[:0], np.s_[60:], np.s_[:-1], np.s_[1:], np.s_[::-60], np.s_[::60], np.s_[7:39:3], np.s_[30:20:-1]]
BOTH = [np.s_[1:-1, 1:-1], np.s_[::-1, 4], np.s_[30:, ::-3], np.s_[17, 2:9], np.s_[5:-20:2, 3:-2]]


ALIKE = {1, 2, 10}  # other numbers in a slice of ROWS than in one beside it


@pytest.mark.parametrize("number", [in_long_form(i) if i in ALIKE else i for i in range(len(ROWS))])
def test_slices_of_rows(run, values, number):
    mesh, spec = LAYOUTS[number % 3]
    check_slice(run, values.normal((61, 3)), ROWS[number], mesh, spec)


@pytest.mark.long
@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS)
@pytest.mark.parametrize("count", [61, 64, 5])
def test_all_slices_of_rows(run, values, mesh, spec, count):
    x = values.normal((count, 3))
    for key in (*ROWS, *OTHER_ROWS):
        if isinstance(key, slice):
            check_slice(run, x, key, mesh, spec)


@pytest.mark.parametrize(
    "number", [pytest.param(i, marks=pytest.mark.long if i % 2 else ()) for i in range(2 * len(BOTH))]
)
def test_slices_along_two_sharded_axes(run, values, number):
    mesh, spec = BOTH_SHARDED[number % 2]
    check_slice(run, values.normal((61, 14)), BOTH[number // 2], mesh, spec)


@pytest.mark.parametrize("key", [in_long_form(np.s_[1:-1]), in_long_form(np.s_[5:7]), np.s_[6:1:-1]])
def test_slices_of_every_type(run, values, dtype, key):
    check_slice(run, values.any((13, 4), dtype), key, {"x": 3}, ("x", None))


@pytest.mark.parametrize("sizes", [(4,), in_long_form((20,)), (33,), in_long_form((59,))])
def test_a_loop_of_starts_compiles_once(run, values, sizes):
    """All devices take the same branch at every start, and starts outside the array are clamped."""
    x = values.normal((61,))
    run.programs.clear()
    for k in range(-1, 62):
        result = run(KERNELS["getitem"], x, np.array([k]), mesh={"x": 8}, sizes=sizes, steps=(1,))
        first = min(max(k, 0), 61 - sizes[0])
        assert_same_bits(result, x[first : first + sizes[0]])
    assert len(run.programs) == run.is_local


def text_of(run, name, *operands, **how):
    return run.program(KERNELS[name], *operands, **how).text


X, STARTS = ArrayType((4096, 16), np.dtype("float32")), ArrayType((2,), np.dtype("int64"))
MOVED = [  # sizes, steps, and the most bytes that a device receives
    ((4094, 16), (1, 1), 2 * 64),
    ((1, 16), (1, 1), 2 * 64),
    ((4, 16), (1, 1), 8 * 64 * 2),
    ((64, 16), (64, 1), 63 * 64 + 64),
    ((4096, 16), (-1, 1), 512 * 64),
    ((2048, 16), (2, 1), 64),
]


@pytest.mark.parametrize(("sizes", "steps", "max_bytes"), MOVED)
def test_slices_move_what_they_must(run, sizes, steps, max_bytes):
    text = text_of(run, "getitem", X, STARTS, mesh={"x": 8}, sizes=sizes, steps=steps)
    sent = re.findall(
        r"= u32\[([\d,]+)\][^=\n]*(?:all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)", text
    )
    assert sum(4 * int(np.prod([int(n) for n in shape.split(",")])) for shape in sent) <= max_bytes
    assert "all-gather" not in text


MIB = 2**20
LARGE = [  # of 1 GiB of float32 on 8 devices: the shape, and the sizes of slices of 1 MiB
    ((256 * MIB,), (MIB // 4,)),
    ((16384, 16384), (16, 16384)),
    ((MIB // 4, 1024), (256, 1024)),
    ((1024, MIB // 4), (1, MIB // 4)),
]


@pytest.mark.parametrize(("shape", "sizes"), LARGE)
def test_a_short_slice_of_a_large_array_moves_little(run, shape, sizes):
    x, starts = ArrayType(shape, np.dtype("float32")), ArrayType((len(shape),), np.dtype("int64"))
    text = text_of(run, "getitem", x, starts, mesh={"x": 8}, sizes=sizes, steps=(1,) * len(shape))
    uses = {use.operation: use.bytes_per_device for use in collectives(text)}
    # A reduce-scatter's results are the blocks: all devices' blocks together are what a device sends and adds.
    moved = uses.pop("reduce-scatter", 0) * 8 + sum(uses.values())
    assert 0 < moved <= 1.1 * MIB


@pytest.mark.long
def test_slices_of_a_gibibyte(run):
    run.programs.clear()
    x = np.arange(256 * MIB, dtype=np.float32)  # float32 has each of the first 16 Mi integers
    for first in (0, 16 * MIB - 7, 100 * MIB + 5, 255 * MIB + 3 * MIB // 4):
        result = run(KERNELS["getitem"], x, np.array([first]), mesh={"x": 8}, sizes=(MIB // 4,), steps=(1,))
        assert_same_bits(result, x[first : first + MIB // 4])
    assert len(run.programs) == run.is_local
    run.programs.clear()


def assign(run, x, key, assigned, mesh, specs):
    starts, parameters = index(x, key)
    how = {"mesh": mesh, "in_specs": [*specs, None], "padding": 7}
    result = run(KERNELS["setitem"], x, assigned, starts, **how, **parameters)
    expected = x.copy()
    expected[key] = assigned
    assert_same_bits(result, expected)


ASSIGNED = [
    (np.s_[1:-1], ()),
    (np.s_[1:-1], (59, 14)),
    (np.s_[9:50, 3:5], (1, 2)),
    (np.s_[33], (14,)),
    (np.s_[::-1, 2], (61,)),
    (np.s_[50:3:-3], (16, 14)),
    (np.s_[5:5], (0, 14)),
    (np.s_[2:40, None, :], (38, 1, 1)),
    (np.s_[:], (14,)),
]


@pytest.mark.parametrize("number", range(len(ASSIGNED)))
def test_values_are_assigned(run, values, number):
    (key, shape), (mesh, spec) = ASSIGNED[number], (*LAYOUTS, *BOTH_SHARDED)[number % 5]
    x, assigned = values.normal((61, 14)), values.normal(shape)
    assign(run, x, key, assigned, mesh, [spec, [None] * len(shape)])


@pytest.mark.parametrize(("mesh", "spec"), [LAYOUTS[0], in_long_form(*LAYOUTS[2]), in_long_form(*BOTH_SHARDED[1])])
@pytest.mark.parametrize("key", [in_long_form(np.s_[1:-1]), in_long_form(np.s_[20:31]), np.s_[:40, 1:], np.s_[40:2:-2]])
def test_sharded_values_are_assigned(run, values, mesh, spec, key):
    x = values.normal((61, 14))
    assign(run, x, key, values.normal(x[key].shape), mesh, [spec, spec])


def test_values_of_every_type_are_assigned(run, values, dtype):
    x, assigned = values.any((13, 4), dtype), values.any((9, 4), dtype)
    assign(run, x, np.s_[2:11], assigned, {"x": 3}, [("x", None), ("x", None)])


@pytest.mark.parametrize(("to", "of"), [("float32", "int64"), ("bool", "float64"), ("complex64", "float32")])
def test_values_are_converted(run, to, of):
    assign(run, np.zeros((7,), to), np.s_[2:5], np.array([0, 2, -1], of), {"x": 3}, [("x",), (None,)])


@pytest.mark.parametrize("sizes", [(20,), in_long_form((59,))])
def test_a_loop_of_assignments_compiles_once(run, values, sizes):
    x, assigned = values.normal((61,)), values.normal(sizes)
    run.programs.clear()
    for k in range(62 - sizes[0]):
        how = {"mesh": {"x": 8}, "in_specs": [("x",), ("x",)], "sizes": sizes, "steps": (1,)}
        expected = x.copy()
        expected[k : k + sizes[0]] = assigned
        assert_same_bits(run(KERNELS["setitem"], x, assigned, np.array([k]), **how), expected)
    assert len(run.programs) == run.is_local


def test_nothing_of_the_array_moves_where_values_are_assigned(run):
    values, how = ArrayType((4094, 16), np.dtype("float32")), {"mesh": {"x": 8}, "sizes": (4094, 16), "steps": (1, 1)}
    for operand in (values, ArrayType((), np.dtype("float32"))):
        assert run.resolve(KERNELS["setitem"], X, operand, STARTS, **how).strategy.name == "blocks"
        assert not COLLECTIVE.search(text_of(run, "setitem", X, operand, STARTS, **how))
    how["in_specs"] = [("x", None), ("x", None)]
    assert run.resolve(KERNELS["setitem"], X, values, STARTS, **how).strategy.name == "exchange"
    assert "all-gather" not in text_of(run, "setitem", X, values, STARTS, **how)


@pytest.mark.parametrize(
    ("values", "field", "reason"),
    [
        (ArrayType((3, 16), np.dtype("float32")), "values", "INVALID_OPERAND"),
        (ArrayType((1, 2, 16), np.dtype("float32")), "values", "INVALID_OPERAND"),
        (ArrayType((), np.dtype("complex64")), "values", "UNSUPPORTED_ELEMENT_TYPE"),
    ],
)
def test_values_that_do_not_fit_are_refused(refused, values, field, reason):
    error = refused(KERNELS["setitem"], X, values, STARTS, mesh={"x": 2}, sizes=(2, 16), steps=(1, 1))
    assert (error.field, error.reason.name) == (field, reason)
