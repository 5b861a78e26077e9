"""The types of methods that run kernels, for type checkers: the class of the results depends on ``keep``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

if TYPE_CHECKING:
    from shardcall._src.calls.result import Result
    from shardcall._src.device_arrays.remote_array import RemoteArray
    from shardcall_core.types.arrays import HasType, NDArray

    Computed: TypeAlias = Result[Any]
    Awaitable: TypeAlias = Coroutine[Any, Any, Result["Item"]]
    HereResult: TypeAlias = Result[NDArray]
    KeptResult: TypeAlias = Result[RemoteArray]

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")
"""The type that a method returns: a `shardcall.Result`, or an awaitable of one."""
Item = TypeVar("Item", bound="HasType")
"""The class of an array that stays on the mesh, of an `aio` client."""
Outcome_co = TypeVar("Outcome_co", covariant=True)
Kept_co = TypeVar("Kept_co", covariant=True)


class Runs(Generic[Outcome]):
    """An object whose methods return one type."""


class Submitted:
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
    def __get__(self, instance: Runs[Submitted], owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: Runs[Computed], owner: Any) -> BoundMethod[Arguments, HereResult, KeptResult]: ...
    @overload
    def __get__(
        self, instance: Runs[Awaitable[Item]], owner: Any
    ) -> BoundMethod[Arguments, Awaitable[NDArray], Awaitable[Item]]: ...


def kernel_method(method: Callable[Concatenate[Any, Arguments], Any]) -> KernelMethod[Arguments]:
    """Returns a method that type checkers see with both classes of its results."""
    return method
