"""Arrays on the mesh, plans of calls and the leases that keep arrays alive."""
