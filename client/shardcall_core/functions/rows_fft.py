"""The Fourier transforms of the table of functions."""

from __future__ import annotations

from collections.abc import Iterator

from shardcall_core.functions import fft_rules
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import OperandInfo, ParameterInfo

_X = OperandInfo("x", "The array, of any rank; of float16 or wider, integers or bool.", spec="spec")
_N = ParameterInfo("n", "The number of points: x is cut or padded with zeros at its end. None: those of x.", None)
_AXIS = ParameterInfo("axis", "Along which axis; negative axes count from the last.", -1)
_NORM = ParameterInfo(
    "norm", "Which direction is scaled by the number of points: backward, forward, or ortho for both.", "backward"
)


def rows() -> Iterator[Function]:
    """Yields the functions."""
    spec = "that of ``x``"
    yield Function.by_rules(
        "fft",
        (_X,),
        (_N, _AXIS, _NORM),
        fft_rules.spectrum,
        fft_rules.fft,
        spec,
        summary="The discrete Fourier transform along an axis, as numpy.fft.fft.",
        example="np.arange(8.0)",
    )
    yield Function.by_rules(
        "ifft",
        (_X,),
        (_N, _AXIS, _NORM),
        fft_rules.spectrum,
        fft_rules.fft,
        spec,
        summary="The inverse discrete Fourier transform along an axis, as numpy.fft.ifft.",
        example="np.arange(8.0)",
    )
    yield Function.by_rules(
        "rfft",
        (_X,),
        (_N, _AXIS, _NORM),
        fft_rules.spectrum_of_reals,
        fft_rules.rfft,
        spec,
        summary="The frequencies of real numbers that are not negative, along an axis, as numpy.fft.rfft.",
        example="np.arange(8.0)",
    )
    yield Function.by_rules(
        "irfft",
        (_X,),
        (
            ParameterInfo(
                "n",
                "The number of points: x is cut or padded with zeros at its end. None: those of x of "
                "an even number of real ones.",
                None,
            ),
            _AXIS,
            _NORM,
        ),
        fft_rules.signal,
        fft_rules.irfft,
        spec,
        summary="The real numbers of frequencies that are not negative, along an axis, as numpy.fft.irfft.",
        example="np.arange(5) + 1j",
    )
