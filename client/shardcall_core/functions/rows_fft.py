"""The Fourier transforms of the table of functions."""

from __future__ import annotations

from collections.abc import Iterator

from shardcall_core.functions import fft_rules
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import OperandInfo


def rows() -> Iterator[Function]:
    """Yields the functions."""
    operands, spec = (OperandInfo("x", spec="spec"),), "that of ``x``"
    parameters = {"n": None, "axis": -1, "norm": "backward"}
    yield Function.by_rules("fft", operands, parameters, fft_rules.spectrum, fft_rules.fft, spec)
    yield Function.by_rules("ifft", operands, parameters, fft_rules.spectrum, fft_rules.fft, spec)
    yield Function.by_rules("rfft", operands, parameters, fft_rules.spectrum_of_reals, fft_rules.rfft, spec)
    yield Function.by_rules("irfft", operands, parameters, fft_rules.signal, fft_rules.irfft, spec)
