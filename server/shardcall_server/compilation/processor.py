"""The processor of this machine."""

from __future__ import annotations

from pathlib import Path

# The fields of /proc/cpuinfo that decide which instructions XLA emits.
_DECISIVE = {
    *("vendor_id", "cpu family", "model", "model name", "flags"),  # x86
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),  # Arm
    *("isa", "mmu", "uarch", "cpu", "machine"),  # others
}


def host_processor() -> str:
    """Returns the features of this machine's processor that decide which programs run on it.

    A machine must not load a program with instructions that it lacks from a folder that was copied from another one.
    """
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return ""
    fields = (line.partition(":") for line in first.splitlines())
    features = {name.strip(): " ".join(sorted(value.split())) for name, _, value in fields if name.strip() in _DECISIVE}
    return "\n".join(f"{name}: {value}" for name, value in sorted(features.items()))
