"""The tests of `test_undeclared_gathers.py` that take long."""

import re

import pytest
from kernels.test_undeclared_gathers import INDEXED, KERNELS, calls, compiled_text, gathers

from shardcall_core.call_error import CallError
from shardcall_core.functions.table import FUNCTIONS
from shardcall_server.kernels.elementwise.elementwise import ElementwiseKernel

pytestmark = pytest.mark.long

DECLARED = re.compile(r"gather|exchange parts|all-to-all|every device gets")


LAYOUTS = [
    ({"x": 8}, ("x",)),
    ({"x": 8}, (None, "x")),
    ({"a": 2, "b": 4}, ("a", "b")),
    ({"a": 2, "b": 4}, (("b", "a"),)),
]


def resolved(run, name, mesh, spec):
    """The first call that is not refused."""
    for types, parameters in calls(name):
        specs = [None if t is None else [*spec, *[None] * t.ndim][: t.ndim] for t in types]
        if name in INDEXED:
            specs[-1] = None
        try:
            return run.resolve(KERNELS[name], *types, mesh=mesh, in_specs=specs, **parameters)
        except CallError:
            continue
    return None


def check(run, names, mesh, spec):
    able = {name: call for name in names if (call := resolved(run, name, mesh, spec)) is not None}
    gathered = dict(gathers(compiled_text(able), able)) if able else {}
    hidden = {
        name: (able[name].strategy.name, what)
        for name, what in gathered.items()
        if not DECLARED.search(able[name].strategy.documentation)
    }
    assert not hidden
    return able


NAMES = sorted(FUNCTIONS)


PARTS = [NAMES[i::6] for i in range(6)]


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS)
@pytest.mark.parametrize("part", range(len(PARTS)))
def test_no_operand_is_gathered_unless_the_strategy_says_so(run, part, mesh, spec):
    able = check(run, PARTS[part], mesh, spec)
    others = {name for name in PARTS[part] if not isinstance(KERNELS[name], ElementwiseKernel)}
    assert spec != ("x",) or others <= set(able)
