"""Signatures and docstrings of the methods, completed from the table of functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature
from types import CodeType
from typing import Any

from shardcall._src.functions.table import Function, Operand
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S

AUTO = "auto"

_OPTIONS_LINE = re.compile(r"^    options: .*$", re.MULTILINE)
_SIGNATURES: dict[CodeType, Signature] = {}  # elementwise methods share the code of one
_OPTIONS: Mapping[str, tuple[str, Any, str]] = {
    "mesh": (
        "MeshLike | None",
        None,
        "the devices to run on; None for those of the first operand on the mesh, else the server's choice.",
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


def complete(method: Callable[..., Any], function: Function, arguments: Mapping[str, str]) -> None:
    """Sets a method's signature and docstring: its ``**options`` become keyword-only parameters.

    Type checkers and editors read `shardcall.methods.calling.Options` and its subclasses from the source.

    Args:
        method: takes ``**options``; its docstring may end in a line ``options: …`` of ``Args:``.
        function: the function that it calls.
        arguments: the meanings of parameters of methods whose docstrings have no ``Args:``.
    """
    signature = _signature(method, function)
    method.__signature__ = signature  # type: ignore[attr-defined]
    if method.__doc__ is None:  # python -OO
        return
    text = inspect.cleandoc(method.__doc__)
    options = _meanings(function.operands, function.operand_spec, function.out_specs, function.result_spec)
    if _OPTIONS_LINE.search(text):
        method.__doc__ = _OPTIONS_LINE.sub(lambda _: options, text)
    else:
        own = [f"    {name}: {arguments[name]}" for name in signature.parameters if name in arguments]
        summary, heading, errors = text.partition("\n\nRaises:")
        method.__doc__ = "\n".join([summary, "", "Args:", *own, options]) + heading + errors


def _signature(method: Callable[..., Any], function: Function) -> Signature:
    if method.__code__ not in _SIGNATURES:
        base = inspect.signature(method)
        *own, _options = base.parameters.values()
        mesh, *others = (_keyword(name, annotation, default) for name, (annotation, default, _) in _OPTIONS.items())
        specs = (_keyword(name, "SpecLike | None", None) for name in function.spec_keywords)
        _SIGNATURES[method.__code__] = base.replace(parameters=[*own, mesh, *specs, *others])
    return _SIGNATURES[method.__code__]


def _keyword(name: str, annotation: str, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@cache
def _meanings(operands: Sequence[Operand], operand_spec: str, out_specs: Sequence[str], result_spec: str) -> str:
    mesh, *others = (f"    {name}: {meaning}" for name, (_, _, meaning) in _OPTIONS.items())
    specs = [f"    {o.spec}: the sharding of ``{o.name}``; None for {operand_spec}." for o in operands if o.spec]
    specs += [f"    {name}: the sharding of the result; None for {result_spec}." for name in out_specs]
    return "\n".join([mesh, *specs, *others])
