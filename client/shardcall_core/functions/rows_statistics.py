"""Running products, counts, and positions among sorted numbers in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator

from shardcall_core.functions import statistics_rules as rules
from shardcall_core.functions.function import REQUIRED, Function, Operand


def rows() -> Iterator[Function]:
    """Yields the functions."""
    x = Operand("x", spec="spec")
    parameters = {"axis": None, "dtype": None}
    yield Function("cumprod", (x,), parameters, rules.products, rules.running, "that of ``x``")
    operands = Operand("a"), Operand("v", spec="spec")
    yield Function("searchsorted", operands, {"side": "left"}, rules.positions, rules.searchsorted, "that of ``v``")
    weighted = x, Operand("weights", optional=True)
    yield Function("bincount", weighted, {"length": REQUIRED}, rules.counts, rules.bincount, "replicated")
    ends = Operand("left", optional=True), Operand("right", optional=True)
    points = x, Operand("xp"), Operand("fp"), *ends
    yield Function("interp", points, {}, rules.interpolated, rules.interp, "that of ``x``")
