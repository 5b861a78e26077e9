"""Resolution of the calls in Prepare commands."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardcall_core.call_error import LISTING_OF_KERNELS, CallError, Reason, did_you_mean, shorten
from shardcall_server.compilation.keys import KernelKey, Platform, kernel_key
from shardcall_server.compilation.resolve import Resolution, resolve
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.mesh.requests import decode_request
from shardcall_worker.v1 import link_pb2

_MAX_OPEN = 64
_MAX_OPEN_BYTES = 8192
_CallKey = tuple[bytes, ...]


class Resolver:
    """Decodes, resolves and keys calls; a call with several candidate strategies only once.

    For one thread only.

    Args:
        kernels: the kernels by name.
        platform: the parts of every key that depend on this process.
        devices: the ids of the mesh's devices.
        max_open: the maximum number of calls that are kept.
    """

    def __init__(
        self, kernels: Mapping[str, Kernel], platform: Platform, devices: Sequence[int], max_open: int = _MAX_OPEN
    ) -> None:
        self._max_open = max_open
        self._kernels = kernels
        self._platform = platform
        self._devices = devices
        self._open: OrderedDict[_CallKey, tuple[Resolution, KernelKey]] = OrderedDict()

    def resolve(self, command: link_pb2.Prepare) -> tuple[Resolution, KernelKey]:
        """Returns the call of a command with the strategy that the command names, and its key.

        Raises:
            CallError: the call is invalid.
        """
        call = (command.call.SerializeToString(deterministic=True), *(o.SerializeToString() for o in command.operands))
        if (entry := self._open.get(call)) is None:
            entry = self._resolve(command)
            if len(entry[0].candidates) > 1 and len(call[0]) <= _MAX_OPEN_BYTES:
                self._open[call] = entry
                if len(self._open) > self._max_open:
                    self._open.popitem(last=False)
        resolved = entry[0].with_strategy(command.strategy)
        return resolved, replace(entry[1], strategy=resolved.strategy.name)

    def _resolve(self, command: link_pb2.Prepare) -> tuple[Resolution, KernelKey]:
        kernel = self._kernels.get(command.call.kernel)
        if kernel is None:
            raise CallError(
                Reason.KERNEL_NOT_FOUND,
                f"there is no kernel {shorten(command.call.kernel)!r}; "
                f"{did_you_mean(command.call.kernel, self._kernels, LISTING_OF_KERNELS)}",
                field="kernel",
            )
        resolved = resolve(kernel, decode_request(command.call, command.operands), self._devices)
        return resolved, kernel_key(resolved, self._platform)
