"""What a call comes back with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardcall import arrays, plan, timing
from shardcall.arrays import NDArray
from shardcall.download import Answer
from shardcall.errors import InvalidOperandError
from shardcall.plan import Plan
from shardcall.remote_array import RemoteArray
from shardcall.timing import Timing


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """What a call comes back with: ``.array`` is the result; ``numpy.asarray(result)`` works too.

    Attributes:
        arrays: the results: writeable arrays whose memory is theirs, or a `RemoteArray` each with ``keep=True``.
        timing: where the time went.
        plan: what was done.
    """

    arrays: tuple[NDArray | Any, ...]
    timing: Timing
    plan: Plan

    @property
    def array(self) -> NDArray | Any:
        """The only result; which class it has, the caller knows by ``keep``.

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
        kept = ", kept on the mesh" if any(isinstance(array, RemoteArray) for array in self.arrays) else ""
        cached = "cached" if self.cache_hit else "compiled now"
        where = ".array" if len(self.arrays) == 1 else ".arrays"
        took = f"{self.timing.round_trip * 1e3:.1f} ms"
        return f"<Result {types} by {self.plan.strategy!r} in {took}, {cached}{kept}; see {where}>"


def from_answer(answer: Answer, results: tuple[NDArray | RemoteArray, ...], round_trip_s: float) -> Result:
    """Returns the result that an answer holds."""
    return Result(
        arrays=results,
        timing=timing.from_proto(answer.timing, round_trip_s),
        plan=plan.from_proto(answer.plan, answer.cache),
    )
