"""Huge pages of shared memory, which some kernels do not make."""

import re
from pathlib import Path

import numpy as np


def huge_kib(memory: np.ndarray) -> int:
    """Returns how much of a mapping is in huge pages."""
    maps = Path("/proc/self/smaps").read_text()
    of_it = maps[maps.index(f"{memory.ctypes.data:x}-") :]
    mapped_kib = re.search(r"ShmemPmdMapped: +([0-9]+) kB", of_it)
    return int(mapped_kib[1]) if mapped_kib else 0
