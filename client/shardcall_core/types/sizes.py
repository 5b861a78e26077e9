"""Sizes in bytes with units."""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def human(nbytes: float) -> str:
    """Returns a size in a suitable unit: ``64.1 KiB``."""
    unit = 0
    while nbytes >= 1024 and unit < len(_UNITS) - 1:
        nbytes, unit = nbytes / 1024, unit + 1
    return f"{nbytes:.4g} {_UNITS[unit]}"


def exact(nbytes: float) -> str:
    """Returns a size in a suitable unit and in bytes: ``1.5 GiB (1,610,612,736 bytes)``."""
    return human(nbytes) if nbytes < 1024 else f"{human(nbytes)} ({nbytes:,.0f} bytes)"
