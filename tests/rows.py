"""Tables whose rows make one test, where no row needs fixtures of its own: an item for each would cost more."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def rows(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test with each row of a table, as `pytest.mark.parametrize` does, within one item.

    Every row is run, also after one that failed. The error of a row names it.

    Args:
        names: the arguments that a row gives, separated by commas.
        values: the rows: values of a single name, or a sequence of values each.
    """
    arguments = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    table = [row if len(arguments) > 1 else (row,) for row in values]
    assert table, "a table without rows tests nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run_rows(**fixtures: Any) -> None:
            failed = []
            for row in table:
                try:
                    test(**dict(zip(arguments, row, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # the others are still to run
                    error.add_note(f"in the row {row!r}"[:500])
                    failed.append(error)
            if len(failed) == 1:
                raise failed[0]
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows failed", failed)

        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        run_rows.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run_rows

    return decorate
