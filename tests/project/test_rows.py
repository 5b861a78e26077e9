"""Tables whose rows make one test: every row is run, and each that fails is reported."""

import inspect

import pytest
from rows import rows


def test_every_row_is_run_and_fixtures_are_passed_on() -> None:
    seen = []

    @rows("b", [10, 20])
    @rows(("a", "c"), [(1, 2), (3, 4)])
    def check(a: int, b: int, c: int, fixture: str) -> None:
        seen.append((a, b, c, fixture))

    assert list(inspect.signature(check).parameters) == ["fixture"]
    check(fixture="given")
    assert seen == [(1, 10, 2, "given"), (3, 10, 4, "given"), (1, 20, 2, "given"), (3, 20, 4, "given")]


def test_a_row_that_fails_fails_the_test_and_is_named() -> None:
    seen = []

    @rows("number", [1, 2, 3])
    def check(number: int) -> None:
        seen.append(number)
        assert number != 2, "two"

    with pytest.raises(AssertionError, match="two") as caught:
        check()
    assert caught.value.__notes__ == ["in the row (2,)"]
    assert seen == [1, 2, 3]


def test_all_rows_that_fail_are_reported() -> None:
    @rows("number", [1, 2, 3])
    def check(number: int) -> None:
        if number == 1:
            pytest.fail("one")
        assert number != 2, "two"

    with pytest.raises(BaseExceptionGroup, match="2 of 3 rows failed") as caught:
        check()
    assert [str(error).partition("\n")[0] for error in caught.value.exceptions] == ["one", "two"]


def test_a_table_has_rows_and_rows_have_a_value_for_every_name() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        rows("x", [])
    with pytest.raises(ValueError, match="zip"):
        rows("x, y", [(1,)])(lambda x, y: None)()
