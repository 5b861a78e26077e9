"""What a call comes back with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardcall import arrays, plan, timing
from shardcall.arrays import NDArray
from shardcall.download import Answer
from shardcall.errors import InvalidOperandError
from shardcall.plan import Plan
from shardcall.timing import Timing


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """What a call comes back with: ``.array`` is the result; ``numpy.asarray(result)`` works too.

    Attributes:
        arrays: the results: writeable arrays that own their memory.
        timing: where the time went.
        plan: what was done.
    """

    arrays: tuple[NDArray, ...]
    timing: Timing
    plan: Plan

    @property
    def array(self) -> NDArray:
        """The only result.

        Raises:
            InvalidOperandError: if there is not exactly one.
        """
        if len(self.arrays) != 1:
            raise InvalidOperandError(f"the call has {len(self.arrays)} results; use .arrays", field="array")
        return self.arrays[0]

    @property
    def cache_hit(self) -> bool:
        """Whether the program was there when the call came."""
        return self.plan.cache_hit

    @property
    def explanation(self) -> str:
        """After a miss, the parts of the key that differ from the nearest one cached."""
        return self.plan.explanation

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        types = ", ".join(str(arrays.type_of(array)) for array in self.arrays)
        cached = "cached" if self.cache_hit else "compiled now"
        where = ".array" if len(self.arrays) == 1 else ".arrays"
        took = f"{self.timing.round_trip * 1e3:.1f} ms"
        return f"<Result {types} by {self.plan.strategy!r} in {took}, {cached}; see {where}>"


def from_answer(answer: Answer, round_trip_s: float) -> Result:
    """Returns the result that an answer holds."""
    return Result(
        arrays=answer.arrays,
        timing=timing.from_proto(answer.timing, round_trip_s),
        plan=plan.from_proto(answer.plan, answer.cache),
    )
