"""`numpy.emath` with arrays on the mesh: NumPy's values and types, complex where a number has no real result."""

import numpy as np
from memory_model.in_process import InProcessClient
from rows import rows


@rows(
    ("name", "arguments"),
    [
        *(("sqrt", (np.array([4, last]).astype(dtype),)) for last in (1, -1) for dtype in ("i1", "i2", "i8", "f2")),
        *((name, (np.array([4, -1], np.float32),)) for name in ("sqrt", "log", "log2", "log10")),
        *((name, (np.array(x),)) for name in ("arccos", "arcsin", "arctanh") for x in ([0.5, -0.4], [2, 0.4], [-2.0])),
        ("sqrt", (np.array([4, -1j]),)),
        ("sqrt", (np.array([True, False]),)),
        *(("logn", (n, np.array([4.0, last]))) for n in (2, -2) for last in (1, -1)),
        *(("power", (np.array([2, first]), p)) for first in (3, -3) for p in (2, -2, 0.5, np.array([-1, 2]))),
    ],
)
def test_results_are_complex_where_numpys_are(name, arguments):
    client, function = InProcessClient(), getattr(np.emath, name)
    expected = function(*arguments)
    actual = function(*(client.put(item) if isinstance(item, np.ndarray) else item for item in arguments))
    np.testing.assert_allclose(actual.get(), expected, rtol=1e-6)
    assert actual.dtype == expected.dtype
    named = getattr(client.xp.emath, name)
    np.testing.assert_allclose(named(*arguments).get(), expected, rtol=1e-6)
