"""The values outside a function that it refers to, and their state."""

from __future__ import annotations

import dis
import enum
import functools
import itertools
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardcall._src.device_arrays.array_version import ArrayBase
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall_core.types.arrays import Array
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.specs import PartitionSpec

FIXED = frozenset(
    (
        "numpy",
        "ml_dtypes",
        "scipy",
        "shardcall",
        "shardcall_core",
        "math",
        "cmath",
        "operator",
        "functools",
        "itertools",
        "builtins",
    )
)
"""The packages whose modules, functions and classes stay as they are."""

_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), type(...), range, Mesh, Array, PartitionSpec))
_CLIENTS = "shardcall.client", "shardcall.aio.client", "shardcall.namespace"
"""The modules of clients, and of their functions of arrays."""

_UNSEEN = frozenset(
    (
        *("globals", "vars", "getattr", "eval", "exec", "__dict__", "__globals__", "import_module", "__import__"),
        *("open", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"),
    )
)
"""The names by which code may refer to what its own names do not show: variables, modules and files."""

_LOADS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"))
_WRITES = frozenset(("STORE_DEREF", "DELETE_DEREF"))
_GLOBAL_WRITES = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_PADDING = frozenset(("CACHE", "NOP", "EXTENDED_ARG", "PUSH_NULL"))
_CODE = (types.ModuleType, types.BuiltinFunctionType, type, np.ufunc, type(np.roll))
_MAX_ARRAY_BYTES = 1 << 16
_MAX_ITEMS = 1024


class References:
    """The values that a function refers to: in its closure, in its module and as defaults.

    Functions among them are followed, with their attributes, and so are attributes of modules. An attribute of another
    object is none of them: it may change unseen.

    Attributes:
        state: the values; equal states have equal traces. None if one may change unseen.
        names: the names in the code.
        generators: the generators of random numbers.
        bases: the bases of the arrays on the mesh.

    Args:
        function: the function.
        static: the values of its static arguments, which count as values that it refers to.
    """

    def __init__(self, function: Any, static: Sequence[Any] = ()) -> None:
        self.names: set[str] = set()
        self.generators: list[Any] = []
        self.bases: set[ArrayBase] = set()
        self._is_fixed = True
        self._items = 0
        self._seen: dict[int, tuple[int, Any]] = {}  # with the values, so that no other value gets the id of one
        state = self._of((function, *static))
        self.state: Hashable = state if self._is_fixed else None

    def _of(self, value: Any) -> Hashable:
        value_type = type(value)
        self._items += 1
        if self._items > _MAX_ITEMS:
            return self._opaque()
        if value_type in _PLAIN or issubclass(value_type, np.generic | np.dtype):
            return value_type, repr(value)  # 0.0 is equal to -0.0, and 1 to True
        if isinstance(value, RemoteArray):
            self.bases.add(value._store)
            return value_type, value._store.serial, value._steps
        if id(value) in self._seen:  # in a cycle
            return "again", self._seen[id(value)][0]
        self._seen[id(value)] = len(self._seen), value
        if value_type is types.FunctionType:
            return self._function(value)
        if value_type is np.ndarray and value.nbytes <= _MAX_ARRAY_BYTES and not value.dtype.hasobject:
            return value_type, value.dtype, value.shape, value.tobytes()
        if value_type in (tuple, list):
            return value_type, *map(self._of, value)
        if value_type is frozenset:
            return value_type, frozenset(map(self._of, value))
        if value_type is dict:
            return value_type, *((self._of(key), self._of(item)) for key, item in value.items())
        return self._object(value)

    def _object(self, value: Any) -> Hashable:
        if isinstance(value, functools.partial):
            return "partial", *map(self._of, (value.func, value.args, value.keywords))
        if isinstance(value, enum.Enum):
            return "enum", id(value), self._of(value.value)
        if (function := getattr(type(value), "traced_function", None)) is not None:
            attributes = {name: attribute for name, attribute in vars(value).items() if not name.startswith("_")}
            return self._of((function(value), attributes))
        if isinstance(value, np.random.Generator | np.random.RandomState):
            self.generators.append(value)
        if any(base.__module__.startswith(_CLIENTS) for base in type(value).__mro__):
            return "client", id(value)
        return ("fixed", id(value)) if _is_fixed(value) else self._opaque()

    def _function(self, function: types.FunctionType) -> Hashable:
        code = function.__code__
        package = str(function.__globals__.get("__name__")).partition(".")[0]
        if package in FIXED and not (package == "functools" and function.__closure__):  # as of singledispatch
            return "fixed", id(function)
        used = used_by(code)
        self.names.update(used.names)
        if not _UNSEEN.isdisjoint(used.names) or not used.imported <= FIXED:
            return self._opaque()
        cells = zip(code.co_freevars, map(contents, function.__closure__ or ()), strict=True)
        variables = ((name, function.__globals__[name]) for name in used.loads if name in function.__globals__)
        values = (self._variable(value, used.loads.get(name, ())) for name, value in (*variables, *cells))
        # Others only describe it: `functools.wraps` copies __wrapped__, and __signature__ of NumPy's functions.
        attributes = {name: value for name, value in vars(function).items() if not name.startswith("__")}
        return code, *values, *map(self._of, (function.__defaults__, function.__kwdefaults__, attributes))

    def _variable(self, value: Any, chains: Iterable[tuple[str, ...]]) -> Hashable:
        """Returns the state of a variable: of a module that may change, that of the attributes which code reads."""
        if not isinstance(value, types.ModuleType) or _is_fixed(value):
            return self._of(value)
        return tuple(self._of(attribute_of(value, chain)) for chain in sorted(chains))

    def _opaque(self) -> Hashable:
        self._is_fixed = False
        return None


def attribute_of(value: Any, chain: Sequence[str]) -> Any:
    """Returns the value of a chain of attributes, as far as these are of modules that may change."""
    for name in chain:
        if not isinstance(value, types.ModuleType) or _is_fixed(value):
            break
        value = getattr(value, name, None)
    return value


class _UsedNames(NamedTuple):
    """The names in code, that of functions in it included.

    Attributes:
        names: all of them.
        loads: the variables that it reads, each with the chains of attributes that it reads of it.
        written: the variables of functions around it that it assigns.
        imported: the packages that it imports.
        assigns_globals: whether it assigns variables of its module.
    """

    names: frozenset[str]
    loads: Mapping[str, frozenset[tuple[str, ...]]]
    written: frozenset[str]
    imported: frozenset[str]
    assigns_globals: bool


@functools.lru_cache(maxsize=512)
def used_by(code: types.CodeType) -> _UsedNames:
    """Returns the names in code."""
    names, written, imported = set(code.co_names), set(), set()
    loads: dict[str, set[tuple[str, ...]]] = {}
    instructions = [instruction for instruction in dis.get_instructions(code) if instruction.opname not in _PADDING]
    assigns_globals = any(instruction.opname in _GLOBAL_WRITES for instruction in instructions)
    for i, instruction in enumerate(instructions):
        if instruction.opname == "IMPORT_NAME":
            is_absolute = i >= 2 and instructions[i - 2].argval == 0  # the number of dots before the name
            imported.add(instruction.argval.partition(".")[0] if is_absolute else ".")
        elif instruction.opname in _WRITES:
            written.add(instruction.argval)
        elif instruction.opname in _LOADS:
            behind = itertools.takewhile(lambda x: x.opname in _ATTRIBUTES, itertools.islice(instructions, i + 1, None))
            loads.setdefault(instruction.argval, set()).add(tuple(attribute.argval for attribute in behind))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            within = used_by(constant)
            names |= within.names
            written |= within.written
            imported |= within.imported
            assigns_globals |= within.assigns_globals
            for name, chains in within.loads.items():
                loads.setdefault(name, set()).update(chains)
    sorted_loads = {name: frozenset(loads[name]) for name in sorted(loads)}
    return _UsedNames(frozenset(names), sorted_loads, frozenset(written), frozenset(imported), assigns_globals)


def _is_fixed(value: Any) -> bool:
    """Returns True for modules, functions and classes of packages that stay as they are."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(value, _CODE) and str(name).partition(".")[0] in FIXED


def contents(cell: types.CellType) -> Any:
    """Returns the value of a variable of a closure; None if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:  # of a variable that is assigned later
        return None
