"""The pages of functions: the methods of kernels, and those of `client.xp`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shardcall.methods import KernelMethods, kernel_methods
from shardcall.namespace import Namespace
from shardcall.namespace.fft import FftNamespace
from shardcall.namespace.lib import LibNamespace
from shardcall.namespace.linalg import LinalgNamespace
from shardcall.namespace.ndimage import NdimageNamespace
from shardcall.namespace.special import SpecialNamespace
from site_pages.markup import docstring, table

_OF_EVERY_METHOD = ("mesh", "strategy", "keep", "timeout", "options")
_MODULES: Mapping[str, type] = {
    "xp.linalg": LinalgNamespace,
    "xp.fft": FftNamespace,
    "xp.special": SpecialNamespace,
    "xp.ndimage": NdimageNamespace,
    "xp.lib": LibNamespace,
}


def methods_page() -> str:
    """Returns the page of the methods of kernels, from their rows in the table of functions."""
    functions = {name: item for name, item in _functions(KernelMethods).items() if _is_method(item)}
    introduction = (
        "A client has a method for each of these kernels, and [`client.xp`](xp.md) a function of the same name. Every "
        "method also takes `mesh=`, `strategy=`, `keep=` and `timeout=`: "
        "[arguments of every call](../kernels.md#arguments-of-every-call). [Kernels](kernels.md) lists the strategies."
    )
    parts = [_entry("client", name, function, "##") for name, function in sorted(functions.items())]
    return "\n\n".join(["# Methods of kernels", introduction, *parts]) + "\n"


def xp_page() -> str:
    """Returns the page of `client.xp`: a list of all functions, and those that are no methods by their modules."""
    functions = _functions(Namespace)
    families: dict[str, list[str]] = {}
    for name, function in functions.items():
        if not _is_method(function):
            families.setdefault(_family(function), []).append(name)
    introduction = (
        "`client.xp` has NumPy's functions, and those of the array API standard. Their results stay on the mesh. "
        "[NumPy's functions](../functions.md) compares the list with NumPy's, and "
        "[the modules](xp_modules.md) has `xp.linalg`, `xp.fft` and others."
    )
    rows = [(_link(name, function), _summary(function)) for name, function in sorted(functions.items())]
    parts = ["# Functions of client.xp", introduction, "## All functions", table(("function", ""), rows)]
    for family, names in sorted(families.items()):
        parts += [f"## {family}", *(_entry("xp", name, functions[name], "###") for name in sorted(names))]
    return "\n\n".join(parts) + "\n"


def modules_page() -> str:
    """Returns the page of the modules of `client.xp`."""
    parts = [
        "# Modules of client.xp",
        "Functions with the names of NumPy's and SciPy's modules, for arrays on the mesh.",
    ]
    for title, namespace in _MODULES.items():
        parts.append(f"## {title}")
        parts += [_entry(title, name, function, "###") for name, function in sorted(_functions(namespace).items())]
    return "\n\n".join(parts) + "\n"


def _functions(namespace: type) -> dict[str, Callable[..., Any]]:
    """Returns the functions of a class by name, without types and those of the client itself."""
    items = ((name, inspect.getattr_static(namespace, name)) for name in dir(namespace) if not name.startswith("_"))
    functions = {name: getattr(namespace, name) for name, item in items if not isinstance(item, property)}
    return {name: function for name, function in functions.items() if inspect.isfunction(function)}


def _entry(prefix: str, name: str, function: Callable[..., Any], level: str) -> str:
    without = _OF_EVERY_METHOD if _is_method(function) else ()
    arguments = ", ".join(_arguments(function, without))
    text = docstring(inspect.getdoc(function) or "", without=without)
    return f"{level} {name}\n\n```python\n{prefix}.{name}({arguments})\n```\n\n{text}"


def _arguments(function: Callable[..., Any], without: tuple[str, ...]) -> Iterator[str]:
    """Yields the arguments of a function as in its signature, without their types."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    kept = [parameter for parameter in bare if parameter.name not in without]
    yield from str(inspect.Signature(kept))[1:-1].split(", ") if kept else ()


def _family(function: Callable[..., Any]) -> str:
    return function.__module__.rpartition(".")[2].replace("_", " ").capitalize()


def _is_method(function: Callable[..., Any]) -> bool:
    """Returns whether a function is a method of kernels, written from its row, and none of the namespace alone."""
    return function.__module__ == kernel_methods.__name__


def _link(name: str, function: Callable[..., Any]) -> str:
    return f"[`{name}`]({f'methods.md#{function.__name__}' if _is_method(function) else f'#{name}'})"


def _summary(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n\n")[0]
