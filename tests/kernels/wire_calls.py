"""Runs the calls of kernel tests on a server of several hosts."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import numpy as np
from clusters import running_cluster

import shardcall as sc
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import Spec
from shardcall_server.authoring.runner import DEVICES, KernelCase
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.library import kernels

_PATIENT = ("--max-execute-s", "600", "--max-compile-s", "3600", "--max-concurrent-calls", "64")
_TIMEOUT_S = 3000.0


class WireCalls:
    """Runs calls of the library's kernels on a server.

    Args:
        client: of the server.
        apart: True if a mesh of fewer devices than there are takes some of every host, instead of the first ones.
    """

    def __init__(self, client: sc.Client, *, apart: bool) -> None:
        self._client = client
        self._apart = apart
        self._types = {kernel.name: type(kernel) for kernel in kernels()}

    def knows(self, kernel: Kernel) -> bool:
        """Returns True if the kernel is one of the server, and not one that a test defines."""
        return self._types.get(kernel.name) is type(kernel)

    def run(self, case: KernelCase, operands: tuple[np.ndarray | None, ...]) -> tuple[np.ndarray, ...]:
        """The results of a call.

        Raises:
            CallError: the error of the kernel, for a call that the server refuses.
        """
        try:
            result = self._client.call(
                case.kernel.name,
                *operands,
                mesh=self._mesh(dict(case.mesh)),
                in_specs=[_spec(spec) for spec in case.in_specs],
                out_specs=[_spec(spec) for spec in case.out_specs],
                strategy=case.strategy,
                timeout=_TIMEOUT_S,
                **dict(case.parameters),
            )
        except sc.ShardcallError as error:
            case.resolve()
            if isinstance(error, sc.InvalidOperandError):  # values that only the program itself sees
                raise CallError(Reason[error.reason], error.message, field=error.field) from error
            raise
        self._check(case, result)
        return result.arrays

    def _mesh(self, axes: Mapping[str, int]) -> sc.Mesh:
        size = math.prod(axes.values())
        apart = self._apart and size < DEVICES
        return sc.Mesh(axes, device_ids=[i * DEVICES // size for i in range(size)] if apart else None)

    @staticmethod
    def _check(case: KernelCase, result: sc.Result) -> None:
        """The call that ran is the one that was requested."""
        if case.strategy != AUTO:
            assert result.plan.strategy == case.strategy


def _spec(spec: Spec | None) -> sc.PartitionSpec | None:
    return None if spec is None else sc.P(*(entry[0] if len(entry) == 1 else entry or None for entry in spec))


@contextmanager
def wire_calls(hosts: int, *agent_options: str, apart: bool) -> Iterator[WireCalls]:
    """Calls on a server of 8 devices, which are distributed over a number of hosts."""
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(hosts, DEVICES // hosts, *_PATIENT, agent_options=agent_options))
        yield WireCalls(stack.enter_context(sc.connect(cluster.address)), apart=apart)
