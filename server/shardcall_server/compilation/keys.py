"""Keys of compiled programs."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path

from shardcall_core.layouts.layout import format_spec
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.kernels.core.kernel import Kernel


@dataclass(frozen=True)
class KernelKey:
    """The labelled parts that decide a compiled program. Values of operands are never in a key.

    Calls with equal keys run the same program; a miss can be explained part by part. Every part is text, so the digest
    is the same in every process.

    Attributes:
        kernel: name and version.
        parameters: static parameters by name, in alphabetical order.
        operands: type of each operand, "absent" for one left out.
        mesh: axes and sizes.
        device_ids: in row-major order of the axes.
        in_specs: spec of each operand.
        out_specs: spec of each result; "compiler" if that is left to it.
        donated: operands whose memory the program may reuse.
        strategy: its name.
        device_kind: the name of the device in JAX.
        jax: versions of JAX and jaxlib.
        flags: compiler flags of the worker.
    """

    kernel: str
    parameters: tuple[tuple[str, str], ...]
    operands: tuple[str, ...]
    mesh: str
    device_ids: str
    in_specs: tuple[str, ...]
    out_specs: tuple[str, ...]
    donated: str
    strategy: str
    device_kind: str
    jax: str
    flags: str

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yields (label, value) in a fixed order."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str):
                yield field.name, value
                continue
            for i, item in enumerate(value):
                yield (f"{field.name}.{item[0]}", item[1]) if isinstance(item, tuple) else (f"{field.name}[{i}]", item)

    def digest(self) -> str:
        """Returns SHA-256 over the labelled parts, each preceded by its length, as 64 hexadecimal digits."""
        sha = hashlib.sha256()
        for part in self.parts():
            for text in part:
                encoded = text.encode()
                sha.update(len(encoded).to_bytes(8, "little"))
                sha.update(encoded)
        return sha.hexdigest()


@dataclass(frozen=True)
class Platform:
    """The parts of a key that depend on the worker alone."""

    device_kind: str
    jax: str
    flags: str


def code_digest(kernels: Iterable[Kernel], settings: Mapping[str, object]) -> str:
    """Returns SHA-256 of what decides programs and is not in their keys.

    It is the source of kernels and of what our own import, the modules that installed kernels import, and JAX's
    settings.

    Args:
        kernels: all kernels, with those of installed packages.
        settings: JAX's settings, which variables of the environment and installed kernels change.
    """
    installed = {type(kernel).__module__.partition(".")[0] for kernel in kernels} - {"shardcall_server"}
    names = installed | {"shardcall_core", "shardcall_server.kernels", "shardcall_server.compilation"}
    paths = [path for name in sorted(names) for path in _sources(name)]
    if installed:
        paths += _loaded_sources()
    sha = hashlib.sha256(repr(sorted(settings.items())).encode())
    for path in paths:
        sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()


def _loaded_sources() -> list[Path]:
    """Returns the files of all modules that this process has imported, except Python's own, in a fixed order."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return [
        Path(file)
        for name, file in sorted(files.items())
        if file and file.endswith(".py") and name.partition(".")[0] not in sys.stdlib_module_names
    ]


def _sources(name: str) -> list[Path]:
    """Returns the files of a package or module, in a fixed order."""
    module = import_module(name)
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    if folders:
        return [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [Path(module.__file__)] if module.__file__ else []


def kernel_key(resolved: Resolution, platform: Platform) -> KernelKey:
    """Returns the key of a resolved call."""
    problem = resolved.problem
    names = [] if problem.parameters is None else sorted(field.name for field in fields(problem.parameters))
    return KernelKey(
        kernel=f"{resolved.kernel.name} {resolved.kernel.version}",
        parameters=tuple((name, repr(getattr(problem.parameters, name))) for name in names),
        operands=tuple("absent" if operand is None else str(operand) for operand in problem.operands),
        mesh=str(problem.mesh),
        device_ids=",".join(map(str, resolved.device_ids)),
        in_specs=tuple("absent" if spec is None else format_spec(spec) for spec in problem.in_specs),
        out_specs=tuple("compiler" if spec is None else format_spec(spec) for spec in problem.out_specs),
        donated="none",
        strategy=resolved.strategy.name,
        device_kind=platform.device_kind,
        jax=platform.jax,
        flags=platform.flags,
    )


def tuning_digest(key: KernelKey) -> str:
    """Returns the digest of a key with ``auto`` for the strategy, by which tuning results are kept."""
    return replace(key, strategy=AUTO).digest()
