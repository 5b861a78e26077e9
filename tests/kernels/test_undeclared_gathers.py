"""No function gathers a complete operand onto every device unless its strategy says so.

A collective of the size of an operand gathers it: an all-gather, or an all-reduce of the parts of the devices. An
all-to-all of the size of its blocks moves all of it too.
"""

import re
from collections.abc import Iterator

import jax
import numpy as np
from kernels.conftest import KERNELS
from kernels.test_function_table import CASES

from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType, padded_shape
from shardcall_server.compilation.program import build_mesh, named_sharding
from shardcall_server.kernels.core.element_types import held_type

MIN_BYTES = 1 << 10
COLLECTIVE = re.compile(r" = (.*?) (all-gather|all-reduce|all-to-all)(?:-start)?\(.*?op_name=\"([^\"]*)\"")
ARRAY = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\]")
INDEXED = ("getitem", "setitem", "take", "take_along_axis", "put_along_axis")
CALLS = {  # of functions whose calls of the other tests cannot be enlarged
    "reshape": [((61, 40), {"shape": (61 * 40,)})],
    "getitem": [((61, 40), (2,), {"sizes": (59, 40), "steps": (1, 1)})],
    "setitem": [((61, 40), (), (2,), {"sizes": (59, 40), "steps": (1, 1)})],
    "broadcast_to": [((61, 40), {"shape": (3, 61, 40)})],
    "squeeze": [((1, 61, 40), {})],
    "flip": [((61, 40), {"axis": 0})],
    "concatenate": [((61, 40), (3, 40), {"axis": 0})],
    "repeat": [((61, 40), {"repeats": 2, "axis": 0})],
    "pad": [((61, 40), None, {"pad_width": 2})],
    "take": [((61, 40), (3,), {"axis": 0})],
    "take_along_axis": [((61, 40), (3, 40), {"axis": 0})],
    "put_along_axis": [((61, 40), (3, 40), (3, 40), {"axis": 0})],
    "diagonal": [((61, 40), {})],
    "trace": [((61, 40), {})],
}


def calls(name: str) -> Iterator[tuple[list[ArrayType | None], dict[str, object]]]:
    """Calls of a function whose operands have axes of 16 elements and more."""
    for case in CALLS.get(name, CASES[name]):
        *shapes, parameters = case if isinstance(case[-1], dict) else (*case, {})
        if name not in CALLS:
            shapes = [None if s is None else tuple(8 * n if n > 1 else n for n in s) for s in shapes]
        for dtype in ("float32", "int32"):
            types = [None if s is None else ArrayType(s, NAMED[dtype]) for s in shapes]
            if name in INDEXED:
                types[-1] = ArrayType(shapes[-1], NAMED["int64"])
            yield types, parameters


def size_of(text: str) -> int:
    """The bytes of a type in a compiled text, or of several types together."""
    arrays = ARRAY.findall(text)
    return sum(max(1, int(bits or 8) // 8) * int(np.prod([int(n) for n in s.split(",") if n])) for _, bits, s in arrays)


def collectives(text: str) -> Iterator[tuple[str, str, str]]:
    """The results, names and scopes of the collectives of a compiled text; each of those that XLA combined."""
    for result, collective, scope in COLLECTIVE.findall(text):
        parts, scopes = [match.group() for match in ARRAY.finditer(result)], scope.split(":")
        for part, of_part in zip(parts, scopes, strict=True) if len(parts) == len(scopes) else [(result, scope)]:
            yield part, collective, of_part


def gathers(text: str, calls) -> Iterator[tuple[str, str]]:
    """The collectives of a compiled text that are as large as a sharded operand of their call, by the call's name."""
    for result, collective, scope in collectives(text):
        name = next((name for name in calls if f"of_{name}/" in scope), None)
        if name is None:
            continue
        problem, size = calls[name].problem, size_of(result)
        for operand, spec in zip(problem.operands, problem.in_specs, strict=True):
            if operand is None or spec is None or not any(spec) or operand.nbytes < MIN_BYTES:
                continue
            devices = problem.mesh.size([name for names in spec for name in names])
            if size >= operand.nbytes / (devices if collective == "all-to-all" else 1):
                yield name, f"{collective} of {result} of {operand}"


def compiled_text(calls) -> str:
    """The compiled text of several calls on one mesh, as one program, in which each has its scope.

    Machine code is not optimized, since the program does not run.
    """
    first = next(iter(calls.values()))
    mesh = build_mesh(first.problem.mesh, first.device_ids)
    arguments, results = {}, {}
    for name, call in calls.items():
        problem = call.problem
        arguments[name] = [
            jax.ShapeDtypeStruct(
                padded_shape(o.shape, s, problem.mesh), held_type(o.dtype), sharding=named_sharding(mesh, s)
            )
            for o, s in zip(problem.operands, problem.in_specs, strict=True)
            if o is not None
        ]
        results[name] = [None if spec is None else named_sharding(mesh, spec) for spec in problem.out_specs]
    programs = {name: call.strategy.build(call.problem, mesh) for name, call in calls.items()}

    def together(operands):
        results = {}
        for name, arrays in operands.items():
            with jax.named_scope(f"of_{name}"):
                results[name] = list(programs[name](*arrays))[: len(calls[name].problem.results)]
        return results

    lowered = jax.jit(together, out_shardings=results).lower(arguments)
    return lowered.compile(compiler_options={"xla_backend_optimization_level": 0}).as_text()


def test_a_gather_is_noticed(run):
    x = ArrayType((64, 40), np.dtype("float32"))
    call = run.resolve(KERNELS["sort"], x, mesh={"x": 8}, axis=0, strategy="one_device")
    assert list(gathers(compiled_text({"sort": call}), {"sort": call}))
