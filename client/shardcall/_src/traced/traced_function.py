"""Functions of the caller that run as one program."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, SupportsIndex

import numpy as np

from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.plan import Plan, facts
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array, mark_lost
from shardcall._src.device_arrays.write_locks import writing_to
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall._src.traced.comparison import ArgumentCopies, Comparison, compared
from shardcall._src.traced.control_flow import checked_bound
from shardcall._src.traced.derivatives import TransformedFunction
from shardcall._src.traced.numbers import TracedNumber
from shardcall._src.traced.program import TracedProgram
from shardcall._src.traced.published import model_request
from shardcall._src.traced.references import References
from shardcall._src.traced.repetition import as_arrays, carried_by, checked_count
from shardcall._src.traced.trace import Input, Trace, TracingClient
from shardcall._src.traced.tracing import NUMBERS, ActiveTrace, FunctionTracer, StaticArgument, bound_arguments, paths
from shardcall._src.traced.writes import Arguments, check_targets, write
from shardcall.v1 import model_service_pb2
from shardcall_core.markup import page
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import InvalidParameterError, ShardcallError, TracingError
from shardcall_core.types.pytrees import Structure, flatten
from shardcall_core.types.specs import PartitionSpec, SpecLike, as_specs
from shardcall_core.types.tracebacks import shortened

_MAX_PROGRAMS = 64

Names = str | int | Iterable[str | int]


class ProgramClient(TracingClient, Protocol):
    """A client that runs programs."""

    def _submit_program(
        self,
        program: TracedProgram,
        operands: Sequence[Any],
        out_specs: Sequence[PartitionSpec | None] | None,
        timeout: float | None,
    ) -> Sequence[RemoteArray]:
        """Submits a program.

        Args:
            program: the program.
            operands: its operands.
            out_specs: the sharding of its results.
            timeout: seconds.
        """

    @property
    def _control_flow(self) -> Any:
        """Loops and branches."""

    def delete(self, /, *arrays: Any) -> int:
        """Deletes arrays from the mesh."""

    def synchronize(self) -> None:
        """Waits for all calls."""


@shortened
class TracedFunction:
    """A function that runs on the mesh as one program; made by `Client.jit`.

    A call takes arrays and numbers, in tuples, lists, dicts and dataclasses of any depth, and returns what the function
    returns with arrays on the mesh in it, without waiting for them, as `Client.submit`.

    Args:
        client: the client.
        active: the trace of its calls.
        function: the function.
        static: the arguments that the function gets as they are.
        donate: the arguments whose arrays on the mesh are deleted.
        exact: whether results are those of the calls one by one, bit for bit.
        out_specs: the sharding of each result.
    """

    def __init__(
        self,
        client: ProgramClient,
        active: ActiveTrace,
        function: Callable[..., Any],
        *,
        static: Names = (),
        donate: Names = (),
        exact: bool = False,
        out_specs: Sequence[SpecLike | None] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._client = client
        self._active = active
        self._function = function
        self._signature = inspect.signature(function)
        self._static = self._names("static", static)
        self._donated = self._names("donate", donate)
        self._exact = exact
        self._out_specs = as_specs(out_specs, "out_specs")
        self._tracing = FunctionTracer(client, active, function, exact=exact)
        self._programs: dict[Hashable, TracedProgram] = {}
        self._hits: dict[Hashable, int] = {}
        self._last_plans: tuple[Plan, ...] = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the function; its results are on the mesh.

        Raises:
            TracingError: for a function that cannot be traced.
            ShardcallError: of the class that fits, for invalid arguments.
        """
        if (trace := self._active.trace) is not None:
            return trace.copies.of(self._function)(*args, **kwargs)  # as a part of that program
        result = self._run(*args, **kwargs)
        if self._donated:
            self._delete_donated(args, kwargs, result)
        return result

    def repeat(self, x: Any, /, *args: Any, times: SupportsIndex, **kwargs: Any) -> Any:
        """Runs the function several times, each time with its result in place of its first argument.

        The iterations are a loop in the program, which compiles once for any number of them, and runs in slices.

        Args:
            x: the first argument; the function returns the same structure with the same types.
            args: further arguments, the same in each iteration.
            times: the number of iterations.
            kwargs: arguments by name.

        Returns:
            The result of the last iteration; of none the argument.

        Raises:
            TracingError: for a function that cannot be traced, and one that returns another type than its argument's.
            ShardcallError: of the class that fits, for invalid arguments.

        Example:
            >>> double = client.jit(lambda x: 2 * x)
            >>> double.repeat(np.array([1, 3]), times=5).get()
            array([32, 96])
        """
        if (trace := self._active.trace) is not None:
            function = trace.copies.of(self._function)
            is_value = isinstance(times, TracedNumber | RemoteArray)
            count = checked_bound("times of repeat", times if is_value else checked_count(times))
            return self._client._control_flow.fori_loop(0, count, lambda _, state: function(state, *args, **kwargs), x)
        state = as_arrays(x)
        if (count := checked_count(times)) == 0:
            return state
        leaves, objects, structure = self._leaves((state, *args), kwargs)
        program, operands, _trace = self._program(leaves, objects, structure, is_body=True)
        if program.writes:
            raise TracingError(
                f"{program.name} writes to an array of its caller, which only what it returns can change in repeat; "
                "begin with a copy, and return it"
            )
        carried = carried_by(program, next(iter(self._signature.parameters)), leaves, structure)
        operands.append(np.int64(count))
        arrays = self._client._submit_program(program.repeated(carried), operands, self._out_specs, None)
        if self._donated:
            self._delete_donated((x, *args), kwargs, arrays)
        return program.structure.with_leaves(arrays)

    def compare(self, /, *args: Any, **kwargs: Any) -> Comparison:
        """Times the function in NumPy, on the mesh call by call, and as one program, and compares the results.

        It runs in 3 to 15 interleaved rounds, of which none begins after 3 seconds but the first 3, after one that
        compiles. Times are medians of the caller's clock, until results are on the mesh. Every run gets copies of the
        arguments, in this process for NumPy and on the mesh for the others, which the clock does not see. The arguments
        of the caller stay as they are, also those that the function writes to or that are donated.

            >>> step.compare(u, 0.1)
                         ms  ÷ NumPy  equal
            NumPy    41.203        1
            eager    18.530     0.45  yes
            program  12.117    0.294  within 2.2e-16

        The last column has the largest difference from NumPy. A function that NumPy does not run, such as one that uses
        ``client.xp``, has the reason there; the program is then compared with the calls.

        Args:
            args: as of a call, with values. Arrays of this process are put on the mesh of the others first.
            kwargs: arguments by name.

        Returns:
            The times in seconds and the differences by row, such as ``result["program"].seconds``; ``print`` shows the
            table, in milliseconds.

        Raises:
            TracingError: for a function that cannot be traced, one that writes to an array that is no argument, and in
                a function that is traced.
            ShardcallError: of the class that fits, for invalid arguments.
        """
        if self._active.trace is not None:
            raise TracingError("compare runs its function, and has no meaning in a function that is traced")
        leaves, objects, structure = self._leaves(args, kwargs)
        copies = ArgumentCopies(self._client, objects)
        writes = self._program(leaves, objects, structure)[0].writes
        if any(target.leaf is None for target in writes):
            raise TracingError(
                f"{self._tracing.name} writes to an array that is no argument, which compare would change several "
                "times; pass it as an argument"
            )

        def called(function: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
            def run(leaves: Sequence[Any]) -> Any:
                bound = inspect.BoundArguments(self._signature, structure.with_leaves(leaves))
                return function(*bound.args, **bound.kwargs)

            return run

        alone = called(_refuse_calls if isinstance(self._function, TransformedFunction) else self._function)
        runs = {"NumPy": alone, "eager": alone, "program": called(self._run)}
        return compared(self._tracing.name, runs, copies, self._client.synchronize, is_writing=bool(writes))

    def trace(self, /, *args: Any, **kwargs: Any) -> TracedProgram:
        """Returns the program for arguments, of which a `shardcall.Array` stands for an array of its type.

        Raises:
            TracingError: for a function that cannot be traced.
        """
        return self._program(*self._leaves(args, kwargs))[0]

    def plan(self, /, *args: Any, **kwargs: Any) -> Any:
        """Returns the plan of a call, without running it; a `shardcall.Array` stands for an array of its type.

        A loop that runs in slices is a program of its own, as what comes before and behind it: a function with such
        loops has a tuple of plans.

        Raises:
            TracingError: for a function that cannot be traced.
            ShardcallError: of the class that fits, for invalid arguments.

        Example:
            >>> double = client.jit(lambda x: 2 * x)
            >>> double.plan(np.arange(4.0)).results[0].type.shape
            (4,)
        """
        program, operands, _trace = self._program(*self._leaves(args, kwargs))
        plans: list[Any] = []
        for i, stage in enumerate(program.stages):
            placed = [None if v.node < 0 else plans[v.node].results[v.number] for v in stage.operands]
            try:
                plan = self._client.plan(
                    "graph",
                    *(operands[v.number] if p is None else p.type for v, p in zip(stage.operands, placed, strict=True)),
                    mesh=plans[0].mesh if plans else None,
                    in_specs=[None if p is None else p.spec for p in placed],
                    out_specs=program.specs_of(i, self._out_specs),
                    **stage.parameters,
                )
            except ShardcallError as error:
                raise program.located(i, error) from None
            plans.append(program.with_lines(i, plan))
        self._last_plans = tuple(plans)
        return plans[0] if len(plans) == 1 else tuple(plans)

    def _model(self, abstract: tuple[Any, ...], limit_bytes: int) -> model_service_pb2.PublishModelRequest:
        """Returns the request to publish the program for arguments, with constants up to a limit, without its name."""
        leaves, objects, structure = self._leaves(abstract, {})
        program, operands, _trace = self._program(leaves, objects, structure)
        position = {name: i for i, name in enumerate(self._signature.parameters)}
        names = dict(enumerate(paths(structure)))
        owners = [
            position[str(key)]
            for key, child in zip(structure.keys, structure.children, strict=True)
            for _ in range(child.leaf_count)
        ]
        inputs = sorted((i for i, leaf in enumerate(objects) if isinstance(leaf, Array)), key=owners.__getitem__)
        return model_request(program, operands, objects, {i: names[i] for i in inputs}, self._out_specs, limit_bytes)

    def traced_function(self) -> Callable[..., Any]:
        """Returns the function."""
        return self._function

    def __get__(self, instance: Any, owner: type | None = None) -> TracedFunction:
        """Returns the function as a method of an object, whose attributes have the values of each call."""
        if instance is None:
            return self
        first = next(iter(self._signature.parameters), "")
        return TracedFunction(
            self._client,
            self._active,
            types.MethodType(self._function, instance),
            static=self._static - {first},
            donate=self._donated - {first},
            exact=self._exact,
            out_specs=self._out_specs,
        )

    def __repr__(self) -> str:
        return f"<TracedFunction {self._tracing.name}>"

    def _repr_html_(self) -> str:
        """Returns a display for a notebook: the signature, the programs with their hits, and the last plan."""
        name, short = self._tracing.name, getattr(self._function, "__name__", "function")
        programs = list(self._programs.items())
        rows = [
            (_types_of(program.inputs), _types_of(program.types), str(self._hits.get(key, 0)))
            for key, program in programs
        ]
        parts = [page.facts({"signature": f"{short}{self._signature}", "programs": str(len(rows)) if rows else "none"})]
        if rows:
            parts.append(page.scrolled(page.listing(["arrays", "results", "hits"], rows)))
        for i, plan in enumerate(self._last_plans):
            label = "plan" if len(self._last_plans) == 1 else f"plan {i}"
            parts += [page.text("h4", label), page.facts(facts(plan))]
        return page.page(f"Traced function {name}", *parts)

    def _run(self, /, *args: Any, **kwargs: Any) -> Any:
        """Runs the program, and deletes no arguments."""
        leaves, objects, structure = self._leaves(args, kwargs)
        program, operands, _trace = self._program(leaves, objects, structure)
        has_loops = any("carried" in stage.parameters for stage in program.stages)
        timeout = None if has_loops else DEFAULT_TIMEOUT_S
        check_targets(program.name, program.writes, objects, [*paths(structure)])
        targets = [target.array(objects) for target in program.writes]
        with writing_to(targets):
            if targets:  # whose values another thread may have replaced
                operands = program.operands(self._leaves(args, kwargs)[0], objects) or operands
            arrays = self._client._submit_program(program, operands, self._out_specs, timeout)
            outputs = _outputs(program, arrays, targets)
        return program.structure.with_leaves(outputs)

    def _program(
        self, leaves: list[Any], objects: list[Any], structure: Structure, *, is_body: bool = False
    ) -> tuple[TracedProgram, list[Any], Trace | None]:
        """Returns the program for arguments, its operands, and the trace if there was none."""
        references = References(self._function, [leaf.value for leaf in leaves if isinstance(leaf, StaticArgument)])
        arguments = Arguments(objects, references.bases)
        key = references.state and (references.state, structure, is_body, arguments.key, *map(_leaf_key, leaves))
        program = self._programs.get(key)
        if program is not None and (operands := program.operands(leaves, objects)) is not None:
            self._hits[key] = self._hits.get(key, 0) + 1
            return program, operands, None
        program, trace = self._tracing.program(leaves, structure, arguments, references, is_body=is_body)
        if key is not None:
            self._programs[key] = program
            while len(self._programs) > _MAX_PROGRAMS:
                dropped = next(iter(self._programs))
                self._programs.pop(dropped, None)
                self._hits.pop(dropped, None)
        operands = program.operands(leaves, objects)
        assert operands is not None  # of the arguments that were traced
        return program, operands, trace

    def _leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Any], list[Any], Structure]:
        """Returns the leaves of the arguments of a call as operands, static ones complete.

        Returns:
            The operands, the caller's objects that they are, and their structure.
        """
        bound = bound_arguments(self._tracing.name, self._signature, args, kwargs)
        for name in self._static & bound.arguments.keys():
            bound.arguments[name] = StaticArgument(bound.arguments[name])
        leaves, structure = flatten(dict(bound.arguments))
        objects = [leaf if (array := find_remote_array(leaf)) is None else array for leaf in leaves]
        return [self._leaf(leaf, i, structure) for i, leaf in enumerate(objects)], objects, structure

    def _leaf(self, leaf: Any, index: int, structure: Structure) -> Any:
        if type(leaf) in NUMBERS or isinstance(leaf, StaticArgument | Array):
            return leaf
        if (array := find_remote_array(leaf)) is not None:
            version = array._version
            version.check_there("an argument")
            return RemoteArray._of(version)
        try:
            return as_operand(leaf, "it")
        except ShardcallError as error:
            which = f"argument {[*paths(structure)][index]} of {self._tracing.name}"
            static = "for a value that the function gets as it is, name the argument in static=…"
            raise TracingError(f"{which} is a {type(leaf).__name__}: {error.message}; {static}") from None

    def _names(self, what: str, requested: Names) -> frozenset[str]:
        """Returns the names of parameters that are given by their names or positions."""
        every = list(self._signature.parameters)
        names = set()
        for item in [requested] if isinstance(requested, str | int) else requested:
            is_there = item in every if isinstance(item, str) else -len(every) <= item < len(every)
            if not is_there:
                raise InvalidParameterError(
                    f"{what} has {item!r}, and the function has the parameters {', '.join(every)}; give names or "
                    "positions of these",
                    field=what,
                )
            names.add(item if isinstance(item, str) else every[item])
        return frozenset(names)

    def _delete_donated(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Deletes donated arguments, except those that the function changes and returns."""
        arguments = self._signature.bind(*args, **kwargs).arguments
        leaves, _ = flatten([value for name, value in arguments.items() if name in self._donated])
        returned = {array._store for leaf in flatten(result)[0] if (array := find_remote_array(leaf)) is not None}
        arrays = [
            array for leaf in leaves if (array := find_remote_array(leaf)) is not None and array._store not in returned
        ]
        self._client.delete(*arrays)
        name = getattr(self._function, "__name__", "a traced function")
        for array in arrays:
            if array.lost:  # no other object shares it
                mark_lost(array, f"which was donated to {name}(); use its result instead, or do not donate it")


def _refuse_calls(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise TracingError("derivatives and batches of functions run as programs alone")


def _outputs(program: TracedProgram, arrays: Sequence[RemoteArray], targets: Sequence[Any]) -> list[Any]:
    """Returns the leaves of what a function returns, after its writes.

    Args:
        program: the program.
        arrays: its results.
        targets: the arrays that it writes to.
    """
    count = len(arrays) - len(program.writes)
    for target, value in zip(targets, arrays[count:], strict=True):
        write(target, value)
    results = iter(arrays[:count])
    aliases = program.aliases
    return [
        aliases[i].object(targets[aliases[i].write]) if i in aliases else next(results)
        for i in range(count + len(aliases))
    ]


def _leaf_key(leaf: Any) -> Hashable:
    """Returns the part of a program's key that a leaf decides."""
    if type(leaf) in NUMBERS:
        return type(leaf).__name__
    if isinstance(leaf, StaticArgument):
        _check_hashable(leaf.value)
        return "static"  # References has the value
    return leaf.shape, leaf.dtype


def _check_hashable(value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise TracingError(
            f"a static argument is {value!r}, which is not hashable; give a value that cannot change, such as a tuple"
        ) from None


def _types_of(items: Sequence[Input | Array]) -> str:
    return ", ".join(str(item if isinstance(item, Array) else item.array_type) for item in items)
