"""Arrays that the devices create are NumPy's, bit for bit, in every layout, and nothing is sent."""

import numpy as np
from kernels.conftest import COLLECTIVE, KERNELS
from rows import rows

LAYOUTS = [
    ({"x": 1}, None),
    ({"x": 8}, None),
    ({"x": 3}, [("x",)]),
    ({"a": 4, "b": 2}, [("b",)]),
    ({"a": 2, "b": 2}, [(("b", "a"),)]),
]
STARTS = [(0, 1), (3, 2.5), (-7, -3), (0.1, 0.3), (-1e-3, 3.7)]


def test_arange_is_numpys(run, same_bits):
    size, cases = 5003, []
    for (start, step), (mesh, out_specs) in zip(STARTS, LAYOUTS, strict=True):
        for dtype in (np.float64, np.int16) if isinstance(step, int) else (np.float16, np.float32):
            ends = np.array([start, start + step], dtype)
            expected = np.arange(start, start + (size - 0.5) * step, step, dtype)[:size]
            cases.append(
                (run.call(KERNELS["arange"], *ends, mesh=mesh, out_specs=out_specs or (), size=size), expected)
            )
    run.check_together(cases, same_bits)


@rows(
    "name, operands, parameters",
    [
        ("full", [np.float32(1)], {"shape": (9, 3)}),
        ("arange", [np.float32(1), np.float32(2)], {"size": 9}),
        ("linspace", [np.float64(1), np.float64(2), np.float64(3)], {"size": 9}),
        ("eye", [np.int64(1)], {"shape": (9, 3)}),
    ],
)
def test_created_arrays_are_sharded_by_rows_and_nothing_is_sent(run, name, operands, parameters):
    how = {"mesh": {"a": 2, "b": 4}, **parameters}
    assert run.resolve(KERNELS[name], *operands, **how).problem.out_specs[0][0] == ("a", "b")
    assert not COLLECTIVE.search(run.program(KERNELS[name], *operands, **how).text)


def test_the_values_of_scalars_are_operands(run):
    before = len(run.programs)
    for start in range(3):
        run(KERNELS["arange"], np.int64(start), np.int64(start + 2), mesh={"x": 2}, size=77)
    assert len(run.programs) == before + run.is_local
