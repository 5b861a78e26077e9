"""The agent of a host that joins a mesh: `shardcall worker`."""
