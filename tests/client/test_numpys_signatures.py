"""Arguments of NumPy's functions: each reaches the parameter of its name, or is refused by its name."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from shardcall._src.device_arrays.numpy_protocols import ALIASES, apply_function
from shardcall.namespace import Namespace
from shardcall.namespace.fft import FftNamespace
from shardcall.namespace.linalg import LinalgNamespace

RENAMED = {"a_min": "min", "a_max": "max"}
WITHOUT_EFFECT = ("optimize", "overwrite_input", "subok")
"""Parameters that say how NumPy may compute: any value is taken."""

CHOSEN = ("order", "kind", "stable")
"""Parameters of which NumPy's values are taken, and have no effect."""


class Recorded:
    """Functions with the parameters of a namespace's, which return their arguments."""

    function_names = Namespace(None).function_names  # type: ignore[arg-type]

    def __init__(self, cls: type = Namespace) -> None:
        self._class = cls

    def __dir__(self) -> list[str]:
        return dir(self._class)

    def __getattr__(self, name: str) -> Any:
        if self._class is Namespace and name in ("fft", "linalg"):
            return Recorded({"fft": FftNamespace, "linalg": LinalgNamespace}[name])
        signature = inspect.signature(getattr(self._class, name).__get__(self))

        def run(*args: Any, **kwargs: Any) -> dict[str, Any]:
            return dict(signature.bind(*args, **kwargs).arguments)

        run.__signature__ = signature  # type: ignore[attr-defined]
        return run


def dispatched() -> Iterator[Callable[..., Any]]:
    """Yields the functions of NumPy that ask their arguments for an implementation, and that a namespace has."""
    for module, namespace in ((np, Namespace), (np.linalg, LinalgNamespace), (np.fft, FftNamespace)):
        for name, function in vars(module).items():
            if hasattr(function, "_implementation") and hasattr(namespace, ALIASES.get(name, name)):
                yield function


def bound(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    return apply_function(Recorded(), function, args, kwargs)


def arguments(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any, list[Any], dict[str, Any]]]:
    """Yields each optional parameter with a value, and positional and named arguments that give the value to it."""
    parameters = inspect.signature(function).parameters.values()
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    count = sum(item.default is item.empty and item.kind not in by_keyword for item in parameters)
    operands: list[Any] = [float(i) for i in range(count)]
    before: list[Any] = []
    for parameter in parameters:
        if parameter.default is parameter.empty or parameter.name == "out":
            before.append(parameter.default)
            continue
        value = {"order": "K", "stable": True}.get(parameter.name, object())
        if "sort" in function.__name__ or "partition" in function.__name__:
            value = {"order": None, "kind": "stable"}.get(parameter.name, value)
        if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            yield parameter, value, operands, {parameter.name: value}
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            yield parameter, value, [*operands, *before[len(operands) :], value], {}
        before.append(parameter.default)


def reach(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], value: Any) -> tuple[list[str], str]:
    """Returns the names of our parameters that get a value, or the refusal of a call."""
    try:
        values = bound(function, *args, **kwargs)
    except (TypeError, ValueError) as error:
        return [], str(error)
    return [name for name, got in values.items() if got is value or (type(got) is tuple and value in got)], ""


def test_every_argument_reaches_the_parameter_of_its_name():
    functions = dict.fromkeys(dispatched())
    assert len(functions) > 180
    for function in functions:
        shown = f"{function.__module__}.{function.__name__}"
        for parameter, value, args, kwargs in arguments(function):
            name = RENAMED.get(parameter.name, parameter.name)
            reached, refusal = reach(function, args, kwargs, value)
            if parameter.name in (*WITHOUT_EFFECT, *CHOSEN):
                assert reached in ([], [name]), (shown, parameter)
            else:
                assert reached == [name] or refusal.startswith(f"{shown} with {name}="), (shown, parameter, reached)


def test_defaults_of_numpy_change_nothing():
    for function in dict.fromkeys(dispatched()):
        for parameter, _, args, kwargs in arguments(function):
            if kwargs:
                alone, values = bound(function, *args), bound(function, *args, **{parameter.name: parameter.default})
                added = values.pop(parameter.name, parameter.default)
                assert (values, added) == (alone, parameter.default), function


def test_operands_keep_their_sequence():
    for function in dict.fromkeys(dispatched()):
        _, _, args, _ = next(iter(arguments(function)), (None, None, None, None))
        if args is not None:
            values = list(bound(function, *args).values())
            flat = [item for value in values for item in (value if isinstance(value, tuple) else (value,))]
            assert flat == args, function


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (lambda f: f(np.sort, 1.0, kind="nonsense"), "sort kind must be one of"),
        (lambda f: f(np.argsort, 1.0, kind="heap", stable=True), "can't be provided at the same time"),
        (lambda f: f(np.sort, 1.0, order="field"), "Cannot specify order"),
        (lambda f: f(np.zeros_like, 1.0, order="Z"), "order='Z'"),
        (lambda f: f(np.zeros_like, 1.0, order="F"), "order='F'"),
        (lambda f: f(np.clip, 1.0, min=0, where=False), "clip with where="),
        (lambda f: f(np.clip, 1.0, min=0, casting="unsafe", order="C", where=True, dtype=None), ""),
    ],
)
def test_what_has_no_meaning_on_the_mesh(call, refusal):
    with pytest.raises((TypeError, ValueError), match=refusal) if refusal else nullcontext():
        call(bound)
