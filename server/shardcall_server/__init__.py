"""The shardcall server: a front end without JAX, and mesh workers that own the devices."""
