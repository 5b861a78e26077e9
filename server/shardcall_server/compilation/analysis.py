"""Analysis of compiled programs: collectives, memory and arithmetic."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax

from shardcall_server.kernels.graphs.step_scopes import steps_of

_COLLECTIVES = "collective-permute|all-gather|all-reduce|reduce-scatter|all-to-all|collective-broadcast"
# `%name = f64[1,4096]{1,0} collective-permute(…)`, or a tuple of such types. The -done half of an
# asynchronous pair has no operation of its own and does not match.
_INSTRUCTION = re.compile(rf"= (?P<type>\([^()]*\)|\S+) (?P<operation>{_COLLECTIVES})(?P<start>-start)?\(")
_NAME = re.compile(r'op_name="([^"]*)"')
_TYPE = re.compile(r"\b(?P<element>[a-z]+[0-9a-z]*)\[(?P<shape>[0-9,]*)\]")
_BITS = re.compile(r"[a-z]+?([0-9]+)")
# `custom-call(%copy), custom_call_target="lapack_dgesdd_ffi", operand_layout_constraints={f64[200,100]{0,1}}, …`
_LAPACK = re.compile(r'custom_call_target="lapack_(?P<element>[sdcz])(?P<routine>\w+?)_ffi", (?P<operands>.*)')
_COMPLEX_FLOPS = 4  # approximate number of real operations of a complex one

# Of a matrix of m rows and n ≤ m columns, with vectors: Golub and Van Loan, Matrix Computations.
_LAPACK_FLOPS: Mapping[str, Callable[[float, float], float]] = {
    "potrf": lambda _, n: n**3 / 3,
    "getrf": lambda m, n: n**2 * (m - n / 3),
    "geqrf": lambda m, n: 2 * n**2 * (m - n / 3),
    "orgqr": lambda m, n: 2 * n**2 * (m - n / 3),
    "ungqr": lambda m, n: 2 * n**2 * (m - n / 3),
    "gesdd": lambda m, n: 6 * m * n**2 + 20 * n**3,
    "syevd": lambda _, n: 9 * n**3,
    "heevd": lambda _, n: 9 * n**3,
    "geev": lambda _, n: 25 * n**3,
}


@dataclass(frozen=True)
class CollectiveUse:
    """The collectives of one operation in the text of a program.

    Attributes:
        operation: the name of the operation, such as "collective-permute".
        count: their number in the text; one in a loop's body counts once.
        bytes_per_device: the bytes of their results on one device together.
    """

    operation: str
    count: int
    bytes_per_device: int


@dataclass(frozen=True)
class Memory:
    """Bytes that one device needs while a program runs."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int


def collectives(text: str) -> list[CollectiveUse]:
    """Returns the collectives in a compiled program's text, by operation.

    Args:
        text: the optimized HLO, as `jax.stages.Compiled.as_text` gives it.
    """
    count: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for match in _INSTRUCTION.finditer(text):
        count[match["operation"]] += 1
        nbytes[match["operation"]] += _result_bytes(match)
    return [CollectiveUse(operation, count[operation], nbytes[operation]) for operation in sorted(count)]


def bytes_by_step(text: str) -> Mapping[tuple[int, ...], int]:
    """Returns the bytes of the collectives' results on one device, by the steps of the program that they belong to.

    Args:
        text: the optimized HLO.

    Returns:
        The bytes by the index of a step, followed by those of the steps in it that it runs.
    """
    nbytes: Counter[tuple[int, ...]] = Counter()
    for line in text.splitlines():
        if match := _INSTRUCTION.search(line):
            name = _NAME.search(line)
            nbytes[steps_of(name[1]) if name else ()] += _result_bytes(match)
    return nbytes


def fusions(text: str) -> int:
    """Returns the number of fused loops of a program; those of a loop's body count once."""
    return text.count(" fusion(")


