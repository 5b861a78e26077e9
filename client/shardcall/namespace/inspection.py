"""Descriptions of the namespace, its devices and its element types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEVICE = "mesh"
"""The device of every array in the sense of the Python array API standard; `RemoteArray.mesh` has the devices."""


def check_device(to: Mapping[str, Any]) -> None:
    """Checks the keyword ``device`` of a function.

    Raises:
        ValueError: for a device that there is not.
    """
    if to.get("device") not in (None, DEVICE):
        raise ValueError(
            f"device={to['device']!r}; the only device is {DEVICE!r}: give mesh=… or spec=… to choose among its devices"
        )
