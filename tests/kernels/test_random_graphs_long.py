"""The tests of `test_random_graphs.py` that take long."""

import pytest
from kernels import test_random_graphs as short
from kernels.conftest import with_cases
from kernels.test_random_graphs import check

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

_FUZZ, _BLOCK = 5000, 100

test_every_node_is_numpys = with_cases(short.test_every_node_is_numpys, {"seed": range(300)})


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_FUZZ // _BLOCK))
def test_thousands_of_graphs(run, block):
    for seed in range(block * _BLOCK, (block + 1) * _BLOCK):
        check(run, f"fuzz {seed}")
