"""Functions that run on several threads at once."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def on_threads(function: Callable[[Any], object], arguments: Iterable[Any]) -> list[Any]:
    """Calls a function with each argument on a thread of its own; returns the results, or raises an error of one."""
    values = [*arguments]
    with ThreadPoolExecutor(len(values)) as threads:
        return list(threads.map(function, values))
