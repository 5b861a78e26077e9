"""The tests of `test_every_type.py` for every element type, and differences of every order."""

import numpy as np
import pytest
from kernels import test_every_type as short
from kernels.conftest import ELEMENT_TYPES, with_cases
from kernels.type_cases import KERNELS, differences

pytestmark = pytest.mark.long

test_every_bit_is_moved = with_cases(short.test_every_bit_is_moved, {"dtype": ELEMENT_TYPES, "devices": [1, 3]})
test_what_is_computed_of_small_numbers_is_exact = with_cases(
    short.test_what_is_computed_of_small_numbers_is_exact, {"dtype": ELEMENT_TYPES}
)


def test_differences_of_every_order(run, values, dtype):
    hows = [{"n": n, "strategy": strategy} for n in range(6) for strategy in ("halo", "gspmd")]
    run.check_together(differences(run, values, dtype, [*hows, *({"n": n, "mesh": {"x": 1}} for n in (1, 2))]))


def test_identities_and_sequences(run, values, same_bits, dtype):
    cases = []
    meshes = ({"x": 1}, {"x": 8}, {"x": 3}, {"a": 4, "b": 2}, {"a": 2, "b": 2})
    shapes = [(0, 3), (1, 1), (5, 7), (9, 2), (70, 61)]
    for k, shape, mesh in zip((0, 1, -2, 100, -(2**63)), shapes, meshes, strict=True):
        how = {"mesh": mesh, "shape": shape, "dtype": dtype.name, "out_specs": [(None, tuple(mesh))] if k == -2 else ()}
        cases.append((run.call(KERNELS["eye"], np.int64(k), **how), np.eye(*shape, max(k, -(2**40))).astype(dtype)))
    size = 2 if dtype == np.bool_ else 8
    call = run.call(KERNELS["arange"], *np.array([0, 1], dtype), mesh={"x": 3}, size=size)
    cases.append((call, np.arange(size).astype(dtype)))
    x, how = values.small((13,), dtype), {"mesh": {"x": 3}, "strategy": "one_device"}
    cases.append((run.call(KERNELS["sort"], x, **how), run(KERNELS["sort"], x)))
    run.check_together(cases, same_bits)
