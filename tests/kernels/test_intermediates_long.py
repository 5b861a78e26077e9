"""The tests of `test_intermediates.py` that take long."""

import jax
import pytest
from kernels.test_intermediates import KERNELS, enlarged_call, in_a_graph

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.table import FUNCTIONS

pytestmark = pytest.mark.long

REFUSED = {Reason.CALL_TOO_LARGE, Reason.INVALID_SHAPE, Reason.INVALID_OPERAND, Reason.INVALID_PARAMETER}


def refusal_of(run, *inputs, graph):
    """Returns the reason of the refusal of a graph, or the compiler's text; None if it was compiled."""
    try:
        run.program(KERNELS["graph"], *inputs, graph=graph, mesh={"x": 8})
    except CallError as error:
        return error.reason
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_operands_are_refused_or_compiled(run, name, axis):
    types, parameters = enlarged_call(name, axis, 2**45)
    with pytest.raises(CallError) as refused:
        run.program(KERNELS[name], *types, **parameters, mesh={"x": 8})
    assert refused.value.reason in REFUSED
    inputs, graph = in_a_graph(name, axis, 2**40)
    refusal = refusal_of(run, *inputs, graph=graph)
    assert refusal in (None, *REFUSED) or "integer value too large" in refusal  # such as that of qr
