"""What the server's processes are started with: an allocator set for large arrays, and flags for XLA."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# By default glibc gives every block of 32 MiB and more back to the kernel when it is freed, so each call
# pays the page faults of fresh memory: a 128 MiB diff takes 66-80 ms instead of 14.
_TUNABLES = {
    "glibc.malloc.hugetlb": "1",
    "glibc.malloc.mmap_threshold": str(4 << 30),
    "glibc.malloc.trim_threshold": str(16 << 30),
    "glibc.malloc.top_pad": str(256 << 20),
    "glibc.malloc.arena_max": "1",
}

# Many virtual devices on few cores may meet late; after the default 40 s XLA would end the process.
_LATE_MEETINGS = "--xla_cpu_collective_call_terminate_timeout_seconds=600"
# XLA prefers vectors of 256 bits where the processor has 512. With 512, whole cache lines are written without being
# read first: a pass over memory takes about 8 % less. Versions of jaxlib that are wrong with them are not allowed
# (pyproject.toml).
_WIDE_VECTORS = "--xla_cpu_prefer_vector_width=512"
# A bfloat16 that is an element here and padding there LLVM holds as a float32, and brings back by an instruction of
# AVX512-BF16 that takes subnormals for zero: even a copy would lose them. XLA turns off extensions from one on only,
# so the compiler's own float16 instructions go too; libraries for products look at the processor themselves.
_WITHOUT_BFLOAT16 = "--xla_cpu_max_isa=AVX512_VNNI"
# Collectives on a GPU are asynchronous, but only this scheduler puts products between their start and their end; and
# in a loop only two buffers let one block arrive while the other is read.
_OVERLAP_ON_GPU = (
    "--xla_gpu_enable_latency_hiding_scheduler=true",
    "--xla_gpu_enable_while_loop_double_buffering=true",
)
_GPU_PLATFORMS = frozenset({"gpu", "cuda", "rocm"})
_GPU_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")


def tuned_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the allocator set; what is set there already stays as it is.

    glibc reads it before a program's first instruction, so it must stand before exec.
    """
    given = environment.get("GLIBC_TUNABLES", "")
    names = {tunable.partition("=")[0] for tunable in given.split(":")}
    added = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in names]
    return {**environment, "GLIBC_TUNABLES": ":".join(filter(None, [given, *added]))}


def worker_environment(environment: Mapping[str, str], platform: str = "") -> dict[str, str]:
    """The environment with XLA's flags as a mesh worker has them; flags set there already come last and win.

    Args:
        environment: as it is.
        platform: "cpu", "gpu" or "tpu"; empty for what JAX will find.
    """
    flags, features = [_LATE_MEETINGS], _processor_features()
    if "avx512f" in features:
        flags.append(_WIDE_VECTORS)
    if "avx512_bf16" in features:
        flags.append(_WITHOUT_BFLOAT16)
    if _is_gpu(platform or environment.get("JAX_PLATFORMS", "")):
        flags += _OVERLAP_ON_GPU
    # It asks nobody who calls, and what JAX's processes say to each other goes by no proxy: one may make them hang.
    kept = {
        name: value
        for name, value in environment.items()
        if name != "SHARDCALL_TOKEN" and not name.lower().endswith("_proxy")
    }
    return {**kept, "XLA_FLAGS": " ".join([*flags, environment.get("XLA_FLAGS", "")]).strip()}


def quiet_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with gRPC's own log off, unless it is set there.

    It would have lines for every TLS handshake that fails, as many as strangers like. gRPC reads it when imported.
    """
    return {"GRPC_VERBOSITY": "NONE", **environment}


def ensure_environment() -> None:
    """Starts this very command again, in the same process, with the allocator set and gRPC quiet; returns if so."""
    environment = dict(os.environ)
    wanted = quiet_environment(tuned_environment(environment))
    if sys.platform == "linux" and wanted != environment:
        os.execve(sys.executable, sys.orig_argv, wanted)  # noqa: S606  # this program again, as it was called


def ensure_environment_early(words: Sequence[str]) -> None:
    """`ensure_environment` before anything is imported that would be imported again, where no setting may forbid it.

    Args:
        words: the command's.
    """
    if any("tune-allocator" in word or word.startswith("--config") for word in words):
        return
    if not {name.upper() for name in os.environ} & {"SHARDCALL_TUNE_ALLOCATOR", "SHARDCALL_CONFIG"}:
        ensure_environment()


def _is_gpu(platforms: str) -> bool:
    if platforms:
        return platforms.partition(",")[0] in _GPU_PLATFORMS
    return gpu_is_present()


def gpu_is_present() -> bool:
    """Whether JAX will find a GPU, as it decides itself: by an installed plugin for one, and a device for that."""
    return bool(gpu_platforms()) and any(Path(node).exists() for node in _GPU_NODES)


def gpu_platforms() -> list[str]:
    """JAX's platforms for GPUs whose plugins are installed."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow, and needed for workers alone

    plugins = [entry.name for entry in entry_points(group="jax_plugins")]
    return [platform for platform in ("cuda", "rocm") if any(platform in plugin for plugin in plugins)]


def _processor_features() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(word for line in lines if line.startswith("flags") for word in line.split())
