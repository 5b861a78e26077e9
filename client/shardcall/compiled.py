"""A kernel compiled ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardcall.arrays import Array, NDArray, OperandLike, as_operand, type_of
from shardcall.calls import Call
from shardcall.deadline import DEFAULT_TIMEOUT_S
from shardcall.errors import InvalidOperandError, OperandTypeError
from shardcall.plan import Plan
from shardcall.result import Result

Runner = Callable[[tuple[NDArray | None, ...], float | None], Result]


class CompiledKernel:
    """A kernel compiled for operands of fixed types; call it with arrays of exactly those.

    Operands that were given with their values when it was compiled, such as ``prepend=0.0``, are bound: calls
    take the others only, in the kernel's order.

    Attributes:
        plan: what a call does.
    """

    def __init__(self, call: Call, plan: Plan, text: str, run: Runner) -> None:
        self.plan = plan
        self._call = call
        self._text = text
        self._run = run

    @property
    def key(self) -> Mapping[str, str]:
        """The labelled parts of the key that the program is kept by."""
        return self.plan.key

    @property
    def cache_hit(self) -> bool:
        """Whether the program was there when this kernel was compiled."""
        return self.plan.cache_hit

    @property
    def operands(self) -> tuple[Array, ...]:
        """The types of the arrays that a call takes."""
        return tuple(operand for operand in self._call.operands if isinstance(operand, Array))

    def as_text(self) -> str:
        """Returns the compiled program as the compiler prints it."""
        return self._text

    def explain(self) -> str:
        """Returns the plan, and why the program had to be compiled if it had to, as text."""
        return str(self.plan)

    def __call__(self, *operands: OperandLike, timeout: float | None = DEFAULT_TIMEOUT_S) -> Result:
        """Runs the kernel.

        Args:
            operands: arrays of exactly the types that it was compiled for, without those that are bound.
            timeout: seconds for the whole call; None for the server's maximum.

        Returns:
            As `Client.call`.

        Raises:
            InvalidOperandError: for another number of arrays, or another shape.
            OperandTypeError: for another element type.
        """
        expected = self.operands
        if len(operands) != len(expected):
            raise InvalidOperandError(
                f"{self!r} takes {len(expected)} arrays and got {len(operands)}", field="operands"
            )
        given = iter(_checked(i, *pair) for i, pair in enumerate(zip(operands, expected, strict=True)))
        values = tuple(next(given) if isinstance(item, Array) else item for item in self._call.operands)
        return self._run(values, timeout)

    def __repr__(self) -> str:
        types = ", ".join(map(str, self.operands))
        return f"<CompiledKernel {self.plan.kernel}({types}) by {self.plan.strategy!r}>"


def _checked(index: int, value: OperandLike, expected: Array) -> NDArray:
    field = f"operand {index}"
    array = as_operand(value, field)
    given = type_of(array)
    if given.shape != expected.shape:
        raise InvalidOperandError(
            f"{field} has shape {given.shape} and the kernel was compiled for {expected.shape}; "
            "compile it for this shape, or use Client.call",
            field=field,
        )
    if given.dtype != expected.dtype:
        raise OperandTypeError(
            f"{field} has element type {given.dtype} and the kernel was compiled for {expected.dtype}; "
            f"give array.astype({expected.dtype.name!r}), or compile it for {given.dtype}",
            field=field,
        )
    return array
