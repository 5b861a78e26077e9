"""Options that are True or False."""

from __future__ import annotations

import numpy as np

from shardcall_core.call_error import shorten
from shardcall_core.types.errors import ParameterTypeError


def checked_flag(name: str, value: object) -> bool:
    """Returns an option that is True or False.

    Raises:
        ParameterTypeError: for any other value, such as ``"no"``, which Python takes for True.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ParameterTypeError(f"{name} is {shorten(repr(value))}; give True or False", field=name)
