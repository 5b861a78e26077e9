"""The kernels that have a method of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from shardcall.arrays import OperandLike
from shardcall.calls import AUTO
from shardcall.deadline import DEFAULT_TIMEOUT_S
from shardcall.mesh import Mesh
from shardcall.result import Result
from shardcall.specs import SpecLike


class KernelMethods(ABC):
    """Gives kernels the names and defaults of their NumPy equivalents; `Client.call` does the work."""

    @abstractmethod
    def call(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Result:
        """Runs any kernel of the server."""

    def diff(
        self,
        x: OperandLike,
        n: int = 1,
        axis: int = -1,
        prepend: OperandLike | None = None,
        append: OperandLike | None = None,
        *,
        mesh: Mesh | None = None,
        spec: SpecLike | None = None,
        out_spec: SpecLike | None = None,
        strategy: str = AUTO,
        keep: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> Result:
        """The n-th difference along an axis, as ``numpy.diff``.

        Args:
            x: [..., size, ...] the array.
            n: how often to take the difference, 0 or more.
            axis: along which axis.
            prepend: a scalar or array that comes before ``x`` along the axis; a Python float is a float64, as
                in NumPy.
            append: likewise, after it.
            mesh: the devices to run on; None leaves them to the server.
            spec: how ``x`` is split; None splits its first axis over all mesh axes.
            out_spec: how the result is split; None as ``x``.
            strategy: how to do it; ``"auto"`` leaves it to the kernel.
            keep: as in `Client.call`.
            timeout: as in `Client.call`.
        """
        arguments = {"n": n, "axis": axis, "prepend": prepend, "append": append}
        specs = {"spec": spec, "out_spec": out_spec}
        options = {"mesh": mesh, "strategy": strategy, "keep": keep, "timeout": timeout}
        return self.call("diff", x, **arguments, **specs, **options)

    def matmul(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        *,
        mesh: Mesh | None = None,
        lhs_spec: SpecLike | None = None,
        rhs_spec: SpecLike | None = None,
        out_spec: SpecLike | None = None,
        strategy: str = AUTO,
        keep: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> Result:
        """The product of two arrays, as ``numpy.matmul``.

        Args:
            lhs: [..., rows, contracting] the left array.
            rhs: [..., contracting, columns] the right array.
            mesh: the devices to run on; None leaves them to the server.
            lhs_spec: how ``lhs`` is split; None by rows over the first mesh axis.
            rhs_spec: how ``rhs`` is split; None by columns over the second mesh axis, if there is one.
            out_spec: how the product is split; None leaves it to the compiler.
            strategy: how to do it; ``"auto"`` leaves it to the kernel.
            keep: as in `Client.call`.
            timeout: as in `Client.call`.
        """
        specs = {"lhs_spec": lhs_spec, "rhs_spec": rhs_spec, "out_spec": out_spec}
        options = {"mesh": mesh, "strategy": strategy, "keep": keep, "timeout": timeout}
        return self.call("matmul", lhs, rhs, **specs, **options)

    def collective_matmul(
        self,
        lhs: OperandLike,
        rhs: OperandLike,
        *,
        axis_name: str,
        mesh: Mesh | None = None,
        lhs_spec: SpecLike | None = None,
        rhs_spec: SpecLike | None = None,
        out_spec: SpecLike | None = None,
        strategy: str = AUTO,
        keep: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> Result:
        """The product of two matrices, its communication spelled out along one mesh axis.

        Args:
            lhs: [rows, contracting] the left matrix.
            rhs: [contracting, columns] the right matrix.
            axis_name: the mesh axis along which blocks travel.
            mesh: the devices to run on; None leaves them to the server.
            lhs_spec: how ``lhs`` is split; None as the strategy needs it.
            rhs_spec: how ``rhs`` is split; None as the strategy needs it.
            out_spec: how the product is split; None as the strategy yields it.
            strategy: how to do it; ``"auto"`` leaves it to the kernel.
            keep: as in `Client.call`.
            timeout: as in `Client.call`.
        """
        specs = {"lhs_spec": lhs_spec, "rhs_spec": rhs_spec, "out_spec": out_spec}
        options = {"mesh": mesh, "strategy": strategy, "keep": keep, "timeout": timeout}
        return self.call("collective_matmul", lhs, rhs, axis_name=axis_name, **specs, **options)
