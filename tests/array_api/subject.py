"""The namespace that the tests of the array API standard test: that of a client of a server with 8 devices."""

import atexit
import os
from typing import Any, Unpack

import shardcall as sc
from shardcall.namespace import Namespace
from shardcall.namespace.destinations import Destination

_MESH = sc.Mesh(x=8)


class ShardedNamespace(Namespace):
    """A namespace that shards every array that it creates over 8 devices, by its first axis."""

    def call(self, name: str, /, *operands: Any, **arguments: Any) -> Any:
        """As of its base; functions that create arrays pass a mesh and specs, None by default."""
        is_created = {"mesh", "out_specs"} <= arguments.keys() and name != "full_like"
        if is_created and not (arguments["mesh"] or arguments["out_specs"]):
            arguments["mesh"] = _MESH
        return super().call(name, *operands, **arguments)

    def asarray(self, obj: Any, /, dtype: Any = None, *, copy: bool | None = None, **to: Unpack[Destination]) -> Any:
        """As of its base; arrays on the mesh stay where they are."""
        where = to if isinstance(obj, sc.RemoteArray) else _sharded(to)
        return super().asarray(obj, dtype, copy=copy, **where)


def _sharded(to: Any) -> Any:
    return to if to.get("mesh") or to.get("spec") else {**to, "mesh": _MESH}


client = sc.local(devices=8)
atexit.register(client.close)
xp = ShardedNamespace(client) if os.environ.get("SHARDCALL_TESTS_PLACEMENT") == "sharded" else client.xp
