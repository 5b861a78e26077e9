"""Functions that take elements at indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.functions.indexing import basic_index, is_basic
from shardcall.namespace.base import NamespaceBase, type_of


class IndexingNamespace(NamespaceBase):
    """Elements at indices."""

    def getitem(self, x: RemoteArray, key: Any) -> Any:
        """Returns the elements of an array at an index, as ``x[key]``.

        Args:
            x: the array.
            key: integers, slices, ``...`` and None; or one array of integers, beside full slices.

        Raises:
            IndexError: for other indices, and for integers out of range.
        """
        if not is_basic(key):
            return self._at_indices(x, key)
        index = basic_index(x.shape, key)
        if index.sizes == x.shape and not (index.dropped or index.inserted or any(step != 1 for step in index.steps)):
            return x
        starts = np.asarray(index.starts, np.int64)
        parameters = {"sizes": index.sizes, "steps": index.steps, "dropped": index.dropped, "inserted": index.inserted}
        return self.call("getitem", x, starts, **parameters)

    def _at_indices(self, x: RemoteArray, key: Any) -> Any:
        """Returns the elements at an index with one array of integers."""
        items = key if isinstance(key, tuple) else (key,)
        arrays_at = [i for i, item in enumerate(items) if not is_basic(item)]
        full = all(
            isinstance(item, slice) and item == slice(None) for i, item in enumerate(items) if i not in arrays_at
        )
        indices = items[arrays_at[0]]
        if len(arrays_at) > 1 or not full or type_of(indices).dtype.kind not in "iu":
            raise IndexError(
                "an array on the mesh takes integers, slices, ... and None as indices, or one array of integers beside "
                "full slices; for masks use where, or index the values, array.get()"
            )
        return self.take(x, indices, axis=arrays_at[0])
