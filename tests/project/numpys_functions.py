"""The functions of NumPy, and what each does with arrays on the mesh: writes docs/functions.md.

.venv/bin/python tests/project/numpys_functions.py
"""

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from shardcall._src.device_arrays.numpy_metadata import DESCRIBING
from shardcall._src.device_arrays.numpy_protocols import ALIASES
from shardcall.namespace import Namespace
from shardcall.namespace.emath import EmathNamespace
from shardcall.namespace.fft import FftNamespace
from shardcall.namespace.linalg import LinalgNamespace

PATH = Path(__file__).resolve().parents[2] / "docs/functions.md"

MODULES: Mapping[ModuleType, type] = {
    np: Namespace,
    np.linalg: LinalgNamespace,
    np.fft: FftNamespace,
    np.emath: EmathNamespace,
}
NAMES: Mapping[ModuleType, str] = {np.emath: "numpy.emath"}
"""The names of modules that do not have theirs."""

MEANINGLESS: Mapping[str, tuple[str, ...]] = {
    "files and text": (
        *("array2string", "array_repr", "array_str", "base_repr", "binary_repr", "format_float_positional"),
        *("format_float_scientific", "frombuffer", "fromfile", "fromiter", "fromregex", "fromstring", "genfromtxt"),
        *("load", "loadtxt", "save", "savetxt", "savez", "savez_compressed"),
    ),
    "settings of NumPy": (
        *("get_include", "get_printoptions", "getbufsize", "geterr", "geterrcall", "info", "printoptions"),
        *("set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime", "test"),
    ),
    "dates": ("busday_count", "busday_offset", "datetime_as_string", "datetime_data", "is_busday", "isnat"),
    "the memory of this process": (
        *("asanyarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "isfortran", "nested_iters"),
        "require",
    ),
    "matrices as a class": ("asmatrix", "bmat"),
    "types and functions, without arrays": (
        *("frompyfunc", "isscalar", "issubdtype", "iterable", "mintypecode", "promote_types", "typename"),
        "einsum_path",
    ),
    "indices and windows of a size, without arrays": (
        *("bartlett", "blackman", "diag_indices", "hamming", "hanning", "indices", "kaiser", "mask_indices"),
        *("tril_indices", "triu_indices"),
    ),
}
"""Functions for which an array on the mesh means nothing: they take none, or return something of this process."""


def functions(module: ModuleType) -> list[str]:
    """Returns the names of the functions of a module of NumPy."""
    items = {name: getattr(module, name) for name in module.__all__}
    return sorted(name for name, item in items.items() if callable(item) and not isinstance(item, type))


def classified(module: ModuleType) -> dict[str, list[str]]:
    """Returns the functions of a module by what they do with an array on the mesh."""
    describing = {function.__name__ for function in DESCRIBING}
    meaningless = {name for names in MEANINGLESS.values() for name in names} if module is np else set()
    groups: dict[str, list[str]] = {"run": [], "describe": [], "refused": [], "meaningless": []}
    for name in functions(module):
        if hasattr(MODULES[module], name) or name in ALIASES:
            groups["run"].append(name)
        elif name in meaningless:
            groups["meaningless"].append(name)
        else:
            groups["describe" if name in describing else "refused"].append(name)
    return groups


def page() -> str:
    """Returns the text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# NumPy's functions"
    yield ""
    yield from _wrapped(
        f"What the functions of NumPy {np.__version__.rpartition('.')[0]} do with an array on the mesh, as `np.f(h)` "
        "and as `client.xp.f(h)`. The page is made from the functions of the client by "
        "`tests/project/numpys_functions.py`, and a test compares them."
    )
    yield ""
    yield "| | run on the mesh | answered without a call | refused by name | no arrays of the mesh |"
    yield "|---|--:|--:|--:|--:|"
    by_module = {module: classified(module) for module in MODULES}
    for module, groups in by_module.items():
        yield f"| `{NAMES.get(module, module.__name__)}` | {' | '.join(str(len(names)) for names in groups.values())} |"
    titles = {
        "run": ("Functions that run on the mesh", "Their results stay there."),
        "describe": ("Functions that are answered without a call", "They read the shape and the type alone."),
        "refused": (
            "Functions that are refused",
            "Each raises a `TypeError` with the function's name; `np.f(h.get())` runs it in this process.",
        ),
    }
    for group, (title, sentence) in titles.items():
        if not any(groups[group] for groups in by_module.values()):
            continue
        yield from ("", f"## {title}", "", sentence)
        for module, groups in by_module.items():
            if groups[group]:
                yield from ("", f"`{NAMES.get(module, module.__name__)}`:", "")
                yield from _wrapped(" ".join(f"`{name}`" for name in groups[group]))
    yield from ("", "## Functions without a meaning for arrays on the mesh", "")
    for reason, names in MEANINGLESS.items():
        left = [f"`{name}`" for name in sorted(names) if name in by_module[np]["meaningless"]]
        if left:
            yield from _wrapped(f"- {reason}: {' '.join(left)}", "  ")


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 150, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PATH.write_text(page())
