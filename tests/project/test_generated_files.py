"""docs/functions.md and the methods of clients are what NumPy's functions and the table of functions make of them."""

import numpy as np
import pytest
from project import numpys_functions
from project.client_methods import PATH, source
from project.numpys_functions import MEANINGLESS, functions


@pytest.mark.skipif(not np.__version__.startswith("2.4."), reason="the page is about NumPy 2.4")
def test_the_page_lists_the_functions():
    assert numpys_functions.PATH.read_text() == numpys_functions.page(), f"run {numpys_functions.__file__}"


def test_functions_without_a_meaning_are_functions_of_numpy():
    assert {name for names in MEANINGLESS.values() for name in names} <= set(functions(np))


def test_the_methods_are_those_of_the_table() -> None:
    assert PATH.read_text() == source(), "run `make functions`, and commit what it changes"
