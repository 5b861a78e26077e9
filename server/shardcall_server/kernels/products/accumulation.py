"""The parameter `preferred_element_type` of products: the type in which they are summed and returned."""

from __future__ import annotations

import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.element_types import NAMED
from shardcall_core.layouts.signature import ParameterInfo, ParameterValues
from shardcall_server.kernels.core.parameters import text

PREFERRED = ParameterInfo(
    "preferred_element_type",
    "The element type in which products are summed up and returned, by name: one that holds every value of the "
    "factors' common type. Unset: that type itself, floats of 16 bits and less summed up in float32.",
    None,
)


def preferred_type(parameters: ParameterValues, common: np.dtype) -> np.dtype:
    """Returns the element type of a product whose factors have the common type ``common``.

    Raises:
        CallError: for an unknown element type, and a type that does not hold the values of ``common``.
    """
    if parameters[PREFERRED.name] is None:
        return common
    name = text(parameters, PREFERRED.name)
    wide = [dtype for dtype in NAMED.values() if _holds(dtype, common)]
    if (preferred := NAMED.get(name)) not in wide or preferred is None:
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"{PREFERRED.name}={shorten(name)!r} and the common type of the factors is {common.name}; give one of: "
            + ", ".join(sorted(dtype.name for dtype in wide)),
            field=PREFERRED.name,
        )
    return preferred


def normalised(preferred: np.dtype, common: np.dtype) -> str | None:
    """Returns the parameter in its canonical form, which equal calls share."""
    return None if preferred == common else preferred.name


def _holds(dtype: np.dtype, common: np.dtype) -> bool:
    try:
        return bool(np.promote_types(dtype, common) == dtype)
    except TypeError:  # numpy.exceptions.DTypePromotionError
        return False
