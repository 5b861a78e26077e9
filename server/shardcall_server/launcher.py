"""Environment of the server's processes: an allocator tuned for large arrays, and flags for XLA."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardcall_server.log_output import use_log_output
from shardcall_server.process_limits import memory_refusal
from shardcall_server.standard_streams import open_standard_streams

# By default glibc gives every block of 32 MiB and more back to the kernel when it is freed, so each call
# pays the page faults of fresh memory: a 128 MiB diff takes 66-80 ms instead of 14.
_TUNABLES = {
    "glibc.malloc.hugetlb": "1",
    "glibc.malloc.mmap_threshold": str(4 << 30),
    "glibc.malloc.trim_threshold": str(16 << 30),
    "glibc.malloc.top_pad": str(256 << 20),
    "glibc.malloc.arena_max": "1",
}

# Many virtual devices on few cores may enter a collective late; after the default 40 s XLA would abort the process.
_LATE_COLLECTIVES = "--xla_cpu_collective_call_terminate_timeout_seconds=600"
# XLA:CPU orders operations so that most can run at once. With that order, a program with the second derivatives of
# several loops over sharded arrays hangs in a collective or ends the worker by SIGSEGV in 6 of 7 runs (jaxlib 0.10.1;
# seed 120 of the long tests of generated functions), and without it in none of 8. The times of products, stencils, sums
# and gradients are the same.
_ORDERED_COLLECTIVES = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
# XLA prefers vectors of 256 bits where the processor has 512. With 512, whole cache lines are written without being
# read first: a pass over 128 MiB takes 11.0 ms instead of 11.8 (two cores, 8 virtual devices). jaxlib 0.10.2 computes
# 876 of 1,000 arctangents incorrectly with them, so pyproject.toml excludes it.
_WIDE_VECTORS = "--xla_cpu_prefer_vector_width=512"
# Where a bfloat16 is either an element or padding, LLVM converts it to float32 and back by an instruction of
# AVX512-BF16 that flushes subnormals to zero, even in a copy. XLA can disable extensions only from one on, so the
# float16 instructions go too; libraries for matrix products detect the processor themselves. Without the extensions,
# no subnormal is lost in 584 layouts, and float16 arithmetic takes up to 1.35 times as long.
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
    """Returns the environment with the allocator's tunables; tunables that are set already are kept.

    glibc reads them before a program's first instruction, so they must be set before exec.
    """
    tunables = environment.get("GLIBC_TUNABLES", "")
    names = {tunable.partition("=")[0] for tunable in tunables.split(":")}
    added = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in names]
    return {**environment, "GLIBC_TUNABLES": ":".join(filter(None, [tunables, *added]))}


def worker_environment(environment: Mapping[str, str], platform: str = "") -> dict[str, str]:
    """Returns the environment of a mesh worker, with flags for XLA; flags that are set already come last and win.

    Args:
        environment: the environment of this process.
        platform: "cpu", "gpu" or "tpu"; empty for JAX's default.
    """
    flags, features = [_LATE_COLLECTIVES, _ORDERED_COLLECTIVES], _processor_features()
    if "avx512f" in features:
        flags.append(_WIDE_VECTORS)
    if "avx512_bf16" in features:
        flags.append(_WITHOUT_BFLOAT16)
    if _is_gpu(platform or environment.get("JAX_PLATFORMS", "")):
        flags += _OVERLAP_ON_GPU
    # A worker needs no token, and the connections between JAX's processes must not use a proxy, which may hang them.
    kept = {
        name: value
        for name, value in environment.items()
        if name != "SHARDCALL_TOKEN" and not name.lower().endswith("_proxy")
    }
    return {**kept, "XLA_FLAGS": " ".join([*flags, environment.get("XLA_FLAGS", "")]).strip()}


def quiet_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with gRPC's log disabled, unless it is set.

    gRPC would log every failed TLS handshake, which strangers can cause at will. It reads the variable when imported.
    """
    return {"GRPC_VERBOSITY": "NONE", **environment}


def ensure_environment() -> None:
    """Executes this command again with the allocator tuned and gRPC's log disabled, unless they are already."""
    environment = dict(os.environ)
    required = quiet_environment(tuned_environment(environment))
    if sys.platform == "linux" and required != environment:
        os.execve(sys.executable, sys.orig_argv, required)  # noqa: S606  # this program, with its own arguments


def ensure_environment_early(arguments: Sequence[str]) -> None:
    """Prepares the standard streams, and calls `ensure_environment` before other imports.

    Args:
        arguments: the arguments of the command; an option or a variable may forbid `ensure_environment`.
    """
    open_standard_streams()
    if refusal := memory_refusal():  # before libraries that print pages about it
        print(f"shardcall: {refusal}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    forbids = any("tune-allocator" in argument or argument.startswith("--config") for argument in arguments)
    if not (forbids or {name.upper() for name in os.environ} & {"SHARDCALL_TUNE_ALLOCATOR", "SHARDCALL_CONFIG"}):
        ensure_environment()
    use_log_output()


def _is_gpu(platforms: str) -> bool:
    if platforms:
        return platforms.partition(",")[0] in _GPU_PLATFORMS
    return gpu_is_present()


def gpu_is_present() -> bool:
    """Returns whether JAX will find a GPU: a plugin for GPUs is installed and a device node exists."""
    return bool(gpu_platforms()) and any(Path(node).exists() for node in _GPU_NODES)


def gpu_platforms() -> list[str]:
    """Returns JAX's GPU platforms whose plugins are installed."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow, and needed for workers only

    plugins = [entry.name for entry in entry_points(group="jax_plugins")]
    return [platform for platform in ("cuda", "rocm") if any(platform in plugin for plugin in plugins)]


def _processor_features() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(word for line in lines if line.startswith("flags") for word in line.split())
