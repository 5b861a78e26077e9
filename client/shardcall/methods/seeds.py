"""Explanations for callers who give the methods of random arrays the arguments of NumPy's generators."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def seeded(method: Callable[P, R]) -> Callable[P, R]:
    """Explains the arguments of a method to callers who give those of NumPy's generators."""

    @functools.wraps(method)
    def explained(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return method(*args, **keywords)
        except TypeError as error:
            try:
                inspect.signature(method).bind(*args, **keywords)
            except TypeError as unfit:
                fault = unfit
            else:
                if "size" not in keywords:
                    raise
                fault = error
            name = method.__name__
            bounds = {"uniform": "low, high", "normal": "loc, scale"}.get(name, "low, high")
            raise TypeError(
                f"{name}: {fault}; give the seed and the shape first, as there is no generator with a state: "
                f"{name}(seed, shape, {bounds})"
            ) from None

    return explained
