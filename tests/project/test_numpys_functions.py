"""docs/functions.md says of every function of NumPy what it does with an array on the mesh."""

import numpy as np
import pytest
from project import numpys_functions
from project.numpys_functions import MEANINGLESS, functions


@pytest.mark.skipif(not np.__version__.startswith("2.4."), reason="the page is about NumPy 2.4")
def test_the_page_lists_the_functions():
    assert numpys_functions.PATH.read_text() == numpys_functions.page(), f"run {numpys_functions.__file__}"


def test_functions_without_a_meaning_are_functions_of_numpy():
    assert {name for names in MEANINGLESS.values() for name in names} <= set(functions(np))
