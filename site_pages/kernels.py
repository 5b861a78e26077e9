"""The page of the kernels: signatures, strategies, and drawings of the blocks of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardcall._src.display.drawing import Drawing
from shardcall.methods import KernelMethods
from shardcall_core.call_error import CallError
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec
from shardcall_core.types.blocks import block_grid
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.specs import PartitionSpec
from shardcall_server.compilation.resolve import Request, Resolution, resolve
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.library import kernels
from site_pages.markup import table

_DEVICES = 4
_SCALE = 4  # from the sizes of the examples to those of the drawings


class _Recorder(KernelMethods[Any]):
    """Returns the arguments of a call instead of calling."""

    def call(self, name: str, /, *operands: Any, **arguments: Any) -> Any:
        return operands, arguments


def page() -> str:
    """Returns the text of the page."""
    introduction = (
        "The kernels of the server, as `client.kernels()` lists them, with their strategies. A drawing shows how the "
        f"blocks of a call are placed on {_DEVICES} devices if it names no "
        "[spec](../kernels.md#arguments-of-every-call). [Kernels](../kernels.md) describes calls."
    )
    entries = [_entry(kernel) for kernel in sorted(kernels(), key=lambda kernel: kernel.name)]
    return "\n\n".join(["# Kernels and strategies", introduction, *entries]) + "\n"


def _entry(kernel: Kernel) -> str:
    signature = str(FUNCTIONS[kernel.name]) if kernel.name in FUNCTIONS else f"{kernel.name}(…)"
    strategies = [(f"`{strategy.name}`", strategy.documentation) for strategy in kernel.strategies]
    arguments = [(f"`{operand.name}`", operand.documentation) for operand in kernel.operands]
    arguments += [(f"`{parameter.name}`", parameter.documentation) for parameter in kernel.parameters]
    parts = [f"## {kernel.name}", f"```python\n{signature}\n```", kernel.summary]
    if arguments:
        parts.append(table(("argument", ""), arguments))
    parts.append(table(("strategy", ""), strategies))
    drawings = list(_drawings(kernel)) if len(kernel.strategies) > 1 else []
    if drawings:
        parts.append(f'<div class="drawings" markdown="0">{"".join(drawings)}</div>')
    return "\n\n".join(parts)


def _drawings(kernel: Kernel) -> Iterator[str]:
    """Yields pictures of the first operands and the result of the example of a kernel."""
    resolution = _resolved(kernel)
    if resolution is None:
        return
    problem = resolution.problem
    operands = [(o.name, t, s) for o, t, s in zip(kernel.operands, problem.operands, problem.in_specs, strict=False)]
    for name, array, spec in [*operands, ("result", problem.results[0], problem.out_specs[0])]:
        if array is not None and spec is not None and array.ndim in (1, 2):
            yield _picture(f"{name}: {array.shape} {_spec(spec)}", array, spec)


def _picture(caption: str, array: ArrayType, spec: Spec) -> str:
    grid = block_grid(array.shape, _spec(spec), Mesh(x=_DEVICES))
    return Drawing(caption, grid)._repr_svg_() or ""


def _spec(spec: Spec) -> PartitionSpec:
    return PartitionSpec(*(names[0] if len(names) == 1 else names or None for names in spec))


def _resolved(kernel: Kernel) -> Resolution | None:
    """Returns the example of a kernel with its defaults filled in, enlarged if its parameters allow it."""
    function = FUNCTIONS.get(kernel.name)
    if function is None:
        return None
    text = f"client.{kernel.name}(" if function.method else f"client.call({kernel.name!r}, "
    operands, parameters = eval(f"{text}{function.example})", {"np": np, "client": _Recorder()})  # noqa: S307  # our own
    parameters = {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}
    arrays = [None if operand is None else np.asarray(operand) for operand in operands]
    if not any(operand.repeated for operand in kernel.operands):
        arrays += [None] * (len(kernel.operands) - len(arrays))
    for scale in (_SCALE, 1):
        types = tuple(None if array is None else _scaled(array, scale) for array in arrays)
        try:
            return resolve(kernel, _request(types, parameters), range(_DEVICES))
        except CallError:
            continue
    return None


def _scaled(array: np.ndarray, scale: int) -> ArrayType:
    return ArrayType(tuple(size * scale if size > 1 else size for size in array.shape), array.dtype)


def _request(types: tuple[ArrayType | None, ...], parameters: dict[str, Any]) -> Request:
    return Request(parameters, types, MeshAxes((("x", _DEVICES),)), (), (), (), "auto")
