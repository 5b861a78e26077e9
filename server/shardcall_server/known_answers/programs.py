"""Known-answer tests of products, sums, scans and halo exchanges, on the full mesh, and of known compiler faults.

All values are integers, and small enough that every order of additions and every precision of a platform's products
gives the same result: any difference is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_core.functions.signature import ParameterValue
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec
from shardcall_server.compilation.program import Placement, Program, compile_program
from shardcall_server.compilation.resolve import Request, resolve
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.known_answers.known_answer import Finish, KnownAnswer, Launch, Outcome

_ROWS = 16_385  # the fewest at which jax-ml/jax#39103 shows in float64


@dataclass(frozen=True)
class _MeshTest:
    """A call of a kernel over the full mesh, and its result by NumPy.

    Attributes:
        name: the name of the known answer.
        kernel: the name of the kernel.
        operands: the values of the operands.
        expected: the expected result.
        parameters: the static parameters.
        in_specs: the specs of the operands; unset ones are the kernel's defaults.
        out_specs: the spec of the result; likewise.
    """

    name: str
    kernel: str
    operands: tuple[np.ndarray, ...]
    expected: np.ndarray
    parameters: Mapping[str, ParameterValue]
    in_specs: tuple[Spec | None, ...] = ()
    out_specs: tuple[Spec | None, ...] = ()


_PRODUCTS = ("matmul", "einsum", "collective_matmul")
_HALOS = ("diff", "shift", "roll", "gradient", "laplacian", "convolve")


def known_answers(kernels: Mapping[str, Kernel], device_count: int, device: jax.Device) -> Iterator[KnownAnswer]:
    """Yields the tests.

    Args:
        kernels: all kernels, by name.
        device_count: the number of devices of the full mesh.
        device: a device of this process, for tests on one device.
    """
    for name, (covered, call) in _ON_THE_MESH.items():
        there = _there(covered, kernels)
        compiled = partial(_compile, call, there, kernels, device_count)
        yield KnownAnswer(name, there, is_collective=True, compile=compiled)
    products = _there(_PRODUCTS[:2], kernels)
    compiled = partial(_compile_product_and_sum, device, products)
    yield KnownAnswer("product and sum of rows", products, is_collective=False, compile=compiled)


def _there(names: Sequence[str], kernels: Mapping[str, Kernel]) -> tuple[str, ...]:
    return tuple(name for name in names if name in kernels)


def _product(device_count: int) -> _MeshTest:
    """Returns a product whose contracting axis is sharded unevenly."""
    contracted = 32 * device_count - 1
    lhs, rhs = _integers((65, contracted)), _integers((contracted, 63))
    return _MeshTest(
        "product",
        "matmul",
        (lhs.astype(np.float32), rhs.astype(np.float32)),
        (lhs @ rhs).astype(np.float32),
        {},
        (((), ("x",)), (("x",), ())),
        (((), ()),),
    )


def _along_rows(name: str, kernel: str, function: Callable[..., np.ndarray], device_count: int) -> _MeshTest:
    """Returns a function along an axis that is sharded unevenly."""
    x = _integers((512 * device_count - 1, 9))
    return _MeshTest(name, kernel, (x.astype(np.float64),), function(x, axis=0).astype(np.float64), {"axis": 0})


def _integers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(39103).integers(-5, 6, shape)


_ON_THE_MESH: Mapping[str, tuple[tuple[str, ...], Callable[[int], _MeshTest]]] = {
    "product": (_PRODUCTS, _product),
    "sum": (("sum", "mean", "var", "std"), lambda count: _along_rows("sum", "sum", np.sum, count)),
    "scan": (("cumsum",), lambda count: _along_rows("scan", "cumsum", np.cumsum, count)),
    "halo exchange": (_HALOS, lambda count: _along_rows("halo exchange", "diff", np.diff, count)),
}
"""The tests of the full mesh: the kernels they vouch for, and the call for a number of devices."""


def _compile(
    make: Callable[[int], _MeshTest], covered: Sequence[str], kernels: Mapping[str, Kernel], device_count: int
) -> Launch:
    call, ids = make(device_count), tuple(range(device_count))
    types = tuple(ArrayType(operand.shape, operand.dtype) for operand in call.operands)
    axes = MeshAxes((("x", device_count),))
    request = Request(call.parameters, types, axes, ids, call.in_specs, call.out_specs, AUTO)
    program = compile_program(resolve(kernels[call.kernel], request, ids))
    on_devices = [
        _on_devices(operand, placement)
        for operand, placement in zip(call.operands, program.operands, strict=False)  # others are left out
        if placement is not None
    ]
    return partial(_launch, call, program, on_devices, covered)


def _on_devices(array: np.ndarray, placement: Placement) -> jax.Array:
    padded = np.full(placement.padded, 0, array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return jax.make_array_from_callback(padded.shape, placement.sharding, padded.__getitem__, dtype=padded.dtype)


def _launch(call: _MeshTest, program: Program, operands: Sequence[jax.Array], kernels: Sequence[str]) -> Finish:
    assert program.compiled is not None
    result, *_ = program.compiled(*operands)  # the flags of checks may come behind it
    return partial(_finish, call, result, kernels)


def _finish(call: _MeshTest, result: jax.Array, kernels: Sequence[str]) -> Outcome:
    """Compares the blocks that this process has."""
    wrong = total = 0
    for shard in result.addressable_shards:
        expected = call.expected[shard.index]  # without padding, which is unspecified
        actual = np.asarray(shard.data)[tuple(map(slice, expected.shape))]
        wrong += int((actual != expected).sum())
        total += expected.size
    return Outcome(dict.fromkeys(kernels, f"{wrong} of {total} elements of a {call.name} are wrong") if wrong else {})


def _compile_product_and_sum(device: jax.Device, kernels: Sequence[str]) -> Launch:
    """Compiles a batched matrix-vector product followed by a sum: https://github.com/jax-ml/jax/issues/39103."""
    rows = np.zeros((_ROWS, 3))
    rows[:, 0] = np.arange(_ROWS)
    operands = [jax.device_put(array, device) for array in (rows, np.eye(3))]

    def squares(x: jax.Array, matrix: jax.Array) -> jax.Array:
        return jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2))(x)

    compiled = jax.jit(squares).lower(*operands).compile()

    def launch() -> Finish:
        result = compiled(*operands)

        def finish() -> Outcome:
            wrong = int((np.asarray(result) != rows[:, 0] ** 2).sum())
            return Outcome(dict.fromkeys(kernels, f"{wrong} of {_ROWS} sums of products are wrong") if wrong else {})

        return finish

    return launch
