"""What all methods that run a kernel take besides its operands and parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from difflib import get_close_matches
from typing import Any, Generic, TypedDict, TypeVar

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.mesh import MeshLike
from shardcall._src.types.specs import SpecLike
from shardcall._src.types.spelling import check_given, meant_specs, spec_names

Outcome = TypeVar("Outcome")
"""What a method returns: a `shardcall.Result`, or what awaits one."""


class Options(TypedDict, total=False):
    """What every method that runs a kernel takes.

    Attributes:
        mesh: the devices to run on; left out, those of the first operand that is on the mesh, else as the server
            chooses.
        out_spec: how the result is split; left out, as the kernel chooses.
        strategy: how the kernel does its work; ``"auto"`` leaves it to the kernel.
        keep: leave the results on the mesh: each is then a `shardcall.RemoteArray`.
        timeout: seconds for the whole call, upload and compilation included; 300 if left out, None for the server's
            maximum.
    """

    mesh: MeshLike | None
    out_spec: SpecLike | None
    strategy: str
    keep: bool
    timeout: float | None


class ArrayOptions(Options, total=False):
    """What methods of one main array take.

    Attributes:
        spec: how it is split; left out, its first axis is, over all mesh axes.
    """

    spec: SpecLike | None


class ProductOptions(Options, total=False):
    """What methods of two factors take.

    Attributes:
        lhs_spec: how ``lhs`` is split; left out, as the kernel chooses.
        rhs_spec: how ``rhs`` is split; likewise.
    """

    lhs_spec: SpecLike | None
    rhs_spec: SpecLike | None


class Calling(ABC, Generic[Outcome]):
    """Runs kernels."""

    @abstractmethod
    def call(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Outcome:
        """Runs any kernel of the server."""

    def _named(self, kernel: str, *operands: OperandLike | None, options: Options, **parameters: Any) -> Outcome:
        """Runs a kernel that has a method; a misspelt option is refused as Python refuses it, and a missing operand."""
        known = {"mesh", "strategy", "keep", "timeout", *spec_names(kernel)}
        for name in options:
            if name not in known:
                near = meant_specs(kernel, name) or get_close_matches(name, [*known, *parameters], n=1)
                meant = " or ".join(map(repr, near))
                hint = f"; did you mean {meant}?" if near else f"; there are also: {', '.join(sorted(known))}"
                raise TypeError(f"{kernel}() got an unexpected keyword argument {name!r}{hint}")
        check_given(kernel, operands)
        return self.call(kernel, *operands, **parameters, **options)