def accessed_bytes(compiled: jax.stages.Compiled | None) -> int:
    """Returns the compiler's estimate of the bytes that a program reads and writes on one device."""
    cost = (compiled.cost_analysis() if compiled else None) or {}
    return max(0, int(cost.get("bytes accessed", 0)))


def memory(compiled: jax.stages.Compiled | None) -> Memory:
    """Returns the memory that the compiler plans for one device."""
    stats = compiled.memory_analysis() if compiled else None
    if stats is None:
        return Memory(0, 0, 0)
    return Memory(stats.argument_size_in_bytes, stats.output_size_in_bytes, stats.temp_size_in_bytes)


def flops(compiled: jax.stages.Compiled | None, text: str) -> float:
    """Returns an estimate of the floating-point operations on one device.

    It is the compiler's estimate, which omits LAPACK's routines, plus the usual number of operations of these routines.

    Args:
        compiled: the program; None for one that computes nothing.
        text: its optimized HLO.
    """
    cost = (compiled.cost_analysis() if compiled else None) or {}
    return max(0.0, float(cost.get("flops", 0.0))) + sum(map(_lapack_flops, _LAPACK.finditer(text)))


def _lapack_flops(call: re.Match[str]) -> float:
    shapes = [[int(size) for size in shape.split(",") if size] for _, shape in _TYPE.findall(call["operands"])]
    *batch, rows, columns = shapes[0] if len(shapes[0]) > 1 else (0, 0)
    if call["routine"] == "trsm":  # of a triangle and the right-hand sides
        count = float(rows * columns * shapes[1][-1])
    else:
        of_sizes = _LAPACK_FLOPS.get(call["routine"])
        count = of_sizes(max(rows, columns), min(rows, columns)) if of_sizes else 0.0
    return math.prod(batch) * count * (_COMPLEX_FLOPS if call["element"] in "cz" else 1)


def program_bytes(compiled: jax.stages.Compiled | None, text: str) -> int:
    """Returns an estimate of the memory that a compiled program takes.

    The CPU compiler reports a code size of 0; the text grows with the program.
    """
    stats = compiled.memory_analysis() if compiled else None
    return (stats.generated_code_size_in_bytes if stats is not None else 0) or 16 * len(text)


def _result_bytes(instruction: re.Match[str]) -> int:
    types = [_type_bytes(*t) for t in _TYPE.findall(instruction["type"])]
    if instruction["start"]:  # the result of the tuple (operand, result, context …)
        types = types[1:2] or types
    return sum(types)


def _type_bytes(element: str, shape: str) -> int:
    bits = _BITS.match(element)
    itemsize = max(8, int(bits[1])) // 8 if bits else 1
    return itemsize * math.prod(int(n) for n in shape.split(",") if n)


_DEFINITION = re.compile(r"%?([\w.-]+)(?: = |: )([a-z]+[0-9]+)\[([0-9,]*)\](?:\{[^}]*\})?( constant\()?")
_SLICE = re.compile(r" dynamic-(update-)?slice\(([^()]*)\)")


def overflowing_axis(text: str) -> int | None:
    """Returns the size of an axis that is sliced at offsets of 32 bits, which do not reach its end; None if none is.

    XLA's partitioner counts the offsets of devices' blocks in 32 bits, whatever the sizes, and they wrap (jaxlib
    0.10.1 and 0.10.2; no issue reports it).

    Args:
        text: the optimized HLO.
    """
    types = {name: (element, shape, constant) for name, element, shape, constant in _DEFINITION.findall(text)}
    for is_update, operands in _SLICE.findall(text):
        array, *indices = (types.get(name.strip().lstrip("%")) for name in operands.split(","))
        sizes = [int(n) for n in array[1].split(",")] if array and array[1] else []
        for size, index in zip(sizes, indices[1:] if is_update else indices, strict=False):
            if size > 2**31 and index and index[0] in ("s32", "u32") and not index[2]:
                return size
    return None
