"""Fourier transforms of arrays on the mesh, `client.xp.fft`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import type_of
from shardcall_core.types.tracebacks import shortened

Norm = str | None
Sizes = Sequence[int | None] | None
Axes = Sequence[int] | None
Step = tuple[str, int | None, int]
"""A transform: its name, its number of points and its axis."""

_INVERSES = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@shortened
class FftNamespace:
    """Fourier transforms with the names and arguments of ``numpy.fft``.

    A transform along an axis that is not sharded runs on each device by itself. Along a sharded one the devices
    exchange their blocks, so that another axis is sharded meanwhile; an array without another axis is transformed by
    one device. Transforms along several axes are one call for each. Options are ``mesh``, ``spec``, ``out_spec``,
    ``strategy`` and ``timeout``, as of the client's methods.

    Args:
        xp: the namespace that this is part of.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def fft(self, a: OperandLike, n: int | None = None, axis: int = -1, norm: Norm = None, **options: Any) -> Any:
        """Returns the discrete Fourier transform along an axis, as ``numpy.fft.fft``."""
        return self._along("fft", a, n, axis, norm, options)

    def ifft(self, a: OperandLike, n: int | None = None, axis: int = -1, norm: Norm = None, **options: Any) -> Any:
        """Returns the inverse discrete Fourier transform along an axis, as ``numpy.fft.ifft``."""
        return self._along("ifft", a, n, axis, norm, options)

    def rfft(self, a: OperandLike, n: int | None = None, axis: int = -1, norm: Norm = None, **options: Any) -> Any:
        """Returns the frequencies of real numbers that are not negative, as ``numpy.fft.rfft``."""
        return self._along("rfft", a, n, axis, norm, options)

    def irfft(self, a: OperandLike, n: int | None = None, axis: int = -1, norm: Norm = None, **options: Any) -> Any:
        """Returns the inverse of `rfft` along an axis, as ``numpy.fft.irfft``."""
        return self._along("irfft", a, n, axis, norm, options)

    def hfft(self, a: OperandLike, n: int | None = None, axis: int = -1, norm: Norm = None, **options: Any) -> Any:
        """Returns the real frequencies of a signal that is Hermitian, as ``numpy.fft.hfft``."""
        return self._along("irfft", self._xp.conjugate(a), n, axis, _inverse(norm), options)

    def ihfft(self, a: OperandLike, n: int | None = None, axis: int = -1, norm: Norm = None, **options: Any) -> Any:
        """Returns the inverse of `hfft` along an axis, as ``numpy.fft.ihfft``."""
        return self._xp.conjugate(self._along("rfft", a, n, axis, _inverse(norm), options))

    def fftn(self, a: OperandLike, s: Sizes = None, axes: Axes = None, norm: Norm = None, **options: Any) -> Any:
        """Returns the discrete Fourier transform along axes, all by default, as ``numpy.fft.fftn``."""
        steps = [("fft", *points) for points in reversed(_points(a, s, axes))]
        return self._along_all(a, steps, norm, options)

    def ifftn(self, a: OperandLike, s: Sizes = None, axes: Axes = None, norm: Norm = None, **options: Any) -> Any:
        """Returns the inverse discrete Fourier transform along axes, all by default, as ``numpy.fft.ifftn``."""
        steps = [("ifft", *points) for points in reversed(_points(a, s, axes))]
        return self._along_all(a, steps, norm, options)

    def rfftn(self, a: OperandLike, s: Sizes = None, axes: Axes = None, norm: Norm = None, **options: Any) -> Any:
        """Returns the transform of real numbers, halved along the last of some axes, as ``numpy.fft.rfftn``."""
        *others, last = _points(a, s, axes)
        steps = [("rfft", *last), *(("fft", *points) for points in reversed(others))]
        return self._along_all(a, steps, norm, options)

    def irfftn(self, a: OperandLike, s: Sizes = None, axes: Axes = None, norm: Norm = None, **options: Any) -> Any:
        """Returns the inverse of `rfftn`, as ``numpy.fft.irfftn``."""
        *others, last = _points(a, s, axes, halved=True)
        steps = [*(("ifft", *points) for points in others), ("irfft", *last)]
        return self._along_all(a, steps, norm, options)

    def fft2(self, a: OperandLike, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None, **options: Any) -> Any:
        """Returns the discrete Fourier transform along two axes, as ``numpy.fft.fft2``."""
        return self.fftn(a, s, axes, norm, **options)

    def ifft2(self, a: OperandLike, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None, **options: Any) -> Any:
        """Returns the inverse discrete Fourier transform along two axes, as ``numpy.fft.ifft2``."""
        return self.ifftn(a, s, axes, norm, **options)

    def rfft2(self, a: OperandLike, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None, **options: Any) -> Any:
        """Returns the transform of real numbers along two axes, as ``numpy.fft.rfft2``."""
        return self.rfftn(a, s, axes, norm, **options)

    def irfft2(self, a: OperandLike, s: Sizes = None, axes: Axes = (-2, -1), norm: Norm = None, **options: Any) -> Any:
        """Returns the inverse of `rfft2`, as ``numpy.fft.irfft2``."""
        return self.irfftn(a, s, axes, norm, **options)

    def fftfreq(self, n: int, d: float = 1.0, *, dtype: npt.DTypeLike | None = None, device: str | None = None) -> Any:
        """Returns the frequencies of a transform of n points at distances of d, as ``numpy.fft.fftfreq``."""
        return self._xp.asarray(np.fft.fftfreq(n, d), dtype, device=device)

    def rfftfreq(self, n: int, d: float = 1.0, *, dtype: npt.DTypeLike | None = None, device: str | None = None) -> Any:
        """Returns the frequencies that are not negative of n points at distances of d, as ``numpy.fft.rfftfreq``."""
        return self._xp.asarray(np.fft.rfftfreq(n, d), dtype, device=device)

    def fftshift(self, x: OperandLike, axes: int | Axes = None) -> Any:
        """Returns the frequencies with zero in the middle of axes, all by default, as ``numpy.fft.fftshift``."""
        shifted_axes = _named_axes(x, axes)
        return (
            self._xp.roll(x, tuple(type_of(x).shape[i] // 2 for i in shifted_axes), shifted_axes)
            if shifted_axes
            else self._xp.copy(x)
        )

    def ifftshift(self, x: OperandLike, axes: int | Axes = None) -> Any:
        """Returns the inverse of `fftshift`, as ``numpy.fft.ifftshift``."""
        shifted_axes = _named_axes(x, axes)
        return (
            self._xp.roll(x, tuple(-(type_of(x).shape[i] // 2) for i in shifted_axes), shifted_axes)
            if shifted_axes
            else self._xp.copy(x)
        )

    def _along(
        self, name: str, a: OperandLike, n: int | None, axis: int, norm: Norm, options: Mapping[str, Any]
    ) -> Any:
        return self._xp.call(name, a, n=n, axis=axis, norm="backward" if norm is None else norm, **options)

    def _along_all(self, a: OperandLike, steps: Sequence[Step], norm: Norm, options: Mapping[str, Any]) -> Any:
        """Runs several transforms; the first one has the option ``spec``, and the last one ``out_spec``."""
        if not steps:
            return self._xp.copy(a, **options)
        ends = {"spec": 0, "out_spec": len(steps) - 1}
        for i, step in enumerate(steps):
            step_options = {name: value for name, value in options.items() if ends.get(name, i) == i}
            name, points, axis = step
            a = self._along(name, a, points, axis, norm, step_options)
        return a


def _inverse(norm: Norm) -> str:
    name = "backward" if norm is None else norm
    return _INVERSES.get(name, name)


def _named_axes(x: OperandLike, axes: int | Axes) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(type_of(x).ndim))
    return (axes,) if isinstance(axes, int) else tuple(axes)


def _points(a: OperandLike, s: Sizes, axes: Axes, *, halved: bool = False) -> list[tuple[int | None, int]]:
    """Returns the number of points and the axis of each transform; None for as many as there are.

    Raises:
        ValueError: for other numbers of sizes and axes.
    """
    shape = type_of(a).shape
    if axes is None:
        axes = range(len(shape)) if s is None else range(-len(s), 0)
    sizes = [None] * len(axes) if s is None else list(s)
    if len(sizes) != len(axes):
        raise ValueError(f"s={tuple(sizes)} and axes={tuple(axes)}; give one size for each axis")
    if not sizes and halved:
        raise ValueError("axes is empty; name at least one axis")
    return [(None if size == -1 else size, axis) for size, axis in zip(sizes, axes, strict=True)]
