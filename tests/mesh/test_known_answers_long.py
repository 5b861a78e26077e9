"""Known-answer tests of elementwise functions pass in every type besides float64."""

import pytest
from mesh.test_known_answers import TYPES, check_kernels, suite  # noqa: F401

pytestmark = pytest.mark.long


@pytest.mark.parametrize("dtype_", [dtype for dtype in TYPES if dtype != "float64"])
def test_all_kernels_of_a_type_pass(suite, dtype_):  # noqa: F811
    check_kernels(suite, dtype_)
