"""Methods that call kernels: their options, their types, and the base of the classes that have them."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
)

from shardcall._src.device_arrays.masked_elements import MaskedElements, run_masked_kernel
from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.conversions import CONVERSIONS
from shardcall.methods.signatures import LazyMethod
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.arguments import check_required, similar_specs
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.specs import SpecLike
from shardcall_core.types.tracebacks import shortened

if TYPE_CHECKING:
    from shardcall._src.calls.result import Result
    from shardcall._src.device_arrays.remote_array import RemoteArray
    from shardcall_core.types.arrays import HasType, NDArray

    Computed: TypeAlias = Result[Any]
    Awaitable: TypeAlias = Coroutine[Any, Any, Result["Item"]]
    HereResult: TypeAlias = Result[NDArray]
    KeptResult: TypeAlias = Result[RemoteArray]

Axis: TypeAlias = SupportsIndex
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
Widths: TypeAlias = Axes | Sequence[Sequence[SupportsIndex]] | dict[int, Axes]

_OPTIONS = ("mesh", "strategy", "keep", "timeout")

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")
"""The type that a method returns: a `shardcall.Result`, or an awaitable of one."""
Item = TypeVar("Item", bound="HasType")
"""The class of an array that stays on the mesh, of an `aio` client."""
Outcome_co = TypeVar("Outcome_co", covariant=True)
Kept_co = TypeVar("Kept_co", covariant=True)


class Options(TypedDict, total=False):
    """The keywords of every method that runs a kernel; all may be left out.

    Attributes:
        mesh: the devices to run on; None for those of the first committed operand (`RemoteArray.committed`), else of
            the largest operand on the mesh, else the server's choice.
        out_spec: the sharding of the result; None for the function's default.
        strategy: the name of a strategy; ``"auto"`` leaves the choice to the server.
        keep: leave the results on the mesh, each as a `shardcall.RemoteArray`.
        timeout: seconds for the complete call, upload and compilation included; 300 by default, None for the server's
            maximum.
    """

    mesh: MeshLike | None
    out_spec: SpecLike | None
    strategy: str
    keep: Literal[False]  # for True see `BoundMethod`
    timeout: float | None


class ArrayOptions(Options, total=False):
    """The keywords of methods of one main array.

    Attributes:
        spec: the sharding of the array; None for its own on the mesh, else by its first axis, over all mesh axes.
    """

    spec: SpecLike | None


class ProductOptions(Options, total=False):
    """The keywords of methods of two factors.

    Attributes:
        lhs_spec: the sharding of ``lhs``; None for its own on the mesh, else the kernel's choice.
        rhs_spec: the sharding of ``rhs``; None for its own on the mesh, else the kernel's choice.
    """

    lhs_spec: SpecLike | None
    rhs_spec: SpecLike | None


class BinaryOptions(ArrayOptions, total=False):
    """The keywords of functions of two operands.

    Attributes:
        spec: the sharding of ``x``; None for that of ``y``, else by the first axis of the result, over all mesh axes.
        y_spec: the sharding of ``y``; None for its own on the mesh, else that of ``x``.
    """

    y_spec: SpecLike | None


class WhereOptions(BinaryOptions, total=False):
    """The keywords of `where`; ``spec`` is that of the condition.

    Attributes:
        x_spec: the sharding of ``x``; None for its own on the mesh, else that of the condition.
    """

    x_spec: SpecLike | None


class ClipOptions(ArrayOptions, total=False):
    """The keywords of `clip`.

    Attributes:
        min_spec: the sharding of ``min``; None for its own on the mesh, else that of ``x``.
        max_spec: the sharding of ``max``; None for its own on the mesh, else that of ``x``.
    """

    min_spec: SpecLike | None
    max_spec: SpecLike | None


class SubmittedArray:
    """The type that a method of a namespace returns, for type checkers: an array on the mesh, or one of a bucket."""


class BoundMethod(Protocol[Arguments, Outcome_co, Kept_co]):
    """A method of a client.

    Python cannot declare one keyword beside those of a `ParamSpec`, so calls with ``keep`` are not checked otherwise.
    """

    @overload
    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Outcome_co: ...
    @overload
    def __call__(self, *args: Any, keep: Literal[True], **kwargs: Any) -> Kept_co: ...
    @overload
    def __call__(self, *args: Any, keep: bool, **kwargs: Any) -> Outcome_co | Kept_co: ...


class KernelMethod(Protocol[Arguments]):
    """A method in a class."""

    # Not generic in the outcomes: mypy would require equal ones of a method that is an argument, as in `map`.
    @overload
    def __get__(self, instance: None, owner: Any) -> Callable[Concatenate[Any, Arguments], Any]: ...
    @overload
    def __get__(self, instance: KernelCaller[SubmittedArray], owner: Any) -> Any: ...
    @overload
    def __get__(
        self, instance: KernelCaller[Computed], owner: Any
    ) -> BoundMethod[Arguments, HereResult, KeptResult]: ...
    @overload
    def __get__(
        self, instance: KernelCaller[Awaitable[Item]], owner: Any
    ) -> BoundMethod[Arguments, Awaitable[NDArray], Awaitable[Item]]: ...


def kernel_method(method: Callable[Concatenate[Any, Arguments], Any]) -> KernelMethod[Arguments]:
    """Returns a method that type checkers see with both classes of its results."""
    return method


_RUN = "client.call(name, …) runs a kernel by its name, and client.jit(function)(…) a function"
_HESSIAN = "client.vmap(lambda v: client.jvp(client.grad(f), (x,), (v,))[1])(np.eye(x.size)) is the Hessian of f at x"
_JACOBIAN = "client.vmap(lambda v: client.jvp(f, (x,), (v,))[1], out_axes=-1)(np.eye(x.size)) is the Jacobian of f at x"
_INSTEAD: Mapping[str, str] = {
    "device_put": "client.put(x, …) puts an array on the mesh",
    "execute": _RUN,
    "hessian": _HESSIAN,
    **dict.fromkeys(("jacfwd", "jacobian", "jacrev"), _JACOBIAN),
    "pmap": "client.jit runs a function on all devices of its arrays' mesh, and client.vmap maps it over an axis",
    "random": "uniform, normal, randint and permutation draw random numbers, and take a seed: uniform(seed, shape)",
    "run": _RUN,
}
"""Advice for the names of methods that callers guess."""


class KernelCaller(Generic[Outcome], metaclass=ABCMeta):
    """Calls kernels by their names; methods of kernels in classes below it are completed at their first lookup."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in list(vars(cls).items()):
            if isinstance(method, FunctionType) and name in FUNCTIONS and "options" in method.__annotations__:
                setattr(cls, name, LazyMethod(cls, method, FUNCTIONS[name]))

    @kernel_method
    @abstractmethod
    def call(
        self, name: str, /, *operands: OperandLike | None, keep: Literal[False] = False, **arguments: Any
    ) -> Outcome:
        """Runs any kernel of the server."""

    def _function_names(self) -> Iterable[str]:
        """Returns the names of the functions in ``xp``."""
        return ()

    def _kernel_names(self) -> Iterable[str]:
        """Returns the names of the server's kernels; none if the server does not answer soon."""
        return ()

    @shortened
    def _named(self, kernel: str, *operands: OperandLike | None, options: Options, **parameters: Any) -> Outcome:
        """Runs the kernel of a method.

        Raises:
            TypeError: for an unknown option; the message names similar ones.
            OperandCountError: if a required operand is None.
        """
        if MaskedElements in map(type, operands):  # in a function that is traced
            return run_masked_kernel(kernel, operands, {**parameters, **options})  # type: ignore[no-any-return]
        specs = FUNCTIONS[kernel].spec_keywords
        for name in options:
            if name not in _OPTIONS and name not in specs:
                raise TypeError(_unknown_keyword(kernel, name, [*_OPTIONS, *specs], parameters))
        if (convert := CONVERSIONS.get(kernel)) is not None:
            operands = tuple(convert(kernel, operands, parameters))
        check_required(kernel, operands)
        # Its type is that of the subclass.
        return self.call(kernel, *operands, **parameters, **options)  # type: ignore[arg-type,no-any-return]

    if not TYPE_CHECKING:  # a type checker that saw it would accept every misspelt name

        def __getattr__(self, name):
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                methods = [attribute for attribute in dir(self) if not attribute.startswith("_")]
                message += _hint(name, methods, self._function_names(), self._kernel_names())
            raise AttributeError(message, name=name, obj=self)


def _unknown_keyword(kernel: str, name: str, allowed: Sequence[str], parameters: Iterable[str]) -> str:
    near = similar_specs(kernel, name) or get_close_matches(name, [*allowed, *parameters], n=1)
    meant = " or ".join(map(repr, near))
    hint = f"; did you mean {meant}?" if near else f"; there are also: {', '.join(sorted(allowed))}"
    return f"{kernel}() got an unexpected keyword argument {name!r}{hint}"


def _hint(name: str, methods: Iterable[str], functions: Iterable[str], kernels: Iterable[str]) -> str:
    if name in functions:
        return f"; NumPy's names are those of client.xp: client.xp.{name}"
    if name in _INSTEAD:
        return f"; {_INSTEAD[name]}"
    if name in kernels:
        return f"; it is a kernel of the server without a method: client.call({name!r}, …)"
    near = get_close_matches(name, {*methods, *kernels}, cutoff=0.5)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{meant}; print(client.kernels()) shows all kernels"
