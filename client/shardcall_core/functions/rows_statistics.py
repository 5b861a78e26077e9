"""Running products, counts, and positions among sorted numbers in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator

from shardcall_core.functions import statistics_rules as rules
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import REQUIRED, OperandInfo


def rows() -> Iterator[Function]:
    """Yields the functions."""
    x = OperandInfo("x", spec="spec")
    parameters = {"axis": None, "dtype": None}
    yield Function.by_rules("cumprod", (x,), parameters, rules.products, rules.running, "that of ``x``")
    operands = OperandInfo("a"), OperandInfo("v", spec="spec")
    yield Function.by_rules(
        "searchsorted", operands, {"side": "left"}, rules.positions, rules.searchsorted, "that of ``v``"
    )
    weighted = x, OperandInfo("weights", optional=True)
    yield Function.by_rules("bincount", weighted, {"length": REQUIRED}, rules.counts, rules.bincount, "replicated")
    ends = OperandInfo("left", optional=True), OperandInfo("right", optional=True)
    points = x, OperandInfo("xp"), OperandInfo("fp"), *ends
    yield Function.by_rules("interp", points, {}, rules.interpolated, rules.interp, "that of ``x``")
