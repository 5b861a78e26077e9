"""Methods of the Python array API standard that say where an array is and pass it to other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shardcall_core.types.tracebacks import shortened

DEVICE = "mesh"
"""The device of every array in the sense of the Python array API standard; `RemoteArray.mesh` has the devices."""

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The versions of the Python array API standard that the functions of arrays follow, as those of NumPy 2.4."""

_CPU = (1, 0)  # DLPack's type and id


class StandardMethods:
    """The device of an array, and its values as DLPack."""

    if TYPE_CHECKING:

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]: ...

    @property
    def device(self) -> str:
        """``"mesh"``, the device in the sense of the Python array API standard."""
        return DEVICE

    def to_device(self, device: str, /, *, stream: Any = None) -> Self:
        """Returns the array, which is on the only device there is.

        Raises:
            ValueError: for another device.
        """
        if device != DEVICE or stream is not None:
            raise ValueError(
                f"device={device!r} and stream={stream!r}; the only device is {DEVICE!r}, without streams: to move an "
                "array between devices use xp.asarray(x, mesh=…), and get() for its values"
            )
        return self

    @shortened
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a copy of the values as DLPack, as `__array__` returns one.

        Raises:
            BufferError: if no copy is allowed, or it is to be on another device.
        """
        if copy is False or stream is not None or dl_device not in (None, _CPU):
            raise BufferError("the values are on the mesh; DLPack has a copy in this process: leave out its arguments")
        return np.array(self.__array__()).__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the device of the copy: this process."""
        return _CPU
