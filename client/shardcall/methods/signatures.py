"""Signatures and docstrings of the methods, completed from the table of functions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter
from types import FunctionType
from typing import Any

from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall_core.functions.function import Function

AUTO = "auto"

_OPTIONS: Mapping[str, tuple[str, Any, str]] = {
    "mesh": (
        "MeshLike | None",
        None,
        "the devices to run on; None for those of the first committed operand, else of the largest operand on the "
        "mesh, else the server's choice.",
    ),
    "strategy": ("str", AUTO, 'the name of a strategy; ``"auto"`` leaves the choice to the server.'),
    "keep": ("bool", False, "leave the results on the mesh, each as a `shardcall.RemoteArray`."),
    "timeout": (
        "float | None",
        DEFAULT_TIMEOUT_S,
        "seconds for the complete call, upload and compilation included; None for the server's maximum.",
    ),
}
"""The type, the default and the meaning of the keywords that every method takes."""


class LazyMethod:
    """A method that is completed at its first lookup, since completing all of them would slow down the import.

    Its ``**options`` become keyword-only parameters of its signature, with their lines in its docstring. Type checkers
    and editors read `shardcall.methods.kernel_caller.Options` and its subclasses from the source.

    Args:
        owner: the class that has the method.
        method: takes ``**options``; its docstring may have a line ``options: …``.
    """

    def __init__(self, owner: type, method: FunctionType, function: Function) -> None:
        self._owner = owner
        self._method = method
        self._function = function

    def __get__(self, instance: object, owner: type) -> Any:
        _complete(self._method, self._function)
        setattr(self._owner, self._function.name, self._method)
        return self._method.__get__(instance, owner)


def _complete(method: FunctionType, function: Function) -> None:
    # Both are read before the check, since another thread may complete the method meanwhile.
    base, text = inspect.signature(method), method.__doc__
    if hasattr(method, "__signature__"):
        return
    this, *parameters, _options = base.parameters.values()
    this = this.replace(annotation=Parameter.empty)  # a class of this package
    mesh, *others = (_keyword(name, annotation, default) for name, (annotation, default, _) in _OPTIONS.items())
    specs = (_keyword(name, "SpecLike | None", None) for name in function.spec_keywords)
    method.__signature__ = base.replace(parameters=[this, *parameters, mesh, *specs, *others])  # type: ignore[attr-defined]
    if text is None:  # python -OO
        return
    options = _meanings(function)
    before, line, after = inspect.cleandoc(text).partition("    options: ")
    if line:
        _, newline, rest = after.partition("\n")
        method.__doc__ = before + options + newline + rest
    else:
        method.__doc__ = f"{before}\n\nArgs:\n{options}"


def _keyword(name: str, annotation: str, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _meanings(function: Function) -> str:
    mesh, *others = (f"    {name}: {meaning}" for name, (_, _, meaning) in _OPTIONS.items())
    specs = {o.spec: f"the sharding of ``{o.name}``; None for {function.operand_spec}." for o in function.operands}
    specs |= dict.fromkeys(function.out_specs, f"the sharding of the result; None for {function.result_spec}.")
    return "\n".join([mesh, *(f"    {name}: {meaning}" for name, meaning in specs.items() if name), *others])
